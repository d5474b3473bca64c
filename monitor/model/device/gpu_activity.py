"""A GPU's readings over the run, in bounded memory: means and ranges over any part of it. Pure.

Steps and readings come from different journals in any order. So readings are kept by time, and those during steps
are selected when they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from monitor.arrays import BoolArray, FloatArray, np
from monitor.model.history import History
from trainhooks.protocol.events import Gpu

# The driver's newest values, or means of the last second.
FIGURES = (
    "utilization", "memory_used", "temperature", "power", "sm_clock", "sm_active", "sm_occupancy", "tensor_active",
    "memory_active", "pcie_rx", "pcie_tx",
)  # fmt: skip
MAX_READING_BUCKETS = 600  # ten minutes at one reading a second; a day in buckets of four minutes


@dataclass(frozen=True, slots=True)
class Range:
    """One figure of a GPU over the steps."""

    mean: float
    min: float
    max: float
    readings: int


@dataclass(slots=True)
class Activity:
    """A GPU's readings in buckets of 1, 2, 4... seconds; each column of the history has one of READINGS."""

    history: History = field(default_factory=lambda: History(MAX_READING_BUCKETS))

    def add(self, gpu: Gpu) -> None:
        """Add a complete reading."""
        values = np.array([[getattr(gpu, name) for name in FIGURES]], float)  # None becomes nan
        count = np.isfinite(values).astype(float)
        columns = {"count": count, "total": np.nan_to_num(values), "low": values, "high": values}
        self.history.add(np.array([int(gpu.t)]), columns)

    def ranges_within(self, stretches: Sequence[tuple[float, float]]) -> dict[str, Range]:
        """Return the figures of the buckets that lie wholly in one of these stretches."""
        begins, ends = self._edges()
        wanted = np.zeros(len(begins), bool)
        for since, until in stretches:
            wanted |= (since <= begins) & (ends <= until)
        return self._ranges(wanted)

    def ranges_between(self, begin: float, end: float, without: Sequence[tuple[float, float]] = ()) -> dict[str, Range]:
        """Return the figures of the buckets that lie wholly between two moments.

        Args:
            without: stretches whose readings are left out, where readings remain.
        """
        figures = self._ranges(self._between(begin, end, without)) if without else {}
        return figures or self._ranges(self._between(begin, end))

    def _edges(self) -> tuple[FloatArray, FloatArray]:
        begins = (self.history.index * self.history.width).astype(float)
        return begins, begins + self.history.width

    def _between(self, begin: float, end: float, without: Sequence[tuple[float, float]] = ()) -> BoolArray:
        begins, ends = self._edges()
        wanted: BoolArray = (begin <= begins) & (ends <= end)
        for since, until in without:
            wanted &= (begins >= until) | (since >= ends)
        return wanted

    def _ranges(self, wanted: BoolArray) -> dict[str, Range]:
        """Return the figures of these buckets; one without a reading in them is left out."""
        if not wanted.any():
            return {}
        count, total, low, high = (self.history.of(name)[wanted] for name in ("count", "total", "low", "high"))
        figures = zip(
            FIGURES,
            count.sum(axis=0).tolist(),
            total.sum(axis=0).tolist(),
            np.fmin.reduce(low, axis=0).tolist(),
            np.fmax.reduce(high, axis=0).tolist(),
            strict=True,
        )
        return {name: Range(sum_ / n, least, most, int(n)) for name, n, sum_, least, most in figures if n}
