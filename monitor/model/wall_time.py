"""The parts of the elapsed time, by the raw sums of the state; they add up to the whole. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from monitor.model.cycle import COLLECT, MIN_COLLECTED, MIN_ITERATIONS, PREPARE, REWARD, phase_part
from monitor.model.device.device_report import OutsideRow
from monitor.model.device.device_use import MIN_MEASURED, READING_SECONDS
from monitor.model.device.gpu_activity import Range
from monitor.model.report import NamedSeconds, Outcome, Wall
from monitor.model.standing import STALLED, stall
from monitor.model.state import MAX_SPAN_MARKS, UNKNOWN_SOURCE, Producer, RankState, RunState, used_gpus
from monitor.model.steps.step_folding import RESTART
from monitor.start_looks import StartLook
from monitor.step_blocks import OTHER
from trainhooks.protocol.vocabulary import ACTOR

FIRST_STEP = "first step, still open"
NEWEST_MARKS = 8  # spans that may have ended since a pulse showed them open


STOPPED_BY_YOU = "stopped by you"  # the error of such a run, whatever its program made of the signals
STOPPED_BY_RULE = "stopped by --stop-on "  # the begin of that of a run that met a condition for it
TIME_LIMIT = "stopped by a time limit"  # likewise, of one that `timeout` has stopped


@dataclass(frozen=True, slots=True)
class RunContext:
    """What is known about a run besides its events."""

    identity: dict[str, Any]  # run.json
    now: float  # monotonic seconds on the run's host; the last event's time where that is elsewhere or gone
    alive: bool = False
    missing_lines: int = 0
    starting: tuple[tuple[str, float], ...] = ()  # open before any process has reported: name and begin
    stopped: str | None = None  # the error of a run that trainmon was asked to stop
    looks: tuple[StartLook, ...] = ()  # what its processes do before the first step
    several: bool = False  # whether it is one of several trainings of the command, each of processes of its own
    left: tuple[int, ...] = ()  # processes that live on after the command's end
    console: tuple[str, ...] = ()  # the newest lines of its output
    is_unheard: bool = False  # whether nothing comes of the host of the rank that is shown: `now` stands still

    def begun(self) -> list[tuple[str, float]]:
        """Return the same with its seconds so far, as a pulse would have it."""
        return [(name, max(0.0, self.now - since)) for name, since in self.starting]


def training_processes(state: RunState) -> list[Producer]:
    """Return the training processes; where none has reported, the console reader."""
    others = ("recorder", "console", ACTOR)
    hooked = [producer for producer in state.producers.values() if producer.source not in others]
    return hooked or [producer for producer in state.producers.values() if producer.source == "console"]


def wall_offset(state: RunState, identity: dict[str, Any]) -> float | None:
    """Return Unix time minus the training's monotonic time; None: unknown."""
    producers = [*sorted(training_processes(state), key=lambda producer: producer.rank), *state.producers.values()]
    started, launched = identity.get("started"), identity.get("started_monotonic")
    own = started - launched if isinstance(started, int | float) and isinstance(launched, int | float) else None
    return next((producer.wall_offset for producer in producers if producer.wall_offset), own)


def current(state: RunState) -> list[Producer]:
    """Return the training processes that no elastic restart has replaced."""
    all_of_them = training_processes(state)
    restarts: dict[int, int] = {}
    for producer in all_of_them:
        restarts[producer.rank] = max(producer.restart, restarts.get(producer.rank, 0))
    return [producer for producer in all_of_them if producer.restart == restarts[producer.rank]]


def begin_time(state: RunState, context: RunContext) -> float | None:
    """Return the monotonic time of the run's launch, or of the start of its process or training; None: unknown.

    Where the hello of a process is missing, only its first event is known, and `run.json` decides. Where a training is
    looked at from outside and its start was not seen, the first step whose time is known begins the account.
    """
    if state.begin is not None:
        return state.begin
    producers = training_processes(state)
    starts_unseen = context.identity.get("attached") and all(one.process_started is None for one in producers)
    if starts_unseen and state.main.wall.first_step is not None:
        return state.main.wall.first_step
    own = [p.process_started if p.process_started is not None else p.hello for p in producers]
    launched = context.identity.get("started_monotonic")
    if (
        isinstance(launched, int | float)
        and not (context.several and own)
        and (context.identity.get("launched") or all(p.source == UNKNOWN_SOURCE for p in producers))
    ):
        own.append(float(launched))
    return min(own, default=None)


