"""Read metrics given as tensors, without ever waiting for the GPU.

A tensor in host memory is read at once. One on a CUDA device is copied to pinned memory behind the work that is already
queued, and an event is recorded. A later step boundary on the same thread queries the event and reads the copy (from
another thread that can break a CUDA graph that is being captured).

A copy takes a training thread some 20 microseconds, with pinned memory and an event that are made once and reused. So
each metric is copied at most ten times a second: of faster steps not every value is read, and a step whose value was
not copied has none. The values of the last steps may be missed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from trainhooks.device import cuda
from trainhooks.lane_entries import LATE, host_clock
from trainhooks.program_errors import pass_on

MIN_COPY_INTERVAL_NS = 100_000_000  # of one metric
MAX_IN_FLIGHT = 512  # copies in flight, and so staging slots ever made; past that new values are dropped
MAX_COPIED_NAMES = 4096  # metrics whose last copy is remembered


class StagingSlot(NamedTuple):
    """Where a value arrives: a pinned tensor of one element, and the event recorded behind the copy."""

    kind: Tuple[Any, Any]  # type and device
    host: Any
    event: Any


class Deferred:
    """A number on its way from the device, to be multiplied by `factor`. The assembler sets `step` and `role`.

    Where it is not `wanted` any more, its slot is freed and nothing else. A `reader` is called with it as it arrives.
    """

    __slots__ = ("factor", "name", "reader", "role", "slot", "step", "wanted")

    def __init__(self, name: str, slot: StagingSlot) -> None:
        self.name = name
        self.slot = slot
        self.factor = 1.0
        self.wanted = True
        self.reader: Optional[Callable[[float], None]] = None
        self.step: Optional[int] = None
        self.role: Optional[str] = None


waiting: Deque[Deferred] = deque()
_free: Dict[Tuple[Any, Any], List[StagingSlot]] = {}  # by kind
_copied: Dict[str, int] = {}  # when each metric was copied last
# All slots ever made, a parent's included. None is freed: not where a copy fails, not at the end.
_made: List[StagingSlot] = []
_made_by_parent = 0

NUMBER_TYPES = frozenset((float, int, bool))
AMOUNT_TYPES = frozenset((float, int, bool, type(None)))


def settle_metrics(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """Read the tensors among `metrics`, in place: host ones now, CUDA ones later; what cannot be read is removed."""
    for name, value in list(metrics.items()):
        if type(value) not in NUMBER_TYPES:
            try:
                found = value.item() if getattr(value, "is_cpu", False) else _number_or_copy(name, value)
            except Exception as error:  # a tensor may refuse in many ways (meta, symbolic, deleted)
                pass_on(error)
                found = None
            if found is None:
                del metrics[name]
            else:
                metrics[name] = found
    return metrics


def host_value(value: Any) -> Any:
    """Return the number of a host tensor or a numpy scalar, None for a tensor on a device, any other value as it is."""
    try:
        if getattr(value, "is_cpu", False) or type(value).__module__ == "numpy":
            return value.item()
        return None if hasattr(value, "detach") else value
    except Exception as error:  # as above
        pass_on(error)
        return None


def _number_or_copy(name: str, value: Any) -> Any:
    if not hasattr(value, "detach"):
        # A numpy scalar or one-element array; anything else is judged by the background thread, where the `item` of
        # a foreign array type may wait for a device.
        return value.item() if type(value).__module__ == "numpy" and value.size == 1 else value
    return start_copy(name, value)


def start_copy(name: str, tensor: Any) -> Optional[Deferred]:
    """Start to copy a CUDA tensor's value to the host; None where it is not copied now, for whatever reason."""
    now = host_clock()
    if now - _copied.get(name, -MIN_COPY_INTERVAL_NS) < MIN_COPY_INTERVAL_NS:
        return None
    try:
        if cuda.modes_active() or not tensor.is_cuda or tensor.numel() != 1:
            return None
        if len(waiting) >= MAX_IN_FLIGHT or not cuda.is_quiet():
            return None
        if len(_copied) >= MAX_COPIED_NAMES:
            _copied.clear()
        _copied[name] = now  # also where it fails: it is not tried again at once
        slot = _take_slot(tensor)
        if slot is None:
            return None
        slot.host.copy_(tensor.detach().reshape(()), non_blocking=True)
        slot.event.record(cuda.current_stream(tensor.device))
    except Exception as error:  # a tensor may refuse in many ways; a device in error shows in the training's own calls
        pass_on(error)
        return None
    arriving = Deferred(name, slot)
    waiting.append(arriving)
    return arriving


def _take_slot(tensor: Any) -> Optional[StagingSlot]:
    """Return a free slot for such a value. An event belongs to the device on which it was first recorded."""
    kind = tensor.dtype, getattr(tensor.device, "index", None)
    free = _free.get(kind)
    if free:
        return free.pop()
    if len(_made) - _made_by_parent >= MAX_IN_FLIGHT:
        return None
    cuda.watch_captures()
    if not _made:
        cuda.keep_forever(_made)
    slot = StagingSlot(kind, cuda.make_pinned(tensor.dtype), cuda.make_event())
    _made.append(slot)
    return slot


def put_arrived(put: Callable[[Tuple[Any, ...]], None]) -> None:
    """Put the values that have arrived, oldest first. Called at step boundaries, on the training thread."""
    try:
        if cuda.modes_active():
            return
        while waiting and cuda.is_quiet() and waiting[0].slot.event.query():
            arrived = waiting.popleft()
            slot = arrived.slot
            if arrived.wanted:
                put((LATE, arrived, slot.host.item() * arrived.factor))
            elif arrived.reader is not None:
                arrived.reader(slot.host.item())
            _free.setdefault(slot.kind, []).append(slot)
    except Exception as error:  # a device in error must show in the training's own calls, not here
        pass_on(error)
        waiting.clear()


def forget_copies() -> None:
    """Drop what is in flight, in a forked child: the copies are the parent's."""
    global _made_by_parent
    _made_by_parent = len(_made)
    waiting.clear()
    _free.clear()
    _copied.clear()
