"""What is known of a run at one moment: the one answer that screens, `report --json` and tests read.

The names of the fields are the keys of `trainmon report --json`; they are stable. None is "unknown", never 0.
Times are seconds, shares are fractions of 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from monitor.model.activity import Range
from monitor.model.detail_rows import Details
from monitor.model.earlier import Earlier
from monitor.model.remains import WhatIf
from monitor.model.speed_classes import SpeedClasses
from monitor.units import brief


@dataclass(slots=True)
class Run:
    id: str | None = None
    name: str | None = None
    command: list[str] = field(default_factory=list)
    host: str | None = None
    started: float | None = None  # Unix time
    ranks: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    source: str | None = None  # who tells the steps: hooks | native | console; None while nobody does
    imported: bool = False  # made from a log, after the fact
    recording: bool = False  # read from a recording's file


@dataclass(slots=True)
class Outcome:
    state: str = "running"  # running | finished | failed | killed | lost
    exit_code: int | None = None
    signal: int | None = None
    error: str | None = None  # the exception that ended the program, where it is known


@dataclass(slots=True)
class Progress:
    steps_done: int = 0
    steps_total: int | None = None
    steps_ok: int = 0
    steps_skipped: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    fraction: float | None = None
    eta_seconds: float | None = None
    eta_low: float | None = None  # the range that the run's own past speeds give
    eta_high: float | None = None
    elapsed_seconds: float | None = None
    cost: float | None = None
    cost_total: float | None = None
    restarts: int = 0  # elastic restarts after which steps went on
    steps_again: int = 0  # steps that these made necessary once more; they count once in the others


@dataclass(slots=True)
class Rates:
    steps_per_second: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    mfu: float | None = None


@dataclass(slots=True)
class Throughput(Rates):
    """Rates since the first step: from its begin to the last step's end. `recent` is the latest stretch.

    Since the first step is the one base of all that is said of gains: this speed times the gain is what is promised.
    """

    recent: Rates = field(default_factory=Rates)
    recent_seconds: float | None = None  # that `recent` is over
    recent_steps: int | None = None
    expected_tokens_per_second: float | None = None  # as `--expect-tps` said
    mfu_formula: list[str] = field(default_factory=list)  # how `mfu` comes about, a line a figure
    mfu_unknown: str | None = None  # why there is none, where GPUs are at work
    mfu_of_program: str | None = None  # what the program prints as its MFU, where that is of another card's peak
    # Share of step time in which the GPU certainly had work in its queue, at least; None where events told nothing.
    busy_share: float | None = None


@dataclass(slots=True)
class Wall:
    """Where the elapsed time went. All parts but `total` add up to `total`; a step that is open counts, too.

    `startup` is None, and the other parts are 0, where steps were told and the time of none of them: then none of it
    is known. So it is where a program prints one single line.
    """

    total: float | None = None
    startup: float | None = None
    steps: float = 0.0
    spans: dict[str, float] = field(default_factory=dict)
    between_steps: float = 0.0
    teardown: float = 0.0

    @property
    def stepping(self) -> float:
        """From the first step's begin on, without what came after the last: what the speed since then is made of."""
        return self.steps + sum(self.spans.values()) + self.between_steps


@dataclass(slots=True)
class PhaseRow:
    """`share` is of all step time; mean, p50, p95 and max are over the steps in which the phase occurs.

    On a GPU the rows are the device's (clock `cuda`) as far as CUDA events told them: estimates from the steps that
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


@dataclass(slots=True)
class GpuClock:
    """The steps that CUDA events timed, and those that they could not; `Device` has the same and more."""

    steps: int
    dropped: int


@dataclass(slots=True)
class AccountRow:
    """A part of the device's time in steps, as a share: at least, and at most.

    All that is told at least adds up to no more than 1, and all at most to no less.
    """

    what: str  # "forward", "waiting for data", "synchronizing at train.py:107"...
    state: str  # busy | copy | idle
    least: float | None  # None: not known
    most: float | None  # the same; such time is then in the most of other parts
    by: str = "events"  # events | host | looks | driver: what it is known from
    looks: int | None = None  # of those that its range is counted from: all


@dataclass(slots=True)
class IdlePlace:
    """A place in the program at which it was seen while the device had no work queued for certain."""

    place: str
    phase: str
    share: float  # of the looks in timed steps
    looks: int  # all looks in timed steps: how far the share can be relied on
    seconds: float  # a step, at most


@dataclass(slots=True)
class OutsideRow:
    """What the run did outside its steps: evaluations, checkpoints and other spans, by the host's clock."""

    what: str
    seconds: float
    share: float  # of the run's elapsed time
    busy_least: float | None = None  # of it, by the driver: SM activity, and the time in which any kernel ran
    busy_most: float | None = None


@dataclass(slots=True)
class LossRow:
    """A part of the hardware's peak that the training does not reach, as a share of the peak."""

    what: str
    share: float