def _end_time(state: RunState, context: RunContext, outcome: Outcome) -> float | None:
    if context.several and state.main.bye is not None:
        return state.main.bye
    if outcome.state == "running":
        return context.now
    if state.ending is not None and state.ending.t is not None:
        return state.ending.t
    bye = state.main.bye
    return bye if bye is not None else state.last_event


def wall_parts(state: RunState, context: RunContext, outcome: Outcome) -> Wall:
    """Return the parts of the elapsed time: what is in no step or span is between the steps or after the last."""
    started, end = begin_time(state, context), _end_time(state, context, outcome)
    if started is None or end is None:
        return Wall()
    main = state.main
    raw = main.wall
    end = max(end, started, raw.last_step or started)
    total = end - started
    if total <= 0.0:
        return Wall()  # an imported log without a time in it
    if raw.first_step is None or raw.last_step is None:
        untimed = main.stepped and not main.step_seconds.settled().count
        if untimed or (main.source == "console" and main.metrics) or context.identity.get("attached"):
            return Wall(total)  # the training reported, but no step's time: its begin is unknown
        return Wall(total=total, startup=total)
    loop, first_pass = first_cycle(main)
    startup = max(0.0, loop - started)
    spans = {name: seconds + first_pass.get(name, 0.0) for name, seconds in raw.spans.items()}
    claimed = raw.steps + sum(spans.values())
    # Two processes of one rank may add up to more than the elapsed time: scale the parts down.
    scale = min(1.0, (total - startup) / claimed) if claimed > 0 else 1.0
    steps = scale * raw.steps
    spans = {name: scale * seconds for name, seconds in spans.items()}
    rest = max(0.0, total - startup - scale * claimed)
    teardown = max(0.0, min(rest, end - raw.last_step - raw.since_last_step))
    runs, halted = outcome.state == "running", dict[str, float]()
    if runs or _ended_without_bye(main):
        until = end if runs or main.pulse is None else min(end, main.pulse.t)
        opened, halted = _open_time(main, until, max(0.0, teardown - (end - until)))
        for name, seconds in halted.items():
            spans[name] = spans.get(name, 0.0) + seconds
        rest -= opened + sum(halted.values())
        steps += opened
        # The run goes on: another step may be open after the last one.
        teardown = 0.0 if runs else min(teardown, max(0.0, end - until))
    between = rest - teardown
    stood = stall(state, outcome, end)
    if stood is not None:  # wherever it is counted: the end may have closed what was open, or thrown it away
        what = stood.what or ""
        parts = (spans.get(what, 0.0), teardown, between, steps)
        of_span, of_end, of_pauses, of_steps = _taken(stood.seconds, parts)
        if what in spans:
            spans[what] -= of_span
        teardown, between, steps = teardown - of_end, between - of_pauses, steps - of_steps
        spans[STALLED] = of_span + of_end + of_pauses + of_steps
    return Wall(
        total=total,
        startup=startup,
        steps=steps,
        spans=spans,
        between_steps=between,
        teardown=teardown,
        afterwards={} if runs else _spans_afterwards(main, spans, halted),
    )


MIN_CYCLE_SHARE = 0.5  # of the steps are preceded by a span of this name: it is a part of the loop


