"""The order of a step's calls, and the entries of a step whose calls come in a known order.

The step tracker notes the order of each of its steps; the fast path records steps of the same order.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Deque, Dict, List, Optional, Sequence, Set, Tuple

from trainhooks import lane_entries
from trainhooks.lane_entries import AUTOMATIC, COUNT, END, LOG, NO_PHASE, STANDARD, STEP, PhaseMarker

Counts = Tuple[Optional[int], Optional[int], Optional[int]]  # tokens, padded tokens, samples
Entry = Tuple[Any, ...]

# The calls of a step. A model's call is the model's id; it is negative if another model's inputs are the step's. ODD is
# whatever the fast path does not serve.
OFF, FETCH, FETCHED, CALLED, BACKWARD, BACKWARD_ENDED, OPTIMIZER, OPTIMIZER_ENDED, SCALER, SCALER_ENDED, ODD = range(11)
MAX_STEP_CALLS = 256  # of a step that the fast path serves

_MODEL = (CALLED, lane_entries.FORWARD)
# What ends each call, and the phase that it is.
_PARTS: Dict[int, Tuple[int, PhaseMarker]] = {
    FETCH: (FETCHED, lane_entries.DATA),
    BACKWARD: (BACKWARD_ENDED, lane_entries.BACKWARD),
    OPTIMIZER: (OPTIMIZER_ENDED, lane_entries.OPTIMIZER),
    SCALER: (SCALER_ENDED, lane_entries.OPTIMIZER),
}


def new_order() -> Deque[int]:
    """Make an order that is still to be noted; of a longer step nothing but that is kept."""
    return deque(maxlen=MAX_STEP_CALLS + 1)


class StepOrder:
    """What steps of the same order have in common.

    Attributes:
        calls: the calls of a step.
        model_calls: those of the model whose inputs are the step's.
        batches: calls of the model, 0 if other models are called as well; and fetches.
    """

    __slots__ = ("_is_observed", "_is_standard", "_phases", "batches", "calls", "model_calls")

    def __init__(self, calls: Tuple[int, ...]) -> None:
        models = [call for call in calls if call < OFF or call > ODD]
        self.calls = calls
        self.model_calls = sum(call > OFF for call in models)
        self.batches = (self.model_calls if self.model_calls == len(models) else 0, calls.count(FETCH))
        # If no model's calls are observed, forward lasts from a fetch to the backward pass.
        self._is_observed = bool(models)
        self._is_standard = calls[0] == FETCH and len(calls) == 6 + 2 * len(models) == 6 + 2 * self._is_observed
        phases: List[PhaseMarker] = []
        for call in calls[::2]:
            phases += (_PARTS.get(call, _MODEL)[1], NO_PHASE if models or call != FETCH else lane_entries.FORWARD)
        self._phases = phases

    def entries(
        self, began: int, times: List[int], counts: Sequence[Optional[Counts]], loss: Any, ended: int
    ) -> List[Entry]:
        """Return the entries of a whole step: one, if its parts are those of a standard step.

        Args:
            began, ended: when the step did.
            times: of its calls.
            counts: of its batches, or of its inputs.
            loss: None if unknown.
        """
        if self._is_standard and self._is_observed:
            return [(STANDARD, *times, ended, loss, counts[0])]
        if self._is_standard:
            data, forward, backward, *rest = times
            return [(STANDARD, data, forward, forward, backward, backward, *rest, ended, loss, counts[0])]
        entries: List[Entry] = [(STEP, began, AUTOMATIC), *zip(self._phases, times)]
        entries += [(COUNT, *each) for each in counts if each is not None]
        if loss is not None:
            entries.append((LOG, {"loss": loss}))
        if self.model_calls > 1:
            entries.append((COUNT, None, None, None, self.model_calls))
        entries.append((END, ended, AUTOMATIC))
        return entries

    def open_phase(self, times: List[int]) -> Optional[Tuple[Optional[str], int]]:
        """Return the phase of a step after these calls, and when it was entered; None before the first call."""
        entered = list(zip(self._phases, times))
        return (entered[-1][0].name, entered[-1][1]) if entered else None


def is_served(calls: Tuple[int, ...]) -> bool:
    """Return whether the fast path serves steps of this order: one thing after the other, and one update at its end.

    A model is called at most once for each backward pass: its repeated calls are for the tracker to see.
    """
    if not 4 <= len(calls) <= MAX_STEP_CALLS or ODD in calls or len(calls) % 2:
        return False
    called: Set[int] = set()
    for call, ended in zip(calls[::2], calls[1::2]):
        if ended != _PARTS.get(call, _MODEL)[0]:
            return False
        if call == BACKWARD:
            called.clear()
        elif call not in _PARTS:
            if abs(call) in called:
                return False
            called.add(abs(call))
    return calls[-2] in (OPTIMIZER, SCALER) and calls.count(OPTIMIZER) + calls.count(SCALER) == 1 and not called