@dataclass(slots=True)
class MatrixProduct:
    """What these GPUs reach in a plain matrix product, as it was measured when somebody asked for it."""

    share: float | None = None  # of the peak, in the format of the run's products; None: `unknown` says why
    tflops: float | None = None  # of all GPUs of the rank together
    format: str | None = None  # fp32 | tf32 | bf16 | fp16
    measured: float | None = None  # unix time; of several GPUs the oldest
    same_card: bool = False  # on these very GPUs; else on others of their name
    holds: bool = True  # False: the training itself reaches more, so it is no step on the way from the peak
    unknown: str | None = None


@dataclass(slots=True)
class Estimate:
    """How busy usual steps keep the device, by steps before which it was held up so that kernels ran back to back.

    Shares are of a usual step's time; None: not known, for too few of these steps tell anything.
    """

    steps: int = 0  # that tell something
    void: int = 0  # that tell nothing: the host was not certainly ahead
    delay_seconds: float = 0.0  # of all of them
    busy_least: float | None = None  # the mean; at least and at most, for what may have been idle in these steps, too
    busy_most: float | None = None
    range_least: float | None = None  # of single steps, with a margin: between these two lies a usual step
    range_most: float | None = None
    phases: dict[str, float] = field(default_factory=dict)  # busy in each


@dataclass(slots=True)
class Device:
    """How the run uses its GPUs, by the device's own clock and the driver. Shares are of the time in steps.

    Between two marks the device may have waited for the host: so `busy` is a range. At least: from the host recording a
    mark to the device passing it, and what the SMs were active. At most: all but what is known to be idle.
    """

    clock: str | None = None  # cuda: by CUDA events; None: only the host's clock tells of the steps
    timed_steps: int = 0
    dropped: int = 0  # steps that were to be timed, and could not be
    seconds: float | None = None  # a step, the mean
    busy_least: float | None = None
    busy_most: float | None = None
    queued: float | None = None  # share in which it certainly had work in its queue
    queue_empty: float | None = None  # share of step time in which the host was never ahead of the device
    sm_active: float | None = None  # means over the steps, first ones left out; of all programs on the GPU
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    memory_active: float | None = None
    utilization: float | None = None
    pcie_rx: float | None = None  # bytes a second
    pcie_tx: float | None = None
    readings: int = 0
    bound: str | None = None  # device | host | data; None: not known
    gain_limit: float | None = None  # times as fast: more cannot come of removing idle time; None: not known
    account: list[AccountRow] = field(default_factory=list)
    outside_steps: list[OutsideRow] = field(default_factory=list)  # no part of the account, which is of the steps
    idle_at: list[IdlePlace] = field(default_factory=list)
    # From the peak down to the MFU: what is lost to idle time, to other ranks, and within kernels; with the MFU they
    # add up to 1. Empty where the MFU is not known.
    below_peak: list[LossRow] = field(default_factory=list)
    matrix_product: MatrixProduct | None = None  # None where the MFU is not known
    estimate: Estimate | None = None  # None: no step was delayed
    delays: str | None = None  # where delays were asked for: whether there are any, and why not


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
    baseline: float  # the usual seconds of such a step
    culprit: str  # the phase that grew most
    phases: dict[str, float] = field(default_factory=dict)
    usual_phases: dict[str, float] = field(default_factory=dict)
    role: str | None = None
    stage: str | None = None
    ended: float | None = None  # on the clock of its machine
    steps: int = 1  # from `step` on, which the device's clock tells only together

    def __str__(self) -> str:
        """The line people know from their own logs: `Slow step 214 (65.3 s): generation 45.2 s, ...; usual 18.0 s`."""
        parts = ", ".join(f"{name} {brief(seconds)}" for name, seconds in self.breakdown().items())
        told = f": {parts}" if parts else ""
        return f"Slow {self.which} ({brief(self.seconds)}){told}; usual {brief(self.baseline)}"

    @property
    def which(self) -> str:
        """`step 214`, `steps 1201 to 1220`."""
        return f"step {self.step}" if self.steps == 1 else f"steps {self.step} to {self.step + self.steps - 1}"

    def breakdown(self) -> dict[str, float]:
        """The phases worth telling: those that took a hundredth of the step, and the culprit."""
        least = 0.01 * self.seconds
        return {name: each for name, each in self.phases.items() if each >= least or name == self.culprit}


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
    throttle: dict[str, float] = field(default_factory=dict)  # seconds held back, by reason
    ours: bool | None = None  # whether the training uses it
    mig_of: str | None = None  # of a MIG instance: its card
    simulated: bool = False
    # Over the steps, first ones left out. Once the run has ended the figures above are these means, too: what the last
    # reading after the end shows is an idle card.
    over_steps: dict[str, Range] = field(default_factory=dict)


