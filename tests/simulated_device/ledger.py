"""What the device really did: every piece of work with its begin, its end and what it was for. Never seen by hooks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

KERNEL, COPY, FOREIGN, COLLECTIVE = "kernel", "copy", "foreign", "collective"
OWN = (KERNEL, COPY, COLLECTIVE)  # this process's


class Work(NamedTuple):
    """One piece of work, in nanoseconds of the host's clock."""

    start: int
    end: int
    label: str  # the phase that it was launched in
    kind: str
    step: int  # the step that it was launched in, from 1 on; 0: before the first
    occupancy: float  # the share of the SMs that it holds
    tensor: float = 0.0  # the share of what the tensor cores can do
    memory: float = 0.0  # the share of what the memory can carry
    link: float = 0.0  # bytes a second over the link to the host; negative: towards the host


@dataclass
class Ledger:
    """All work of one device, in the order it was launched."""

    work: list[Work] = field(default_factory=list)

    def add(self, piece: Work) -> None:
        """Take it down; what goes on without a gap and is alike is one piece."""
        if self.work:
            last = self.work[-1]
            if last.end == piece.start and last[2:] == piece[2:]:
                self.work[-1] = last._replace(end=piece.end)
                return
        self.work.append(piece)

    def of(self, kinds: Iterable[str] = OWN, steps: range | None = None, label: str | None = None) -> Iterator[Work]:
        wanted = frozenset(kinds)
        for piece in self.work:
            if piece.kind in wanted and (steps is None or piece.step in steps) and label in (None, piece.label):
                yield piece

    def busy(self, begin: int, end: int, kinds: Iterable[str] = OWN) -> int:
        """Nanoseconds between two moments in which at least one such piece ran."""
        total, upto = 0, begin
        for piece in sorted(self.of(kinds)):
            start, stop = max(piece.start, upto), min(piece.end, end)
            if stop > start:
                total += stop - start
                upto = stop
        return total

    def seconds_by_label(self, steps: range | None = None, kinds: Iterable[str] = OWN) -> dict[str, float]:
        """Busy seconds of each phase, as it was launched; work on two streams at once counts twice."""
        found: dict[str, float] = {}
        for piece in self.of(kinds, steps):
            found[piece.label] = found.get(piece.label, 0.0) + (piece.end - piece.start) / 1e9
        return found

    def shares(self, steps: range | None = None) -> dict[str, float]:
        """Each phase's share of the device's busy time."""
        seconds = self.seconds_by_label(steps)
        total = sum(seconds.values())
        return {label: each / total for label, each in seconds.items()} if total else {}

    def of_steps(self, kinds: Iterable[str] = OWN) -> dict[int, dict[str, float]]:
        """Busy seconds of each step's phases."""
        found: dict[int, dict[str, float]] = {}
        for piece in self.of(kinds):
            phases = found.setdefault(piece.step, {})
            phases[piece.label] = phases.get(piece.label, 0.0) + (piece.end - piece.start) / 1e9
        return found

    def readings(self, begin: int, end: int, every: int) -> list[dict[str, float]]:
        """What the driver would tell for each window: means over it, as GPM and NVML give them.

        `utilization` is the share of time in which any kernel ran, whoever's. `sm_active` is averaged over the SMs, so
        a kernel that holds a third of them counts a third; copies leave them idle. Two kernels at once are two shares,
        and all of them together at most everything.
        """
        windows = max(1, (end - begin) // every)
        ran, active, copied = [0] * windows, [0.0] * windows, [0] * windows
        tensor, memory, into, back = ([0.0] * windows for _ in range(4))
        upto = begin
        for piece in sorted(self.work):
            start, stop = max(piece.start, begin), min(piece.end, begin + windows * every)
            while start < stop:
                window = (start - begin) // every
                until = min(stop, begin + (window + 1) * every)
                if piece.kind == COPY:
                    copied[window] += until - start
                    into[window] += max(0.0, piece.link) * (until - start)
                    back[window] -= min(0.0, piece.link) * (until - start)
                else:
                    tensor[window] += (until - start) * piece.tensor
                    memory[window] += (until - start) * piece.memory
                    active[window] += (until - start) * piece.occupancy
                    ran[window] += max(0, until - max(start, upto))
                    upto = max(upto, until)
                start = until
        return [
            {
                "utilization": 100.0 * ran[each] / every,
                "sm_active": min(100.0, 100.0 * active[each] / every),
                "copying": 100.0 * copied[each] / every,
                "tensor_active": min(100.0, 100.0 * tensor[each] / every),
                "memory_active": min(100.0, 100.0 * memory[each] / every),
                "pcie_rx": into[each] / every,
                "pcie_tx": back[each] / every,
            }
            for each in range(windows)
        ]
