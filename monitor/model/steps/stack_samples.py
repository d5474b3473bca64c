"""Where the training thread stood, by its stack samples: over the run, and along it in stretches. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from monitor.model.history import in_pairs
from monitor.model.steps.growth import slope
from monitor.step_blocks import OTHER
from monitor.units import duration, share
from trainhooks.protocol.events import Frames
from trainhooks.protocol.limits import OVERFLOW
from trainhooks.protocol.places import OTHERS, Line, Place
from trainhooks.protocol.vocabulary import BETWEEN_STEPS as BETWEEN_STEPS

MIN_PLACE_LOOKS = 12  # with a dozen, a place of 10% of the time is in half of them in only one of 2,000 runs
MAX_PLACES = 400  # places in all phases; a program is sampled in a few dozen
MAX_SHARED = 32  # of them, phases whose further places share a row
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


class Sample(NamedTuple):
    """Where stack samples found the training thread."""

    phase: str  # the open one, "other" or "between steps"
    place: Place


@dataclass(slots=True)
class Stretch:
    """The samples between two moments: the seconds that they stand for, by place."""

    begin: float
    end: float
    seconds: dict[Sample, float] = field(default_factory=dict)

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

    looks: dict[Sample, int] = field(default_factory=dict)
    seconds: dict[Sample, float] = field(default_factory=dict)  # that these samples stand for
    stretches: list[Stretch] = field(default_factory=list)

    def take(self, frames: Frames) -> None:
        """Add one report; its samples were taken at equal distances."""
        looks: dict[Sample, int] = {}
        for phase, place, count in frames.rows:
            sample = self._known(Sample(phase, place))
            looks[sample] = looks.get(sample, 0) + count
            self.looks[sample] = self.looks.get(sample, 0) + count
        total = sum(looks.values())
        if not total:
            return
        begin = frames.t - DEFAULT_PERIOD * total if frames.begin is None else min(frames.begin, frames.t)
        stretch = Stretch(begin, frames.t, {sample: (frames.t - begin) / total * n for sample, n in looks.items()})
        _add(self.seconds, stretch.seconds)
        self.stretches.append(stretch)
        if len(self.stretches) > MAX_STRETCHES:
            self.stretches = in_pairs(self.stretches, Stretch.joined)

    def _known(self, sample: Sample) -> Sample:
        """Return a sample's row: with too many of them the phase's shared one, with too many phases that of all."""
        if sample in self.looks or len(self.looks) < MAX_PLACES - MAX_SHARED:
            return sample
        shared = sample._replace(place=OTHERS)
        has_room = len(self.looks) < MAX_PLACES or sample.phase in (OTHER, BETWEEN_STEPS)
        return shared if shared in self.looks or has_room else Sample(OVERFLOW, OTHERS)

    def by_phase(self) -> dict[str, dict[Place, int]]:
        """Return the number of samples by phase and place, whatever a library did there."""
        phases: dict[str, dict[Place, int]] = {}
        for (phase, place), count in self.looks.items():
            counts, place = phases.setdefault(phase, {}), place._replace(activity="")
            counts[place] = counts.get(place, 0) + count
        return phases

    def training_calls(self) -> frozenset[Line]:
        """Return the user's lines inside which a library runs the whole loop: they say nothing about a part of it."""
        phases: dict[Line, set[str]] = {}
        for phase, place in self.looks:
            if place.library is not None and phase not in (OTHER, BETWEEN_STEPS):
                phases.setdefault(place.users, set()).add(phase)
        return frozenset(line for line, names in phases.items() if len(names) >= MIN_LOOP_PHASES)

    def around(self, spans: Sequence[tuple[float, float]], *phases: str) -> tuple[dict[Place, float], float]:
        """Return the seconds by place in the stretches that meet these spans of time, and the length of these."""
        places: dict[Place, float] = {}
        length = 0.0
        for stretch in self.stretches:
            if any(begin < stretch.end and stretch.begin < end for begin, end in spans):
                length += stretch.end - stretch.begin
                for (phase, place), seconds in stretch.seconds.items():
                    if phase in phases:
                        places[place] = places.get(place, 0.0) + seconds
        return places, length

    def growth(self, done: Callable[[float], float], is_meant: Callable[[Sample], bool]) -> Growth | None:
        """Return how the seconds per step in some places grew; None where they did not, or samples are few.

        Args:
            done: returns the number of steps done by a moment.
        """
        if sum(looks for sample, looks in self.looks.items() if is_meant(sample)) < MIN_GROWTH_SAMPLES:
            return None
        points = []
        for stretch in self.stretches:
            steps = done(stretch.end) - done(stretch.begin)
            if steps >= 1.0:
                spent = sum(seconds for sample, seconds in stretch.seconds.items() if is_meant(sample))
                points.append((done(stretch.begin) + steps / 2, spent / steps))
        rise, third = slope(points, GROWTH_SIGMAS), len(points) // 3
        if rise is None or not rise.rises or not third:
            return None
        early, late = (median(spent for _, spent in part) for part in (points[:third], points[-third:]))
        return Growth(early, late) if late > 0 and late >= MIN_GROWTH * early else None


def _add(table: dict[Sample, float], more: dict[Sample, float]) -> None:
    for sample, seconds in more.items():
        table[sample] = table.get(sample, 0.0) + seconds


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
