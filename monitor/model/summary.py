"""The report, read off the state of a run. Pure: the moment, the identity and the liveness are passed in."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

from monitor.model.fold import OTHER
from monitor.model.report import (
    Alert,
    Dropped,
    GpuRow,
    HostRow,
    MetricRow,
    NamedSeconds,
    OpenWork,
    Outcome,
    PhaseRow,
    Progress,
    RankRow,
    Rates,
    Report,
    Run,
    Throughput,
    Wall,
)
from monitor.model.series import Column
from monitor.model.state import Producer, RunState
from trainhooks.events import Gpu

SILENT = 3.0  # seconds without a word: three pulses missed


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is known of a run beside its events."""

    identity: dict[str, Any]  # run.json
    now: float  # monotonic seconds on the run's host; the last event's time where that is elsewhere or gone
    alive: bool = False
    missing_lines: int = 0


def report(state: RunState, around: Surroundings) -> Report:
    """Everything that is known of the run at `around.now`."""
    outcome = _outcome(state, around)
    wall = _wall(state, around, outcome)
    progress = _progress(state, around, outcome, wall)
    return Report(
        run=_run(state, around),
        outcome=outcome,
        progress=progress,
        throughput=_throughput(state),
        wall=wall,
        phases=_phases(state),
        metrics={name: _metric(column.digested()) for name, column in state.metrics.items()},
        slow_steps=list(state.slow_steps),
        startup=_startup(state, wall),
        gpus=[_gpu(readings[-1]) for readings in state.gpus.values()],
        host=_host(state),
        ranks=_ranks(state),
        findings=[],
        alerts=_alerts(state),
        dropped=Dropped(sum(each.dropped for each in state.producers.values()), around.missing_lines),
    )


def _trainings(state: RunState) -> list[Producer]:
    return [each for each in state.producers.values() if each.source != "recorder"]


def _run(state: RunState, around: Surroundings) -> Run:
    identity = around.identity
    name = identity.get("name") if identity.get("named") else None
    command = identity.get("command") or state.facts.get("command") or []
    trainings = _trainings(state)
    host = identity.get("host") or next((each.host for each in trainings if each.host), None)
    ranks = len({each.rank for each in trainings})
    started = identity.get("started") or min((p.hello + p.wall_offset for p in trainings), default=None)
    facts = {**state.facts, **({"tags": identity["tags"]} if identity.get("tags") else {})}
    return Run(identity.get("id"), name or state.name or identity.get("name"), command, host, started, ranks, facts)


def _outcome(state: RunState, around: Surroundings) -> Outcome:
    ending = state.ending
    error = next((each.error for each in _trainings(state) if each.error), None)
    if ending is not None and ending.signal is not None:
        return Outcome("killed", ending.exit_code, ending.signal, error)
    if ending is not None and ending.exit_code is not None:
        return Outcome("finished" if ending.exit_code == 0 else "failed", ending.exit_code, None, error)
    if around.alive:
        return Outcome("running")
    if state.bye is not None:  # it ended in good order, but nobody waited for its exit code
        return Outcome("failed" if error else "finished", error=error)
    return Outcome("lost")


def _begin(state: RunState, around: Surroundings) -> float | None:
    """When the run began, on the monotonic clock: at its launch, or the start of its process."""
    own = [p.process_started if p.process_started is not None else p.hello for p in _trainings(state)]
    launched = around.identity.get("started_monotonic")
    if around.identity.get("launched") and isinstance(launched, int | float):
        own.append(float(launched))
    if own:
        return min(own)
    return float(launched) if isinstance(launched, int | float) else None


def _end(state: RunState, around: Surroundings, outcome: Outcome) -> float | None:
    if outcome.state == "running":
        return around.now
    if state.ending is not None and state.ending.t is not None:
        return state.ending.t
    return state.bye if state.bye is not None else state.last_event


def _wall(state: RunState, around: Surroundings, outcome: Outcome) -> Wall:
    """The account of the elapsed time: what is not claimed lies between the steps, or after the last."""
    begin, end = _begin(state, around), _end(state, around, outcome)
    if begin is None or end is None:
        return Wall()
    raw = state.wall
    end = max(end, begin, raw.last_step or begin)
    total = end - begin
    if raw.first_step is None or raw.last_step is None:
        return Wall(total=total, startup=total)
    startup = max(0.0, raw.first_step - begin)
    claimed = raw.steps + sum(raw.spans.values())
    # Two processes of one rank at a time claim more than there was: scaled, so that parts stay parts.
    scale = min(1.0, (total - startup) / claimed) if claimed > 0 else 1.0
    spans = {name: scale * seconds for name, seconds in raw.spans.items()}
    rest = max(0.0, total - startup - scale * claimed)
    teardown = max(0.0, min(rest, end - raw.last_step - raw.since_last_step))
    if outcome.state == "running":  # the last step may have another one open behind it: no end is in sight
        teardown = 0.0
    return Wall(total, startup, scale * raw.steps, spans, rest - teardown, teardown)


def _startup(state: RunState, wall: Wall) -> list[NamedSeconds]:
    rows = [NamedSeconds(name, seconds) for name, seconds in state.wall.startup.items()]
    if wall.startup is not None:
        unnamed = wall.startup - sum(row.seconds for row in rows)
        if unnamed > 0:
            rows.append(NamedSeconds(OTHER, unnamed))
    return sorted(rows, key=lambda row: -row.seconds)


