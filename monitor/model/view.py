"""Views for the screens: the report with single steps, spans, readings and curves, read off the state.

Pure, and short: it is done for every view.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise, repeat
from pathlib import Path
from statistics import median
from typing import Any

from monitor.model import wall_time
from monitor.model.comparison.last_run import AS_FAST_WORDS, Standing
from monitor.model.comparison.loop_pace import LoopTime
from monitor.model.device.device_use import has_phases, uses_device
from monitor.model.device.throttle_watch import ThrottleEvent, throttle_events
from monitor.model.report import Finding, Report
from monitor.model.signals import Signal
from monitor.model.starting import StartWait
from monitor.model.state import RankState, RunState, used_gpus
from monitor.model.steps.baseline import Baseline, StepKind
from monitor.model.steps.pace import Mark
from monitor.model.steps.series import STEP, Column, Curve, Durations, Quantiles, ordered, without_first
from monitor.model.steps.step_clock import StepClock, step_clock
from monitor.units import moment
from trainhooks.protocol.events import Gpu, GpuProcess, GpuTime, Host, Span, Step
from trainhooks.protocol.places import Place

MAX_SHOWN_KINDS = 20  # roles and stages shown; more fit on no screen
MAX_SHOWN_PLACES = 8  # places of stack samples for each open phase
MAX_BARS = 48  # of a distribution


@dataclass(frozen=True, slots=True)
class PreviousRun:
    """The last comparable run of the same command, and the differences as (name, before, now)."""

    id: str | None
    name: str | None
    changes: tuple[tuple[str, Any, Any], ...]
    started: float | None = None  # Unix time
    standing: Standing | None = None  # of this run against it

    def against(self, now: float | None) -> str:
        """Return `6% faster than the run of Thu 14:02`; empty where no difference is certain.

        Args:
            now: when this run was started, in Unix time.
        """
        words = self.standing.words() if self.standing is not None else ""
        if not words:
            return ""
        when = f"the run of {moment(self.started, now)}" if self.started and now else "the last run"
        return f"{words} {'as' if words == AS_FAST_WORDS else 'than'} {when}"


@dataclass(frozen=True, slots=True)
class KindRow:
    """The steps of one role and stage: medians of the latest ones."""

    role: str | None
    stage: str | None
    steps: int  # in all
    window: int  # the latest, from which the figures are
    seconds: float  # the median
    phases: dict[str, float] = field(default_factory=dict)  # the medians


@dataclass(frozen=True, slots=True)
class GpuDetail:
    """The past readings of a GPU, and its clock without throttling."""

    readings: tuple[Gpu, ...] = ()  # the newest last
    reference: int | None = None  # MHz, its clock under load without throttling; None: unknown
    link: tuple[int | None, int | None, int | None, int | None] = (None, None, None, None)  # gen, its most, lanes, most

    def known(self, name: str) -> Any:
        """Return the newest value of a field that is read rarely: the newest reading mostly lacks it. None: unknown."""
        values = (getattr(reading, name) for reading in reversed(self.readings))
        return next((value for value in values if value is not None), None)

    @property
    def processes(self) -> list[tuple[GpuProcess, str]] | None:
        """Return the processes on the GPU, each with its user (empty: unknown); None where they are not reported."""
        reading = next((reading for reading in reversed(self.readings) if reading.processes is not None), None)
        if reading is None or reading.processes is None:
            return None
        return list(zip(reading.processes, chain(reading.users or (), repeat("")), strict=False))


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that is neither a step nor a span, by the steps in which it was."""

    kind: str  # alert | trace
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Details:
    """Steps, device times and spans are the events themselves. Times are on the run's monotonic clock."""

    steps: tuple[Step, ...] = ()  # the latest, the newest last
    timed: tuple[GpuTime, ...] = ()  # the latest of which the device's time is known, the newest last
    spans: tuple[Span, ...] = ()  # after the first step; of many, some
    throttle_events: tuple[ThrottleEvent, ...] = ()
    gpus: dict[str, GpuDetail] = field(default_factory=dict)  # by uuid
    host: tuple[Host, ...] = ()  # its readings, the newest last
    kinds: tuple[KindRow, ...] = ()
    distributions: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # phase -> seconds from, steps
    host_distributions: dict[str, list[tuple[float, int]]] = field(default_factory=dict)  # by the host's clock
    frames: dict[str, list[tuple[str, int]]] = field(default_factory=dict)  # open phase -> (place, stack samples)
    wall_offset: float | None = None  # Unix time minus monotonic time
    clock: StepClock = field(default_factory=StepClock)  # which step was open when
    occurrences: tuple[Occurrence, ...] = ()


