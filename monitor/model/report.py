"""The report: what is known about a run at one moment, for screens, `report --json` and tests.

The names of the fields are the keys of `trainmon report --json`; they are stable. None is "unknown", never 0.
Times are seconds, shares are fractions of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor.model.collected import Collected
from monitor.model.cycle import Cycle
from monitor.model.device.device_report import Device, GpuClock
from monitor.model.device.gpu_activity import Range
from monitor.model.device.trace_report import TraceReport
from monitor.model.steps.speed_classes import SpeedClasses
from monitor.model.steps.stack_samples import UnnamedTime
from monitor.step_blocks import OTHER
from monitor.units import brief
from trainhooks.protocol.facts import RunFacts
from trainhooks.protocol.vocabulary import BETWEEN_STEPS


@dataclass(slots=True)
class FarHost:
    """A host that a run is watched from afar on. Its clock is told against that of the host of rank 0."""

    name: str  # as a person named it
    hostname: str | None = None  # its own name
    clock: float | None = None  # seconds that its monotonic clock is ahead
    uncertainty: float | None = None  # seconds by which that may be wrong
    silent_seconds: float | None = None  # since its last word, where it should speak


@dataclass(slots=True)
class Run:
    id: str | None = None
    name: str | None = None
    command: list[str] = field(default_factory=list)
    host: str | None = None
    started: float | None = None  # Unix time
    ranks: int = 0
    rank: int | None = None  # the one that this report was asked for; None: of several, the lowest one's figures
    facts: RunFacts = field(default_factory=RunFacts)  # as JSON: its table
    source: str | None = None  # of the steps: hooks | native | console; None while there is none
    imported: bool = False  # made from a log, after the fact
    attached: bool = False  # looked at from outside: trainmon did not start it
    recording: bool = False  # read from a recording's file
    trainings: str | None = None  # one line, where several ran under the command; the report is of one of them
    hosts: list[FarHost] = field(default_factory=list)  # empty where the run is on this one


@dataclass(slots=True)
class Outcome:
    state: str = "running"  # running | finished | failed | killed | lost
    exit_code: int | None = None  # also while a training goes on that the command has left behind
    signal: int | None = None
    error: str | None = None  # the exception that ended the program, where it is known
    place: str | None = None  # the user's line that it came from
    left: str | None = None  # what lives on after the command's end


@dataclass(slots=True)
class Progress:
    steps_done: int = 0
    steps_total: int | None = None
    steps_ok: int = 0
    steps_skipped: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    fraction: float | None = None
    eta_seconds: float | None = None
    eta_low: float | None = None  # the range in which it lies eight times in ten, by the run's past speeds
    eta_high: float | None = None
    elapsed_seconds: float | None = None
    cost: float | None = None
    cost_total: float | None = None
    restarts: int = 0  # elastic restarts after which steps went on
    steps_again: int = 0  # steps repeated after these; they count once in the other figures
    epoch: int | None = None  # the pass over the loader of a plain loop, from 1
    epochs_total: int | None = None  # by the program's arguments
    batch: int | None = None  # of that pass
    batches: int | None = None
    by_epochs: bool = False  # each of these steps is an epoch: the program prints nothing finer
    limit_seconds: float | None = None  # until the scheduler ends the job

    def place(self) -> str:
        """Return `epoch 2 of 3, batch 18 of 25`; empty where passes over the data are unknown."""
        if self.epoch is None or self.batch is None:
            return ""
        of = f" of {self.epochs_total:,}" if self.epochs_total else ""
        return f"epoch {self.epoch:,}{of}, batch {self.batch:,} of {self.batches:,}"


@dataclass(slots=True)
class Rates:
    steps_per_second: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    mfu: float | None = None
    counted: float | None = None  # share of the steps whose tokens or samples are known; None: none is counted


@dataclass(slots=True)
class Throughput(Rates):
    """Rates since the first step: from its begin to the last step's end. `recent` is the latest stretch.

    All gains are relative to the time since the first step: this speed times the gain is the possible speed.
    """

    recent: Rates = field(default_factory=Rates)
    collected: Collected = field(default_factory=Collected)
    rank: int | None = None  # whose rates these are; None: the only one's
    job: Rates | None = None  # the sum over all ranks, where each is known to train on batches of its own
    recent_seconds: float | None = None  # that `recent` is over
    recent_steps: int | None = None
    expected_tokens_per_second: float | None = None  # as `--expect-tps` said
    mfu_formula: list[str] = field(default_factory=list)  # the calculation of `mfu`, a line for each figure
    mfu_unknown: str | None = None  # why there is none, where GPUs are at work
    mfu_of_program: str | None = None  # a note where the MFU that the program prints is of another card's peak
    # Share of step time in which the GPU certainly had work in its queue, at least; None: no events.
    busy_share: float | None = None


@dataclass(slots=True)
class Wall:
    """The parts of the elapsed time, which add up to `total`; the open step counts.

    `startup` is None, and the other parts are 0, where steps are known but no step's time: then none of it
    is known, as for a program that prints a single line.
    """

    total: float | None = None
    startup: float | None = None
    steps: float = 0.0
    spans: dict[str, float] = field(default_factory=dict)
    between_steps: float = 0.0
    teardown: float = 0.0
    # Seconds of `spans` that follow the last step of a run that has ended, and occurred in no loop before: a final
    # test, a benchmark, an export.
    afterwards: dict[str, float] = field(default_factory=dict)

    @property
    def parts(self) -> list[tuple[str, float]]:
        """Return every part by its name for people, in the order of time, the longest span first."""
        spans = sorted(self.spans.items(), key=lambda span: -span[1])
        after = [("between steps", self.between_steps), ("teardown", self.teardown)]
        return [("start-up", self.startup or 0.0), ("steps", self.steps), *spans, *after]

    @property
    def stepping(self) -> float:
        """Return the seconds from the first step's begin to the last one's end: the base of the speed since then."""
        return self.steps + sum(self.in_loop.values()) + self.between_steps

    @property
    def in_loop(self) -> dict[str, float]:
        """Return the seconds of the spans without what follows the training."""
        return {name: max(0.0, seconds - self.afterwards.get(name, 0.0)) for name, seconds in self.spans.items()}


MOST_STEPS = 0.9  # of all steps


@dataclass(slots=True)
class PhaseRow:
    """`share` is of all step time; mean, p50, p95 and max are over the steps in which the phase occurs.

    On a GPU the rows are the device's (clock `cuda`) as far as CUDA events measured them: estimates from the steps that
    were timed. For `busy_least` of such a phase the device had work queued, at least. The host's are in `host_phases`.
    """

    name: str
    share: float
    mean: float
    p50: float
    p95: float
    max: float
    clock: str
    count: int = 0  # steps in which it occurs
    busy_least: float | None = None
    gpu_seconds: float | None = None  # the mean by the device's clock, in rows of either clock
    once: float = 0.0  # seconds of one-offs beyond the typical ones, in all steps together: a first step, a compilation
    episodes: float = 0.0  # likewise, in slow steps that come again at no regular distance

    @property
    def usual_mean(self) -> float:
        """Return the mean seconds of a step in which it occurs, without what one-offs took beyond a typical one."""
        return self.recurring / self.count if self.count else self.mean

    @property
    def recurring(self) -> float:
        """Return the seconds in all steps together, one-offs left out."""
        return max(0.0, self.mean * self.count - self.once)

    @property
    def habit(self) -> float:
        """Return the seconds in all steps together that the run's rhythm takes: no one-offs, no slow steps."""
        return max(0.0, self.recurring - self.episodes)

    def is_seldom(self, steps: int) -> bool:
        """Return whether it occurs in so few of these steps that people are told in how many."""
        return 0 < self.count < MOST_STEPS * steps


