"""Whether a copy of the trained model, as the reference of a policy is, computes the same outputs again.

A copy has the class and the parameter shapes of the model that trains, and no optimizer holds it. Its calls without
gradients are timed, and the rows of their inputs compared with earlier ones, in host memory; elsewhere the tensors
themselves are, as reading a GPU's values would wait for it.
"""

from __future__ import annotations

import sys
import weakref
from threading import get_ident
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from trainhooks.auto import unseen
from trainhooks.auto.instrumentation import call_safely, framework, put_facts
from trainhooks.auto.models import generator_weights
from trainhooks.auto.models.module_parts import parameters_in, place_in_module, stored_parameters
from trainhooks.auto.models.target_networks import TargetNetworks
from trainhooks.auto.rl.own_decoding import OwnDecoding
from trainhooks.auto.steps.step_tracker import StepTracker
from trainhooks.device import cuda
from trainhooks.lane_entries import NANOSECOND, host_clock
from trainhooks.program_errors import until_gone

MAX_COPIES = 4  # a reference, an earlier policy, an average of weights
MAX_COPY_CALLS = 512  # of a copy, that are looked at
MAX_INPUT_ROWS, MAX_BYTES = 512, 1 << 20  # of an input: comparing more would be measurable
MAX_KNOWN = 1 << 16  # rows that are kept
FIRST_COPIES_REPORT = 8  # calls, and again at each doubling up to MAX_CALLS

Values = Tuple[Any, ...]


class RepeatedInference:
    """Count the calls of one copy whose inputs it was given before, with updates of the trained model in between."""

    __slots__ = (
        "_known", "_was_repeated", "_weights", "calls", "decoding", "mixed", "next_report", "repeated",
        "repeated_ns", "rounds", "samples", "since", "until",
    )  # fmt: skip

    def __init__(self) -> None:
        self.calls = 0
        self.repeated = 0  # calls with no new row
        self.mixed = 0  # calls with new rows and known ones, as samples from a replay buffer have
        self.rounds = 0  # times that new rows followed repeated ones: further epochs over a fixed data set have none
        self._was_repeated = False
        self.repeated_ns = self.since = self.until = 0
        self._known: Dict[Any, Values] = {}  # row -> the trained weights when it was given first
        self._weights: Optional[Values] = None
        self.decoding = OwnDecoding()
        self.samples = False  # it generates
        self.next_report = FIRST_COPIES_REPORT

    def is_repeat(self, rows: Sequence[Any], weights: Values, trained: Values) -> bool:
        """Take a call. Return whether it computes what an earlier one did.

        Args:
            rows: what is equal for equal rows of the input.
            weights: what changes with the copy's weights.
            trained: what changes with the trained model's.
        """
        self.calls += 1
        if weights != self._weights or len(self._known) > MAX_KNOWN:
            self._weights = weights
            self._known.clear()
        # Rows of the same update are two answers that are alike, or two calls for one loss.
        known = sum(self._known.get(row, trained) != trained for row in rows)
        for row in rows:
            self._known.setdefault(row, trained)
        is_repeated = 0 < known == len(rows)
        self.repeated += is_repeated
        self.mixed += 0 < known < len(rows)
        self.rounds += self._was_repeated and not known
        self._was_repeated = is_repeated
        return is_repeated