@dataclass(slots=True)
class HostRow:
    """The newest host reading; bytes, percent, bytes a second. `note` says what cannot be read, and why."""

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
    wait_seconds: float | None = None  # mean seconds a step, of late, that it waits for slower ranks; at least
    steps: int = 0
    usual_wait: float | None = None  # the same, the median
    wait_share: float | None = None  # that, of the time from step to step: the straggler's share is the others' mean
    clock: str = "host"  # cuda: by CUDA events, where enough steps of every rank were timed


@dataclass(slots=True)
class Straggler:
    """The rank for which the others wait, where that is clear."""

    rank: int
    share: float  # of the others' time from step to step that they usually wait; at least
    seconds: float  # the same a step
    steps: int  # that were compared
    culprit: str | None = None  # the phase in which it takes longer, by the device's clock


@dataclass(slots=True)
class Finding:
    code: str
    severity: str  # info | warning | critical
    title: str
    evidence: list[str] = field(default_factory=list)
    advice: str = ""
    lost_fraction: float | None = None  # share of wall time that fixing it can gain at most
    steps: list[int] = field(default_factory=list)
    culprit: str | None = None  # the phase that it points at
    over: bool = False  # the cause is gone: what it has cost is lost, and the steps to come gain nothing
    # Share of the time since the first step that steps can gain at most; None where it is no step's, over or unknown.
    recoverable: float | None = None


@dataclass(slots=True)
class Suggestion:
    """What may help and shows no cost in this run: worth a trial, and no finding."""

    text: str
    memory: str  # what it does to the memory
    because: str  # why this run could gain


@dataclass(slots=True)
class Alert:
    time: float | None  # Unix time
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """A finding of severity warning or above that came, grew worse or went while somebody watched."""

    t: float  # seconds, on the watcher's clock
    kind: str  # present (when the watcher came) | appeared | worse | cleared
    finding: Finding

    def __str__(self) -> str:
        how = {"worse": "worse: ", "cleared": "cleared: "}.get(self.kind, "")
        return f"{how}{self.finding.title}"


@dataclass(slots=True)
class Dropped:
    events: int = 0  # by the producers, before they reached a journal
    lines: int = 0  # by the reader: unreadable, oversized or missing lines
    broken_off: int = 0  # training processes that ended without a last word: killed, or their disk was full


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
    straggler: Straggler | None = None
    to_try: list[Suggestion] = field(default_factory=list)
    what_if: WhatIf | None = None  # where it was asked for
    speed_classes: SpeedClasses | None = None  # where the configuration has bounds
    gpu_clock: GpuClock | None = None  # None: no CUDA events were told
    device: Device | None = None  # None: the run uses no GPU, as far as it is known
    host_phases: list[PhaseRow] = field(default_factory=list)  # where a device is used: where Python was


@dataclass(frozen=True, slots=True)
class Curve:
    """A bounded curve over steps (or readings): for each bucket its first x, and the mean, low and high in it.

    A mean of nan is a gap: every value of that bucket was missing or non-finite.
    """

    x: Sequence[float] = ()
    mean: Sequence[float] = ()
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    width: int = 1  # steps a bucket
    end: float | None = None  # the last x: the last bucket may not be full yet


@dataclass(frozen=True, slots=True)
class OpenWork:
    """What the training is in the middle of, from its last pulse, aged to now.

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
    # What the open step did so far, as far as pulses saw it: seconds of each phase in turn; None is time nobody saw.
    parts: list[tuple[str | None, float]] = field(default_factory=list)
    usual: float | None = None  # seconds that such a step usually takes
    limit: float | None = None  # seconds beyond which it will be a slow one


@dataclass(frozen=True, slots=True)
class View:
    """One frozen snapshot for the screens: the report, and the curves and live facts beside it."""

    report: Report
    verdict: Finding  # the one line that says it: the first finding, or that nothing stands out
    open: OpenWork
    step_seconds: Curve
    phase_seconds: dict[str, Curve]  # mean seconds of the phase a step, in the order of the steps' flow
    metrics: dict[str, Curve]
    tokens_per_second: Curve
    notes: list[str] = field(default_factory=list)
    console: tuple[str, ...] = ()  # the newest lines of the child's output, cleaned
    console_lines: int = 0  # lines seen so far, so that a screen knows how many of `console` are new
    label: str | None = None  # "REPLAY", "SIMULATED GPU"...: shown on every screen
    loading: float | None = None  # share of the history read so far, while it is being read
    console_times: tuple[float, ...] = ()  # when each line of `console` was first seen (monotonic); nan: before we came
    details: Details = field(default_factory=Details)
    usual_startup: float | None = None  # seconds, of earlier runs of the command; told while no step is known
    earlier: Earlier | None = None  # the run that this one is measured by, once it was found
    turns: tuple[Turn, ...] = field(default=(), compare=False)  # what turned since the view before: of the reader
    # By the host's clock, which says where Python was; of single steps it is the only one that tells.
    host_step_seconds: Curve = Curve()
    host_phase_seconds: dict[str, Curve] = field(default_factory=dict)
