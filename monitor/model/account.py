"""The account of the elapsed time, read off the raw sums: its parts add up to the whole. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from monitor.model.products import Products
from monitor.model.report import NamedSeconds, Outcome, Wall
from monitor.model.state import UNTOLD, Figures, Producer, RunState
from monitor.model.steps import OTHER, RESTART

FIRST_STEP = "first step, still open"
NEWEST_MARKS = 8  # spans that may have ended since a pulse told that they were open


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of a run beside its events."""

    identity: dict[str, Any]  # run.json
    now: float  # monotonic seconds on the run's host; the last event's time where that is elsewhere or gone
    alive: bool = False
    missing_lines: int = 0
    starting: tuple[tuple[str, float], ...] = ()  # open before any process has reported in: what, and since when
    products: Products = field(default_factory=Products)  # what GPUs were measured to reach in plain matrix products

    def begun(self) -> list[tuple[str, float]]:
        """The same with its seconds so far, as a pulse would have it."""
        return [(name, max(0.0, self.now - since)) for name, since in self.starting]


def trainings(state: RunState) -> list[Producer]:
    """The processes that train; where none has reported in, whoever reads what they print."""
    hooked = [each for each in state.producers.values() if each.source not in ("recorder", "console")]
    return hooked or [each for each in state.producers.values() if each.source == "console"]


def wall_offset(state: RunState, identity: dict[str, Any]) -> float | None:
    """Unix time minus the trainings' monotonic time; None where nobody tells the time of day."""
    told = [*sorted(trainings(state), key=lambda each: each.rank), *state.producers.values()]
    started, launched = identity.get("started"), identity.get("started_monotonic")
    own = started - launched if isinstance(started, int | float) and isinstance(launched, int | float) else None
    return next((each.wall_offset for each in told if each.wall_offset), own)


def newest(state: RunState) -> list[Producer]:
    """Of the trainings those that no elastic restart has replaced."""
    all_of_them = trainings(state)
    restarts: dict[int, int] = {}
    for each in all_of_them:
        restarts[each.rank] = max(each.restart, restarts.get(each.rank, 0))
    return [each for each in all_of_them if each.restart == restarts[each.rank]]


def begin(state: RunState, around: Surroundings) -> float | None:
    """When the run began, on the monotonic clock: at its launch, or the start of its process.

    Of a process whose hello is missing only its first event is known; then the run's own file tells more.
    """
    told = trainings(state)
    own = [p.process_started if p.process_started is not None else p.hello for p in told]
    launched = around.identity.get("started_monotonic")
    if isinstance(launched, int | float) and (around.identity.get("launched") or all(p.source == UNTOLD for p in told)):
        own.append(float(launched))
    return min(own, default=None)


def _end(state: RunState, around: Surroundings, outcome: Outcome) -> float | None:
    if outcome.state == "running":
        return around.now
    if state.ending is not None and state.ending.t is not None:
        return state.ending.t
    said = state.main.bye
    return said if said is not None else state.last_event


def wall(state: RunState, around: Surroundings, outcome: Outcome) -> Wall:
    """What is not claimed lies between the steps, or after the last."""
    started, end = begin(state, around), _end(state, around, outcome)
    if started is None or end is None:
        return Wall()
    main = state.main
    raw = main.wall
    end = max(end, started, raw.last_step or started)
    total = end - started
    if total <= 0.0:
        return Wall()  # an imported log without a time in it
    if raw.first_step is None or raw.last_step is None:
        untimed = main.stepped and not main.step_seconds.digested().count
        if untimed or (main.source == "console" and main.metrics):
            return Wall(total)  # something of the training was told, and no step's time: where it began is not known
        return Wall(total=total, startup=total)
    startup = max(0.0, raw.first_step - started)
    claimed = raw.steps + sum(raw.spans.values())
    # Two processes of one rank at a time claim more than there was: scaled, so that parts stay parts.
    scale = min(1.0, (total - startup) / claimed) if claimed > 0 else 1.0
    steps = scale * raw.steps
    spans = {name: scale * seconds for name, seconds in raw.spans.items()}
    rest = max(0.0, total - startup - scale * claimed)
    teardown = max(0.0, min(rest, end - raw.last_step - raw.since_last_step))
    runs = outcome.state == "running"
    if runs or _broke_off(main):
        until = end if runs or main.pulse is None else min(end, main.pulse.t)
        opened, halted = _going_on(main, until, max(0.0, teardown - (end - until)))
        for name, seconds in halted.items():
            spans[name] = spans.get(name, 0.0) + seconds
        rest -= opened + sum(halted.values())
        steps += opened
        # Of one that runs: the last step may have another one open behind it, and no end is in sight.
        teardown = 0.0 if runs else min(teardown, max(0.0, end - until))
    return Wall(total, startup, steps, spans, rest - teardown, teardown)


