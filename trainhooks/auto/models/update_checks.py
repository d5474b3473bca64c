"""Check on some of the steps whether they can train: gradients and their zeroing, learning rates, the model's mode.

The first steps are checked, and two in a row each second; in all others nothing of this is called. Versions and
addresses of tensors are compared; no tensor is kept, and none is waited for. A finding is reported when its count has
doubled, so a run that trains as it should reports nothing.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks.auto.instrumentation import call_safely, put_facts
from trainhooks.auto.models.gradient_sync import GradientSyncs
from trainhooks.auto.models.pass_checks import EvalModeWatch, RetainedGraphs
from trainhooks.auto.models.sparse_rows import dense_embedding
from trainhooks.auto.models.unused_gradients import UnusedGradients, is_listed
from trainhooks.device import cuda, deferred
from trainhooks.lane_entries import NANOSECOND, host_clock
from trainhooks.program_errors import until_gone

# Nanoseconds between two begins of checks: a part of the time since the first ones, within these bounds, so that short
# runs are checked, too.
MIN_INTERVAL, MAX_INTERVAL, INTERVAL_PART = 50_000_000, 1_000_000_000, 20
FIRST_CHECKS = 20  # steps of the start, of which all are checked
SOON = NANOSECOND // 4  # sources are read by then
CHECKS_AGAIN = 2  # in a row: what happens to gradients between two steps shows in the second one
FIRST_ONE_REPORT = 16  # steps at a rate of 0, of one of several optimizers: others may have to learn first
FIRST_FOUND_REPORT = 8  # times that something was found; and again whenever that has doubled
MAX_ASSIGNED = 0.1  # of the steps, before which a program loads weights; more often, that is how it trains
EMBEDDING_STEP = 4  # in which the gradient of an embedding is inspected: optimizers have made their state by then
MAX_OPTIMIZERS = 8
MAX_SCANNED_PARAMETERS = 64  # parameters among which the smallest one is chosen
MAX_WITNESS = 65_536  # elements of a gradient that is looked at
NEGLIGIBLE_RATE = 1e-6  # of the highest learning rate so far: a cosine gets there in its last thousandth
ROLLOUTS = ("gymnasium", "gym", "pettingzoo", "procgen", "ale_py", "dm_control", "envpool")  # packages of environments

State = Tuple[int, int]  # address and version of a gradient


class UpdateChecks:
    """The checks of one training thread.

    Attributes:
        due: when steps are to be checked again.
        left: steps from now on that are checked; the tracker records them off the fast path.
        modes: what mode the model is called in.
        syncs: averages of gradients over ranks within an accumulation.
    """

    __slots__ = ("_first", "_kind", "_optimizers", "_published", "_retained", "_since", "_table", "_unused", "due",
                 "left", "modes", "syncs")  # fmt: skip

    def __init__(self) -> None:
        self.left = FIRST_CHECKS
        self.due = 0
        self._first = 0  # when the first steps had been checked
        self.modes = EvalModeWatch()
        self.syncs = GradientSyncs()
        self._retained = RetainedGraphs()
        self._unused = UnusedGradients()
        self._optimizers: Dict[int, _OptimizerCheck] = {}  # by id
        self._table: Dict[str, Any] = {}  # what was found, as it is reported
        self._published: Dict[str, int] = {}  # the count at the last report
        self._since = 0  # when the first step was checked
        self._kind: Any = None  # torch.nn.Parameter

    def step_ended(self, t: int, has_rollouts: bool) -> None:
        """Count a checked step that ended at `t`; `has_rollouts`: the model is called without gradients before each."""
        self.left -= 1
        if has_rollouts and "rollouts" not in self._table:
            self._put("rollouts", True)
        if self.left:
            return
        if self._first and t >= self.due:  # steps are long: all of them are checked
            self.arm(t)
            return
        if not self._first:
            self._first, self.due = t, self.due or t + MIN_INTERVAL
        # What is only known of the last step is forgotten: the next ones are not seen.
        for known in self._optimizers.values():
            known.forget_step()
        self._retained.forget_step()
        self.syncs.forget_step()

    def arm(self, t: int) -> None:
        """Check the next steps from `t` on."""
        self.left = max(self.left, CHECKS_AGAIN)
        self.due = t + min(MAX_INTERVAL, max(MIN_INTERVAL, (t - self._first) // INTERVAL_PART))

    def again_soon(self, t: int) -> None:
        """Check steps again as soon as what they are compared with will have been read."""
        self.due = min(self.due or t + SOON, t + SOON)

    def optimizer_made(self, optimizer: Any) -> None:
        """Note an optimizer, which may step later than others."""
        self._unused.made.append(weakref.ref(optimizer))

    def has_optimizer(self, parameter: Any) -> bool:
        """Return whether one of the optimizers that were made has this parameter."""
        return is_listed(parameter, self._unused.made)

    def backward_begins(self, loss: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        """Check the gradients that a backward pass is going to add to; `loss` is a plain tensor, or None."""
        if cuda.modes_active():
            return
        for known in self._optimizers.values():
            known.backward_begins()
        self.syncs.backward_begins()
        retained = self._retained.backward_begins(loss, args, kwargs)
        self._count("retained", retained, lambda: {"steps": retained})
        optimizers = [one.optimizer() for one in self._optimizers.values()]
        all_known = len(optimizers) < MAX_OPTIMIZERS and None not in optimizers
        if all_known and self._unused.backward_begins(loss, args, kwargs, optimizers):
            self._put("unused_gradients", self._unused.facts)

    def gradients_asked(self) -> None:
        """Note gradients that go to the program instead of to the parameters: of what graph is unknown."""
        self._retained.may_be_used()

    def backward_ends(self) -> None:
        if not cuda.modes_active():
            for known in self._optimizers.values():
                known.backward_ends()
            self.syncs.backward_ends()

    def optimizer_begins(self, optimizer: Any) -> None:
        if cuda.modes_active():
            return
        known = self._optimizers.get(id(optimizer))
        if known is None or known.optimizer() is not optimizer:
            if len(self._optimizers) >= MAX_OPTIMIZERS:
                return
            known = self._add(optimizer)
        known.begins(optimizer.param_groups, host_clock() - self._since)
        self._count("gradient_syncs", self.syncs.optimizer_begins(), self.syncs.facts)

    def optimizer_ends(self, optimizer: Any, model: Any) -> None:
        """Check the step of an optimizer; `model` is a weak reference to the main model, or None."""
        known = self._optimizers.get(id(optimizer))
        if known is None or cuda.modes_active():
            return
        known.ends(optimizer.param_groups)
        self._report_optimizers()
        count = self.modes.optimizer_stepped()
        if self.modes.has_changed:
            self._put("eval_mode", self.modes.eval_mode())
            self._published["eval_mode"] = count
        else:
            self._count("eval_mode", count, self.modes.eval_mode)
        if known.steps == EMBEDDING_STEP and "embedding" not in self._table:
            module = model() if model is not None else None
            found = call_safely(dense_embedding, module, self._embedding_read) if module is not None else None
            if found:
                self._put("embedding", found)

    def _add(self, optimizer: Any) -> "_OptimizerCheck":
        if self._kind is None:
            self._kind = sys.modules["torch"].nn.Parameter
            self._since = host_clock()
            if any(name in sys.modules for name in ROLLOUTS):
                self._put("rollouts", True)
        key = id(optimizer)
        known = _OptimizerCheck(until_gone(optimizer, self._optimizers, key), self._kind)
        self._optimizers[key] = known
        if len(self._optimizers) > 1:
            self._put("optimizers", max(len(self._optimizers), self._table.get("optimizers", 0)))
        return known

    def _embedding_read(self, touched: float) -> None:
        """Take the share of rows with a gradient, as it arrives from the device."""
        self._put("embedding", {**self._table.get("embedding", {}), "touched": round(touched, 6)})

    def evaluation_over(self, last: bool = False) -> None:
        """Report model calls that recorded gradients for nothing, as a training call or the program's end follows."""
        self.modes.called_in_training()
        self._count("eval_gradients", self.modes.wasted, self.modes.evaluations, last)

    def finish(self) -> None:
        """Report the last counts of what was found, at the end of the program."""
        self.evaluation_over(last=True)
        self._report_optimizers(last=True)

    def _report_optimizers(self, last: bool = False) -> None:
        known = list(self._optimizers.values())
        if not known:
            return
        without = min(one.without_gradient for one in known) if all(one.never_had for one in known) else 0
        if without:
            self._count("no_gradient", without, lambda: _no_gradient(known), last)
        elif "no_gradient" in self._table:
            self._put("no_gradient", None)
        kept = max(known, key=lambda one: one.kept)
        self._count("kept_gradients", kept.kept, kept.kept_facts, last)
        zero = min(one.zero_rate for one in known)
        never = max(known, key=lambda one: 0 if one.had_rate else one.zero_rate)
        if not zero and not never.had_rate and never.zero_rate >= FIRST_ONE_REPORT:
            self._count("zero_rate", never.zero_rate, lambda: dict(never.rate_facts(), of=len(known)), last)
        elif zero:
            slowest = min(known, key=lambda one: one.zero_rate)
            self._count("zero_rate", zero, slowest.rate_facts, last)
        elif "zero_rate" in self._table:
            self._put("zero_rate", None)

    def _count(self, name: str, count: int, make: Callable[[], Dict[str, Any]], last: bool = False) -> None:
        """Report a count that has doubled, or, at the `last` time, that has grown."""
        before = self._published.get(name, 0)
        if count >= FIRST_FOUND_REPORT and (count >= 2 * before or (last and count > before)):
            self._published[name] = count
            self._put(name, make())

    def _put(self, name: str, value: Any) -> None:
        if value is None:
            self._table.pop(name, None)
            self._published.pop(name, None)
        else:
            self._table[name] = value
        put_facts(updates=dict(self._table))


