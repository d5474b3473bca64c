"""What a soak measures: a screen's frames, and the memory of processes over time. Pure but for two files of /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field

# Seconds of a process's life: the histories of host and GPUs hold four minutes, and fill until then.
WARM_UP = 300.0
ENOUGH = 240.0  # seconds after these that a line is laid through; through fewer it is the tooth of a saw
STANDSTILL = 0.5  # seconds between two looks of ours: the box stood still, which says nothing of the screen


@dataclass
class Frames:
    """The pauses between a screen's frames, as they arrive on its terminal."""

    pauses: list[float] = field(default_factory=list)
    standstills: int = 0
    _last: float | None = None
    _looked: float | None = None

    def look(self, now: float, arrived: bool) -> None:
        """Called often, whether something arrived or not."""
        if self._looked is not None and now - self._looked > STANDSTILL:
            self.standstills += 1
            self._last = None
        self._looked = now
        if arrived:
            if self._last is not None:
                self.pauses.append(now - self._last)
            self._last = now

    def pause(self, now: float) -> None:
        """We did something else until now."""
        self._looked, self._last = now, None

    def at(self, share: float) -> float:
        """A quantile of the pauses that were one: what arrives within a twentieth of a second is one frame."""
        frames = sorted(pause for pause in self.pauses if pause > 0.05)
        return frames[min(len(frames) - 1, int(share * len(frames)))] if frames else float("nan")


@dataclass
class Life:
    """The memory of one process, from the moment on that it was first looked at."""

    samples: list[tuple[float, float]] = field(default_factory=list)  # seconds, MiB

    def add(self, at: float, size: float) -> None:
        self.samples.append((at, size))

    @property
    def seconds(self) -> float:
        return self.samples[-1][0] - self.samples[0][0]

    def warm(self) -> list[tuple[float, float]]:
        """The samples after its warm-up; none of a process that has not lived long enough after it."""
        if self.seconds < WARM_UP + ENOUGH:
            return []
        return [(at, size) for at, size in self.samples if at >= self.samples[0][0] + WARM_UP]


def slope(samples: list[tuple[float, float]]) -> float:
    """MiB an hour, by least squares, of (seconds, MiB) samples; nan of fewer than two."""
    if len(samples) < 2:
        return float("nan")
    middle = sum(t for t, _ in samples) / len(samples)
    mean = sum(size for _, size in samples) / len(samples)
    spread = sum((t - middle) ** 2 for t, _ in samples)
    return 3600 * sum((t - middle) * (size - mean) for t, size in samples) / spread


def resident(pid: int) -> float | None:
    """MiB in memory; None for a process that is gone."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/statm") as source:
        return int(source.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return None
