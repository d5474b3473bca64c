"""Rules: functions that make one finding from evidence, and the evidence: what a rule may look at. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from functools import wraps
from typing import Any

from monitor.diagnosis.judge import BUSY_IDLE, judge
from monitor.model.comparison.compare import Side
from monitor.model.device.device_report import Device
from monitor.model.device.device_steps import WARM_UP_STEPS
from monitor.model.device.throttle_events import MAX_MISSED_READINGS
from monitor.model.device.throttle_watch import MIN_CLOCK_DROP, GpuWatch, ThrottleEvent, Throttles, throttle_events
from monitor.model.device.trace_report import Kernel, kernels_of
from monitor.model.device.traced_parts import newest_trace
from monitor.model.report import Finding, PhaseRow, Report
from monitor.model.standing import STALLED, silence, was_given_up
from monitor.model.state import Held, RunState
from monitor.model.steps.stack_samples import BETWEEN_STEPS as BETWEEN_STEPS
from monitor.model.steps.stack_samples import Sample
from monitor.model.steps.step_intervals import Timelines
from monitor.model.steps.time_split import once_in
from monitor.model.view import OpenWork
from monitor.units import share
from trainhooks.protocol.facts import RunFacts
from trainhooks.protocol.places import Place

# The evidence: the state, its report, the open step or span, and throttle events of the GPUs.

MIN_STEPS = 20  # for rules about every step: a reliable median after the warm-up
# Stack samples: with a dozen, a place that takes 10% of the time is in half of them in only one of 2,000 runs.
MIN_STACK_SAMPLES = 12
MIN_PLACE_SHARE, MAX_PLACE_LINES = 0.1, 3  # of the samples, for a place to be named; and how many are
# Limits on the number of steps are meant for short ones. Of steps that take seconds a few show as much: without the
# first three, the others have to fill this many seconds, or call the model as often as `MIN_STEPS` do: an optimizer's
# closure is called many times in a step.
MIN_LONG_STEPS, MIN_LONG_SECONDS = 5, 3.0
# Phases in which the model is computed.
COMPUTING = ("forward", "backward", "optimizer", "training", "generation", "log_probs")


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run at one moment.

    Attributes:
        previous: the last comparable run of the same command, where there is one.
        kernels: all that ran in the traced steps, the costliest first.
    """

    state: RunState
    report: Report
    open: OpenWork
    previous: Side | None = None
    kernels: list[Kernel] = field(init=False)

    def __post_init__(self) -> None:
        trace = newest_trace(self.state.main)
        object.__setattr__(self, "kernels", [] if trace is None else kernels_of(trace))

    @property
    def steps(self) -> int:
        """Return the number of steps of the leading rank that were recorded."""
        return self.state.main.step_seconds.settled().count

    def has_steps(self) -> bool:
        """Return whether enough steps were recorded, or a few that do as much."""
        if self.steps >= MIN_STEPS:
            return True
        if self.steps < MIN_LONG_STEPS:
            return False
        main = self.state.main
        if main.repeated_calls * (1 - WARM_UP_STEPS / self.steps) >= MIN_STEPS:
            return True
        wall = main.wall
        if wall.warm is None or wall.last_step is None:
            return False
        return wall.last_step - wall.warm >= MIN_LONG_SECONDS

    def is_often(self, count: int) -> bool:
        """Return whether so many steps showed something: `MIN_STEPS`, or most of a few long ones."""
        return count >= MIN_STEPS or (2 * count >= self.steps and self.has_steps())

    @property
    def is_running(self) -> bool:
        return self.report.outcome.state == "running"

    @property
    def step_seconds(self) -> float | None:
        """Return the seconds of a typical step: by the GPU's clock, else by the rate since the first step."""
        device, rate = self.device, self.report.throughput.steps_per_second
        if device is not None and device.seconds:
            return device.seconds
        return 1.0 / rate if rate else None

    @property
    def device(self) -> Device | None:
        """Return how the run uses its GPUs; None where it uses none, as far as is known."""
        return self.report.device

    @property
    def host_only(self) -> bool:
        """Return whether a GPU is used and only the host's clock times the steps.

        The phases then say where Python was, and nothing about the GPU: no finding may rest on them alone.
        """
        return self.device is not None and (not self.report.phases or self.report.phases[0].clock != "cuda")

    @property
    def max_idle(self) -> float | None:
        """Return the share of step time in which the GPU was idle, at most; None where unknown.

        Without a GPU it is all of it: the host computes, and what it waits for is not computed.
        """
        if self.device is None:
            return 1.0
        return None if self.device.gain_limit is None else 1.0 - 1.0 / self.device.gain_limit

    @property
    def min_idle(self) -> float:
        """Return the share of step time in which the GPU was certainly idle; 0 where unknown."""
        most = self.device.busy_most if self.device is not None else None
        return 0.0 if most is None else 1.0 - most

    @property
    def is_hidden_by_gpu(self) -> bool:
        """Return whether only the host's clock times a GPU's steps and the GPU works meanwhile, as far as is known."""
        return self.host_only and max(self.max_idle or 0.0, self.min_idle) < BUSY_IDLE

    def phase(self, name: str) -> PhaseRow | None:
        return next((row for row in self.report.phases if row.name == name), None)

    @property
    def loop_share(self) -> float:
        """Return the time since the first step as a share of the elapsed time; 0 where unknown."""
        return self.wall_part(self.report.wall.stepping)

    def wall_part(self, seconds: float) -> float:
        """Return `seconds` as a share of the elapsed time; 0 where that is unknown."""
        return seconds / self.report.wall.total if self.report.wall.total else 0.0

    def loop_part(self, seconds: float) -> float:
        """Return `seconds` as a share of the time since the first step: start-up makes no habit smaller."""
        return seconds / self.report.wall.stepping if self.report.wall.stepping else 0.0

    def named_seconds(self, *names: str) -> float:
        """Return the seconds in phases and spans of these names, in steps and outside of them, without one-offs."""
        in_steps = sum(row.recurring for row in self.report.phases if row.name in names)
        return in_steps + sum(seconds for name, seconds in self.report.wall.in_loop.items() if name in names)

    @property
    def between_steps(self) -> float:
        """Return the seconds outside all steps and spans, without one-offs, and without what goes on."""
        once = sum(once_in(self.state.main.gaps.settled().quantiles, ()))
        stalled = self.report.wall.spans.get(STALLED, 0.0)  # has a name of its own
        return max(0.0, self.report.wall.between_steps - once - max(0.0, self.open_gap - stalled))

    @property
    def open_gap(self) -> float:
        """Return the seconds since the last step, up to the last sign of life: what goes on is no habit yet."""
        main = self.state.main
        pulse, last = main.pulse, main.wall.last_step
        is_heard = self.is_running and not self.open.is_unheard
        silent = silence(self.state, self.state.host[-1].t) if is_heard and self.state.host else None
        if silent is not None:
            return silent.seconds
        if pulse is None or last is None or pulse.step is not None or pulse.spans:
            return 0.0
        return max(0.0, pulse.t - last - main.wall.since_last_step)

    @property
    def held(self) -> Held | None:
        """Where the training has stood since its last sign of progress: while it does, that is no habit yet."""
        return self.state.held.get(self.state.lead if self.state.lead is not None else self.state.chosen or 0)

    @property
    def stood(self) -> Held | None:
        """Return the same, also of a run that was given up; None where it went on to its end."""
        outcome, held = self.report.outcome, self.held
        return held if held is not None and (self.is_running or was_given_up(outcome, held)) else None

    @property
    def facts(self) -> RunFacts:
        return self.state.facts

    def setting(self, *names: str) -> tuple[str, Any] | None:
        """Return name and value of the first of these settings in the facts, at whatever depth.

        What is known of a loader has Hugging Face's names; where no configuration has them it has the loader's own.
        """
        table = self.facts.table
        configured = {name: value for name, value in table.items() if name != "loader"}
        for name in names:
            value = _find_setting(configured, name)
            if value is not None:
                return name, value
            value = _find_setting(table, name)
            if value is not None:
                return name.removeprefix("dataloader_"), value
        return None

    def count_setting(self, *names: str) -> tuple[str, int] | None:
        """Return name and value of the first of these settings, where that is a count."""
        setting = self.setting(*names)
        return None if setting is None or type(setting[1]) is not int or setting[1] < 0 else setting

    def setting_now(self, *names: str) -> str:
        """Return ` (batch_size=8 now)` for the first of these settings; empty where none is known."""
        setting = self.setting(*names)
        return f" ({setting[0]}={setting[1]} now)" if setting is not None else ""

    def host_values(self, name: str) -> list[float]:
        """Return one field of the host readings, in order of time, where it is known."""
        return [value for reading in self.state.host if (value := getattr(reading, name)) is not None]

    def stack_samples(self, *phases: str) -> dict[Place, int]:
        """Return the number of stack samples by place while one of these phases was open; empty on few samples."""
        counts: Counter[Place] = Counter()
        by_phase = self.state.main.samples.by_phase()
        for phase in phases:
            counts.update(by_phase.get(phase, {}))
        return dict(counts) if counts.total() >= MIN_STACK_SAMPLES else {}

    def sampled_seconds(self, *phases: str) -> dict[Sample, float]:
        """Return the seconds that these samples stand for; empty on few samples."""
        samples, held = self.state.main.samples, self.stood
        place, waits = ("", 0.0) if held is None else (held.place, held.seconds)
        known = {
            sample: seconds - waits if str(sample.place) == place else seconds
            for sample, seconds in samples.seconds.items()
            if sample.phase in phases
        }
        found = {sample: seconds for sample, seconds in known.items() if seconds > 0.0}
        return found if sum(samples.looks[sample] for sample in found) >= MIN_STACK_SAMPLES else {}

    def places(self, *phases: str) -> list[str]:
        """Return the most frequent places in these phases, a line each; none on few samples."""
        samples = self.sampled_seconds(*phases)
        total = sum(samples.values())
        lines: dict[str, float] = {}
        for (_, place), seconds in samples.items():
            line = f"{place}: {place.activity}" if place.activity else str(place)
            lines[line] = lines.get(line, 0.0) + seconds
        most = sorted(lines.items(), key=lambda row: -row[1])[:MAX_PLACE_LINES]
        return [f"{share(spent / total)} of it at {line}" for line, spent in most if spent >= MIN_PLACE_SHARE * total]

    def unnamed_places(self, told: Collection[str] = ()) -> list[str]:
        """Return the largest parts of the time in no phase, a line each; none on few samples.

        Args:
            told: places that are left out.
        """
        parts = self.report.unnamed.parts if self.report.unnamed is not None else []
        return [part.text() for part in parts if part.place is not None and part.place not in told][:MAX_PLACE_LINES]


