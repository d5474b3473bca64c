"""The device's time in steps, by CUDA events: the device lane of a run, in bounded memory. Pure.

Only a sample of the steps is timed, one at random in each block of `every`: a timed step counts `every` times, so that
sums over the timed steps estimate sums over all. From the begin of one timed step to that of the next (a stretch) the
total of the device's time is known, but not that of each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from monitor.arrays import np
from monitor.model.report import SlowStep
from monitor.model.steps.baseline import MAD_TO_SIGMA
from monitor.model.steps.series import Column, Durations
from monitor.step_blocks import OTHER
from trainhooks.protocol.events import GpuTime
from trainhooks.protocol.limits import OVERFLOW

MAX_ROW_NAMES = 200  # names that get a row of their own, as for the host's times
MAX_STANDS_FOR = 4096  # steps in curves that one timed step represents
MAX_SLOW_STRETCHES = 200
# First steps of a run: allocators grow, libraries choose kernels, graphs compile. They count in the sums of the run,
# but not in what is typical of its steps.
WARM_UP_STEPS = 3
# Seconds. A mark that the device reaches this soon after the host recorded it found an empty queue: a mark takes about
# ten microseconds to reach the device, and the two clocks are compared to within 300.
MAX_DRAINED_LAG = 0.0003
MAX_DRAINED_SHARE = 0.05  # of the step, for longer ones: the host is then at most that far ahead of the device
STRETCH_WINDOW = 128  # stretches in the median, as for the host's steps
MIN_JUDGED_STRETCHES = 8  # before a stretch is judged
SLOW_SIGMAS = 6.0  # robust standard deviations: chance does not exceed six, however long the run
MIN_STRETCH_EXCESS = 0.02  # seconds, or half a step where that is more
UNKNOWN_PHASE = ""  # of a slow stretch: which of its phases grew was not measured


@dataclass(slots=True)
class DevicePhase:
    """One phase by the device's clock, in seconds: estimates for all steps. `steps` is the number of steps with it."""

    total: float = 0.0
    busy: float = 0.0  # lower bound
    steps: int = 0


@dataclass(slots=True)
class DeviceSums:
    """Sums over steps, estimated from the timed ones."""

    steps: int = 0
    timed: int = 0
    seconds: float = 0.0
    busy: float = 0.0  # at least
    busy_known: float = 0.0  # seconds of the steps whose `busy` is known
    drained: float = 0.0  # seconds of the steps with an empty queue at all of their marks
    lag_known: float = 0.0  # seconds of the steps whose `lag` is known
    busy_parts: bool = False  # whether `busy` is known by phase
    gc: float = 0.0  # host seconds of garbage collection in `gc_steps` steps, timed or not
    gc_steps: int = 0
    gc_phases: dict[str, float] = field(default_factory=dict)  # of the timed steps, while not certainly busy
    stretches: float = 0.0  # seconds of stretches, which the device's clock measures whole
    stretch_steps: int = 0  # steps in them, timed or not
    phases: dict[str, DevicePhase] = field(default_factory=dict)

    def add(self, timing: GpuTime) -> None:
        every = timing.every
        self.steps += every
        self.timed += 1
        self.seconds += every * timing.seconds
        if timing.busy is not None:
            self.busy += every * min(timing.busy, timing.seconds)
            self.busy_known += every * timing.seconds
        if timing.lag is not None:
            self.lag_known += every * timing.seconds
            if timing.lag <= max(MAX_DRAINED_LAG, MAX_DRAINED_SHARE * timing.seconds):
                self.drained += every * timing.seconds
        for name, part in timing.gc_phases or ():
            name = name if name in self.gc_phases or len(self.gc_phases) < MAX_ROW_NAMES else OVERFLOW
            self.gc_phases[name] = self.gc_phases.get(name, 0.0) + every * part
        busy = dict(timing.busy_phases)
        self.busy_parts |= bool(busy) or timing.busy == 0.0
        seconds = timed_parts(timing)
        for name, part in seconds.items():
            row = self._phase(name)
            row.total += every * part
            row.busy += every * min(busy.get(name, 0.0), part)
            row.steps += every

    def _add_garbage(self, timing: GpuTime) -> None:
        """Add the garbage collection since the previous timed step."""
        if timing.gc is not None and timing.since is not None and timing.since < timing.step:
            self.gc += timing.gc
            self.gc_steps += timing.step - timing.since

    def _phase(self, name: str) -> DevicePhase:
        if name not in self.phases and len(self.phases) >= MAX_ROW_NAMES:
            name = OVERFLOW
        return self.phases.setdefault(name, DevicePhase())

    def busy_share(self) -> float | None:
        """Return the lower bound of the share of time in which the device had work queued; None: unknown."""
        return self.busy / self.busy_known if self.busy_known > 0.0 else None

    def untimed_seconds(self) -> float:
        """Return the device's seconds in these steps that the timed ones do not stand for, by the stretches."""
        return max(0.0, self.stretches / self.stretch_steps * self.steps - self.seconds) if self.stretch_steps else 0.0

    def drained_share(self) -> float | None:
        """Return the share of the time in steps in which the host was never ahead of the device; None: unknown."""
        return self.drained / self.lag_known if self.lag_known > 0.0 else None