def usual_shares(phases: Sequence[PhaseRow]) -> dict[str, float]:
    """Return each phase's share of step time without one-offs: a minute of compiling says nothing of other steps."""
    usual = {row.name: row.share * (row.usual_mean / row.mean if row.mean else 1.0) for row in phases}
    whole, total = sum(row.share for row in phases), sum(usual.values())
    return {name: part * whole / total if total else part for name, part in usual.items()}


@dataclass(slots=True)
class MetricRow:
    last: float | str | None = None
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    count: int = 0
    nonfinite: int = 0


@dataclass(slots=True)
class SlowStep:
    step: int
    rank: int
    seconds: float
    baseline: float  # the median seconds of such a step
    culprit: str  # the phase that grew most
    phases: dict[str, float] = field(default_factory=dict)
    usual_phases: dict[str, float] = field(default_factory=dict)
    role: str | None = None
    stage: str | None = None
    ended: float | None = None  # on the clock of its machine
    steps: int = 1  # from `step` on, which the device's clock times only together

    def __str__(self) -> str:
        """Return `Slow step 214 (65.3 s): generation 45.2 s, ...; typical 18.0 s`."""
        parts = ", ".join(f"{name} {brief(seconds)}" for name, seconds in self.breakdown().items())
        breakdown = f": {parts}" if parts else ""
        return f"Slow {self.which} ({brief(self.seconds)}){breakdown}; typical {brief(self.baseline)}"

    @property
    def which(self) -> str:
        """Return `step 214`, `steps 1201 to 1220`."""
        return f"step {self.step}" if self.steps == 1 else f"steps {self.step} to {self.step + self.steps - 1}"

    def breakdown(self) -> dict[str, float]:
        """Return the phases that took a hundredth of the step, and the culprit."""
        least = 0.01 * self.seconds
        return {name: seconds for name, seconds in self.phases.items() if seconds >= least or name == self.culprit}