def _find_setting(table: dict[str, Any], name: str, depth: int = 3) -> Any:
    if name in table:
        return table[name]
    if depth > 0:
        for value in table.values():
            if isinstance(value, dict) and (setting := _find_setting(value, name, depth - 1)) is not None:
                return setting
    return None


@dataclass(frozen=True, slots=True)
class GpuEvidence:
    """The evidence for rules about GPU hardware. `used_gpus` is as in `gpu_evidence`."""

    throttles: Throttles
    episodes: list[ThrottleEvent]
    wall: float | None  # elapsed seconds of the run
    used_gpus: Collection[str] | None = None
    first_step: float | None = None  # when it began, on the run's clock

    def watches(self) -> list[GpuWatch]:
        """Return the GPUs that count, by index."""
        watches, used = self.throttles.gpus.values(), self.used_gpus
        return sorted((each for each in watches if used is None or each.uuid in used), key=lambda each: each.index)

    def events_of(self, code: str) -> list[ThrottleEvent]:
        """Return the throttle events behind this finding: open ones first, then by cost."""
        rows = [row for row in self.episodes if row.code == code]
        return sorted(rows, key=lambda row: (row.last_seen is not None, -(lost_seconds(row) or 0.0), -row.seconds))

    def is_visible(self, row: ThrottleEvent) -> bool:
        """Return whether the newest readings of its GPU show the event; an open one may have ended just now."""
        episode = self.throttles.gpus[row.uuid].episodes.watched.get(row.reason)
        return episode is not None and episode.start == row.start and episode.missed < MAX_MISSED_READINGS


