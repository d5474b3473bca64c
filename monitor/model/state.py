"""The state of a run: all that its events say, in bounded memory. Plain data; `fold` changes it, `summary` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from monitor.model.activity import Activity
from monitor.model.baseline import Baseline
from monitor.model.claims import Claims
from monitor.model.device_lane import WARM_UP, DeviceLane
from monitor.model.lengths import Lengths
from monitor.model.metric_order import comes_by_itself
from monitor.model.open_step import OpenStep
from monitor.model.overlap import Timelines
from monitor.model.pace import Pace
from monitor.model.ranks import RankStats
from monitor.model.report import SlowStep
from monitor.model.series import Column, Durations
from monitor.model.throttle import Throttles
from monitor.model.trend import Trend
from trainhooks.events import Gpu, GpuTime, Host, Pulse, Span, Step

HISTORY = 240  # host and GPU readings kept for the small curves: four minutes at one a second
MAX_SLOW_STEPS = 200
MAX_LATEST = 512  # steps of which a screen shows each one
MAX_MARKS = 400  # spans on a timeline, which has hardly more columns
MAX_ALERTS = 500
MAX_NOTES = 50
UNTOLD = "unknown"  # the source of a producer whose hello is missing
TREE, MACHINE = "tree", "machine"  # the training's resident memory, and what of the machine's is in use


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
    ended: float | None = None
    error: str | None = None
    dropped: int = 0
    devices: list[str] = field(default_factory=list)  # UUIDs of the GPUs that it uses


@dataclass(slots=True)
class PhaseStats:
    """The seconds of a phase in the steps in which it occurs."""

    clock: str = "host"
    seconds: Durations = field(default_factory=Durations)


@dataclass(slots=True)
class WallClock:
    """The raw sums of the account of time; `account` makes the account of them."""

    first_step: float | None = None  # begin
    warm: float | None = None  # end of the last of the first steps, which are no measure of the others
    warming: int = WARM_UP  # how many of these are still to come
    last_step: float | None = None  # end
    steps: float = 0.0  # seconds in steps
    startup: dict[str, float] = field(default_factory=dict)  # spans before the first step
    startup_ends: list[tuple[float, float]] = field(default_factory=list)  # when each of the latest ended; its own time
    spans: dict[str, float] = field(default_factory=dict)  # spans after it, own time outside steps
    since_last_step: float = 0.0  # own time of spans after the last step


@dataclass(slots=True)
class AlertRow:
    t: float
    code: str
    text: str


@dataclass(slots=True)
class Figures:
    """What one rank told of its steps, or what the console's lines did. One of these makes the main figures."""

    source: str = "hooks"  # hooks | native | console
    rank: int = 0
    total_steps: int | None = None
    start_step: int = 0

    steps_ok: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    skips: list[tuple[int, str]] = field(default_factory=list)  # the latest: index and reason
    last_index: int = 0
    step_seconds: Durations = field(default_factory=Durations)
    phases: dict[str, PhaseStats] = field(default_factory=dict)
    device: DeviceLane = field(default_factory=DeviceLane)  # what the device took over them
    tokens: Column = field(default_factory=Column)  # tokens a step, where they are counted
    padded_steps: int = 0  # steps that tell both, tokens and positions computed for them
    padded_tokens: int = 0  # positions, padding included
    unpadded_tokens: int = 0  # tokens of these steps
    lengths: Lengths = field(default_factory=Lengths)  # of steps that tell how long their sequences are
    called_often: int = 0  # steps that call the model more than once
    called_singly: int = 0  # of these the ones whose calls get one sample each, though all were at hand
    pace_seconds: Column = field(default_factory=Column)  # from the end of the step before to this one's end, likewise
    metrics: dict[str, Column] = field(default_factory=dict)
    baselines: dict[str, Baseline] = field(default_factory=dict)
    slow_steps: list[SlowStep] = field(default_factory=list)
    slow_count: int = 0
    slow_excess: float = 0.0  # seconds beyond the usual, over all slow steps
    pace: Pace = field(default_factory=Pace)
    wall: WallClock = field(default_factory=WallClock)
    timelines: Timelines = field(default_factory=Timelines)  # when the steps were done, to be laid over GPU episodes
    claims: Claims = field(default_factory=Claims)  # of spans that do not tell what part is their own

    restart: int = 0  # the elastic restart that the newest process of this rank belongs to
    begins_again: bool = False  # that process has not ended a step yet
    restarts: int = 0  # so many times it began again
    steps_again: int = 0  # steps that were done before a restart, and had to be done once more

    frames: dict[str, dict[str, int]] = field(default_factory=dict)  # what was open -> place in the program -> looks
    pulse: Pulse | None = None
    open_step: OpenStep = field(default_factory=OpenStep)
    latest: list[Step] = field(default_factory=list)  # the newest steps one by one
    timed: list[GpuTime] = field(default_factory=list)  # the newest that the device was timed in, one by one
    marks: list[Span] = field(default_factory=list)  # spans after the first step; of many, the longest
    alerts: list[AlertRow] = field(default_factory=list)
    bye: float | None = None  # when its newest process said it

    @property
    def stepped(self) -> bool:
        return self.steps_ok > 0 or bool(self.skipped)


@dataclass(slots=True)
class Ending:
    exit_code: int | None = None
    signal: int | None = None
    t: float | None = None


@dataclass(slots=True)
class RunState:
    """One run. `lead` is the rank whose steps make the main figures: the lowest that steps, whoever is heard first.

    So the state does not depend on the order in which the journals of different ranks are read.
    """

    producers: dict[str, Producer] = field(default_factory=dict)
    name: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    lead: int | None = None
    hooked: dict[int, Figures] = field(default_factory=dict)  # of the lead, and of ranks below it that do not step
    console: Figures | None = None  # what was read from the console
    ranks: dict[int, RankStats] = field(default_factory=dict)

    alerts: list[AlertRow] = field(default_factory=list)  # that belong to the run as a whole
    notes: list[str] = field(default_factory=list)
    gpus: dict[str, list[Gpu]] = field(default_factory=dict)
    activity: dict[str, Activity] = field(default_factory=dict)  # of each GPU over the whole run
    throttles: Throttles = field(default_factory=Throttles)
    devices: list[str] = field(default_factory=list)  # UUIDs of the GPUs that the training's processes use
    host: list[Host] = field(default_factory=list)
    memory: dict[str, Trend] = field(default_factory=dict)  # bytes: TREE, MACHINE, and each GPU by its UUID
    ending: Ending | None = None
    last_event: float | None = None

    @property
    def main(self) -> Figures:
        """The figures to show. Steps that a process tells itself win over those read from the console."""
        if self.lead is not None:
            return self.hooked[self.lead]
        if self.console is not None and (self.console.stepped or not self.hooked):
            return self.console
        return self.hooked[min(self.hooked)] if self.hooked else Figures()

    @property
    def metrics(self) -> dict[str, Column]:
        """The main figures' metrics; and where a program logs none itself, those that it prints."""
        main = self.main
        if self.console is None or main is self.console or not all(map(comes_by_itself, main.metrics)):
            return main.metrics
        return {**self.console.metrics, **main.metrics}
