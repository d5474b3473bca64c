"""The state of a run: its events folded, in bounded memory. Plain data; `fold` changes it, `summary` reads it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from monitor.arrays import np
from monitor.model.device.device_steps import WARM_UP_STEPS, DeviceLane
from monitor.model.device.gpu_activity import Activity
from monitor.model.device.throttle_watch import Throttles
from monitor.model.ranks.rank_waits import RankStats, RoleWork
from monitor.model.report import Member, SlowStep
from monitor.model.steps.baseline import Baseline, StepKind
from monitor.model.steps.iterations import Iterations
from monitor.model.steps.latest_steps import LatestSteps
from monitor.model.steps.pace import Pace
from monitor.model.steps.passes import FirstFetches, Passes
from monitor.model.steps.printed_position import Printed
from monitor.model.steps.series import Column, Durations, Spread, comes_by_itself
from monitor.model.steps.span_attribution import SpanAttribution
from monitor.model.steps.stack_samples import StackSamples
from monitor.model.steps.step_intervals import Timelines
from monitor.model.trend import Trend
from monitor.step_blocks import StepBlock
from trainhooks.protocol.events import Facts, Gpu, GpuTime, Host, Pulse, Span, Step, Trace
from trainhooks.protocol.facts import RunFacts
from trainhooks.protocol.vocabulary import ENV_STEPS, LOSS

# Sequence lengths of the steps, and the seconds by length, in bounded memory.

BIN_BITS = 3  # binary digits of a length that tell bins apart: eight in each octave


@dataclass(slots=True)
class Bin:
    """The steps whose longest sequence falls into one bin of lengths."""

    steps: int = 0
    seconds: float = 0.0
    tokens: int = 0
    padded: int = 0  # positions, over the steps that report both
    length: float = 0.0  # the sum of the lengths


@dataclass(slots=True)
class Lengths:
    """Steps by the length of their longest sequence: as reported, or as the batch was padded to."""

    bins: dict[int, Bin] = field(default_factory=dict)
    steps: int = 0
    longest: float = 0.0

    def add(self, block: StepBlock) -> None:
        nothing = np.full(len(block), np.nan)
        tokens, padded, samples = (block.amounts.get(name, nothing) for name in ("tokens", "padded_tokens", "samples"))
        with np.errstate(all="ignore"):
            longest = padded / samples
        if block.lengths is not None:
            longest = np.where(np.isnan(block.lengths[2]), longest, block.lengths[2])
        known = np.isfinite(longest) & (longest > 0)
        rows = zip(*(column[known].tolist() for column in (longest, block.duration, tokens, padded)), strict=True)
        for length, seconds, step_tokens, step_padded in rows:
            whole = int(length)
            coarse = max(0, whole.bit_length() - BIN_BITS - 1)
            place = (coarse << BIN_BITS) + (whole >> coarse)
            bin_ = self.bins.get(place)
            if bin_ is None:
                bin_ = self.bins[place] = Bin()
            bin_.steps += 1
            bin_.seconds += seconds
            bin_.length += length
            if step_tokens == step_tokens and step_padded == step_padded:
                bin_.tokens += int(min(step_tokens, step_padded))
                bin_.padded += int(step_padded)
            self.steps += 1
            self.longest = max(self.longest, length)

    def rows(self) -> list[tuple[float, Bin]]:
        """Return the mean length of each bin and the bin, the short ones first."""
        return [(bin_.length / bin_.steps, bin_) for _, bin_ in sorted(self.bins.items())]

    def typical(self) -> float | None:
        """Return the median length."""
        seen = 0
        for length, bin_ in self.rows():
            seen += bin_.steps
            if 2 * seen >= self.steps:
                return length
        return None


# The open step by its pulses: the phases that they show, with begin and end.

MAX_OPEN_PARTS = 64  # of one step; older ones become time in an unknown phase
MAX_BEGIN_DIFFERENCE = (
    0.25  # seconds by which two pulses may differ on when a phase began, and mean the same entry of it
)


@dataclass(slots=True)
class OpenStep:
    """The phases of the open step. Pulses come once a second: phases between two pulses are missing."""

    step: int | None = None
    parts: list[tuple[str, float, float]] = field(default_factory=list)  # phase, begin, end: seconds in the step

    def add_pulse(self, pulse: Pulse) -> None:
        if pulse.step is None or pulse.step_open is None:
            self.step, self.parts = None, []
            return
        here = pulse.step_open
        if pulse.step != self.step or (self.parts and here < self.parts[-1][2]):  # another or a repeated step
            self.step, self.parts = pulse.step, []
        if pulse.phase is None:
            return
        begin = here if pulse.phase_open is None else max(0.0, here - pulse.phase_open)
        if self.parts:
            name, since, upto = self.parts[-1]
            if name == pulse.phase and abs(begin - since) < MAX_BEGIN_DIFFERENCE:
                self.parts[-1] = (name, since, here)
                return
            begin = max(begin, upto)
        self.parts.append((pulse.phase, begin, here))
        if len(self.parts) > MAX_OPEN_PARTS:
            del self.parts[0]

    def parts_until(self, now: float) -> list[tuple[str | None, float]]:
        """Return the step's first `now` seconds in turn; None is time in which no phase was seen."""
        out: list[tuple[str | None, float]] = []
        at = 0.0
        for name, begin, end in self.parts:
            if begin - at > 0:
                out.append((None, begin - at))
            out.append((name, end - begin))
            at = end
        if now - at > 0:
            out.append((None, now - at))
        return out


