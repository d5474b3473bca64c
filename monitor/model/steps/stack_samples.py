"""Where the training thread stood, by its stack samples: over the run, and along it in stretches. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from monitor.model.history import in_pairs
from monitor.model.steps.growth import slope
from monitor.step_blocks import OTHER
from monitor.units import duration, share
from trainhooks.protocol.events import Frames
from trainhooks.protocol.limits import OVERFLOW

BETWEEN_STEPS = "between steps"  # the stack sampler's name for time outside all steps
FROM = ", from "  # between a library's place and the user's line that it was called from
MAX_PLACES = 400  # places in all phases; a program is sampled in a few dozen
MAX_STRETCHES = 48
DEFAULT_PERIOD = 0.1  # seconds between two samples of a writer that does not report when it began
MIN_LOOP_PHASES = 3  # that go on inside one line: forward, backward and one more
# Samples of a place in the run for its growth to be judged, and stretches: below that, chance moves a share by a third.
MIN_GROWTH_SAMPLES = 24
# The last third of the stretches against the first, per step: growth that is less is none worth naming.
MIN_GROWTH = 1.3
# Standard errors: fewer than where a finding rests on it. This is a remark beside one, and its two ends are far apart.
GROWTH_SIGMAS = 2.5


MIN_SHOWN_SHARE = 0.05  # of the time since the first step in no phase; less is what every loop has


class Place(NamedTuple):
    """A line of the program, and what a library does there."""

    where: str  # the open phase, "other" or "between steps"
    line: str  # `train.py:41 (json.load) in read`; where a library goes on inside, its own place comes before FROM
    activity: str  # empty: unknown

    @property
    def users(self) -> str:
        """Return the user's own line."""
        return self.line.rpartition(FROM)[2]


@dataclass(slots=True)
class Stretch:
    """The samples between two moments: the seconds that they stand for, by place."""

    begin: float
    end: float
    seconds: dict[Place, float] = field(default_factory=dict)

    def joined(self, after: Stretch) -> Stretch:
        seconds = dict(self.seconds)
        _add(seconds, after.seconds)
        return Stretch(self.begin, after.end, seconds)


@dataclass(frozen=True, slots=True)
class Growth:
    """Seconds per step in a place at the beginning and at the end of the run, where they rise all along."""

    early: float
    late: float


@dataclass(slots=True)
class StackSamples:
    """All stack samples of a rank. Samples stand for different times: a short run is sampled more often."""

    looks: dict[Place, int] = field(default_factory=dict)
    seconds: dict[Place, float] = field(default_factory=dict)  # that these samples stand for
    stretches: list[Stretch] = field(default_factory=list)

    def take(self, frames: Frames) -> None:
        """Add one report; its samples were taken at equal distances."""
        looks: dict[Place, int] = {}
        activities = frames.activities or [""] * len(frames.rows)
        for (where, line, count), activity in zip(frames.rows, activities, strict=False):
            place = Place(where, line, activity)
            if place not in self.looks and len(self.looks) >= MAX_PLACES:
                known = where in (OTHER, BETWEEN_STEPS)
                place = Place(where if known else OVERFLOW, OVERFLOW, "")
            looks[place] = looks.get(place, 0) + count
            self.looks[place] = self.looks.get(place, 0) + count
        total = sum(looks.values())
        if not total:
            return
        begin = frames.t - DEFAULT_PERIOD * total if frames.begin is None else min(frames.begin, frames.t)
        stretch = Stretch(begin, frames.t, {place: (frames.t - begin) / total * n for place, n in looks.items()})
        _add(self.seconds, stretch.seconds)
        self.stretches.append(stretch)
        if len(self.stretches) > MAX_STRETCHES:
            self.stretches = in_pairs(self.stretches, Stretch.joined)

    def training_calls(self) -> frozenset[str]:
        """Return the user's lines inside which a library runs the whole loop: they say nothing about a part of it."""
        phases: dict[str, set[str]] = {}
        for place in self.looks:
            if FROM in place.line and place.where not in (OTHER, BETWEEN_STEPS):
                phases.setdefault(place.users, set()).add(place.where)
        return frozenset(line for line, names in phases.items() if len(names) >= MIN_LOOP_PHASES)

    def growth(self, done: Callable[[float], float], is_meant: Callable[[Place], bool]) -> Growth | None:
        """Return how the seconds per step in some places grew; None where they did not, or samples are few.

        Args:
            done: returns the number of steps done by a moment.
        """
        if sum(looks for place, looks in self.looks.items() if is_meant(place)) < MIN_GROWTH_SAMPLES:
            return None
        points = []
        for stretch in self.stretches:
            steps = done(stretch.end) - done(stretch.begin)
            if steps >= 1.0:
                spent = sum(seconds for place, seconds in stretch.seconds.items() if is_meant(place))
                points.append((done(stretch.begin) + steps / 2, spent / steps))
        rise, third = slope(points, GROWTH_SIGMAS), len(points) // 3
        if rise is None or not rise.rises or not third:
            return None
        early, late = (median(spent for _, spent in part) for part in (points[:third], points[-third:]))
        return Growth(early, late) if late > 0 and late >= MIN_GROWTH * early else None


def _add(table: dict[Place, float], more: dict[Place, float]) -> None:
    for place, seconds in more.items():
        table[place] = table.get(place, 0.0) + seconds


# What a report says of them.


@dataclass(slots=True)
class SampledPart:
    """A part of the time in no phase, by stack samples: one line of the program, and what a library does there."""

    place: str | None  # None: all further places together
    activity: str | None  # None: unknown
    seconds: float  # its part of the measured seconds
    share: float  # of the time since the first step
    looks: int  # stack samples
    grows: bool = False  # its seconds per step rise all along the run
    early: float | None = None  # seconds per step at the beginning, where they grow
    late: float | None = None

    def text(self) -> str:
        """Return `fsync, log.py:14 (os.fsync) in log_row: about 22% of the time since the first step, growing`."""
        name = ", ".join(filter(None, (self.activity, self.place))) or "elsewhere"
        grown = f", growing: {duration(self.early)} → {duration(self.late)} per step" if self.grows else ""
        return f"{name}: about {share(self.share)} of the time since the first step{grown}"


@dataclass(slots=True)
class UnnamedTime:
    """The time in steps in no phase and between steps: its sum is measured, its division is sampled."""

    seconds: float  # by the host's clock; the parts add up to it
    looks: int
    parts: list[SampledPart] = field(default_factory=list)

    def matters(self, stepping: float) -> bool:
        """Return whether it is worth a table; `stepping` is the time since the first step, in seconds."""
        return self.seconds >= MIN_SHOWN_SHARE * stepping
