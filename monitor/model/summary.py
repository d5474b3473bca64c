"""The report of a run, read off its state. Pure: moment, identity and liveness are passed in."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from copy import copy
from dataclasses import fields, replace

from monitor import run_facts
from monitor.console.printed_error import RANK_ENDED, printed_error
from monitor.gpu_lines import reasons_in_words
from monitor.model import wall_time
from monitor.model.collected import collected_rates
from monitor.model.compute import mfu
from monitor.model.compute.mfu import below_peak
from monitor.model.device.device_report import GpuClock
from monitor.model.device.device_use import device_use, has_phases, phase_rows, ranges_in_steps, uses_device
from monitor.model.device.gpu_activity import Range
from monitor.model.device.throttle_watch import GpuWatch
from monitor.model.device.trace_report import trace_report
from monitor.model.device.traced_parts import newest_trace
from monitor.model.iteration_report import mean_cycle
from monitor.model.progress import progress_of
from monitor.model.ranks.concurrent_roles import concurrent_roles, staleness
from monitor.model.ranks.rank_rows import arrivals, collectives_row, device_ranks, find_straggler, rank_rows
from monitor.model.ranks.rank_waits import compare_ranks
from monitor.model.report import (
    Alert,
    Dropped,
    GpuRow,
    HostRow,
    MetricRow,
    Outcome,
    PhaseRow,
    Rates,
    Report,
    Run,
    SlowStep,
    Throughput,
)
from monitor.model.standing import MIN_STALL_SECONDS
from monitor.model.starting import start_wait
from monitor.model.state import AlertRow, RankState, RunState, used_gpus
from monitor.model.steps import time_split
from monitor.model.steps.baseline import StepKind
from monitor.model.steps.series import Column, ordered
from monitor.model.steps.step_folding import slow_step_alert
from monitor.model.steps.unnamed_time import unnamed_time
from monitor.model.view import OpenWork
from monitor.model.wall_time import RunContext, outside_steps
from monitor.step_blocks import OTHER
from trainhooks.protocol.calls import FOR_WORKERS
from trainhooks.protocol.events import Gpu, Pulse

# Figures that are means over the steps once the run is over.
_MEANS: dict[str, Callable[[Range], float | int]] = {
    "utilization": lambda figures: figures.mean,
    "memory_used": lambda figures: round(figures.max),
    "temperature": lambda figures: figures.mean,
    "power": lambda figures: figures.mean,
    "sm_clock": lambda figures: round(figures.mean),
}
_NOT_READ = ("reasons", "throttle", "over_steps")
MIN_SILENT_SECONDS = 3.0  # without an event: three pulses missed


def make_report(state: RunState, context: RunContext) -> Report:
    """Return everything that is known of the run at `context.now`."""
    outcome = _outcome(state, context)
    wall = wall_time.wall_parts(state, context, outcome)
    main, called = state.main, arrivals(state)
    comparison = compare_ranks(state.ranks) if called is None else None  # phases tell less than calls
    position = progress_of(state, context, outcome, wall)
    device, host_phases = device_use(state), _phases(state)
    typical = device_ranks(state)
    throughput, straggler = _throughput(state, context, outcome), find_straggler(state, comparison, called, typical)
    if device is not None:
        waits = straggler.share if straggler is not None and straggler.rank != main.rank else None
        device.outside_steps = outside_steps(state, wall)
        device.below_peak = below_peak(device, throughput.mfu, waits)
    timed, trace = has_phases(main.device), newest_trace(main)
    unnamed = unnamed_time(main, host_phases, wall)
    metrics = _metrics(state)
    return Report(
        run=_run(state, context),
        outcome=outcome,
        progress=position,
        throughput=throughput,
        wall=wall,
        phases=phase_rows(main.device) if timed else host_phases,
        metrics=metrics,
        slow_steps=slow_steps(state),
        startup=wall_time.startup_parts(state, context, wall, outcome),
        gpus=_gpus(state, outcome),
        host=_host(state),
        ranks=rank_rows(state, comparison, called, typical, straggler),
        findings=[],
        alerts=_alerts(state, context),
        dropped=_dropped(state, context, outcome),
        straggler=straggler,
        collectives=collectives_row(state, called),
        gpu_clock=GpuClock(device.timed_steps, device.dropped) if device is not None and device.clock else None,
        device=device,
        host_phases=host_phases if device is not None else [],
        unnamed=unnamed,
        operators=None if trace is None or trace.device != "cpu" else trace_report(trace),
        cycle=mean_cycle(
            main,
            outcome.state != "running",
            0.0 if unnamed is None else sum(p.share for p in unnamed.parts if p.activity in FOR_WORKERS),
            concurrent_roles(state),
            staleness(metrics),
            next((one.role for one in state.producers.values() if one.rank == main.rank and one.work is None), None),
        ),
    )


def update_report(last: Report, state: RunState, context: RunContext) -> Report:
    """Return a recent report with what a step's end changes at once: progress, speed, wall time, metrics, alerts.

    Tables and the GPU's account stay as they are: they are most of the work, and nobody reads them ten times a second.
    """
    outcome = _outcome(state, context)
    wall = wall_time.wall_parts(state, context, outcome)
    return replace(
        last,
        run=_run(state, context),
        outcome=outcome,
        progress=progress_of(state, context, outcome, wall),
        throughput=_throughput(state, context, outcome),
        wall=wall,
        metrics=_metrics(state),
        alerts=_alerts(state, context),
    )


def _run(state: RunState, context: RunContext) -> Run:
    identity = context.identity
    name = identity.get("name") if identity.get("named") else None
    command = identity.get("command") or state.facts.command
    trainings = wall_time.training_processes(state)
    host = identity.get("host") or next((producer.host for producer in trainings if producer.host), None)
    ranks = len({producer.rank for producer in trainings})
    main = state.main
    source = main.source if main.stepped else None
    offset = wall_time.wall_offset(state, identity)
    began = [(one.hello if one.process_started is None else one.process_started, one) for one in trainings]
    begins = [] if offset is None else [t + (producer.wall_offset or offset) for t, producer in began]
    started = None if state.begin is not None or context.several else identity.get("started")
    started = started or min(begins, default=None)
    facts = copy(state.facts)
    if identity.get("tags"):
        run_facts.update(facts, {"tags": identity["tags"]})
    if identity.get("environment") and "environment" not in facts.table:  # no process with hooks has told its own
        run_facts.update(facts, {"environment": identity["environment"]})
    name = name or state.name or identity.get("name")
    imported = identity.get("imported") is True
    recording = identity.get("recording") is True
    return Run(
        id=identity.get("id"),
        name=name,
        command=command,
        host=host,
        started=started,
        ranks=ranks,
        rank=state.chosen,
        facts=facts,
        source=source,
        imported=imported,
        attached=identity.get("attached") is True,
        recording=recording,
    )


_LAUNCHERS_SIGNAL = re.compile(r"\bSignalException: Process \d+ got signal: (\d{1,2})\b")
TIMED_OUT = 124  # the exit code of coreutils' `timeout`
MAX_QUIET_STEPS = 10  # usual ones without another: what the command left behind trains no more
MIN_QUIET_SECONDS = 2.0  # two pulses: they would show an open step or an evaluation


def _outcome(state: RunState, context: RunContext) -> Outcome:
    ending = state.ending
    if context.alive and (ending is None or _trains_on(state, context)):
        return Outcome("running", None if ending is None else ending.exit_code)
    outcome = _end(state, context)
    if context.alive:
        who = f"process {context.left[0]} lives" if len(context.left) == 1 else f"{len(context.left)} processes live"
        outcome.left = f"{who} on" if context.left else "a process lives on"
    return outcome


def _trains_on(state: RunState, context: RunContext) -> bool:
    """Return whether a training that the command has left behind still makes steps, or has yet to make its first."""
    main = state.main
    last, pulse = main.wall.last_step, main.pulse
    if last is None or main.begins_again:
        return True
    if pulse is not None and pulse.t >= last and (pulse.step is not None or pulse.spans):
        return True
    rate = main.pace.whole_run(wall_time.first_cycle(main)[0]).steps_per_second
    usual = 1.0 / rate if rate else 0.0
    return context.now - last < max(MIN_QUIET_SECONDS, MAX_QUIET_STEPS * usual)


def _end(state: RunState, context: RunContext) -> Outcome:
    ending = state.ending
    error, place = _first_error(state)
    if context.stopped is not None:
        code, number = (ending.exit_code, ending.signal or None) if ending is not None else (None, None)
        return Outcome("killed", code, number, context.stopped)
    if ending is not None and ending.signal:  # 0 is no signal
        return Outcome("killed", ending.exit_code, ending.signal, error, place)
    sent = _LAUNCHERS_SIGNAL.search(error or "")
    if sent is not None:  # a launcher's own exception: it has passed the signal on to the ranks
        return Outcome("killed", ending.exit_code if ending is not None else None, int(sent[1]))
    if ending is not None and ending.exit_code == TIMED_OUT and error is None:
        return Outcome("killed", TIMED_OUT, error=wall_time.TIME_LIMIT)
    if ending is not None and ending.exit_code is not None:
        return Outcome(
            state="finished" if ending.exit_code == 0 else "failed",
            exit_code=ending.exit_code,
            signal=None,
            error=error,
            place=place,
        )
    if state.main.bye is not None:  # a regular end with an unknown exit code
        return Outcome("failed" if error else "finished", error=error, place=place)
    return Outcome("lost")


def _first_error(state: RunState) -> tuple[str | None, str | None]:
    """Return the error that ended the training first, and its place: the other ranks' errors follow from it.

    What the program printed counts for processes that do not report, or not yet, or not any more.
    """
    processes, printed = wall_time.current(state), state.ending.error if state.ending is not None else None
    failed = [producer for producer in processes if producer.error]
    if printed is not None and state.ending is not None and (not failed or printed.startswith(RANK_ENDED)):
        # Those that took leave without an error have survived what they printed.
        left = bool(processes) and all(producer.ended is not None for producer in processes)
        return (None, None) if left and not failed else (printed, state.ending.place)
    if not failed:
        return None, None
    first = min(failed, key=lambda producer: ((producer.ended or 0.0) + producer.wall_offset, producer.rank))
    return first.error, first.place


def _dropped(state: RunState, context: RunContext, outcome: Outcome) -> Dropped:
    over = outcome.state != "running"
    hooked = [producer for producer in wall_time.current(state) if producer.source == "hooks"]
    return Dropped(
        events=sum(producer.dropped for producer in state.producers.values()),
        lines=context.missing_lines,
        parts=state.main.odd_parts,
        broken_off=sum(over and producer.ended is None for producer in hooked),
    )


def _throughput(state: RunState, context: RunContext, outcome: Outcome) -> Throughput:
    pace = state.main.pace
    whole = pace.whole_run(wall_time.first_cycle(state.main)[0])
    throughput = Throughput(**{f.name: getattr(whole, f.name) for f in fields(Rates)}, recent=pace.recent_rates())
    mfu.fill_mfu(throughput, state, outcome.state == "running")
    if len(state.ranks) > 1:
        throughput.rank, throughput.job = state.main.rank, _job_rates(state, whole)
    throughput.recent_seconds, throughput.recent_steps = pace.recent_span() or (None, None)
    throughput.busy_share = state.main.device.whole.busy_share()
    price = context.identity.get("price")
    throughput.collected = collected_rates(
        state.collected,
        pace.steps / whole.steps_per_second if whole.steps_per_second else _acting_seconds(state),
        float(price) if isinstance(price, int | float) else None,
    )
    wanted = context.identity.get("expect_tps")
    if isinstance(wanted, int | float) and wanted > 0:
        throughput.expected_tokens_per_second = float(wanted)
    return throughput


def _acting_seconds(state: RunState) -> float | None:
    """Return for how long processes have stepped environments, in a run without steps."""
    wall = None if state.acting is None else state.acting.wall
    return None if wall is None or wall.first_step is None else (wall.last_step or 0.0) - wall.first_step


def _job_rates(state: RunState, rates: Rates) -> Rates | None:
    """Return the rates of all ranks together; None unless DDP's replicas are the job's ranks, and all are counted.

    Ranks of tensor or pipeline parallelism share a batch: there is nothing to add up.
    """
    ranks, own = list(state.ranks.values()), state.ranks.get(state.main.rank)
    if own is None or state.facts.model.data_parallel != len(ranks) or any(rank.uncounted for rank in ranks):
        return None

    def total(rate: float | None, name: str) -> float | None:
        work = [getattr(rank, name) / rank.steps if rank.steps else 0.0 for rank in ranks]
        mine = getattr(own, name) / own.steps if own.steps else 0.0
        return rate * sum(work) / mine if rate is not None and mine > 0 and all(work) else None

    return Rates(
        steps_per_second=rates.steps_per_second,
        tokens_per_second=total(rates.tokens_per_second, "tokens"),
        samples_per_second=total(rates.samples_per_second, "samples"),
        counted=1.0,
    )


def _phases(state: RunState) -> list[PhaseRow]:
    """Return the phases in the order they first occurred, `other` last; their shares of all step time add up to 1."""
    main = state.main
    columns = {name: stats.seconds.settled() for name, stats in main.phases.items()}
    opening = [time_split.phases_of(step) for step in main.opening]
    by_host = [] if uses_device(state) else main.slow_steps  # a full queue makes a host's step long
    slow = time_split.episodes(by_host, main.latest.steps())
    beyond = time_split.in_episodes(slow, main.slow_count * len(slow) // max(1, len(main.slow_steps)))
    whole = sum(column.sum for column in columns.values())
    rows = []
    for name, column in columns.items():
        p50, p95, longest = column.spread()
        share = column.sum / whole if whole else 0.0
        mean = column.sum / column.count if column.count else 0.0
        row = PhaseRow(
            name=name,
            share=share,
            mean=mean,
            p50=p50,
            p95=p95,
            max=longest,
            clock=main.phases[name].clock,
            count=column.count,
        )
        early, rare = time_split.once_in(column.quantiles, [phases.get(name, 0.0) for phases in opening])
        row.once = min(early + rare, column.sum)
        row.episodes = max(0.0, min(beyond.get(name, 0.0) - rare, column.sum - row.once))  # a single one is rare, too
        figures = main.device.whole.phases.get(name)
        row.gpu_seconds = figures.total / figures.steps if figures is not None and figures.steps else None
        rows.append(row)
    return sorted(rows, key=lambda row: row.name == OTHER)


def slow_steps(state: RunState) -> list[SlowStep]:
    """Return the slow steps, by the device's clock where one is used: on the host's, a full queue makes a step long."""
    if uses_device(state):
        return time_split.unplanned(state.main.device.slow_steps)
    return [
        *time_split.first_slow_steps(state.main),
        *time_split.episodes(state.main.slow_steps, state.main.latest.steps()),
    ]


def _metrics(state: RunState) -> dict[str, MetricRow]:
    return {name: _metric(column.settled()) for name, column in ordered(state.metrics).items()}


def _metric(column: Column) -> MetricRow:
    last = column.last if math.isfinite(column.last) else repr(column.last)
    count = column.count + column.nonfinite
    if not column.count:
        return MetricRow(last, count=count, nonfinite=column.nonfinite)
    mean = max(column.least, min(column.most, column.sum / column.count))  # the sum may overflow
    return MetricRow(last=last, mean=mean, min=column.least, max=column.most, count=count, nonfinite=column.nonfinite)


def _alerts(state: RunState, context: RunContext) -> list[Alert]:
    offset = wall_time.wall_offset(state, context.identity)
    rows: list[AlertRow] = [*state.alerts, *state.main.alerts]
    if uses_device(state):
        rows = [row for row in rows if row.slow_step is None]
        rows += [slow_step_alert(slow, slow.ended) for slow in slow_steps(state) if slow.ended is not None]
    else:
        rows = _without_rhythm(rows, state.main)
    rows.sort(key=lambda row: row.t)
    return [
        Alert(None if offset is None else row.t + offset, row.code, row.text, row.slow_step, row.rank) for row in rows
    ]


def _without_rhythm(rows: list[AlertRow], main: RankState) -> list[AlertRow]:
    """Return the alerts without slow steps that turned out to be regular; older ones are taken to be like them."""
    known = {slow.step for slow in main.slow_steps}
    regular = known - {slow.step for slow in time_split.episodes(main.slow_steps, main.latest.steps())}
    if not regular:
        return rows
    oldest, mostly = min(known), len(regular) >= time_split.MIN_EVEN_SHARE * len(known)
    return [
        row
        for row in rows
        if row.slow_step is None or not (row.slow_step in regular or (mostly and row.slow_step < oldest))
    ]


def _host(state: RunState) -> HostRow:
    if not state.host:
        return HostRow()
    # At the last reading the training may have ended already: of its memory the reading before says more.
    newest = next((reading for reading in reversed(state.host) if reading.tree_rss), state.host[-1])
    return HostRow(**{f.name: getattr(newest, f.name) for f in fields(HostRow)})


def _gpus(state: RunState, outcome: Outcome) -> list[GpuRow]:
    used = used_gpus(state)
    rows = []
    for uuid, readings in state.gpus.items():
        row = _gpu(readings[-1], state.throttles.gpus.get(uuid))
        row.ours = None if used is None else uuid in used
        row.over_steps = ranges_in_steps(state, uuid)
        if outcome.state != "running":
            for name, figures in row.over_steps.items():
                if name in _MEANS:
                    setattr(row, name, _MEANS[name](figures))
        rows.append(row)
    return rows


def _gpu(gpu: Gpu, watch: GpuWatch | None) -> GpuRow:
    shared = {f.name: getattr(gpu, f.name) for f in fields(GpuRow) if f.name not in _NOT_READ}
    throttle = watch.throttle_seconds() if watch is not None else {}
    return GpuRow(**shared, reasons=reasons_in_words(gpu.reasons), throttle=throttle)


def open_work(state: RunState, context: RunContext, outcome: Outcome) -> OpenWork:
    """Return the open step or span by the last pulse, aged to now; before the first step what the run waits for."""
    work = replace(
        _by_pulse(state, context, outcome),
        error=_error_before(state, context, outcome),
        is_unheard=context.is_unheard and outcome.state == "running",
    )
    if state.main.stepped or outcome.state == "finished":
        return work
    running, is_silent = outcome.state == "running", not (state.hooked or work.spans)
    ended = state.ending.t if state.ending is not None and state.ending.t is not None else context.now
    host = state.host[-1] if state.host and (context.looks or (running and is_silent)) else None
    return replace(work, start=start_wait(context.looks, list(state.hooked), host, context.now if running else ended))


def _error_before(state: RunState, context: RunContext, outcome: Outcome) -> str | None:
    """Return the error at the end of the output of a run that stands still: it may have ended what is waited for."""
    if outcome.state != "running" or not any(held.seconds >= MIN_STALL_SECONDS for held in state.held.values()):
        return None
    printed = printed_error("\n".join(context.console), str(context.identity.get("cwd") or "/"))
    return None if printed is None else f"{printed.error}, at {printed.place}" if printed.place else printed.error


def _by_pulse(state: RunState, context: RunContext, outcome: Outcome) -> OpenWork:
    main = state.main
    pulse, last_end = main.pulse, main.wall.last_step
    restarting = max(0.0, context.now - last_end) if main.begins_again and last_end is not None else None
    if outcome.state == "running" and context.starting and (pulse is None or not (pulse.spans or pulse.step)):
        return OpenWork(spans=context.begun())
    if outcome.state != "running" or pulse is None:
        return OpenWork(restarting=restarting if outcome.state == "running" else None)
    quiet = context.now - max((p.last_heard for p in wall_time.current(state) if p.ended is None), default=context.now)
    silent = quiet if quiet > MIN_SILENT_SECONDS and not context.is_unheard else None
    age = max(0.0, context.now - pulse.t)
    passed = pulse.step is not None and pulse.step <= main.last_index and not main.begins_again
    if last_end is not None and (last_end > pulse.t or passed):
        return OpenWork(step=main.last_index, silent_for=silent)  # a step has ended since the pulse
    spans = [(name, seconds + age) for name, seconds in pulse.spans]
    if pulse.step is None:
        return OpenWork(spans=spans, silent_for=silent, restarting=restarting)
    aged = [None if seconds is None else seconds + age for seconds in (pulse.step_open, pulse.phase_open)]
    done = _open_phases(main, pulse, aged[0])
    baseline = main.baselines.get(StepKind.of(pulse))
    typical, limit = (baseline.typical() or None, baseline.limit or None) if baseline is not None else (None, None)
    return OpenWork(
        step=pulse.step,
        step_seconds=aged[0],
        phase=pulse.phase,
        phase_seconds=aged[1],
        role=pulse.role,
        stage=pulse.stage,
        spans=spans,
        silent_for=silent,
        restarting=restarting,
        parts=done,
        typical=typical,
        limit=limit,
    )


def _open_phases(main: RankState, pulse: Pulse, age: float | None) -> list[tuple[str | None, float]]:
    """Return the phases of the open step so far. The phase of the last pulse is taken to continue."""
    if age is None or main.open_step.step != pulse.step:
        return []
    parts = main.open_step.parts_until(age)
    if len(parts) > 1 and pulse.phase is not None and parts[-1][0] is None and parts[-2][0] == pulse.phase:
        parts[-2:] = [(pulse.phase, parts[-2][1] + parts[-1][1])]
    return parts