def figure_values(readings: Sequence[Gpu] | Sequence[Host], name: str) -> list[float]:
    """Return one figure of readings; nan where a reading lacks it."""
    values = [getattr(reading, name) for reading in readings]
    return [math.nan if value is None else float(value) for value in values]


@dataclass(frozen=True, slots=True)
class OpenWork:
    """The open step or span by the last pulse, aged to now.

    A step without seconds has ended, and nothing is known yet of what came after it.
    """

    step: int | None = None
    step_seconds: float | None = None
    phase: str | None = None
    phase_seconds: float | None = None
    role: str | None = None
    stage: str | None = None
    spans: list[tuple[str, float]] = field(default_factory=list)
    silent_for: float | None = None  # seconds since the process was last heard; None once it has ended
    restarting: float | None = None  # seconds since the last step, while an elastic restart has not led to another one
    # The phases of the open step so far, by its pulses, with their seconds, in order; None: time in an unknown phase.
    parts: list[tuple[str | None, float]] = field(default_factory=list)
    typical: float | None = None  # seconds, the median of such steps
    limit: float | None = None  # seconds beyond which it will be a slow one
    start: StartWait | None = None  # what a run without a step waits for, or waited for at its end
    error: str | None = None  # where nothing moves: the error that was printed last, and its place
    is_unheard: bool = False  # whether the line to its host is silent: what it has done since is not known


@dataclass(frozen=True, slots=True)
class FindingChange:
    """A finding of severity warning or above that appeared, got worse or cleared while a run was followed."""

    t: float  # seconds, on the watcher's clock
    kind: str  # present (when the watcher came) | appeared | worse | cleared
    finding: Finding

    def __str__(self) -> str:
        how = {"worse": "worse: ", "cleared": "cleared: "}.get(self.kind, "")
        return f"{how}{self.finding.title}"


@dataclass(frozen=True, slots=True)
class View:
    """A frozen snapshot for the screens: the report with curves and live facts."""

    report: Report
    verdict: Finding  # one line: the first finding, or that there is none
    open: OpenWork
    step_seconds: Curve
    phase_seconds: dict[str, Curve]  # mean seconds of the phase a step, in the order of the steps' flow
    metrics: dict[str, Curve]
    tokens_per_second: Curve
    notes: list[str] = field(default_factory=list)
    console: tuple[str, ...] = ()  # the newest lines of the child's output, cleaned
    console_lines: int = 0  # lines seen so far, so that a screen knows how many of `console` are new
    console_starts: tuple[int, ...] = ()  # the byte of the file at which each line of `console` begins
    console_file: Path | None = None  # all of them; None: there is no such file, as in a replay
    label: str | None = None  # "REPLAY", "SIMULATED GPU"...: shown on every screen
    loading: float | None = None  # share of the history read so far, while it is being read
    console_times: tuple[float, ...] = ()  # when each line of `console` was first seen (monotonic); nan: before we came
    details: Details = field(default_factory=Details)
    loop: LoopTime = field(default_factory=LoopTime)  # what a comparison with other runs is made of
    typical_startup: float | None = None  # seconds, of previous runs of the command; None once a step is known
    previous_run: PreviousRun | None = None  # that this one is compared with
    signals: tuple[Signal, ...] = ()  # what it learns by, the most telling first
    # What changed since this reader's view before.
    finding_changes: tuple[FindingChange, ...] = field(default=(), compare=False)
    # By the host's clock, which says where Python was; of single steps it is the only one that tells.
    host_step_seconds: Curve = field(default_factory=Curve)
    host_phase_seconds: dict[str, Curve] = field(default_factory=dict)

    @property
    def against(self) -> str:
        """Return `6% faster than the run of Thu 14:02`, of the last comparable one; empty where nothing is certain."""
        before = self.previous_run
        return "" if before is None else before.against(self.report.run.started)


