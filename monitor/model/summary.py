"""The report, read off the state of a run. Pure: the moment, the identity and the liveness are passed in."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields

from monitor.model import account, mfu
from monitor.model.account import Surroundings as Surroundings
from monitor.model.activity import Range
from monitor.model.below_peak import below_peak, holds
from monitor.model.device_ranks import late_of, usual_steps, waits_of
from monitor.model.device_use import device_use, over_steps, phase_rows, tells_phases, uses_device
from monitor.model.devices import ours
from monitor.model.metric_order import ordered
from monitor.model.outside_steps import outside_steps
from monitor.model.ranks import Comparison, compare
from monitor.model.reasons import reasons_in_words
from monitor.model.report import (
    Alert,
    Dropped,
    GpuClock,
    GpuRow,
    HostRow,
    MetricRow,
    OpenWork,
    Outcome,
    PhaseRow,
    Progress,
    RankRow,
    Rates,
    Report,
    Run,
    SlowStep,
    Straggler,
    Throughput,
    Wall,
)
from monitor.model.series import Column
from monitor.model.state import MAX_MARKS, AlertRow, Figures, RunState
from monitor.model.steps import OTHER
from monitor.model.throttle import GpuWatch
from monitor.model.time_left import stops, time_left
from trainhooks.events import Gpu, Pulse

SLOW = "slow-steps"
# Figures of the last moment that are told as means over the steps once the run is over.
_MEANS: dict[str, Callable[[Range], float | int]] = {
    "utilization": lambda told: told.mean,
    "memory_used": lambda told: round(told.max),
    "temperature": lambda told: told.mean,
    "power": lambda told: told.mean,
    "sm_clock": lambda told: round(told.mean),
}
_NOT_READ = ("reasons", "throttle", "over_steps")
SILENT = 3.0  # seconds without a word: three pulses missed


def report(state: RunState, around: Surroundings) -> Report:
    """Everything that is known of the run at `around.now`."""
    outcome = _outcome(state, around)
    wall = account.wall(state, around, outcome)
    main, comparison = state.main, compare(state.ranks)
    progress = _progress(state, around, outcome, wall)
    device, host_phases = device_use(state), _phases(main)
    usual = _device_ranks(state)
    throughput, straggler = _throughput(state, around, outcome), _straggler(state, comparison, usual)
    if device is not None:
        waits = straggler.share if straggler is not None and straggler.rank != main.rank else None
        product = mfu.matrix_product(state, throughput, around.products)
        if product is not None and product.share is not None and throughput.mfu is not None:
            product.holds = holds(product, throughput.mfu, device.busy_most)
        device.matrix_product = product
        device.outside_steps = outside_steps(state, wall)
        device.below_peak = below_peak(device, throughput.mfu, waits, product)
    timed = tells_phases(main.device)
    return Report(
        run=_run(state, around),
        outcome=outcome,
        progress=progress,
        throughput=throughput,
        wall=wall,
        phases=phase_rows(main.device) if timed else host_phases,
        metrics={name: _metric(column.digested()) for name, column in ordered(state.metrics).items()},
        slow_steps=slow_steps(state),
        startup=account.startup(state, around, wall, outcome),
        gpus=_gpus(state, outcome),
        host=_host(state),
        ranks=_ranks(state, comparison, usual, waits_of(usual) if straggler is not None else None),
        findings=[],
        alerts=_alerts(state, around),
        dropped=_dropped(state, around, outcome),
        straggler=straggler,
        gpu_clock=GpuClock(device.timed_steps, device.dropped) if device is not None and device.clock else None,
        device=device,
        host_phases=host_phases if device is not None else [],
    )


def _run(state: RunState, around: Surroundings) -> Run:
    identity = around.identity
    name = identity.get("name") if identity.get("named") else None
    command = identity.get("command") or state.facts.get("command") or []
    trainings = account.trainings(state)
    host = identity.get("host") or next((each.host for each in trainings if each.host), None)
    ranks = len({each.rank for each in trainings})
    main = state.main
    source = main.source if main.stepped else None
    offset = account.wall_offset(state, identity)
    begins = [] if offset is None else [each.hello + (each.wall_offset or offset) for each in trainings]
    started = identity.get("started") or min(begins, default=None)
    facts = {**state.facts, **({"tags": identity["tags"]} if identity.get("tags") else {})}
    name = name or state.name or identity.get("name")
    imported = identity.get("imported") is True
    recording = identity.get("recording") is True
    return Run(identity.get("id"), name, command, host, started, ranks, facts, source, imported, recording)


def _outcome(state: RunState, around: Surroundings) -> Outcome:
    if around.alive:  # also after the launched program, when that left a training behind
        return Outcome("running")
    ending = state.ending
    error = next((each.error for each in account.newest(state) if each.error), None)
    if ending is not None and ending.signal:  # 0 is no signal
        return Outcome("killed", ending.exit_code, ending.signal, error)
    if ending is not None and ending.exit_code is not None:
        return Outcome("finished" if ending.exit_code == 0 else "failed", ending.exit_code, None, error)
    if state.main.bye is not None:  # it ended in good order, but nobody waited for its exit code
        return Outcome("failed" if error else "finished", error=error)
    return Outcome("lost")


def _dropped(state: RunState, around: Surroundings, outcome: Outcome) -> Dropped:
    over = outcome.state != "running"
    hooked = [each for each in account.newest(state) if each.source == "hooks"]
    return Dropped(
        events=sum(each.dropped for each in state.producers.values()),
        lines=around.missing_lines,
        broken_off=sum(over and each.ended is None for each in hooked),
    )


def _progress(state: RunState, around: Surroundings, outcome: Outcome, wall: Wall) -> Progress:
    main = state.main
    ok, skipped = main.steps_ok, sum(main.skipped.values())
    done = main.start_step + ok + skipped
    total = _total(state)
    progress = Progress(done, total, ok, skipped, dict(main.skipped), elapsed_seconds=wall.total)
    progress.restarts, progress.steps_again = main.restarts, main.steps_again
    if total:
        progress.fraction = min(1.0, done / total)
    if outcome.state == "running" and total is not None:
        left = _time_left(main, max(0, total - done), around.now)
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


def _time_left(main: Figures, steps: int, now: float) -> tuple[float, float, float] | None:
    every = stops(main.marks) if len(main.marks) < MAX_MARKS // 2 else []  # of many, only the longest are kept
    passed = max(0.0, now - main.pace.end - main.wall.since_last_step) if main.pace.end is not None else 0.0
    return time_left(main.pace, steps, main.last_index, every, passed)


def _total(state: RunState) -> int | None:
    """The steps planned, as the main figures' own teller has it; else as a rank that does not step does."""
    if state.main.total_steps is not None:
        return state.main.total_steps
    return next((each.total_steps for _, each in sorted(state.hooked.items()) if each.total_steps is not None), None)


