"""What a soak measures: a screen's frames, and the memory of processes over time. Pure but for two files of /proc."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field

WARM_UP = 0.2  # the share of the samples that are left out: caches fill, buckets of curves are made
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


def slope(samples: list[tuple[float, float]]) -> float:
    """MiB an hour, by least squares, of (seconds, MiB) samples without their warm-up."""
    kept = samples[int(len(samples) * WARM_UP) :]
    if len(kept) < 3:
        return float("nan")
    middle = sum(t for t, _ in kept) / len(kept)
    mean = sum(size for _, size in kept) / len(kept)
    spread = sum((t - middle) ** 2 for t, _ in kept)
    return 3600 * sum((t - middle) * (size - mean) for t, size in kept) / spread


def resident(pid: int) -> float | None:
    """MiB in memory; None for a process that is gone."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/statm") as source:
        return int(source.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    return None