@dataclass(frozen=True, slots=True)
class HostContext:
    """The host's times of the steps from one timed step to the next."""

    rank: int = 0
    stops: float = 0.0  # seconds in evaluations, checkpoints and the like between these steps
    host: tuple[tuple[int, float], ...] = ()  # index and host seconds of the steps that are kept
    t: float | None = None  # when the last of them ended, on the clock of its machine


@dataclass(slots=True)
class DeviceLane:
    """The device lane of one rank's steps."""

    whole: DeviceSums = field(default_factory=DeviceSums)
    steady: DeviceSums = field(default_factory=DeviceSums)  # without the first steps
    first: int | None = None  # the step that was timed first
    dropped: int = 0  # steps of one process that could not be timed
    has_delayed: bool = False  # whether older hooks held the device up before a step: that one is part of no figure
    paces: Column = field(default_factory=Column)  # device seconds a step, over stretches
    # Seconds of each phase: each step has the value of the next timed one.
    phases: dict[str, Durations] = field(default_factory=dict)
    window: list[float] = field(default_factory=list)  # the newest paces
    longest: list[float] = field(default_factory=list)  # the host's longest step in each of these stretches
    stretches: int = 0  # without those of the first steps
    slow_steps: list[SlowStep] = field(default_factory=list)
    slow_count: int = 0
    slow_excess: float = 0.0  # seconds beyond the median
    newest_step: int = 0  # the step that was timed last, and its phases
    newest: dict[str, float] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        return self.whole.timed > 0

    @property
    def untimed_share(self) -> float:
        """Return the share of the device's time in steps that is known as a sum only; 0 where chance explains it.

        A slow step that was not timed shows in its stretch, and in no sum over the timed ones.
        """
        if all(slow.phases for slow in self.slow_steps):
            return 0.0
        seconds = self.steady.untimed_seconds()
        return seconds / (self.steady.seconds + seconds) if seconds else 0.0

    def add(self, timing: GpuTime, context: HostContext) -> None:
        """Take one timed step, and judge the stretch that it ends."""
        self.dropped = max(self.dropped, timing.dropped)
        if timing.delayed is not None:
            self.has_delayed = True
            return
        if not timing.seconds:
            return
        if self.first is None:
            self.first = timing.step
        if timing.since is None or timing.stretch is None:
            # Either the writer times every step and sends no stretches, or a delayed step came before.
            if not self.has_delayed:
                self._stretch(timing.step, 1, timing.seconds, timed_parts(timing), context)
        elif timing.since < timing.step:
            parts = self.newest if timing.step - timing.since == 1 == timing.step - self.newest_step else {}
            self._stretch(timing.since, timing.step - timing.since, timing.stretch - context.stops, parts, context)
        self._phases(timing)
        self.whole.add(timing)
        if timing.step >= self.first + WARM_UP_STEPS:
            self.steady.add(timing)
        if (timing.since or 0) >= self.first + WARM_UP_STEPS:
            self.steady._add_garbage(timing)

    def _phases(self, timing: GpuTime) -> None:
        first = timing.step if timing.since is None else max(timing.since + 1, timing.step - MAX_STANDS_FOR)
        steps = np.arange(min(first, timing.step), timing.step + 1)
        self.newest_step, self.newest = timing.step, timed_parts(timing)
        for name, seconds in self.newest.items():
            name = name if name in self.phases or len(self.phases) < MAX_ROW_NAMES else OVERFLOW
            self.phases.setdefault(name, Durations()).extend(steps, np.full(len(steps), seconds))

    def _stretch(self, first: int, count: int, seconds: float, parts: dict[str, float], context: HostContext) -> None:
        """Take the device's total seconds of `count` steps from `first` on."""
        if seconds <= 0.0:
            return
        pace = seconds / count
        if self.first is not None and first >= self.first + WARM_UP_STEPS:
            self._judge(first, count, pace, parts, context)
            self.stretches += 1
            self.steady.stretches += seconds
            self.steady.stretch_steps += count
            self.window.append(pace)
            del self.window[:-STRETCH_WINDOW]
            if context.host:
                self.longest.append(max(seconds for _, seconds in context.host))
                del self.longest[:-STRETCH_WINDOW]
        count = min(count, MAX_STANDS_FOR)
        self.paces.extend(np.arange(first, first + count), np.full(count, pace))

    def _judge(self, first: int, count: int, pace: float, parts: dict[str, float], context: HostContext) -> None:
        if len(self.window) < MIN_JUDGED_STRETCHES:
            return
        typical = median(self.window)
        sigma = MAD_TO_SIGMA * median(abs(seconds - typical) for seconds in self.window)
        excess = (pace - typical) * count
        if pace <= typical + SLOW_SIGMAS * sigma or excess < max(MIN_STRETCH_EXCESS, 0.5 * typical):
            return
        waits = median(self.longest) if self.longest else None
        step, steps = _culprit(first, count, excess, context.host, waits)
        phases = {name: column.settled().quantiles.at(0.5)[0] for name, column in self.phases.items()}
        culprit = max(parts, key=lambda name: parts[name] - phases.get(name, 0.0), default=UNKNOWN_PHASE)
        slow = SlowStep(
            step=step,
            rank=context.rank,
            seconds=pace * count if steps > 1 else typical + excess,
            baseline=typical * steps,
            culprit=culprit,
            phases=parts,
            usual_phases=phases if parts else {},
            ended=context.t,
            steps=steps,
        )
        self.slow_count += 1
        self.slow_excess += excess
        self.slow_steps.append(slow)
        del self.slow_steps[:-MAX_SLOW_STRETCHES]


def timed_parts(timing: GpuTime) -> dict[str, float]:
    """Return the seconds of the phases of a timed step and of `other`; they add up to the step."""
    parts: dict[str, float] = {}
    for name, seconds in timing.phases:
        parts[name] = parts.get(name, 0.0) + seconds
    parts[OTHER] = parts.get(OTHER, 0.0) + max(0.0, timing.seconds - sum(parts.values()))
    return parts


def _culprit(
    first: int, count: int, excess: float, host: Sequence[tuple[int, float]], typical: float | None
) -> tuple[int, int]:
    """Return the first of the slow steps and their number: one where the host's times single it out, else the stretch.

    Args:
        typical: median seconds of the host's longest step in a stretch: it waits for the device there; None: unknown.
    """
    if count == 1:
        return first, 1
    step, longest = max(host, key=lambda row: row[1], default=(first, 0.0))
    if typical is not None and longest - typical >= 0.5 * excess:
        return step, 1
    return first, count