def _throughput(state: RunState, around: Surroundings, outcome: Outcome) -> Throughput:
    pace = state.main.pace
    whole = pace.whole_run()
    found = Throughput(**{f.name: getattr(whole, f.name) for f in fields(Rates)}, recent=pace.lately())
    mfu.fill(found, state, outcome.state == "running")
    found.recent_seconds, found.recent_steps = pace.latest() or (None, None)
    found.busy_share = state.main.device.whole.busy_share()
    wanted = around.identity.get("expect_tps")
    if isinstance(wanted, int | float) and wanted > 0:
        found.expected_tokens_per_second = float(wanted)
    return found


def _phases(main: Figures) -> list[PhaseRow]:
    """The phases in the order they first occurred, `other` last; their shares of all step time add up to 1."""
    columns = {name: stats.seconds.digested() for name, stats in main.phases.items()}
    whole = sum(column.sum for column in columns.values())
    rows = []
    for name, column in columns.items():
        p50, p95 = (min(each, column.most) for each in column.quantiles.at(0.5, 0.95))
        share = column.sum / whole if whole else 0.0
        mean = column.sum / column.count if column.count else 0.0
        most = max(0.0, column.most)
        row = PhaseRow(name, share, mean, p50, p95, most, main.phases[name].clock, column.count)
        told = main.device.whole.phases.get(name)
        row.gpu_seconds = told.total / told.steps if told is not None and told.steps else None
        rows.append(row)
    return sorted(rows, key=lambda row: row.name == OTHER)


def slow_steps(state: RunState) -> list[SlowStep]:
    """By the device's clock where a device is used: on the host's, a step is long whose queue was full."""
    return list(state.main.device.slow_steps if uses_device(state) else state.main.slow_steps)


def _metric(column: Column) -> MetricRow:
    last = column.last if math.isfinite(column.last) else repr(column.last)
    count = column.count + column.nonfinite
    if not column.count:
        return MetricRow(last, count=count, nonfinite=column.nonfinite)
    mean = max(column.least, min(column.most, column.sum / column.count))  # a sum may be beyond a float
    return MetricRow(last, mean, column.least, column.most, count, column.nonfinite)


def _device_ranks(state: RunState) -> dict[int, dict[str, float]]:
    """Each rank's usual step by the device's clock."""
    return usual_steps({rank: stats.device for rank, stats in state.ranks.items()}) if uses_device(state) else {}


def _ranks(
    state: RunState,
    comparison: Comparison | None,
    usual: dict[int, dict[str, float]],
    waiting: dict[int, float] | None,
) -> list[RankRow]:
    # On a GPU the host runs ahead, and waits wherever it next needs a result: only what is clear is said.
    told = comparison is not None and (comparison.slowest is not None or not state.gpus)
    known = comparison if told else None
    rows = []
    for rank in sorted({each.rank for each in account.trainings(state)}):
        stats = state.ranks.get(rank)
        seconds = stats.seconds.digested().quantiles.at(0.5)[0] if stats is not None else None
        row = RankRow(rank, seconds or None, steps=stats.steps if stats is not None else 0)
        if known is not None:
            row.wait_seconds, row.usual_wait = known.waits.get(rank), known.usual.get(rank)
            row.wait_share = None if row.usual_wait is None else row.usual_wait / known.period
        rows.append(row)
    return [_by_device(row, usual, waiting) if row.rank in usual else row for row in rows]