def _no_gradient(known: "List[_OptimizerCheck]") -> Dict[str, Any]:
    return {
        "steps": min(one.without_gradient for one in known),
        "parameters": sum(one.parameters for one in known),
        "frozen": sum(one.frozen for one in known),
        "assigned": max(one.assigned for one in known),
    }


class _OptimizerCheck:
    """What the checked steps of one optimizer show.

    Gradients that are kept from one step to the next are seen by one parameter's, the witness's: nobody has changed
    them between the step's end and the next backward pass, they are not zero, and the pass adds to them.

    Attributes:
        steps: checked steps.
        without_gradient: those in which no parameter had a gradient, and none was changed.
        never_had: whether that is all of them; only of torch's own optimizers.
        assigned: those before which the program had changed parameters itself, as a target network's.
        kept, judged: steps whose gradients were added to those of the step before; those that could be judged.
        zero_rate: steps in a row, up to now, with a learning rate of zero or nearly so.
    """

    __slots__ = ("_accumulated", "_arriving", "_cleared", "_had_gradient", "_kind", "_noted", "_rate_since",
                 "_rate_until", "_top_rate", "_versions", "_versions_before", "_witness", "assigned", "frozen",
                 "judged", "kept", "never_had", "optimizer", "parameters", "steps", "without_gradient",
                 "zero_rate")  # fmt: skip

    def __init__(self, optimizer: Any, kind: Any) -> None:
        self.optimizer = optimizer  # a weak reference
        self._kind = kind
        self.steps = self.without_gradient = self.kept = self.judged = self.zero_rate = self.assigned = 0
        self.parameters = self.frozen = 0
        # Others may keep their gradients elsewhere, and update by kernels that leave no trace.
        self.never_had = type(optimizer()).__module__.startswith("torch.optim")
        self._had_gradient = False
        self._versions: Optional[int] = None  # of all parameters together, before a step
        self._versions_before: Optional[int] = None  # likewise, of the step before
        self._top_rate = 0.0
        self._rate_since = self._rate_until = 0.0
        # By its place in the optimizer: torch swaps no tensor that a weak reference points to.
        self._witness: Optional[Tuple[int, int]] = None
        self.forget_step()

    def forget_step(self) -> None:
        self._noted: Optional[State] = None  # the witness's gradient, as the last step or backward pass left it
        self._cleared = self._accumulated = False
        self._arriving: Any = None  # an element of it, on its way from a device

    def _gradient(self) -> Any:
        optimizer = self.optimizer() if self._witness is not None else None
        if optimizer is None or self._witness is None:
            return None
        group, place = self._witness
        try:
            return optimizer.param_groups[group]["params"][place].grad
        except IndexError:  # the program has taken parameters out
            return None

    def backward_begins(self) -> None:
        if self._noted is None:
            return
        gradient = self._gradient()
        if gradient is None or (gradient.data_ptr(), gradient._version) != self._noted:
            self._cleared = True
        elif gradient.is_cpu:
            # Zeroed by way of `.data`, which leaves no trace but the values.
            self._cleared = self._cleared or not bool(gradient.any())
        elif self._arriving is None and cuda.started_cuda() is not None and cuda.is_quiet():
            self._arriving = deferred.start_copy("gradient", gradient.detach()[gradient.shape[0] // 2])
            if self._arriving is not None:
                self._arriving.wanted = False

    def backward_ends(self) -> None:
        if self._noted is None:
            return
        gradient = self._gradient()
        if gradient is None:
            self._noted = (0, 0)
            return
        state = gradient.data_ptr(), gradient._version
        if state[0] == self._noted[0] and state[1] > self._noted[1]:
            self._accumulated = True
        self._noted = state

    def _judge(self) -> None:
        """Judge the gradients that this step is going to use."""
        if self._noted is None:
            return
        if self._cleared:
            self.judged += 1
        elif self._accumulated:
            gradient = self._gradient()
            if gradient is not None and gradient.is_cpu:
                self._was_kept(1.0)
            elif self._arriving is not None:
                self._arriving.reader = self._was_kept
        self.forget_step()

    def _was_kept(self, value: float) -> None:
        self.judged += 1
        self.kept += value != 0.0

    def kept_facts(self) -> Dict[str, Any]:
        return {"steps": self.kept, "checked": self.judged}

    def begins(self, groups: List[Dict[str, Any]], now: int) -> None:
        self._judge()
        self.steps += 1
        self._had_gradient = _any_gradient(groups, self._kind)
        self._versions = _versions(groups) if self.never_had else None
        if self._versions_before not in (None, self._versions):
            self.assigned += 1
            if self.assigned > 1 + MAX_ASSIGNED * self.steps:
                self.never_had = False  # the program updates them itself, between the steps
        self._versions_before = self._versions
        self._read_rates(groups, now / NANOSECOND)

    def ends(self, groups: List[Dict[str, Any]]) -> None:
        if not self._had_gradient and not _any_gradient(groups, self._kind):
            if self.never_had and self._versions == _versions(groups):
                self.without_gradient += 1
                self.parameters = sum(parameter.numel() for group in groups for parameter in group["params"])
                self.frozen = sum(
                    parameter.numel()
                    for group in groups
                    for parameter in group["params"]
                    if not parameter.requires_grad
                )
            else:
                self.never_had = False
            return
        self.never_had = False
        self.without_gradient = 0
        if self._gradient() is None:
            self._witness = _smallest(groups, self._kind)
        gradient = self._gradient()
        self._noted = None if gradient is None else (gradient.data_ptr(), gradient._version)
        self._cleared = self._accumulated = False
        self._arriving = None

    def _read_rates(self, groups: List[Dict[str, Any]], now: float) -> None:
        rates = [_number(group.get("lr")) for group in groups]
        if not rates or None in rates:
            self.zero_rate = 0
            return
        top = max(abs(rate) for rate in rates if rate is not None)
        self._top_rate = max(top, self._top_rate)
        if top > NEGLIGIBLE_RATE * self._top_rate:
            self.zero_rate = 0
            return
        if not self.zero_rate:
            self._rate_since = now
        self._rate_until = now
        self.zero_rate += 1

    @property
    def had_rate(self) -> bool:
        return self._top_rate > 0.0

    def rate_facts(self) -> Dict[str, Any]:
        """Return the steps without a learning rate, the highest one before, and seconds since the first check."""
        return {
            "steps": self.zero_rate,
            "highest": self._top_rate,
            "since": round(self._rate_since, 3),
            "until": round(self._rate_until, 3),
        }


def _any_gradient(groups: List[Dict[str, Any]], kind: Any) -> bool:
    """Return whether a parameter has a gradient; parameters of another class may have it elsewhere."""
    for group in groups:
        for parameter in group["params"]:
            if type(parameter) is not kind or parameter.grad is not None:
                return True
    return False


def _versions(groups: List[Dict[str, Any]]) -> int:
    return sum(parameter._version for group in groups for parameter in group["params"])


def _smallest(groups: List[Dict[str, Any]], kind: Any) -> Optional[Tuple[int, int]]:
    """Return the group and place of a parameter with a small, plain gradient; None if the first ones have none."""
    best, size = None, MAX_WITNESS + 1
    tensor = sys.modules["torch"].Tensor
    first = [
        (number, place, parameter)
        for number, group in enumerate(groups)
        for place, parameter in enumerate(group["params"][:MAX_SCANNED_PARAMETERS])
    ]
    for number, place, parameter in first[:MAX_SCANNED_PARAMETERS]:
        gradient = parameter.grad if type(parameter) is kind else None
        if gradient is None or type(gradient) is not tensor or gradient.is_sparse or not 0 < gradient.numel() < size:
            continue
        if gradient.is_cpu or (gradient.is_cuda and gradient.dim() == 1):  # of a vector, one element is a view
            best, size = (number, place), gradient.numel()
    return best


def _number(rate: Any) -> Optional[float]:
    if type(rate) in (float, int):
        return float(rate)
    value = deferred.host_value(rate)  # None for a tensor on a device
    return float(value) if type(value) in (float, int) else None
