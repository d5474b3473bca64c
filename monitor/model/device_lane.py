"""What the device took, by CUDA events: the device lane of a run's steps, in bounded memory. Pure.

Only a sample of the steps is timed, one at random of each block of `every`: a timed step counts `every` times, so that
sums over the timed ones are sums over all. From one timed step's begin to the next one's the device's time is known as
a whole (a stretch), though not what each step in between took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean, median

from monitor.model.baseline import MAD_TO_SIGMA
from monitor.model.delayed_steps import DelayedSteps
from monitor.model.parts import OTHER
from monitor.model.report import Estimate, SlowStep
from monitor.model.series import Column, Durations
from trainhooks.events import OVERFLOW, GpuTime

MAX_PHASES = 200  # names that get a row of their own, as for the host's times
MAX_STANDS_FOR = 4096  # steps that one timed step gives a value to, in curves
MAX_PLACES = 200  # in a program, of which looks are kept
MAX_SLOW = 200
# First steps of a run: allocators grow, libraries choose kernels, graphs compile. They count in the sums of the run,
# and say nothing of how its steps go.
WARM_UP = 3
# A mark that the device reaches this soon after the host recorded it found an empty queue: the time from the record to
# the device is some ten microseconds, and the two clocks are compared to within 300.
DRAINED_SECONDS = 0.0003
DRAINED_SHARE = 0.05  # of the step, for longer ones: the host is then at most that far ahead of the device
WINDOW = 128  # stretches that say what is usual, as for the host's steps
ENOUGH_STRETCHES = 8
SIGMAS = 6.0  # robust standard deviations, which chance does not reach in any run's length
LEAST_EXCESS = 0.02  # seconds; and half a step, whichever is more
UNKNOWN_PHASE = ""  # of a slow stretch: which of its phases grew was not measured


@dataclass(slots=True)
class DevicePhase:
    """One phase by the device's clock: estimates for all steps. `steps` says how many had it."""

    total: float = 0.0
    busy: float = 0.0  # of these, at least
    steps: int = 0


@dataclass(slots=True)
class DeviceSums:
    """Sums over steps, each timed one counted as many times as it stands for."""

    steps: int = 0
    timed: int = 0
    seconds: float = 0.0
    busy: float = 0.0  # at least
    busy_known: float = 0.0  # seconds of the steps that tell `busy`
    drained: float = 0.0  # seconds of the steps at none of whose marks the device had work queued
    lag_known: float = 0.0  # seconds of the steps that tell `lag`
    busy_parts: bool = False  # whether `busy` is told by phase, too
    gc: float = 0.0  # host seconds of garbage collection in `gc_steps` steps: in each of them, timed or not
    gc_steps: int = 0
    gc_phases: dict[str, float] = field(default_factory=dict)  # of the timed steps, while not certainly busy
    phases: dict[str, DevicePhase] = field(default_factory=dict)

    def take(self, told: GpuTime) -> None:
        every = told.every
        self.steps += every
        self.timed += 1
        self.seconds += every * told.seconds
        if told.busy is not None:
            self.busy += every * min(told.busy, told.seconds)
            self.busy_known += every * told.seconds
        if told.lag is not None:
            self.lag_known += every * told.seconds
            if told.lag <= max(DRAINED_SECONDS, DRAINED_SHARE * told.seconds):
                self.drained += every * told.seconds
        for name, part in told.gc_phases or ():
            name = name if name in self.gc_phases or len(self.gc_phases) < MAX_PHASES else OVERFLOW
            self.gc_phases[name] = self.gc_phases.get(name, 0.0) + every * part
        busy = dict(told.busy_phases)
        self.busy_parts |= bool(busy) or told.busy == 0.0
        seconds = parts_told(told)
        for name, part in seconds.items():
            row = self._phase(name)
            row.total += every * part
            row.busy += every * min(busy.get(name, 0.0), part)
            row.steps += every

    def collected(self, told: GpuTime) -> None:
        """Garbage collection since the step that was timed before."""
        if told.gc is not None and told.since is not None and told.since < told.step:
            self.gc += told.gc
            self.gc_steps += told.step - told.since

    def _phase(self, name: str) -> DevicePhase:
        if name not in self.phases and len(self.phases) >= MAX_PHASES:
            name = OVERFLOW
        return self.phases.setdefault(name, DevicePhase())

    def busy_share(self) -> float | None:
        """The share of the steps in which the device had work in its queue, at least; None where that is not known."""
        return self.busy / self.busy_known if self.busy_known > 0.0 else None

    def drained_share(self) -> float | None:
        """The share of the time in steps in which the host was never ahead of the device; None where unknown."""
        return self.drained / self.lag_known if self.lag_known > 0.0 else None


@dataclass(frozen=True, slots=True)
class Neighborhood:
    """What the host tells of the steps from one timed step to the next."""

    rank: int = 0
    stops: float = 0.0  # seconds in evaluations, checkpoints and the like between these steps
    host: tuple[tuple[int, float], ...] = ()  # index and host seconds of each, as far as they are kept
    t: float | None = None  # when the last of them ended, on the clock of its machine