@dataclass(slots=True)
class NamedSeconds:
    name: str
    seconds: float


@dataclass(slots=True)
class GpuRow:
    uuid: str
    index: int
    name: str | None = None
    utilization: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    temperature: float | None = None
    power: float | None = None
    power_limit: float | None = None
    sm_clock: int | None = None
    sm_clock_max: int | None = None
    reasons: list[str] = field(default_factory=list)  # clock event reasons in words
    throttle: dict[str, float] = field(default_factory=dict)  # throttled seconds, by reason
    ours: bool | None = None  # whether the training uses it
    mig_of: str | None = None  # of a MIG instance: its card
    simulated: bool = False
    # Over the steps, first ones left out. After the end of the run the figures above are these means: the last readings
    # show an idle card.
    over_steps: dict[str, Range] = field(default_factory=dict)


@dataclass(slots=True)
class HostRow:
    """The newest host reading; bytes, percent, bytes a second. `note` says what cannot be read and why."""

    cores: int | None = None
    cpu: float | None = None
    load1: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None
    swap_used: int | None = None
    disk_free: int | None = None
    disk_read: float | None = None
    disk_write: float | None = None
    net_in: float | None = None
    net_out: float | None = None
    tree_cpu: float | None = None
    tree_rss: int | None = None
    tree_processes: int | None = None
    tree_threads: int | None = None
    note: str | None = None


@dataclass(slots=True)
class RankRow:
    rank: int
    step_seconds: float | None = None  # median seconds a step, by `clock`; so are the waits
    wait_seconds: float | None = None  # mean seconds a recent step that it waits for slower ranks; lower bound
    steps: int = 0
    usual_wait: float | None = None  # the same as a median
    wait_share: float | None = None  # of the time from step to step; the straggler's share is the mean of the others'
    clock: str = "host"  # cuda: by CUDA events, where enough steps of every rank were timed
    phases: dict[str, float] = field(default_factory=dict)  # median seconds of a recent step, and of what precedes it
    host: str | None = None  # where the ranks are on several
    is_mean: bool = False  # step (from step to step), waits and phases are means, by the calls of collectives


@dataclass(frozen=True, slots=True)
class CollectivesRow:
    """What the collectives of a step take, by the times at which all ranks call them; seconds are means a step."""

    steps: int  # that were compared
    calls: float  # a step
    bytes: float  # likewise, by the sizes of the inputs
    transfer_seconds: float  # from the last rank's last call in backward to the end of backward
    wait_seconds: float  # that a rank waits for the others, mean over ranks
    wait_outside: float  # the same of the rank whose figures are the run's, in other phases than backward
    period: float  # seconds from step to step


@dataclass(slots=True)
class Straggler:
    """The rank that the others clearly wait for."""

    rank: int
    share: float  # typical wait as a share of the others' time from step to step; lower bound
    seconds: float  # the same a step
    steps: int  # that were compared
    culprit: str | None = None  # the phase in which it takes longer; also what lies between steps
    own_seconds: float | None = None  # of a typical step in that phase
    others_seconds: float | None = None  # the same of the other ranks, mean
    basis: str = "phases"  # how it is known: phases | calls (of collectives) | samples (of the stack)
    late_steps: int | None = None  # by calls: in which the others waited for it
    place: str | None = None  # where it mostly is in that phase, by stack samples

    @property
    def where(self) -> str:
        """Return `in data`, `in no phase`, `between steps`; empty where it is unknown."""
        if self.culprit is None or self.culprit == BETWEEN_STEPS:
            return self.culprit or ""
        return "in no phase" if self.culprit == OTHER else f"in {self.culprit}"


