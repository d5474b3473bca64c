"""Metrics given as tensors: read without ever waiting for the GPU.

A tensor in host memory is read at once. One on a CUDA device is copied into pinned memory behind the work that is
already queued, and an event is recorded; a later step boundary, on the same thread, asks the event and reads the copy.
(Asking from another thread can break a CUDA graph that is being captured.)

A copy takes a training thread some 20 microseconds, with pinned memory and an event that are made once and used again.
So each metric is taken ten times a second at most: of quicker steps not each value is read, and a step whose value was
not taken has none. The value of the last steps may be missed.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Tuple

from trainhooks import cuda
from trainhooks.clocks import host_clock
from trainhooks.entries import LATE

BETWEEN = 100_000_000  # nanoseconds between two copies of one metric
MAX_WAITING = 512  # copies in flight, and so of pinned places ever made; past that new values are dropped
MAX_NAMES = 4096  # metrics whose last copy is kept in mind


class Place(NamedTuple):
    """Where a value arrives: a pinned tensor of one element, and the event that tells when."""

    kind: Tuple[Any, Any]  # type and device
    host: Any
    event: Any


class Deferred:
    """A number on its way from the device. `step` and `role` are filled in by the assembler."""

    __slots__ = ("name", "place", "role", "step", "wanted")

    def __init__(self, name: str, place: Place) -> None:
        self.name = name
        self.place = place
        self.wanted = True  # else its place is to be had again, and nothing more
        self.step: Optional[int] = None
        self.role: Optional[str] = None


waiting: Deque[Deferred] = deque()
_free: Dict[Tuple[Any, Any], List[Place]] = {}  # places that nothing is on its way to, by their kind
_taken: Dict[str, int] = {}  # when each metric was copied last
# All places that were ever made, of a parent, too. None is freed: not where a copy fails, not at the end.
_made: List[Place] = []
_parents = 0  # of them

PLAIN = frozenset((float, int, bool))
COUNTED = frozenset((float, int, bool, type(None)))


def settled(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """`metrics`, changed in place: each tensor read (host) or on its way (CUDA), and left out where neither can be."""
    for name, value in list(metrics.items()):
        if type(value) not in PLAIN:
            try:
                is_at_hand = getattr(value, "is_cpu", False)
                found = value.item() if is_at_hand else _settle(name, value)
            except Exception:  # a tensor may refuse in many ways (meta, symbolic, deleted); it must not stop a training
                found = None
            if found is None:
                del metrics[name]
            else:
                metrics[name] = found
    return metrics


def at_hand(value: Any) -> Any:
    """A tensor in host memory or a numpy scalar as its number, one on a device as None; anything else as it is."""
    try:
        if getattr(value, "is_cpu", False) or type(value).__module__ == "numpy":
            return value.item()
        return None if hasattr(value, "detach") else value
    except Exception:  # as above
        return None


def _settle(name: str, value: Any) -> Any:
    if not hasattr(value, "detach"):
        # A numpy scalar or one-element array; anything else is judged by the background thread, where the `item` of
        # a foreign array type may wait for a device.
        return value.item() if type(value).__module__ == "numpy" and value.size == 1 else value
    return on_device(name, value)


def loss_of(loss: Any) -> Any:
    """The value of a loss of which nobody has asked us to read it; None where reading it would be seen, or wait."""
    if cuda.modes_active():
        return None
    return loss.item() if loss.is_cpu else on_device("loss", loss)


def on_device(name: str, tensor: Any) -> Optional[Deferred]:
    """Start the copy of a CUDA tensor's value to the host; None where it is not taken now, for whatever reason."""
    now = host_clock()
    if now - _taken.get(name, -BETWEEN) < BETWEEN:
        return None
    try:
        if cuda.modes_active() or not tensor.is_cuda or tensor.numel() != 1:
            return None
        if len(waiting) >= MAX_WAITING or not cuda.is_quiet():
            return None
        if len(_taken) >= MAX_NAMES:
            _taken.clear()
        _taken[name] = now  # also of one that fails: it is not tried again at once
        place = _place(tensor)
        if place is None:
            return None
        place.host.copy_(tensor.detach().reshape(()), non_blocking=True)
        place.event.record(cuda.current_stream(tensor.device))
    except Exception:  # a tensor may refuse in many ways, and a device in error shows in the training's own calls
        return None
    arriving = Deferred(name, place)
    waiting.append(arriving)
    return arriving


def _place(tensor: Any) -> Optional[Place]:
    """A free place for such a value. An event belongs to the device on which it was first recorded."""
    kind = tensor.dtype, getattr(tensor.device, "index", None)
    free = _free.get(kind)
    if free:
        return free.pop()
    if len(_made) - _parents >= MAX_WAITING:
        return None
    cuda.watch_captures()
    if not _made:
        cuda.never_freed(_made)
    place = Place(kind, cuda.pinned(tensor.dtype), cuda.event())
    _made.append(place)
    return place


def poll(put: Callable[[Tuple[Any, ...]], None]) -> None:
    """Hand on what has arrived, oldest first. Called at step boundaries, on the training thread."""
    try:
        if cuda.modes_active():
            return
        while waiting and cuda.is_quiet() and waiting[0].place.event.query():
            arrived = waiting.popleft()
            place = arrived.place
            if arrived.wanted:
                put((LATE, arrived, place.host.item()))
            _free.setdefault(place.kind, []).append(place)
    except Exception:  # a device in error must show in the training's own calls, not here
        waiting.clear()


def forget() -> None:
    """Drop what is in flight (after a fork: the copies are the parent's)."""
    global _parents
    _parents = len(_made)
    waiting.clear()
    _free.clear()
    _taken.clear()