def gpu_evidence(
    throttles: Throttles,
    timelines: Timelines,
    wall: float | None,
    over: bool = False,
    used_gpus: Collection[str] | None = None,
    first_step: float | None = None,
) -> GpuEvidence:
    """Return the evidence at this moment.

    Args:
        wall: elapsed seconds of the run, where known.
        over: whether the run has ended.
        used_gpus: UUIDs of the GPUs that the run uses; None where that is unknown: then all count.
        first_step: when it began; None before it.
    """
    return GpuEvidence(throttles, throttle_events(throttles, timelines, over, used_gpus), wall, used_gpus, first_step)


def lost_seconds(row: ThrottleEvent) -> float | None:
    """Return the seconds that a throttle event cost at most: by comparable steps, else by the clock."""
    if row.effect.slower is not None:
        slower = max(0.0, row.effect.slower)
        return row.effect.seconds * slower / (1.0 + slower)
    # Without a lower clock the cost is unknown: the GPU was like this whenever it was busy.
    return None if row.clock_drop is None or row.clock_drop < MIN_CLOCK_DROP else row.seconds * row.clock_drop


# Rules, with the facts about their finding.

# Of two findings of the same severity the lower priority comes first; rules say why theirs is not this one.
DEFAULT_PRIORITY = 10
MOST_COST = 0.5  # of a symptom's cost: findings that together cost this much of it explain it