def make_details(state: RunState, over: bool) -> Details:
    """Return the details for the screens other than the overview.

    Args:
        over: whether the run has ended: nothing is open then.
    """
    main = state.main
    lead = min(wall_time.training_processes(state), key=lambda producer: producer.rank, default=None)
    return Details(
        steps=tuple(main.latest.steps()),
        timed=tuple(main.timed),
        spans=tuple(main.marks),
        throttle_events=_throttle_events(state, over),
        gpus=_gpus(state),
        host=tuple(state.host),
        kinds=_kinds(main),
        distributions=_distributions(main.device.phases if has_phases(main.device) else _host_phases(main)),
        host_distributions=_distributions(_host_phases(main)),
        frames={phase: _most_frequent(table) for phase, table in main.samples.by_phase().items()},
        wall_offset=lead.wall_offset if lead is not None else None,
        clock=step_clock(main.timelines, main.latest.steps()),
        occurrences=tuple(_occurrences(state)),
    )


def _occurrences(state: RunState) -> Iterator[Occurrence]:
    """Yield the alerts other than slow steps, by the pace of the run, and the newest steps that were traced."""
    main = state.main
    before = main.last_index - main.pace.steps  # a resumed run does not begin with step 1
    for row in (*state.alerts, *main.alerts):
        if row.slow_step is None and main.pace.steps:
            step = before + max(1, round(main.pace.done(row.t)))
            yield Occurrence("alert", step, step)
    for trace in (main.trace, *main.traced_parts.values()):
        if trace is not None:
            yield Occurrence("trace", trace.first, trace.first + max(1, trace.steps) - 1)


def _host_phases(main: RankState) -> dict[str, Durations]:
    return {name: stats.seconds for name, stats in main.phases.items()}


def _distributions(phases: dict[str, Durations]) -> dict[str, list[tuple[float, int]]]:
    return {name: distribution(column.settled().quantiles) for name, column in phases.items()}


def _throttle_events(state: RunState, over: bool) -> tuple[ThrottleEvent, ...]:
    if not any(watch.episodes.all_episodes() for watch in state.throttles.gpus.values()):
        return ()
    return tuple(throttle_events(state.throttles, state.main.timelines, over, used_gpus(state)))


def _gpus(state: RunState) -> dict[str, GpuDetail]:
    gpu_details = {}
    for uuid, readings in state.gpus.items():
        watch = state.throttles.gpus.get(uuid)
        if watch is None:
            gpu_details[uuid] = GpuDetail(tuple(readings))
            continue
        link = watch.link
        lanes = (link.generation, link.generation_max, link.lanes, link.lanes_max)
        gpu_details[uuid] = GpuDetail(readings=tuple(readings), reference=watch.reference.clock, link=lanes)
    return gpu_details


def _kinds(main: RankState) -> tuple[KindRow, ...]:
    """Return the kinds of step; empty where there is only one."""
    if len(main.baselines) < 2:
        return ()
    return tuple(_kind(kind, baseline) for kind, baseline in list(main.baselines.items())[:MAX_SHOWN_KINDS])


def _kind(kind: StepKind, baseline: Baseline) -> KindRow:
    durations = baseline.durations
    seconds = median(durations) if durations else math.nan
    return KindRow(
        role=kind.role,
        stage=kind.stage,
        steps=baseline.seen,
        window=len(durations),
        seconds=seconds,
        phases=baseline.typical_phases(),
    )


def _most_frequent(table: dict[Place, int]) -> list[tuple[str, int]]:
    return [(str(place), count) for place, count in sorted(table.items(), key=lambda row: -row[1])[:MAX_SHOWN_PLACES]]


