"""The clock that a GPU reaches under load when nothing holds it back: a small histogram of its own past. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

BIN = 15  # MHz: the step in which NVIDIA's SM clocks move
HIGHEST = 6000  # MHz; no GPU comes near, so a reading beyond is a fault and would only widen the table
ENOUGH = 8  # readings before the clock counts as known: fewer may all be of the ramp up
RECHECK = 16  # readings between two looks at the table, once there are more than so many
SHARE = 0.95  # the 95th percentile: a boost of a moment is no measure


@dataclass(slots=True)
class ClockReference:
    """How often each clock was seen; at most 400 bins."""

    bins: dict[int, int] = field(default_factory=dict)
    count: int = 0
    clock: int | None = None  # MHz that 95 % of the readings do not exceed; None while too little was seen

    def add(self, clock: int) -> None:
        if not 0 < clock <= HIGHEST:
            return
        self.bins[clock // BIN] = self.bins.get(clock // BIN, 0) + 1
        self.count += 1
        if self.count >= ENOUGH and (self.count <= RECHECK or self.count % RECHECK == 0):
            self.clock = self._clock()

    def _clock(self) -> int | None:
        rank = SHARE * (self.count - 1)
        seen = 0
        for bin_ in sorted(self.bins):
            seen += self.bins[bin_]
            if rank < seen:
                return bin_ * BIN
        return None