class Family(Enum):
    """Subjects of findings, in the order in which lists show them. The values are headings."""

    PROGRESS = "Progress"
    LEARNING = "Learning signals"
    WAITING = "Waiting and interruptions"
    MODEL = "Batch and model"
    COMPILE = "torch.compile"
    GPU = "GPU"
    MEMORY = "Memory"
    HOST = "Host"


@dataclass(frozen=True, slots=True)
class Suppress:
    """Findings that a rule's own finding explains, so that one problem is reported under one name.

    Without further conditions, the rule's finding suppresses every finding of these codes where it is a warning or
    worse itself.

    Attributes:
        culprits: only findings that point at one of these phases; None: at no phase.
        same_culprit: only findings that point at the same phase as the rule's own.
        only_info: only findings of severity info.
        if_info: also where the rule's own finding is of severity info.
        if_most: only where all findings that suppress it on this condition cost `MOST_COST` of it together.
        if_shown: only where no other finding suppresses the rule's own.
    """

    codes: tuple[str, ...]
    culprits: tuple[str | None, ...] | None = None
    same_culprit: bool = False
    only_info: bool = False
    if_info: bool = False
    if_most: bool = False
    if_shown: bool = False

    def matches(self, cause: Finding, symptom: Finding) -> bool:
        """Return whether `symptom` is one of those that `cause` suppresses, `if_most` and `if_shown` apart."""
        if symptom.code not in self.codes or (cause.severity == "info" and not self.if_info):
            return False
        if self.culprits is not None and symptom.culprit not in self.culprits:
            return False
        if self.same_culprit and symptom.culprit != cause.culprit:
            return False
        return symptom.severity == "info" or not self.only_info


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule and the facts about its finding.

    Attributes:
        check: returns the finding with its severity, or None.
        on_gpus: whether `check` takes `GpuEvidence`; else it takes `Evidence`.
        priority: of two findings of the same severity the lower one comes first.
        suppresses: findings that this one explains.
        softens: codes of findings that are no more than information beside this one, if it is a warning.
        idle_time: whether its fix removes GPU idle time only, so that the idle time bounds what it can gain.
        only_bound: whether its cost is no more than a bound of what its fix gains.
        no_bound: whether its cost does not even bound that, as the fix removes other work, too.
    """

    code: str
    family: Family
    check: Callable[[Any], Finding | None]
    on_gpus: bool = False
    priority: int = DEFAULT_PRIORITY
    suppresses: tuple[Suppress, ...] = ()
    softens: tuple[str, ...] = ()
    idle_time: bool = False
    only_bound: bool = False
    no_bound: bool = False


registered: dict[str, Rule] = {}
_Check = Callable[[Any], Finding | None]


def rule(
    code: str,
    family: Family,
    *,
    on_gpus: bool = False,
    priority: int = DEFAULT_PRIORITY,
    suppresses: tuple[Suppress | str, ...] = (),
    softens: tuple[str, ...] = (),
    idle_time: bool = False,
    only_bound: bool = False,
    no_bound: bool = False,
) -> Callable[[_Check], _Check]:
    """Register the decorated function as the rule for the finding `code`.

    A finding about time comes without a severity: `judge` gives it one, or drops it, wherever the function is called.

    Args:
        suppresses: a plain string is `Suppress` of that code without further conditions.

    Raises:
        ValueError: another rule has this code.
    """
    rows = tuple(Suppress((row,)) if isinstance(row, str) else row for row in suppresses)

    def register(check: _Check) -> _Check:
        if code in registered:
            raise ValueError(f"two rules for the finding {code}")

        @wraps(check)
        def judged(evidence: Any) -> Finding | None:
            found = check(evidence)
            return None if found is None else judge(registered[code], found, None if on_gpus else evidence)

        registered[code] = Rule(code, family, judged, on_gpus, priority, rows, softens, idle_time, only_bound, no_bound)
        return judged

    return register
