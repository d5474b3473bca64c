"""The state of a run: all that its events say, in bounded memory. Plain data; `fold` changes it, `summary` reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from monitor.model.baseline import Baseline
from monitor.model.pace import Pace
from monitor.model.report import SlowStep
from monitor.model.series import Column
from trainhooks.events import Gpu, Host, Pulse

HISTORY = 240  # host and GPU readings kept for the small curves: four minutes at one a second
MAX_SLOW_STEPS = 200
MAX_ALERTS = 500
MAX_NOTES = 50


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
    ended: float | None = None
    error: str | None = None
    dropped: int = 0


@dataclass(slots=True)
class PhaseStats:
    """The seconds of a phase in the steps in which it occurs."""

    clock: str = "host"
    seconds: Column = field(default_factory=Column)


@dataclass(slots=True)
class WallClock:
    """The raw sums of the account of time; `summary` makes the account of them."""

    first_step: float | None = None  # begin
    last_step: float | None = None  # end
    steps: float = 0.0  # seconds in steps
    startup: dict[str, float] = field(default_factory=dict)  # spans before the first step
    spans: dict[str, float] = field(default_factory=dict)  # spans after it, own time outside steps
    since_last_step: float = 0.0  # own time of spans after the last step


@dataclass(slots=True)
class RankStats:
    steps: int = 0
    seconds: Column = field(default_factory=Column)


@dataclass(slots=True)
class AlertRow:
    t: float
    code: str
    text: str


@dataclass(slots=True)
class Ending:
    exit_code: int | None = None
    signal: int | None = None
    t: float | None = None


@dataclass(slots=True)
class RunState:
    """One run. `lead` is the rank whose steps make the main figures: the lowest that stepped first."""

    producers: dict[str, Producer] = field(default_factory=dict)
    name: str | None = None
    total_steps: int | None = None
    start_step: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    lead: int | None = None

    steps_ok: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    last_index: int = 0
    step_seconds: Column = field(default_factory=Column)
    phases: dict[str, PhaseStats] = field(default_factory=dict)
    tokens: Column = field(default_factory=Column)  # tokens a step, where they are counted
    pace_seconds: Column = field(default_factory=Column)  # from the end of the step before to this one's end, likewise
    metrics: dict[str, Column] = field(default_factory=dict)
    baselines: dict[str, Baseline] = field(default_factory=dict)
    slow_steps: list[SlowStep] = field(default_factory=list)
    slow_count: int = 0
    slow_excess: float = 0.0  # seconds beyond the usual, over all slow steps
    pace: Pace = field(default_factory=Pace)
    wall: WallClock = field(default_factory=WallClock)
    ranks: dict[int, RankStats] = field(default_factory=dict)

    pulse: Pulse | None = None  # of the lead
    alerts: list[AlertRow] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gpus: dict[str, list[Gpu]] = field(default_factory=dict)
    host: list[Host] = field(default_factory=list)
    ending: Ending | None = None
    bye: float | None = None  # when the lead said it
    last_event: float | None = None
