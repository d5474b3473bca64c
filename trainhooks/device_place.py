"""On which device a training works: not always its thread's current one.

A program may put its model on `cuda:1` and never call `set_device`. An event recorded on the current device would then
make a context on a GPU that is none of the program's (hundreds of MiB of its memory), and time a stream without work.
"""

from __future__ import annotations

from typing import Any, Optional, Set

from trainhooks import cuda


class Place:
    """Finds the stream that a thread's marks are recorded on. For that thread alone, and outside of captures."""

    def __init__(self) -> None:
        self._told: Set[int] = set()
        self._used: Set[int] = set()  # on which the program has had memory
        self._current = 0  # the thread's current device, as the step began
        self._device = 0  # whose stream it is

    @property
    def is_current(self) -> bool:
        """Whether the stream is of the device that was the thread's current one as the step began."""
        return self._device == self._current

    def works_on(self, device: int) -> None:
        """An optimizer's parameters lie there."""
        self._told.add(device)

    def begins(self, torch_cuda: Any) -> Optional[Any]:
        """The stream for the step that begins; None where it is not clear on which device the program works."""
        self._current = current = int(torch_cuda.current_device())
        device: Optional[int] = current
        if len(self._told) == 1:
            (device,) = self._told
        elif current not in self._used:
            used = [each for each in cuda.with_context() if self._is_used(torch_cuda, each)]
            device = current if current in used else used[0] if len(used) == 1 else None
        if device is None:
            return None
        self._device = device
        return torch_cuda.current_stream(device)

    def goes_on(self, torch_cuda: Any) -> Optional[Any]:
        """The stream for a later mark of the same step; None where the thread has gone over to another device."""
        return torch_cuda.current_stream(self._device) if torch_cuda.current_device() == self._current else None

    def _is_used(self, torch_cuda: Any, device: int) -> bool:
        """Whether torch has ever had memory there. Asked of its allocator until it has: that costs 0.15 ms."""
        if device in self._used:
            return True
        try:
            stats = torch_cuda.memory_stats_as_nested_dict(device)
            used = bool(stats["allocated_bytes"]["all"]["allocated"])
        except Exception:  # an allocator of the program's own tells nothing
            used = True
        if used:
            self._used.add(device)
        return used