class ModelCopies:
    """Find the copies of the model that trains, and follow their calls.

    Args:
        attribute: through which torch lets a module's call be another function.
    """

    def __init__(self, torch: Any, tracker: StepTracker, attribute: str) -> None:
        self._torch = torch
        self._tracker = tracker
        self._attribute = attribute
        self._followed: Dict[int, Tuple[Any, RepeatedInference]] = {}  # by id, with a weak reference
        self.targets = TargetNetworks()

    def follow(self, trained: Any, modules: Sequence[Any], wrapper: Callable[[Any], Any], leads: bool) -> None:
        """Follow those of `modules` that are copies of `trained`.

        Args:
            modules: the candidates; none of them is in an optimizer.
            wrapper: makes an object of a function that copying and pickling replace by None.
            leads: `trained` is the main model. Of others only what may be a target network is followed.
        """
        shapes = [parameter.shape for parameter in parameters_in(trained)]
        for module in modules:
            is_known = id(module) in self._followed
            is_free = getattr(module, self._attribute, module) is None
            if not (is_free or is_known) or module is trained or type(module) is not type(trained):
                continue
            held = list(parameters_in(module))
            own = any(one.grad is not None for one in held)  # an optimizer of its own may come to hold it
            if not shapes or own or [one.shape for one in held] != shapes:
                continue
            may_be_target = cuda.may_compute() and self.targets.follow(module, trained)
            if not is_known and (leads or may_be_target) and len(self._followed) < MAX_COPIES:
                vars(module)[self._attribute] = wrapper(self._function(module, trained, leads))

    def unfollow(self, module: Any) -> None:
        """Follow a module no longer: an optimizer came to hold it."""
        if self._followed.pop(id(module), None) is not None:
            self.targets.followed.pop(id(module), None)
            vars(module).pop(self._attribute, None)

    def learns(self, given: Any) -> None:
        """Take the input of a trained model's call with gradients, in a step that is checked."""
        if self.targets.followed and cuda.may_compute():
            self.targets.learns(self._values(given))

    def _function(self, module: Any, trained: Any, leads: bool) -> Callable[..., Any]:
        """Return the function to call in place of the copy's `_call_impl`, as `FastPath.model_call` does."""
        key, counts = id(module), RepeatedInference()
        if not leads:
            counts.calls = MAX_COPY_CALLS
        checks, targets = self._tracker.checks, self.targets.followed
        reference = until_gone(module, self._followed, key)
        own, learned = _some_parameters(module), _some_parameters(trained)
        self._followed[key] = reference, counts
        is_compiling, frame = self._torch.compiler.is_dynamo_compiling, sys._getframe

        def called(*args: Any, **kwargs: Any) -> Any:
            if is_compiling():
                return reference()._call_impl(*args, **kwargs)  # type: ignore[union-attr]
            module = frame(1).f_locals["self"]
            is_repeated = None
            if id(module) == key and counts.calls < MAX_COPY_CALLS:
                is_repeated = call_safely(self._is_repeat, counts, module, own, learned, args, kwargs)
            if checks.left and key in targets and id(module) == key:
                call_safely(self._target_called, key, args, kwargs)
            began = host_clock()
            try:
                result = module._call_impl(*args, **kwargs)
            except BaseException as error:
                unseen.drop_own_frames(error)
                raise
            if is_repeated is not None:
                call_safely(self._ended, counts, is_repeated, began)
            return result

        return called

    def _is_repeat(
        self,
        counts: RepeatedInference,
        module: Any,
        own: Values,
        learned: Values,
        args: Tuple[Any, ...],
        kwargs: Dict[str, Any],
    ) -> Optional[bool]:
        """Return whether a call repeats an earlier one; None if it is not looked at."""
        tracker = self._tracker
        if tracker.silent or get_ident() != tracker.thread or tracker.grads_wanted():
            return None
        if tracker.in_backward or tracker.nested or not cuda.may_compute():
            return None
        given = args[0] if args else kwargs.get("input_ids")
        if type(given) is self._torch.Tensor and counts.decoding.is_decoding(given, 0):
            counts.samples = True  # it is given the same prompts, and its answers differ
            if not framework.open_phases:  # in a loop of the program's own
                generator_weights.weights.generated(module)
        rows = self._rows(given) if type(given) is self._torch.Tensor else None
        return None if rows is None else counts.is_repeat(rows, _marks(own), _marks(learned))

    def _target_called(self, key: int, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        tracker = self._tracker
        if not (tracker.silent or get_ident() != tracker.thread or tracker.in_backward) and cuda.may_compute():
            given = args[0] if args else next(iter(kwargs.values()), None)
            self.targets.called(key, self._values(given), host_clock())

    def _values(self, given: Any) -> Optional[List[Any]]:
        """Return what is equal for equal rows of an input, where their values can be read."""
        return self._rows(given) if type(given) is self._torch.Tensor and given.is_cpu else None

    def _rows(self, given: Any) -> Optional[List[Any]]:
        if not given.is_cpu:
            return [_Same(given)]
        count = int(given.shape[0]) if given.dim() > 1 else 1
        if not 0 < count <= MAX_INPUT_ROWS or given.numel() * given.element_size() > MAX_BYTES:
            return None
        values = given.detach().reshape(count, -1).contiguous().view(self._torch.uint8).numpy()
        return [hash(row.tobytes()) for row in values]

    def _ended(self, counts: RepeatedInference, is_repeated: bool, began: int) -> None:
        now = host_clock()
        counts.since, counts.until = counts.since or began, now
        counts.repeated_ns += now - began if is_repeated else 0
        if counts.calls < counts.next_report:
            return
        while counts.calls >= counts.next_report:
            counts.next_report *= 2
        if counts.repeated and not counts.samples:
            put_facts(
                model_copy={
                    "calls": counts.calls,
                    "repeated": counts.repeated,
                    "mixed": counts.mixed,
                    "rounds": counts.rounds,
                    "repeated_seconds": counts.repeated_ns / NANOSECOND,
                    "watched_seconds": (counts.until - counts.since) / NANOSECOND,
                }
            )


class _Same:
    """A tensor that is compared by what it is, not by its values; it is kept alive by no one here."""

    __slots__ = ("_held", "_key")

    def __init__(self, tensor: Any) -> None:
        self._held = weakref.ref(tensor)
        self._key = id(tensor), tensor._version

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Same) or self._key != other._key:
            return False
        tensor = self._held()
        return tensor is not None and tensor is other._held()


def _some_parameters(module: Any) -> Values:
    """Return the places of the first, the middle and the last parameter: all of them are many to look at."""
    held = list(stored_parameters(module))
    return tuple(place_in_module(*one) for one in (held[0], held[len(held) // 2], held[-1]))


def _marks(places: Values) -> Values:
    """Return what changes with these parameters: a number of each, or how often it was written."""
    return tuple([_mark(place()) for place in places])


def _mark(parameter: Any) -> Any:
    if parameter is None or not parameter.is_cpu or not parameter.numel():
        return getattr(parameter, "_version", None)
    return float(parameter.detach()[tuple(size // 2 for size in parameter.shape)])