# The GPUs of a run: joined by UUID, because index and process id differ inside containers.


def used_gpus(state: RunState) -> frozenset[str] | None:
    """Return the UUIDs of the GPUs that the training uses; None: not reported, or none of them is read."""
    used = driver_uuids(state, state.devices)
    cards = {state.gpus[uuid][-1].mig_of for uuid in used}  # what slows the card slows its parts
    return used | {card for card in cards if card is not None} or None


def driver_uuids(state: RunState, used: Iterable[str]) -> frozenset[str]:
    """Return the UUIDs of the GPUs and MIG instances, as the driver writes them, that go by these UUIDs."""
    bare = [_bare(uuid) for uuid in used]
    # A user may have abbreviated it.
    return frozenset(uuid for uuid in state.gpus if any(prefix and _bare(uuid).startswith(prefix) for prefix in bare))


def _bare(uuid: str) -> str:
    return uuid.lower().removeprefix("gpu-").removeprefix("mig-")


MAX_READINGS = 240  # host and GPU readings kept for the small curves: four minutes at one a second
MAX_KEPT_SLOW_STEPS = 200
MAX_OPENING = 16  # first steps kept one by one: compiling, autotuning and filling caches takes some of them
MAX_EARLY = 32  # spans before the first step kept one by one: those of a loop's first pass
MAX_SPAN_MARKS = 400  # spans kept for the timeline, which has hardly more columns
MAX_ALERTS = 500
MAX_RUN_NOTES = 50
MAX_UNIT_RATIO = 1.5  # of two losses in the same unit: a print is a sample or a running mean; a sum is times a batch
MIN_PRINTED = 2  # values of a printed loss; a single one may be a result at the end
UNKNOWN_SOURCE = "unknown"  # the source of a producer whose hello is missing
# The training's resident memory, and what of the machine's is in use; of the first, the trainers' and all others'.
TREE, MACHINE, TRAINERS, OTHER_PROCESSES = "tree", "machine", "trainers", "others"


@dataclass(slots=True)
class Producer:
    """One process that writes events."""

    source: str
    rank: int
    host: str | None
    wall_offset: float  # Unix time minus monotonic time
    process_started: float | None
    hello: float
    last_heard: float
    restart: int = 0  # elastic restarts before this process
    role: str | None = None  # among processes that differ in what they do
    work: RoleWork | None = None  # of one that trains nothing
    ended: float | None = None
    error: str | None = None
    place: str | None = None  # that the error came from
    dropped: int = 0
    devices: list[str] = field(default_factory=list)  # UUIDs of the GPUs that it uses


@dataclass(slots=True)
class PhaseStats:
    """The seconds of a phase in the steps in which it occurs."""

    clock: str = "host"
    seconds: Durations = field(default_factory=Durations)


@dataclass(slots=True)
class WallClock:
    """The raw sums of the elapsed time; `wall_time` makes the parts of the wall time of them."""

    first_step: float | None = None  # begin
    warm: float | None = None  # end of the warm-up steps
    warming: int = WARM_UP_STEPS  # warm-up steps still to come
    last_step: float | None = None  # end
    steps: float = 0.0  # seconds in steps
    startup: dict[str, float] = field(default_factory=dict)  # spans before the first step
    startup_ends: list[tuple[float, float]] = field(default_factory=list)  # when each of the latest ended; its own time
    early: list[Span] = field(default_factory=list)  # the latest spans before it: an RL loop may begin with one
    spans: dict[str, float] = field(default_factory=dict)  # spans after it, own time outside steps
    trailing: dict[str, float] = field(default_factory=dict)  # of these, the spans after the last step
    since_last_step: float = 0.0  # own time of spans after the last step


@dataclass(slots=True)
class AlertRow:
    t: float
    code: str
    text: str
    slow_step: int | None = None  # the index of the slow step that it reports; None: of something else
    rank: int | None = None  # of that step