def first_cycle(main: RankState) -> tuple[float, dict[str, float]]:
    """Return when the loop began, and the own seconds of the spans between that and the first step.

    A loop that generates, then trains, has begun before its first step. Only spans count that come again and again
    between later steps, a rollout also if many steps learn from each; without steps the loop begins at infinity.
    """
    begin, steps = main.wall.first_step, main.step_seconds.count + len(main.step_seconds.values)
    if begin is None:
        return math.inf, {}
    times = Counter(mark.name for mark in main.marks if mark.own_seconds > 0.0)
    least = max(1.0, MIN_CYCLE_SHARE * min(steps - 1, MAX_SPAN_MARKS // 2))
    spans: dict[str, float] = {}
    for span in reversed(main.wall.early):
        if times[span.name] < (min(least, MIN_ITERATIONS) if _is_collection(main, span.name) else least):
            break
        begin = min(begin, span.start)
        spans[span.name] = spans.get(span.name, 0.0) + span.own_seconds
    return begin, spans


def _taken(seconds: float, parts: Sequence[float]) -> list[float]:
    """Return what each part gives of these seconds: the first as much as it has, and so on."""
    taken: list[float] = []
    for part in parts:
        taken.append(min(part, seconds - sum(taken)))
    return taken


def _is_collection(main: RankState, name: str) -> bool:
    """Return whether spans of this name make what the steps learn from; a sample to be looked at takes less time."""
    seconds = main.wall.spans.get(name, 0.0)
    return phase_part(name) in (COLLECT, REWARD, PREPARE) and seconds >= MIN_COLLECTED * (main.wall.steps + seconds)


def _spans_afterwards(main: RankState, spans: dict[str, float], halted: dict[str, float]) -> dict[str, float]:
    """Return the seconds that follow the last step, beyond the longest span of that name between the steps.

    Args:
        halted: seconds of the spans that the end of the process found open.
    """
    last = main.wall.last_step or 0.0
    usual: dict[str, float] = {}
    for mark in main.marks:
        if mark.start < last:
            usual[mark.name] = max(usual.get(mark.name, 0.0), mark.own_seconds)
    late = {name: main.wall.trailing.get(name, 0.0) + halted.get(name, 0.0) for name in (*main.wall.trailing, *halted)}
    rows = {name: min(seconds, spans.get(name, 0.0)) - usual.get(name, 0.0) for name, seconds in late.items()}
    return {name: seconds for name, seconds in rows.items() if seconds > 0.0}


def _ended_without_bye(main: RankState) -> bool:
    """Return whether the process ended without a bye, so that its last pulse shows what was open."""
    pulse, last = main.pulse, main.wall.last_step
    if main.bye is not None or main.begins_again or pulse is None or (last is not None and pulse.t < last):
        return False
    ended = {span.name: span.start + span.duration for span in main.marks[-NEWEST_MARKS:]}
    return pulse.step is not None or any(ended.get(name, -math.inf) <= pulse.t for name, _ in pulse.spans)


def _open_time(main: RankState, now: float, unnamed: float) -> tuple[float, dict[str, float]]:
    """Split the time since the last step: seconds of the open step, and seconds of open spans by name.

    Until a pulse shows what follows a step or a span, it is taken for the next step, for as long as a typical one.
    """
    opened = min(unnamed, _open_step(main, now))
    if main.begins_again:
        return opened, {RESTART: unnamed - opened} if unnamed > opened else {}
    pulse, last = main.pulse, main.wall.last_step or 0.0
    ended = {span.name: span.start + span.duration for span in main.marks[-NEWEST_MARKS:]}
    heard = max([last, *ended.values()])
    spans = [] if pulse is None else [span for span in pulse.spans if ended.get(span[0], -math.inf) <= pulse.t]
    if pulse is None or pulse.t < last or (pulse.t < heard and not spans):
        return min(unnamed, max(0.0, now - heard), main.step_seconds.settled().quantiles.at(0.5)[0]), {}
    if pulse.step is not None:
        return opened, {}
    halted: dict[str, float] = {}
    until = max(now, pulse.t)
    for name, seconds in reversed(spans):  # from the innermost outwards: a span owns the time outside its inner spans
        begin = pulse.t - seconds
        if begin < last:
            break  # a span around steps: its own time is known only at its end
        own = min(unnamed, max(0.0, until - begin))
        halted[name] = halted.get(name, 0.0) + own
        unnamed, until = unnamed - own, min(until, begin)
    return 0.0, halted


def _open_step(main: RankState, now: float) -> float:
    """Return the seconds of the open step by its pulse, which are not time between steps."""
    pulse, last = main.pulse, main.wall.last_step
    if pulse is None or pulse.step_open is None or (last is not None and last > pulse.t):
        return 0.0
    return max(0.0, now - pulse.t + pulse.step_open)


def startup_parts(state: RunState, context: RunContext, known: Wall, outcome: Outcome) -> list[NamedSeconds]:
    """Return the parts of the start-up, the longest first, the open one with its seconds so far."""
    main = state.main
    parts = dict(main.wall.startup)
    if main.source == "console" and not parts and state.hooked:  # the program's own start, before its lines are read
        parts = dict(state.hooked[min(state.hooked)].wall.startup)
    for name, seconds in first_cycle(main)[1].items():
        parts[name] = max(0.0, parts.get(name, 0.0) - seconds)
        if not parts[name]:
            del parts[name]
    if known.startup is None:
        return [NamedSeconds(name, seconds) for name, seconds in parts.items()]
    unnamed = known.startup - sum(parts.values())
    runs = outcome.state == "running"
    if main.wall.first_step is None and (runs or _ended_without_bye(main)):
        for name, seconds in _open_parts(main, context.now if runs or main.pulse is None else main.pulse.t, context):
            seconds = min(seconds, unnamed)
            if seconds > 0:
                parts[name] = parts.get(name, 0.0) + seconds
                unnamed -= seconds
    rows = [NamedSeconds(name, seconds) for name, seconds in parts.items()]
    if unnamed > 0:
        rows.append(NamedSeconds(OTHER, unnamed))
    return sorted(rows, key=lambda row: -row.seconds)


def _open_parts(main: RankState, now: float, context: RunContext) -> list[tuple[str, float]]:
    """Return the own seconds of the open spans, without those of inner spans, open or ended."""
    pulse = main.pulse
    if pulse is not None and pulse.step is not None:
        return [(FIRST_STEP, _open_step(main, now))]
    own = []
    ends = main.wall.startup_ends
    spans = [(name, pulse.t - seconds) for name, seconds in pulse.spans] if pulse is not None else []
    begins = spans or context.starting
    untils = [*(since for _, since in begins), max(now, pulse.t) if pulse is not None else now][1:]
    for (name, start), until in zip(begins, untils, strict=True):
        ended_inside = sum(seconds for end, seconds in ends if start < end <= until)
        own.append((name, max(0.0, until - start - ended_inside)))
    return own


# Spans outside the steps of a run on a GPU, and how busy the GPU was in them.
#
# Their seconds are exact, by the host's clock. How busy the GPU was is known from the driver's readings only.

MIN_SHARE_OF_ELAPSED = 1e-3  # of the elapsed time: shorter ones are left out


def outside_steps(state: RunState, wall: Wall) -> list[OutsideRow]:
    """Return the spans outside the steps, the longest first."""
    if not wall.total:
        return []
    spans = sorted(wall.spans.items(), key=lambda row: -row[1])
    return [
        OutsideRow(what=name, seconds=seconds, share=seconds / wall.total, busy_least=least, busy_most=most)
        for name, seconds in spans
        if seconds >= MIN_SHARE_OF_ELAPSED * wall.total
        for least, most in [_busy(state, name)]
    ]


def _busy(state: RunState, name: str) -> tuple[float | None, float | None]:
    """Return the lower and upper bound of the share of that time in which the GPU was busy; means over the GPUs."""
    used = used_gpus(state)
    watched = [activity for uuid, activity in state.activity.items() if used is None or uuid in used]
    if not watched or (used is None and len(watched) > 1):
        return None, None
    stretches = [
        (mark.start + READING_SECONDS, mark.start + mark.duration)
        for mark in state.main.marks
        if mark.name == name and mark.own_seconds > 0.0
    ]
    ranges = [activity.ranges_within(stretches) for activity in watched]
    least, most = _mean(ranges, "sm_active"), _mean(ranges, "utilization")
    return least, most if most is None or least is None else max(least, most)


def _mean(ranges: list[dict[str, Range]], figure: str) -> float | None:
    rows = [figures[figure] for figures in ranges if figure in figures and figures[figure].readings >= MIN_MEASURED]
    return sum(row.mean for row in rows) / len(rows) / 100.0 if len(rows) == len(ranges) else None