def _broke_off(main: Figures) -> bool:
    """Whether the process went without a last word, and its last pulse tells what it was in the middle of."""
    pulse, last = main.pulse, main.wall.last_step
    if main.bye is not None or main.begins_again or pulse is None or (last is not None and pulse.t < last):
        return False
    ended = {span.name: span.start + span.duration for span in main.marks[-NEWEST_MARKS:]}
    return pulse.step is not None or any(ended.get(name, -math.inf) <= pulse.t for name, _ in pulse.spans)


def _going_on(main: Figures, now: float, unnamed: float) -> tuple[float, dict[str, float]]:
    """Of the time since the last step: the seconds of the step that is open, and of what else is.

    Until a pulse tells what came after a step or a span, it is taken for the next step, as long as one usually is.
    """
    opened = min(unnamed, _open_step(main, now))
    if main.begins_again:
        return opened, {RESTART: unnamed - opened} if unnamed > opened else {}
    pulse, last = main.pulse, main.wall.last_step or 0.0
    ended = {span.name: span.start + span.duration for span in main.marks[-NEWEST_MARKS:]}
    heard = max([last, *ended.values()])
    spans = [] if pulse is None else [each for each in pulse.spans if ended.get(each[0], -math.inf) <= pulse.t]
    if pulse is None or pulse.t < last or (pulse.t < heard and not spans):
        return min(unnamed, max(0.0, now - heard), main.step_seconds.digested().quantiles.at(0.5)[0]), {}
    if pulse.step is not None:
        return opened, {}
    halted: dict[str, float] = {}
    until = max(now, pulse.t)
    for name, seconds in reversed(spans):  # from the innermost outwards: each owns what its inner one leaves
        begin = pulse.t - seconds
        if begin < last:
            break  # it lies around steps, and owns what its end will say
        own = min(unnamed, max(0.0, until - begin))
        halted[name] = halted.get(name, 0.0) + own
        unnamed, until = unnamed - own, min(until, begin)
    return 0.0, halted


def _open_step(main: Figures, now: float) -> float:
    """Seconds of the step that is open now, as far as its pulse tells: they are no time between steps."""
    pulse, last = main.pulse, main.wall.last_step
    if pulse is None or pulse.step_open is None or (last is not None and last > pulse.t):
        return 0.0
    return max(0.0, now - pulse.t + pulse.step_open)


def startup(state: RunState, around: Surroundings, known: Wall, outcome: Outcome) -> list[NamedSeconds]:
    """The parts of the start-up, the longest first; what is open now among them, as far as it has come."""
    main = state.main
    parts = dict(main.wall.startup)
    if main.source == "console" and not parts and state.hooked:  # the program's own start, before its lines are read
        parts = dict(state.hooked[min(state.hooked)].wall.startup)
    if known.startup is None:
        return [NamedSeconds(name, seconds) for name, seconds in parts.items()]
    unnamed = known.startup - sum(parts.values())
    runs = outcome.state == "running"
    if main.wall.first_step is None and (runs or _broke_off(main)):
        for name, seconds in _open_parts(main, around.now if runs or main.pulse is None else main.pulse.t, around):
            seconds = min(seconds, unnamed)
            if seconds > 0:
                parts[name] = parts.get(name, 0.0) + seconds
                unnamed -= seconds
    rows = [NamedSeconds(name, seconds) for name, seconds in parts.items()]
    if unnamed > 0:
        rows.append(NamedSeconds(OTHER, unnamed))
    return sorted(rows, key=lambda row: -row.seconds)


def _open_parts(main: Figures, now: float, around: Surroundings) -> list[tuple[str, float]]:
    """What each open span has taken for itself: not what lies in an inner one, open or ended."""
    pulse = main.pulse
    if pulse is not None and pulse.step is not None:
        return [(FIRST_STEP, _open_step(main, now))]
    own = []
    ends = main.wall.startup_ends
    spans = [(name, pulse.t - seconds) for name, seconds in pulse.spans] if pulse is not None else []
    begins = spans or around.starting
    untils = [*(since for _, since in begins), max(now, pulse.t) if pulse is not None else now][1:]
    for (name, start), until in zip(begins, untils, strict=True):
        ended_inside = sum(seconds for end, seconds in ends if start < end <= until)
        own.append((name, max(0.0, until - start - ended_inside)))
    return own