@dataclass(slots=True)
class RankState:
    """The figures of one rank, or those read from the console. The run's main figures come from one of these."""

    source: str = "hooks"  # hooks | native | console
    rank: int = 0
    total_steps: int | None = None
    start_step: int = 0
    passes: Passes = field(default_factory=Passes)  # over the loader of a plain loop, and the plan
    printed: Printed = field(default_factory=Printed)  # where the program prints that it is; of the console's figures

    first_fetches: FirstFetches = field(default_factory=FirstFetches)  # of its passes

    steps_ok: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    skips: list[tuple[int, str]] = field(default_factory=list)  # the latest: index and reason
    last_index: int = 0
    step_seconds: Durations = field(default_factory=Durations)
    gaps: Spread = field(default_factory=Spread)  # between steps, in no span; a gap of 0 is left out
    opening: list[Step] = field(default_factory=list)  # the first steps
    phases: dict[str, PhaseStats] = field(default_factory=dict)
    device: DeviceLane = field(default_factory=DeviceLane)  # what the device took over them
    tokens: Column = field(default_factory=Column)  # tokens a step, where they are counted
    odd_parts: int = 0  # parts of steps that were dropped: their time was no time
    padded_steps: int = 0  # steps that report both tokens and computed positions
    padded_tokens: int = 0  # positions, padding included
    unpadded_tokens: int = 0  # tokens of these steps
    lengths: Lengths = field(default_factory=Lengths)  # of steps that report sequence lengths
    repeated_calls: int = 0  # calls of the model in steps that call it more than once
    called_often: int = 0  # steps that call the model more than once
    called_singly: int = 0  # of these the ones whose calls get one sample each, though all inputs were available
    pace_seconds: Column = field(default_factory=Column)  # from the end of the step before to this one's end, likewise
    metrics: dict[str, Column] = field(default_factory=dict)
    baselines: dict[StepKind, Baseline] = field(default_factory=dict)
    slow_steps: list[SlowStep] = field(default_factory=list)
    slow_count: int = 0
    slow_excess: float = 0.0  # seconds beyond the median, over all slow steps
    pace: Pace = field(default_factory=Pace)
    iterations: Iterations = field(default_factory=Iterations)  # where the loop collects what it learns from
    wall: WallClock = field(default_factory=WallClock)
    threads: dict[str, float] = field(default_factory=dict)  # seconds of other threads' phases since the first step
    timelines: Timelines = field(default_factory=Timelines)  # when steps ran, to compare them with throttle events
    claims: SpanAttribution = field(default_factory=SpanAttribution)  # of spans that do not report their own time

    restart: int = 0  # the elastic restart that the newest process of this rank belongs to
    begins_again: bool = False  # that process has not ended a step yet
    restarts: int = 0  # restarts after which steps went on
    steps_again: int = 0  # steps repeated after a restart

    samples: StackSamples = field(default_factory=StackSamples)  # the same along the run, with activities
    pulse: Pulse | None = None
    open_step: OpenStep = field(default_factory=OpenStep)
    latest: LatestSteps = field(default_factory=LatestSteps)
    timed: list[GpuTime] = field(default_factory=list)  # the newest that the device was timed in, one by one
    trace: Trace | None = None  # the newest
    traced_parts: dict[str, Trace] = field(default_factory=dict)  # of long steps: the newest with the phase
    marks: list[Span] = field(default_factory=list)  # spans after the first step; of many, the longest
    alerts: list[AlertRow] = field(default_factory=list)
    bye: float | None = None  # the end of its newest process, as it reported it

    @property
    def stepped(self) -> bool:
        return self.steps_ok > 0 or bool(self.skipped)


@dataclass(slots=True)
class Held:
    """Where a rank has stood since `since`, by its pulses: no step ended, and its line did not change.

    Attributes:
        place: as people read it.
        activity: what a library does there; None: unknown.
        step: the open one; None: none is.
        what: the open phase or span; None: neither is.
        threads: name, place and activity of its other threads.
        collectives: its newest ones: process group, count in it, call.
        used: seconds of CPU that its process has used meanwhile.
        elsewhere: newest pulses that showed another line.
    """

    place: str
    activity: str | None
    since: float
    t: float
    step: int | None = None
    what: str | None = None
    threads: list[tuple[str, str, str]] = field(default_factory=list)
    collectives: list[tuple[str, int, str]] = field(default_factory=list)
    used: float = 0.0
    elsewhere: int = 0

    @property
    def seconds(self) -> float:
        return self.t - self.since

    @property
    def busy(self) -> float:
        """Return the cores that its process has used meanwhile, in the mean."""
        return self.used / self.seconds if self.seconds > 0.0 else 0.0


@dataclass(slots=True)
class Ending:
    exit_code: int | None = None
    signal: int | None = None
    t: float | None = None
    error: str | None = None  # as the program printed it
    place: str | None = None
    oom_kills: int | None = None  # by the kernel, of processes in the training's control group


