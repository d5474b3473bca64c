"""Check accumulations under DDP: passes that average gradients over the ranks though another pass adds to them.

A pass averages if its model's call was not inside `no_sync()`. Its average was for nothing if the next pass adds to the
same gradients, unchanged since: averaging the sum once gives the same.
"""

from __future__ import annotations

import weakref
from itertools import islice
from typing import Any, Dict, Optional, Tuple

from trainhooks.auto.models.module_parts import MAX_WRAPPERS, parameters_in

MAX_SCANNED_GRADIENTS = 64  # parameters among which one with a gradient is looked for
PARALLEL = "DistributedDataParallel"

State = Tuple[int, int]  # address and version of a gradient
# Averages of DDP's own timers over its first passes and each hundredth, in nanoseconds.
_TIMERS = {"comm": "avg_backward_comm_time", "overlap": "avg_backward_compute_comm_overlap_time"}


class GradientSyncs:
    """The accumulations of a thread's DDP model, as far as its calls and passes are recorded.

    Attributes:
        steps: optimizer steps with an average for nothing.
        passes, averaged, unneeded: backward passes of these steps; those that averaged; those that did so for nothing.
    """

    __slots__ = ("_averages", "_called", "_model", "_noted", "_passes", "averaged", "passes", "steps", "unneeded")

    def __init__(self) -> None:
        self.steps = self.passes = self.averaged = self.unneeded = 0
        self._called: Optional["weakref.ReferenceType[Any]"] = None  # the model that was called last
        self._model: Optional["weakref.ReferenceType[Any]"] = None  # the DDP model in it
        self._passes: Tuple[int, int, int] = (0, 0, 0)  # of this step: all, averaged, for nothing
        self._averages = False  # the last pass averages
        self._noted: Optional[State] = None  # a gradient as the last pass left it

    def model_called(self, module: Any) -> None:
        """Take a training call of a model."""
        if self._called is not None and self._called() is module:
            return
        self._called, found = weakref.ref(module), _parallel(module)
        before = self._model() if self._model is not None else None
        if found is not before:
            self.forget_step()
            self._model = None if found is None else weakref.ref(found)

    def forget_step(self) -> None:
        """Forget what is only known of this step."""
        self._passes, self._noted, self._averages = (0, 0, 0), None, False

    def backward_begins(self) -> None:
        model = self._model() if self._model is not None else None
        if model is None:
            return
        count, averaged, unneeded = self._passes
        if count and self._averages and self._noted is not None and self._noted == _state(model):
            unneeded += 1
        # As the model's last call left it: that decides, not where the pass is.
        self._averages = vars(model).get("require_forward_param_sync") is True
        self._passes = count + 1, averaged + self._averages, unneeded

    def backward_ends(self) -> None:
        model = self._model() if self._model is not None else None
        self._noted = None if model is None else _state(model)

    def optimizer_begins(self) -> int:
        """Take an optimizer's step. Return how many so far came after averages for nothing."""
        count, averaged, unneeded = self._passes
        if unneeded:
            self.steps += 1
            self.passes += count
            self.averaged += averaged
            self.unneeded += unneeded
        self.forget_step()
        return self.steps

    def facts(self) -> Dict[str, Any]:
        """Return the counts, and the seconds that an average takes and those of them beside the backward pass."""
        facts: Dict[str, Any] = {
            "steps": self.steps, "passes": self.passes, "averaged": self.averaged, "unneeded": self.unneeded,
        }  # fmt: skip
        model = self._model() if self._model is not None else None
        logger = getattr(model, "logger", None)
        read = getattr(logger, "_get_ddp_logging_data", None)
        figures = read().ints_map if read is not None else {}
        for name, timer in _TIMERS.items():
            value = figures.get(timer)
            if isinstance(value, int) and value >= 0 and figures.get(_TIMERS["comm"]):
                facts[name] = value / 1e9
        return facts


def _parallel(module: Any) -> Optional[Any]:
    """Return the DDP model that this one is or compiles; None if there is none."""
    for _ in range(MAX_WRAPPERS):
        if any(kind.__name__ == PARALLEL for kind in type(module).__mro__):
            return module
        module = (vars(module).get("_modules") or {}).get("_orig_mod")
        if module is None:
            break
    return None


def _state(model: Any) -> Optional[State]:
    """Return the state of the first gradient found; None if there is none among the first parameters."""
    for parameter in islice(parameters_in(model), MAX_SCANNED_GRADIENTS):
        gradient = parameter.grad
        if gradient is not None:
            return gradient.data_ptr(), gradient._version
    return None
