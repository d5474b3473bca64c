"""Metrics given as tensors: read without ever waiting for the GPU.

A tensor in host memory is read at once. One on a CUDA device is copied into pinned memory behind the work that is
already queued, and an event is recorded; a later step boundary, on the same thread, asks the event and reads the copy.
(Asking from another thread can break a CUDA graph that is being captured.)
"""

from __future__ import annotations

import sys
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from trainhooks.entries import LATE

MAX_WAITING = 4096  # copies in flight; past that new ones are dropped

waiting: Deque["Deferred"] = deque()
_of_the_parent: List[Deque["Deferred"]] = []


class Deferred:
    """A number on its way from the device. `step` and `role` are filled in by the assembler."""

    __slots__ = ("event", "host", "name", "role", "step")

    def __init__(self, name: str, host: Any, event: Any) -> None:
        self.name = name
        self.host = host
        self.event = event
        self.step: Optional[int] = None
        self.role: Optional[str] = None


PLAIN = frozenset((float, int, bool))
COUNTED = frozenset((float, int, bool, type(None)))


def settled(metrics: Dict[str, Any]) -> Dict[str, Any]:
    """`metrics`, changed in place: each tensor read (host) or on its way (CUDA), None where neither can be."""
    for name, value in metrics.items():
        if type(value) not in PLAIN:
            try:
                is_at_hand = getattr(value, "is_cpu", False)
                metrics[name] = value.item() if is_at_hand else _settle(name, value)
            except Exception:  # a tensor may refuse in many ways (meta, symbolic, deleted); it must not stop a training
                metrics[name] = None
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
    if value.numel() != 1:
        return None
    return _on_its_way(name, value) if value.is_cuda else None


def _on_its_way(name: str, tensor: Any) -> Optional[Deferred]:
    """Start the copy of a CUDA tensor's value to the host; None where that cannot be done now."""
    torch = sys.modules["torch"]
    if len(waiting) >= MAX_WAITING or torch.cuda.is_current_stream_capturing():
        return None
    host = torch.empty((), dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor.detach().reshape(()), non_blocking=True)
    event = torch.cuda.Event()
    event.record()
    arriving = Deferred(name, host, event)
    waiting.append(arriving)
    return arriving


def poll(put: Callable[[Tuple[Any, ...]], None]) -> None:
    """Hand on what has arrived, oldest first. Called at step boundaries, on the training thread."""
    try:
        capturing = sys.modules["torch"].cuda.is_current_stream_capturing
        while waiting and not capturing() and waiting[0].event.query():
            arrived = waiting.popleft()
            put((LATE, arrived, arrived.host.item()))
    except Exception:  # a device in error must show in the training's own calls, not here
        waiting.clear()


def forget() -> None:
    """Drop what is in flight (after a fork: the copies are the parent's). Kept from the collector, because to free
    an event or pinned memory in a forked child is a call to a device that it has no access to.
    """
    global waiting
    _of_the_parent.append(waiting)
    waiting = deque()