def _progress(state: RunState, around: Surroundings, outcome: Outcome, wall: Wall) -> Progress:
    ok, skipped = state.steps_ok, sum(state.skipped.values())
    done = state.start_step + ok + skipped
    total = state.total_steps
    progress = Progress(done, total, ok, skipped, dict(state.skipped), elapsed_seconds=wall.total)
    if total:
        progress.fraction = min(1.0, done / total)
    if outcome.state == "running" and total is not None:
        left = state.pace.time_left(max(0, total - done))
        if left is not None:
            progress.eta_seconds, progress.eta_low, progress.eta_high = left
    price = around.identity.get("price")
    if isinstance(price, int | float) and wall.total is not None:
        progress.cost = price * wall.total / 3600
        if progress.eta_seconds is not None:
            progress.cost_total = price * (wall.total + progress.eta_seconds) / 3600
        elif outcome.state != "running":
            progress.cost_total = progress.cost
    return progress


def _throughput(state: RunState) -> Throughput:
    whole = state.pace.whole_run()
    return Throughput(**{f.name: getattr(whole, f.name) for f in fields(Rates)}, recent=state.pace.lately())


def _phases(state: RunState) -> list[PhaseRow]:
    """The phases in the order they first occurred, `other` last; their shares of all step time add up to 1."""
    columns = {name: stats.seconds.digested() for name, stats in state.phases.items()}
    whole = sum(column.sum for column in columns.values())
    rows = []
    for name, column in columns.items():
        p50, p95 = (min(each, column.most) for each in column.quantiles.at(0.5, 0.95))
        share = column.sum / whole if whole else 0.0
        mean = column.sum / column.count if column.count else 0.0
        most = max(0.0, column.most)
        rows.append(PhaseRow(name, share, mean, p50, p95, most, state.phases[name].clock, column.count))
    return sorted(rows, key=lambda row: row.name == OTHER)


def _metric(column: Column) -> MetricRow:
    last = column.last if math.isfinite(column.last) else repr(column.last)
    count = column.count + column.nonfinite
    if not column.count:
        return MetricRow(last, count=count, nonfinite=column.nonfinite)
    mean = max(column.least, min(column.most, column.sum / column.count))  # a sum may be beyond a float
    return MetricRow(last, mean, column.least, column.most, count, column.nonfinite)


def _ranks(state: RunState) -> list[RankRow]:
    rows = []
    for rank in sorted({each.rank for each in _trainings(state)}):
        stats = state.ranks.get(rank)
        seconds = stats.seconds.digested().quantiles.at(0.5)[0] if stats is not None else None
        rows.append(RankRow(rank, seconds, None, stats.steps if stats is not None else 0))
    return rows


def _alerts(state: RunState) -> list[Alert]:
    lead = min(_trainings(state), key=lambda each: each.rank, default=None)
    offset = lead.wall_offset if lead is not None else 0.0
    return [Alert(row.t + offset, row.code, row.text) for row in state.alerts]


def _host(state: RunState) -> HostRow:
    if not state.host:
        return HostRow()
    newest = state.host[-1]
    return HostRow(**{f.name: getattr(newest, f.name) for f in fields(HostRow)})


# The driver's clock event reasons, in words.
CLOCK_EVENT_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal",
    0x40: "hardware thermal",
    0x80: "power brake",
    0x100: "display clocks",
}


def reasons_in_words(mask: int | None) -> list[str]:
    """The reasons whose bits are set; unknown bits as one hexadecimal number."""
    if not mask:
        return []
    words = [word for bit, word in CLOCK_EVENT_REASONS.items() if mask & bit]
    unknown = mask & ~sum(CLOCK_EVENT_REASONS)
    return [*words, hex(unknown)] if unknown else words


def _gpu(gpu: Gpu) -> GpuRow:
    shared = {f.name: getattr(gpu, f.name) for f in fields(GpuRow) if f.name not in ("reasons", "throttle")}
    return GpuRow(**shared, reasons=reasons_in_words(gpu.reasons))


def open_work(state: RunState, around: Surroundings, outcome: Outcome) -> OpenWork:
    """What the training is in the middle of: its last pulse, aged to now."""
    pulse = state.pulse
    if outcome.state != "running" or pulse is None:
        return OpenWork()
    quiet = around.now - max((p.last_heard for p in _trainings(state) if p.ended is None), default=around.now)
    silent = quiet if quiet > SILENT else None
    age = max(0.0, around.now - pulse.t)
    last_end = state.wall.last_step
    if last_end is not None and (last_end > pulse.t or (pulse.step is not None and pulse.step <= state.last_index)):
        return OpenWork(step=state.last_index, silent_for=silent)  # a step has ended since the pulse
    spans = [(name, seconds + age) for name, seconds in pulse.spans]
    if pulse.step is None:
        return OpenWork(spans=spans, silent_for=silent)
    aged = [None if each is None else each + age for each in (pulse.step_open, pulse.phase_open)]
    return OpenWork(pulse.step, aged[0], pulse.phase, aged[1], pulse.role, pulse.stage, spans, silent)