@dataclass(slots=True)
class DeviceLane:
    """The device lane of one rank's steps."""

    whole: DeviceSums = field(default_factory=DeviceSums)
    steady: DeviceSums = field(default_factory=DeviceSums)  # without the first steps
    first: int | None = None  # the step that was timed first
    dropped: int = 0  # steps that could not be timed, of one process
    delayed: DelayedSteps = field(default_factory=DelayedSteps)  # no usual steps: they enter no other figure
    paces: Column = field(default_factory=Column)  # device seconds a step, over stretches
    # Seconds of each phase: each step counts with what the next timed one took, so that there is a value for all.
    phases: dict[str, Durations] = field(default_factory=dict)
    window: list[float] = field(default_factory=list)  # the newest of these
    longest: list[float] = field(default_factory=list)  # of the same stretches: the host's longest step
    stretches: int = 0  # without those of the first steps
    slow_steps: list[SlowStep] = field(default_factory=list)
    slow_count: int = 0
    slow_excess: float = 0.0  # seconds beyond the usual
    newest_step: int = 0  # the step that was timed last, and its phases
    newest: dict[str, float] = field(default_factory=dict)
    # Of the same steps as `steady`: phase -> place -> looks, those while the device was not certainly busy.
    looks: dict[str, dict[str, list[int]]] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        return self.whole.timed > 0

    @property
    def estimate(self) -> Estimate | None:
        """How busy the newest stretches kept the device, by delayed steps."""
        return self.delayed.estimate(fmean(self.window) if self.window else 0.0)

    def take(self, told: GpuTime, around: Neighborhood) -> None:
        """Take what was told of one step that was to be timed, and judge the stretch that it ends."""
        self.dropped = max(self.dropped, told.dropped)
        if told.delayed is not None:
            self.delayed.take(told)
            return
        if not told.seconds:
            return
        if self.first is None:
            self.first = told.step
        if told.since is None or told.stretch is None:
            # A writer that times every step, and tells no stretches; or a delayed step came before.
            if not self.delayed.steps:
                self._stretch(told.step, 1, told.seconds, parts_told(told), around)
        elif told.since < told.step:
            parts = self.newest if told.step - told.since == 1 == told.step - self.newest_step else {}
            self._stretch(told.since, told.step - told.since, told.stretch - around.stops, parts, around)
        self._phases(told)
        self.whole.take(told)
        if told.step >= self.first + WARM_UP:
            self.steady.take(told)
            for phase, place, looks, idle in told.looks:
                self._look(phase, place, looks, idle)
        if (told.since or 0) >= self.first + WARM_UP:
            self.steady.collected(told)

    def _phases(self, told: GpuTime) -> None:
        first = told.step if told.since is None else max(told.since + 1, told.step - MAX_STANDS_FOR)
        steps = range(min(first, told.step), told.step + 1)
        self.newest_step, self.newest = told.step, parts_told(told)
        for name, seconds in self.newest.items():
            name = name if name in self.phases or len(self.phases) < MAX_PHASES else OVERFLOW
            self.phases.setdefault(name, Durations()).extend(steps, [seconds] * len(steps))

    def _look(self, phase: str, place: str, looks: int, idle: int) -> None:
        table = self.looks.setdefault(phase if phase in self.looks or len(self.looks) < MAX_PHASES else OVERFLOW, {})
        row = table.setdefault(place if place in table or len(table) < MAX_PLACES else OVERFLOW, [0, 0])
        row[0] += looks
        row[1] += idle

    def _stretch(self, first: int, count: int, seconds: float, parts: dict[str, float], around: Neighborhood) -> None:
        """The steps from `first` on took the device so long, all together."""
        if seconds <= 0.0:
            return
        pace = seconds / count
        if self.first is not None and first >= self.first + WARM_UP:
            self._judge(first, count, pace, parts, around)
            self.stretches += 1
            self.window.append(pace)
            del self.window[:-WINDOW]
            if around.host:
                self.longest.append(max(seconds for _, seconds in around.host))
                del self.longest[:-WINDOW]
        count = min(count, MAX_STANDS_FOR)
        self.paces.extend(range(first, first + count), [pace] * count)

    def _judge(self, first: int, count: int, pace: float, parts: dict[str, float], around: Neighborhood) -> None:
        if len(self.window) < ENOUGH_STRETCHES:
            return
        usual = median(self.window)
        sigma = MAD_TO_SIGMA * median(abs(each - usual) for each in self.window)
        excess = (pace - usual) * count
        if pace <= usual + SIGMAS * sigma or excess < max(LEAST_EXCESS, 0.5 * usual):
            return
        waits = median(self.longest) if self.longest else None
        step, steps = _culprit(first, count, excess, around.host, waits)
        times = (pace * count, usual * count) if steps > 1 else (usual + excess, usual)
        phases = {name: column.digested().quantiles.at(0.5)[0] for name, column in self.phases.items()}
        culprit = max(parts, key=lambda name: parts[name] - phases.get(name, 0.0), default=UNKNOWN_PHASE)
        slow = SlowStep(step, around.rank, *times, culprit, parts, phases if parts else {}, ended=around.t, steps=steps)
        self.slow_count += 1
        self.slow_excess += excess
        self.slow_steps.append(slow)
        del self.slow_steps[:-MAX_SLOW]


def parts_told(told: GpuTime) -> dict[str, float]:
    """The phases of a timed step and its rest, which add up to its seconds."""
    parts: dict[str, float] = {}
    for name, seconds in told.phases:
        parts[name] = parts.get(name, 0.0) + seconds
    parts[OTHER] = parts.get(OTHER, 0.0) + max(0.0, told.seconds - sum(parts.values()))
    return parts


def _culprit(
    first: int, count: int, excess: float, host: Sequence[tuple[int, float]], usual: float | None
) -> tuple[int, int]:
    """The step that the host saw to be long by itself and how many: one; else the whole stretch.

    Args:
        usual: seconds of the longest step of the host's in a usual stretch: there it waits for the device.
    """
    if count == 1:
        return first, 1
    step, longest = max(host, key=lambda row: row[1], default=(first, 0.0))
    if usual is not None and longest - usual >= 0.5 * excess:
        return step, 1
    return first, count