def distribution(quantiles: Quantiles) -> list[tuple[float, int]]:
    """Return (begin, count) of each bar; bars are of equal width in the logarithm."""
    if not quantiles.bins:
        return []
    first, last = min(quantiles.bins), max(quantiles.bins)
    wide = 1 + (last - first) // MAX_BARS
    bars = [0] * (1 + (last - first) // wide)
    for bin_, count in quantiles.bins.items():
        bars[(bin_ - first) // wide] += count
    return [(STEP ** (first + index * wide), count) for index, count in enumerate(bars)]


# The curves of a view.

# Of a run known by its pace alone. A host that waits for the device in one step of many waits some times in each
# of these; between two waits its steps tell how fast it queues.
MAX_CURVE_STRETCHES = 16


def curve_arguments(state: RunState) -> dict[str, Any]:
    """Return the keyword arguments of a View that hold curves."""
    main = state.main
    return {
        "step_seconds": step_seconds(state),
        "phase_seconds": _phase_seconds(state),
        "host_step_seconds": _seconds(main.step_seconds, main),
        "host_phase_seconds": _host_phase_seconds(main),
        "metrics": {name: _curve(column) for name, column in ordered(state.metrics).items()},
        "tokens_per_second": _tokens_by_pace(main) if uses_device(state) else _tokens_per_second(main),
    }


def step_seconds(state: RunState) -> Curve:
    """Return the seconds a step.

    On a GPU by the device's clock, or by the marks of the run's pace: the host runs ahead and waits in few steps.
    """
    main = state.main
    if not uses_device(state):
        return _seconds(main.step_seconds, main)
    return _curve(main.device.paces) if main.device.is_known else _pace(main)


def _phase_seconds(state: RunState) -> dict[str, Curve]:
    lane = state.main.device
    if has_phases(lane):
        return {name: _curve(column) for name, column in lane.phases.items()}
    return _host_phase_seconds(state.main)


def _host_phase_seconds(main: RankState) -> dict[str, Curve]:
    return {name: _seconds(stats.seconds, main) for name, stats in main.phases.items()}


def _seconds(column: Column, main: RankState) -> Curve:
    """Return the curve of seconds that a step takes by the host's clock; means are without the run's first step."""
    curve, first = _curve(column), main.step_seconds.settled().opening
    return curve if first is None else without_first(curve, column.opening, first[0])


def _pace(main: RankState) -> Curve:
    """Return the seconds a step over stretches of the whole run."""
    return _stretch_curve(main, lambda a, b: (b[0] - a[0]) / (b[1] - a[1]))


def _tokens_by_pace(main: RankState) -> Curve:
    """Return the tokens a second over the same stretches: the host may run ahead in single steps."""
    tokens, paces = _curve(main.tokens), _curve(main.device.paces)
    if main.device.is_known and tokens.width == paces.width:
        seconds = dict(zip(paces.x, paces.mean, strict=True))
        totals = zip(tokens.x, tokens.mean, strict=True)
        rows = [(x, tokens_done / seconds[x]) for x, tokens_done in totals if seconds.get(x, 0.0) > 0]
        rates = [rate for _, rate in rows]
        return Curve([x for x, _ in rows], rates, rates, rates, tokens.width, tokens.end)
    if not main.pace.tokens:
        return Curve()
    return _stretch_curve(main, lambda a, b: (b[2] - a[2]) / (b[0] - a[0]))


def _stretch_curve(main: RankState, figure: Callable[[Mark, Mark], float]) -> Curve:
    marks = main.pace.whole
    marks = marks[:: max(1, -(-len(marks) // MAX_CURVE_STRETCHES))]
    pairs = [(a, b) for a, b in pairwise(marks) if b[1] > a[1] and b[0] > a[0]]
    x = [a[1] + 1.0 for a, _ in pairs]
    means = [figure(a, b) for a, b in pairs]
    width = max((b[1] - a[1] for a, b in pairs), default=1)
    return Curve(x, means, means, means, width, float(main.last_index) if pairs else None)


def split_evenly(values: Sequence[float], most: int) -> Iterator[list[float]]:
    """Return the known values in at most so many parts of nearly equal size."""
    parts = min(most, len(values))
    ends = [part * len(values) // parts for part in range(parts + 1)] if parts else []
    return ([value for value in values[a:b] if math.isfinite(value)] for a, b in pairwise(ends))


def _curve(column: Column) -> Curve:
    return column.curve()


def _tokens_per_second(main: RankState) -> Curve:
    """Return the tokens by the time from step to step, pauses between steps included."""
    tokens, seconds = _curve(main.tokens), _seconds(main.pace_seconds, main)
    rates = [a / b if b > 0 else math.nan for a, b in zip(tokens.mean, seconds.mean, strict=False)]
    sample = None if tokens.sample is None or seconds.sample is None else tokens.sample.by(seconds.sample)
    return Curve(tokens.x, rates, rates, rates, tokens.width, tokens.end, sample=sample)