def _by_device(row: RankRow, usual: dict[int, dict[str, float]], waiting: dict[int, float] | None) -> RankRow:
    """A rank by the device's clock; who waits is said where the one that is late is clear."""
    seconds = sum(usual[row.rank].values())
    wait = None if waiting is None else waiting[row.rank]
    share = None if wait is None or seconds <= 0 else wait / seconds
    return RankRow(row.rank, seconds, wait, row.steps, wait, share, clock="cuda")


def _straggler(state: RunState, comparison: Comparison | None, usual: dict[int, dict[str, float]]) -> Straggler | None:
    if uses_device(state):
        late = late_of(usual, min((len(state.ranks[rank].device.latest) for rank in usual), default=0))
        return None if late is None else Straggler(late.rank, late.share, late.seconds, late.steps, late.culprit)
    if comparison is None or comparison.slowest is None:
        return None
    return Straggler(comparison.slowest, comparison.share, comparison.seconds, comparison.steps)


def _alerts(state: RunState, around: Surroundings) -> list[Alert]:
    offset = account.wall_offset(state, around.identity)
    rows: list[AlertRow] = [*state.alerts, *state.main.alerts]
    if uses_device(state):
        rows = [row for row in rows if row.code != SLOW]
        rows += [
            AlertRow(each.ended, SLOW, str(each)) for each in state.main.device.slow_steps if each.ended is not None
        ]
    rows.sort(key=lambda row: row.t)
    return [Alert(None if offset is None else row.t + offset, row.code, row.text) for row in rows]


def _host(state: RunState) -> HostRow:
    if not state.host:
        return HostRow()
    newest = state.host[-1]
    return HostRow(**{f.name: getattr(newest, f.name) for f in fields(HostRow)})


def _gpus(state: RunState, outcome: Outcome) -> list[GpuRow]:
    used = ours(state)
    rows = []
    for uuid, readings in state.gpus.items():
        row = _gpu(readings[-1], state.throttles.gpus.get(uuid))
        row.ours = None if used is None else uuid in used
        row.over_steps = over_steps(state, uuid)
        if outcome.state != "running":
            for name, told in row.over_steps.items():
                if name in _MEANS:
                    setattr(row, name, _MEANS[name](told))
        rows.append(row)
    return rows


def _gpu(gpu: Gpu, watch: GpuWatch | None) -> GpuRow:
    shared = {f.name: getattr(gpu, f.name) for f in fields(GpuRow) if f.name not in _NOT_READ}
    throttle = watch.throttle() if watch is not None else {}
    return GpuRow(**shared, reasons=reasons_in_words(gpu.reasons), throttle=throttle)


def open_work(state: RunState, around: Surroundings, outcome: Outcome) -> OpenWork:
    """What the training is in the middle of: its last pulse, aged to now."""
    main = state.main
    pulse, last_end = main.pulse, main.wall.last_step
    restarting = max(0.0, around.now - last_end) if main.begins_again and last_end is not None else None
    if outcome.state == "running" and around.starting and (pulse is None or not (pulse.spans or pulse.step)):
        return OpenWork(spans=around.begun())
    if outcome.state != "running" or pulse is None:
        return OpenWork(restarting=restarting if outcome.state == "running" else None)
    quiet = around.now - max((p.last_heard for p in account.newest(state) if p.ended is None), default=around.now)
    silent = quiet if quiet > SILENT else None
    age = max(0.0, around.now - pulse.t)
    passed = pulse.step is not None and pulse.step <= main.last_index and not main.begins_again
    if last_end is not None and (last_end > pulse.t or passed):
        return OpenWork(step=main.last_index, silent_for=silent)  # a step has ended since the pulse
    spans = [(name, seconds + age) for name, seconds in pulse.spans]
    if pulse.step is None:
        return OpenWork(spans=spans, silent_for=silent, restarting=restarting)
    aged = [None if each is None else each + age for each in (pulse.step_open, pulse.phase_open)]
    done = _done(main, pulse, aged[0])
    baseline = main.baselines.get(f"{pulse.role or ''}\n{pulse.stage or ''}")
    usual, limit = (baseline.usual() or None, baseline.limit or None) if baseline is not None else (None, None)
    return OpenWork(
        pulse.step, aged[0], pulse.phase, aged[1], pulse.role, pulse.stage, spans, silent, restarting, done, usual,
        limit,
    )  # fmt: skip


def _done(main: Figures, pulse: Pulse, age: float | None) -> list[tuple[str | None, float]]:
    """What the open step did so far. The phase of the last pulse is taken to go on, as everywhere else."""
    if age is None or main.open_step.step != pulse.step:
        return []
    parts = main.open_step.upto(age)
    if len(parts) > 1 and pulse.phase is not None and parts[-1][0] is None and parts[-2][0] == pulse.phase:
        parts[-2:] = [(pulse.phase, parts[-2][1] + parts[-1][1])]
    return parts
