"""A sample of a column's values, which tells how they spread in any part of the run. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.arrays import BoolArray, FloatArray, IntArray, np

MAX_SAMPLED = 4096  # some 15 to 30 values for each column of a wide terminal, once a run is long
# Steps are drawn by the fraction of their number times the golden ratio: an even spread, and in step with no rhythm of
# the program, as every second or every fourth step could be.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(slots=True)
class ValueSample:
    """The finite values of all steps; beyond `MAX_SAMPLED` of each second step, each fourth, ... in the mean.

    The same steps are in the sample of every column, whenever and in whatever parts their values came. The arrays are
    replaced, never changed.
    """

    halvings: int = 0  # one step of 2 ** halvings is in the sample
    steps: IntArray = field(default_factory=lambda: np.empty(0, np.int64))  # rising
    values: FloatArray = field(default_factory=lambda: np.empty(0))

    def add(self, steps: IntArray, values: FloatArray) -> None:
        """Add finite values of these steps, in any order."""
        if self.halvings:
            kept = self._drawn(steps)
            steps, values = steps[kept], values[kept]
        if not len(steps):
            return
        follow = not len(self.steps) or steps[0] >= self.steps[-1]
        self.steps, self.values = np.concatenate((self.steps, steps)), np.concatenate((self.values, values))
        if not follow or (steps[1:] < steps[:-1]).any():
            order = self.steps.argsort(kind="stable")
            self.steps, self.values = self.steps[order], self.values[order]
        while len(self.steps) > MAX_SAMPLED and self.halvings < 63:
            self.halvings += 1
            kept = self._drawn(self.steps)
            self.steps, self.values = self.steps[kept], self.values[kept]

    def by(self, other: ValueSample) -> ValueSample:
        """Return the values divided by those of another column at the same steps, where these are positive."""
        _, mine, its = np.intersect1d(self.steps, other.steps, return_indices=True)
        mine, its = mine[other.values[its] > 0], its[other.values[its] > 0]
        return ValueSample(max(self.halvings, other.halvings), self.steps[mine], self.values[mine] / other.values[its])

    def _drawn(self, steps: IntArray) -> BoolArray:
        """Return which of the steps are in the sample."""
        drawn: BoolArray = steps.astype(np.uint64) * _GOLDEN >> np.uint64(64 - self.halvings) == 0
        return drawn