@dataclass(slots=True)
class RunState:
    """One run. `lead` is the rank whose steps make the main figures: the lowest with steps, or the chosen one.

    So the state does not depend on the order in which the journals of different ranks are read.
    """

    chosen: int | None = None  # the rank that somebody asked for; None: the lowest
    producers: dict[str, Producer] = field(default_factory=dict)
    name: str | None = None
    facts: RunFacts = field(default_factory=RunFacts)

    lead: int | None = None
    hooked: dict[int, RankState] = field(default_factory=dict)  # of the lead, and of ranks below it that do not step
    console: RankState | None = None  # what was read from the console
    acting: RankState | None = None  # what processes that only step environments have counted
    ranks: dict[int, RankStats] = field(default_factory=dict)
    held: dict[int, Held] = field(default_factory=dict)  # ranks that stand at a line, by their newest pulses

    alerts: list[AlertRow] = field(default_factory=list)  # that belong to the run as a whole
    notes: list[str] = field(default_factory=list)
    hooks_not_loaded: str | None = None  # why, where the recorder has seen it
    gpus: dict[str, list[Gpu]] = field(default_factory=dict)
    activity: dict[str, Activity] = field(default_factory=dict)  # of each GPU over the whole run
    throttles: Throttles = field(default_factory=Throttles)
    devices: list[str] = field(default_factory=list)  # UUIDs of the GPUs that the training's processes use
    host: list[Host] = field(default_factory=list)
    memory: dict[str, Trend] = field(default_factory=dict)  # bytes: TREE, MACHINE, and each GPU by its UUID
    ending: Ending | None = None
    job_ends: float | None = None  # by the scheduler, at the latest
    last_event: float | None = None

    # Of several trainings of one process, one after another: those that ended, and the newest as a run of its own,
    # which this state goes on beside: they may turn out to be parts of one.
    ended: list[EndedTraining] = field(default_factory=list)
    newest: RunState | None = None
    begin: float | None = None  # of such a training's setup
    steps_before: int = 0  # of its process
    setup_facts: list[Facts] = field(default_factory=list)  # since the last step
    setup_spans: list[Span] = field(default_factory=list)

    @property
    def shown(self) -> RunState:
        """Return the training that reports are of: the newest one of the process, as if it were a run of its own."""
        return self if self.newest is None else self.newest

    @property
    def main(self) -> RankState:
        """Return the main figures. Steps reported by a process take precedence over those read from the console."""
        if self.lead is not None:
            return self.hooked[self.lead]
        if self.console is not None and (self.console.stepped or not self.hooked):
            return self.console
        return self.hooked[min(self.hooked)] if self.hooked else RankState()

    @property
    def printed(self) -> Printed:
        """Return where the program prints that it is."""
        return self.console.printed if self.console is not None else Printed()

    @property
    def are_actors(self) -> bool:
        """Return whether processes that step environments collect: beside a learner that does so, others evaluate."""
        return ENV_STEPS not in self.main.metrics

    @property
    def collected(self) -> dict[str, Column]:
        """Return the metrics of the main figures, with what was collected elsewhere."""
        acting, main = self.acting, self.main.metrics
        return {**main, **acting.metrics} if acting is not None and self.are_actors else main

    @property
    def metrics(self) -> dict[str, Column]:
        """Return the metrics of the main figures; where the program logs none, those that it prints.

        A loss that the hooks have seen pass is a tensor of the program, in units of its own: the printed one leads.
        """
        main = self.main
        if self.console is None or main is self.console or not all(map(comes_by_itself, main.metrics)):
            return self.collected
        seen, printed = main.metrics.get(LOSS), self.console.metrics.get(LOSS)
        metrics = {**self.console.metrics, **self.collected}
        # What a program calls its loss may be scaled: by pixels, batches, weights of its own.
        # One that is not finite is news, whoever tells it.
        shows_all = printed is not None and (seen is None or seen.settled().nonfinite <= printed.settled().nonfinite)
        if printed is not None and shows_all and printed.count >= MIN_PRINTED and not _in_one_unit(seen, printed):
            metrics[LOSS] = printed
        return metrics


def _in_one_unit(seen: Column | None, printed: Column) -> bool:
    """Return whether both losses are about as large: then that of every step is shown, not what is printed of it."""
    if seen is None:
        return False
    ours, theirs = seen.settled(), printed.settled()
    one, other = ours.sum / max(1, ours.count), theirs.sum / max(1, theirs.count)
    return min(one, other) > 0.0 and max(one, other) <= MAX_UNIT_RATIO * min(one, other)


@dataclass(slots=True)
class EndedTraining:
    """A training of a process in which another one took its place, as a run of its own.

    What the program prints of it may be read later. So its row is made when it is asked for.
    """

    state: RunState
    end: float
    member: Member | None = None  # None: to be made anew