@dataclass(frozen=True, slots=True)
class Gain:
    """Times as fast as now, once a finding is fixed. `likely` and `least` are None where only the bound is known."""

    least: float | None
    likely: float | None
    most: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Seconds since the first step that go to a finding, of `of` seconds. As of a gain, two may be unknown."""

    low: float | None
    likely: float | None
    high: float
    of: float


@dataclass(slots=True, kw_only=True)
class Finding:
    code: str
    severity: str = ""  # info | warning | critical; of a finding about time the judge's
    title: str
    evidence: list[str] = field(default_factory=list)
    advice: str = ""
    cost: float | None = None  # share of the time since the first step that it is judged by; None: not by that
    certain: bool = True  # whether it is a fault, and its cost that of nothing else
    estimated: bool = False  # whether its cost, of this cause alone, is neither timed nor traced
    outside: bool = False  # whether the cause lies outside the program
    lost_fraction: float | None = None  # share of wall time that fixing it can gain at most
    # Likewise, what fixing it gains probably, and at least; None: only the bound is known.
    likely_fraction: float | None = None
    least_fraction: float | None = None
    once_fraction: float = 0.0  # the part of it that was once, as after the last step: fixing it makes no step faster
    steps: list[int] = field(default_factory=list)
    culprit: str | None = None  # the phase that it points at
    over: bool = False  # the cause is gone: fixing it gains nothing for the remaining steps
    # Share of the time since the first step that steps can gain at most; None: outside the steps, over or unknown.
    recoverable: float | None = None
    gain: Gain | None = None  # None likewise
    lost: Lost | None = None  # None likewise


@dataclass(slots=True)
class Suggestion:
    """A setting to try: it may help, but there is no measured cost in this run, so it is no finding."""

    text: str
    memory: str  # its effect on memory
    because: str  # why this run could gain


@dataclass(slots=True)
class Alert:
    """`slow_step` and `rank` identify the slow step that it reports, for the screens; the JSON leaves them out."""

    time: float | None  # Unix time
    code: str
    text: str
    slow_step: int | None = None
    rank: int | None = None


@dataclass(slots=True)
class Dropped:
    events: int = 0  # by the producers, before they reached a journal
    lines: int = 0  # by the reader: unreadable, oversized or missing lines
    parts: int = 0  # parts of steps whose time was no time: negative, or not a number
    broken_off: int = 0  # training processes that ended without a bye: killed, or their disk was full


@dataclass(frozen=True, slots=True)
class Projection:
    """Figures of a run; None is unknown."""

    step_seconds: float | None = None  # from step to step, pauses between steps included
    steps_per_second: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    eta_seconds: float | None = None
    wall_seconds: float | None = None  # so far, or of the whole run where it has ended
    cost: float | None = None  # the same
    cost_total: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The figures as they are (`now`) and as they would be at best (`then`)."""

    assumed: dict[str, float] = field(default_factory=dict)  # part -> what remains of it, as a share
    now: Projection = Projection()
    then: Projection = Projection()
    faster: float | None = None  # times, at most
    saved_seconds: float | None = None  # of the elapsed time


@dataclass(frozen=True, slots=True)
class Best:
    metric: str
    value: float
    word: str  # lowest | highest


@dataclass(frozen=True, slots=True)
class Member:
    """One training of several under a command. `curve` has steps and values of the metric that judges it."""

    number: int  # from 1
    name: str | None = None  # of its program
    state: str = "running"  # as of an outcome
    error: str | None = None
    started: float | None = None  # Unix time
    steps_done: int = 0
    steps_total: int | None = None
    startup_seconds: float | None = None
    elapsed_seconds: float | None = None
    eta_seconds: float | None = None
    steps_per_second: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    best: Best | None = None
    curve: tuple[tuple[float, float], ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # in a group those that differ

    @property
    def is_over(self) -> bool:
        return self.state != "running"


@dataclass(frozen=True, slots=True)
class BestMember(Best):
    number: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Several trainings under one command, in the order in which they began. `shown` is the one that a report is of."""

    done: int
    total: int | None = None  # planned
    elapsed_seconds: float | None = None  # since the first one began
    eta_seconds: float | None = None  # of all
    best: BestMember | None = None  # None: they are not judged by the same metric
    members: list[Member] = field(default_factory=list)
    shown: int = 0  # its number


@dataclass(slots=True)
class Report:
    run: Run
    outcome: Outcome
    progress: Progress
    throughput: Throughput
    wall: Wall
    phases: list[PhaseRow]
    metrics: dict[str, MetricRow]
    slow_steps: list[SlowStep]
    startup: list[NamedSeconds]
    gpus: list[GpuRow]
    host: HostRow
    ranks: list[RankRow]
    findings: list[Finding]
    alerts: list[Alert]
    dropped: Dropped
    verdict: str = ""  # the first finding of weight, else where the time goes and whether that could be judged
    straggler: Straggler | None = None
    collectives: CollectivesRow | None = None  # None: unknown, as where they are put into a GPU's queue
    to_try: list[Suggestion] = field(default_factory=list)
    what_if: WhatIf | None = None  # where it was asked for
    speed_classes: SpeedClasses | None = None  # where the configuration has bounds
    gpu_clock: GpuClock | None = None  # None: no CUDA events
    device: Device | None = None  # None: the run uses no GPU, as far as it is known
    host_phases: list[PhaseRow] = field(default_factory=list)  # where a device is used: where Python was
    unnamed: UnnamedTime | None = None  # None: no stack samples in it
    operators: TraceReport | None = None  # of the host, where no GPU is used; None: no step was traced
    cycle: Cycle | None = None  # None: the run does not collect what it trains on
    group: Group | None = None  # None: a single training

    @property
    def traced(self) -> TraceReport | None:
        """What ran in traced steps: on the GPU where one is used, else on the host."""
        return self.operators if self.device is None else self.device.trace
