"""Progress: a run that stands still, where, who waits for whom, and why. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.model.cycle import COLLECT
from monitor.model.ranks.collectives import parted
from monitor.model.report import Finding
from monitor.model.stacks import ranks_text
from monitor.model.standing import (
    AT_EXIT,
    ENDLESS,
    MAX_SILENT_SECONDS,
    MIN_COMPUTING_PERCENT,
    MIN_STALL_SECONDS,
    WAITS,
    doing,
    silence,
    used_percent,
    was_given_up,
    where,
    works,
)
from monitor.model.state import Held
from monitor.model.wall_time import training_processes
from monitor.units import age, duration, plural
from trainhooks.protocol import calls
from trainhooks.protocol.events import Host
from trainhooks.protocol.vocabulary import BETWEEN_CELLS, ENV_STEPS

MIN_STALL_RATIO = 10.0  # times the median: well beyond spikes that pass
MIN_STALL_P95_RATIO = 2.0  # times the 95th percentile, likewise
MIN_RESTART_RATIO = 3.0  # times the first start: a restart does the same again, and loads a checkpoint
MIN_TYPICAL_STEPS = 5  # before a step has a typical duration
# Seconds; a run stopped after a stall this long was most likely stopped because of it.
MIN_GIVEN_UP_SECONDS = 15.0
MIN_PAUSE_RATIO = 2.0  # times all earlier pauses between steps together: an unnamed evaluation may be one
MIN_STILL_SECONDS = 120.0  # at one line, where nothing tells how long is usual: twice what a known one takes
MIN_ASLEEP_SECONDS = 300.0  # a program sleeps on purpose: to look for something again, or not to ask too often
MAX_ELSEWHERE = 4  # ranks and threads that are named


@rule(
    "stalled",
    Family.PROGRESS,
    # The time of a wait that does not end is no habit of what is open.
    suppresses=(
        *("eval-heavy", "checkpoint-stall", "logging-overhead", "input-bound", "worker-wait", "work-between-steps"),
        Suppress(("unaccounted-time",), culprits=(BETWEEN_STEPS,)),
    ),
)
def stalled(evidence: Evidence) -> Finding | None:
    """Find a step that does not end, none that begins, a line that does not move, or a process without a heartbeat."""
    if evidence.open.is_unheard or any(name == BETWEEN_CELLS for name, _ in evidence.open.spans):
        return None
    finding = (
        _silent(evidence)
        or _apart(evidence)
        or _open_step(evidence)
        or _no_next_step(evidence)
        or _standing(evidence)
        or _not_gone(evidence)
    )
    if finding is not None and evidence.is_running and evidence.state.host:
        _add_processes(finding, evidence.state.host)
    if finding is not None and evidence.open.error is not None:
        finding.evidence.append(f"before that it printed {evidence.open.error}")
    return finding


def _add_processes(finding: Finding, readings: Sequence[Host]) -> None:
    """Add what became of processes that the training may wait for."""
    newest = readings[-1]
    if newest.tree_stopped:
        are = "is" if newest.tree_stopped == 1 else "are"
        stopped = plural(newest.tree_stopped, "process", "processes")
        finding.evidence.append(f"{stopped} of it {are} stopped by a signal or a debugger")
    since = next((row.t for row in reversed(readings) if row.tree_ended != newest.tree_ended), None)
    if newest.tree_ended and since is not None:  # else long before
        ended, when = plural(newest.tree_ended, "process", "processes"), f" {age(newest.t - since)} ago"
        how = f", with {newest.tree_ended_by}" if newest.tree_ended_by else ""
        finding.evidence.append(f"{ended} of it ended{when}{how}, and nothing has waited for that")


INSPECT = "See where every thread and rank is: trainmon stack. Typically a collective, a queue or a subprocess waits."
# By what a library does at the line: what to do.
ADVICE = {
    calls.COLLECTIVE: "A rank left the loop, skipped or reordered a collective, or has ended: trainmon stack shows"
    " where each is.",
    calls.LOCK: "Who holds it? A lock that was held over a fork is never released, and two threads may wait for each"
    " other: trainmon stack shows every thread. Start processes with spawn, or before the threads.",
    calls.THREAD: "See whether that thread lives and where it is: trainmon stack shows every thread.",
    calls.QUEUE: "See whether the worker that fills it lives: trainmon stack.",
    calls.POOL: "One call does not return, or a worker was killed: give each call a time limit; trainmon stack.",
    calls.PROCESS: "See what that process does: trainmon stack. Give it a time limit.",
    calls.SUBPROCESS: "Give the subprocess a timeout; trainmon stack shows what it does.",
    calls.LOADING: "A worker died, or waits itself: trainmon stack shows each. Try num_workers=0, or timeout=60 in"
    " DataLoader.",
    calls.HTTP: "Give the request a timeout, and see whether the server answers.",
    calls.SLEEP: "See what the program waits for there: trainmon stack.",
    calls.FILE: "See whether the file system answers (df, ls), and whether it is a pipe.",
    calls.EVENT_LOOP: "Give what is awaited a time limit (asyncio.timeout).",
    calls.LOCK_FILE: "Find who holds the lock (lsof, fuser); remove its file if nobody does.",
    calls.EXIT: "Make the thread a daemon, or tell it to end: trainmon stack shows it.",
    calls.RAISED: "The program prints the exception. Threads that are no daemons keep the process alive after it.",
    calls.MESSAGE: "See whether who sends it lives, and give the call a time limit: trainmon stack.",
    calls.INPUT: "Answer in the program's terminal; without one, take the breakpoint or the question out.",
}


def _stalled_finding(title: str, lines: list[str], held: Held | None = None, severity: str = "critical") -> Finding:
    advice = INSPECT if held is None else ADVICE.get(held.activity or "", INSPECT)
    lines = [*lines, *([] if held is None else _threads(held))]
    return Finding(code="stalled", severity=severity, title=title, evidence=lines, advice=advice)


def _threads(held: Held) -> list[str]:
    """Return where the other threads are, a line each: what is waited for may be among them."""
    locked = [name for name, _, activity in held.threads if activity == calls.LOCK]
    lines = [
        f"{'' if does == calls.EVENT_LOOP else 'thread '}{name}: {doing(does)} at {place}"
        for name, place, does in held.threads[:MAX_ELSEWHERE]
    ]
    if held.activity == calls.LOCK and locked:
        lines.insert(0, f"the training and {locked[0]} wait for locks, perhaps each for the other's")
    return lines


def _silent(evidence: Evidence) -> Finding | None:
    """Find a process that lives and tells nothing any more, or told nothing before the run was given up."""
    state, outcome = evidence.state, evidence.report.outcome
    ended, newest = state.ending, state.host[-1] if state.host else None
    until = newest.t if evidence.is_running and newest is not None else None
    if evidence.is_running:
        silent = evidence.open.silent_for
    else:
        until = ended.t if ended is not None and was_given_up(outcome) and state.main.bye is None else None
        gap = silence(state, until) if until is not None else None
        silent = gap.seconds if gap is not None else None
    if silent is None or silent <= MAX_SILENT_SECONDS:
        return None
    lines = [f"process alive, last heartbeat {age(silent)} {'ago' if evidence.is_running else 'before the end'}"]
    if evidence.held is not None:
        lines.append(f"last seen at {evidence.held.place}")
    if newest is not None and newest.tree_stopped:
        finding = _stalled_finding(f"Stopped for {age(silent)} by a signal or a debugger", lines)
        finding.advice = "Let it go on: kill -CONT PID, or fg in its shell. A scheduler may have suspended the job."
        return finding
    why = works(state, Held("", None, until - silent, until)) if until is not None else None
    title = f"No heartbeat for {age(silent)}: something holds the interpreter"
    finding = _stalled_finding(title, [*([why] if why else []), *lines], severity="info" if why else "critical")
    finding.advice = "Check whether a C call keeps it, or the machine swaps: trainmon stack, with py-spy installed."
    return finding


# Ranks


def _awaits(evidence: Evidence, row: Held) -> bool:
    """Return whether a rank waits for others: in a collective, idle in the backward pass, or for the GPU."""
    if row.activity == calls.COLLECTIVE:
        return True
    if row.what == "backward" and 100.0 * row.busy < MIN_COMPUTING_PERCENT:
        return True
    return evidence.device is not None and row.activity == calls.TENSOR_READ


def _apart(evidence: Evidence) -> Finding | None:
    """Find ranks that wait in a collective for one that is elsewhere, has ended or tells nothing any more."""
    held, processes = dict(evidence.state.held), training_processes(evidence.state)
    gone: dict[int, str] = {}
    if evidence.is_running:
        living = [each for each in processes if each.ended is None]
        gone = dict.fromkeys({each.rank for each in processes} - {each.rank for each in living}, "has ended")
        now = max((each.last_heard for each in living), default=0.0)
        gone |= {each.rank: "gives no heartbeat" for each in living if now - each.last_heard > MAX_SILENT_SECONDS}
    elif not was_given_up(evidence.report.outcome):
        return None
    ranks = {each.rank for each in processes} if evidence.is_running else set(held)
    waiting = {
        rank: row
        for rank, row in held.items()
        if rank not in gone and row.seconds >= MIN_STALL_SECONDS and _awaits(evidence, row)
    }
    apart = parted({rank: row for rank, row in held.items() if row.seconds >= MIN_STALL_SECONDS})
    missing = sorted(ranks - set(waiting)) or (apart.ranks if apart is not None else []) or _behind(evidence, waiting)
    waiting = {rank: row for rank, row in waiting.items() if rank not in missing}
    if len(ranks) < 2 or not waiting or not missing:
        return None
    first = next(iter(waiting.values()))
    lines = [f"{ranks_text(waiting)}: {where(first)}"]
    lines += [f"rank {rank}: {gone.get(rank) or _whereabouts(held.get(rank))}" for rank in missing[:MAX_ELSEWHERE]]
    lines += [apart.line] if apart is not None else []
    known = [row for rank in missing if (row := held.get(rank)) is not None and rank not in gone]
    moves = [row for row in known if row.seconds < MIN_STALL_SECONDS or works(evidence.state, row)]
    goes_on = not gone and (len(known) < len(missing) or len(moves) == len(known))
    lines += _threads(known[0]) if len(known) == 1 else []
    there = gone.get(missing[0]) or (f"{doing(known[0].activity)} at {known[0].place}" if known else "goes on")
    waited, verb = max(row.seconds for row in waiting.values()), "wait" if len(waiting) > 1 else "waits"
    finding = _stalled_finding(
        f"{'Waiting' if goes_on else 'Stalled'} for {age(waited)}: {ranks_text(waiting)} {verb} for"
        f" {ranks_text(missing)}, which {there}",
        lines,
        severity="info" if goes_on else "critical",  # an evaluation on one rank: slow, not lost
    )
    does = known[0].activity if known else None
    finding.advice = ADVICE.get(does or "", ADVICE[calls.COLLECTIVE])
    return finding


def _whereabouts(row: Held | None) -> str:
    if row is None:
        return "goes on"
    return f"{where(row)} for {age(row.seconds)}" + (f", in {row.what}" if row.what else "")


def _behind(evidence: Evidence, waiting: dict[int, Held]) -> list[int]:
    """Return the ranks, of some that all wait, that wait elsewhere: those that have come less far, else the fewer."""
    places: dict[str, list[int]] = {}
    for rank, row in waiting.items():
        places.setdefault(row.place, []).append(rank)
    if len(places) < 2:
        return []
    steps = {rank: evidence.state.ranks[rank].steps if rank in evidence.state.ranks else 0 for rank in waiting}
    come = {rank: row.step if row.step is not None else steps[rank] + 0.5 for rank, row in waiting.items()}
    behind = sorted(rank for rank, at in come.items() if at == min(come.values()))
    fewest = min(places.values(), key=len)
    return behind if len(behind) < len(waiting) else sorted(fewest)


# Steps


def _open_step(evidence: Evidence) -> Finding | None:
    """Find a step that has been open for far longer than steps take."""
    now, held = evidence.open, evidence.held
    if not evidence.is_running:
        return None
    if now.restarting is not None:
        return _stalled_restart(evidence, now.restarting)
    line = _overdue_line(evidence, now.step_seconds, MIN_STALL_SECONDS)
    if line is None or now.step is None:
        return None
    lines = [line]
    if now.phase is not None and now.phase_seconds is not None:
        lines.append(f"{now.phase} open for {age(now.phase_seconds)}")
    inside = f" in {now.phase}" if now.phase else ""
    if held is not None:
        lines.append(f"at this line for {age(held.seconds)}")
    if _steps_environments(evidence, now.step_seconds or 0.0):
        return Finding(
            code="stalled",
            severity="warning",
            title=f"A rollout has gone on for {age(now.phase_seconds)}: no step ends meanwhile",
            evidence=lines,
            advice="Check that each episode ends: gymnasium's `truncated` ends one, as `terminated` does.",
            steps=[now.step],
        )
    finding = _overdue(evidence, f"step {now.step:,} open for {age(now.step_seconds)}{inside}", lines)
    finding.steps = [now.step]
    return finding


def _overdue(evidence: Evidence, text: str, lines: list[str]) -> Finding:
    """Return the finding on what takes far longer than usual: information where it works on, or waits for a person."""
    held = evidence.held
    main, pulse = evidence.state.main, evidence.state.main.pulse
    looked_at = held
    if main.source == "console" and pulse is not None and pulse.step_open is not None:  # no line is known
        looked_at = Held("", None, pulse.t - pulse.step_open, pulse.t)
    why = works(evidence.state, looked_at) if looked_at is not None else None
    if held is not None:
        text += f", at {held.place}" if why is not None and held.activity not in WAITS else f", {where(held)}"
    if held is not None and held.activity == calls.INPUT:
        return _stalled_finding(f"Waiting: {text}", lines, held, "info")
    if why is None:
        dozes = held is not None and held.activity == calls.SLEEP and held.seconds < MIN_ASLEEP_SECONDS
        return _stalled_finding(f"Stalled: {text}", lines, held, "info" if dozes else "critical")
    finding = _stalled_finding(f"Long: {text}", [why, *lines], severity="info")
    finding.advice = "It works on, for longer than usual: trainmon stack shows at what."
    return finding


def _steps_environments(evidence: Evidence, since: float) -> bool:
    """Return whether what is open for so many seconds is a rollout that computes: it is long, and not stalled."""
    pulse = evidence.state.main.pulse
    if pulse is None or pulse.phase != COLLECT or ENV_STEPS not in evidence.report.metrics:
        return False
    return (used_percent(evidence.state, pulse.t - since) or 0.0) >= MIN_COMPUTING_PERCENT


def _overdue_line(evidence: Evidence, waited: float | None, min_seconds: float) -> str | None:
    """Return a line on how long a step takes, if `waited` is far longer; else None."""
    typical = evidence.state.main.step_seconds.settled()
    if waited is None or typical.count < MIN_TYPICAL_STEPS:
        return None
    p50, p95 = typical.quantiles.at(0.5, 0.95)
    # A rollout comes once in many steps: it is measured by those before it, and by the iteration.
    pulse, cycle = evidence.state.main.pulse, evidence.report.cycle
    row = evidence.phase(pulse.phase) if pulse is not None and pulse.phase is not None else None
    usual = max(p95, row.max if row is not None else 0.0, (cycle.typical_seconds or 0.0) if cycle is not None else 0.0)
    if waited < max(min_seconds, MIN_STALL_RATIO * p50, MIN_STALL_P95_RATIO * usual):
        return None
    return f"median step {duration(p50)}, p95 {duration(p95)}"


def _stalled_restart(evidence: Evidence, waited: float) -> Finding | None:
    """Find an elastic restart that does not come to its first step."""
    first = evidence.report.wall.startup or 0.0
    if waited < max(MIN_STALL_SECONDS, MIN_RESTART_RATIO * first):
        return None
    spans = [f"{name} open for {age(seconds)}" for name, seconds in evidence.open.spans[-1:]]
    finding = _stalled_finding(
        f"Stalled: no step in {age(waited)} since the restart",
        [f"the first start took {duration(first)} to its first step", *spans],
    )
    finding.advice = "Check whether all ranks came back, and where they wait for each other: trainmon stack."
    return finding


def _no_next_step(evidence: Evidence) -> Finding | None:
    """Find a run without further steps that is still open, or that somebody stopped."""
    is_running = evidence.is_running
    waited = _waited_seconds(evidence)
    if not is_running and _steps_environments(evidence, waited or 0.0):
        return None
    if not (is_running or was_given_up(evidence.report.outcome)):
        return None
    if is_running and evidence.open.step_seconds is not None:
        return None
    line = _overdue_line(evidence, waited, MIN_STALL_SECONDS if is_running else MIN_GIVEN_UP_SECONDS)
    if waited is None or line is None:
        return None
    if is_running and waited < MIN_PAUSE_RATIO * (evidence.report.wall.between_steps - waited):
        return None
    when = f"for {age(waited)}" if is_running else f"in the last {age(waited)} before the run was stopped"
    finding = _overdue(evidence, f"no step ended {when}", [line])
    finding.lost_fraction = evidence.wall_part(waited) if finding.severity != "info" else None
    return finding


def _waited_seconds(evidence: Evidence) -> float | None:
    """Return seconds from the end of the last step to the last sign of life; None where something else went on."""
    main, done = evidence.state.main, evidence.report.progress
    pulse, last = main.pulse, main.wall.last_step
    if pulse is None or last is None or pulse.spans or main.begins_again:
        return None
    if done.steps_total is not None and done.steps_done >= done.steps_total:
        return None
    return max(0.0, pulse.t - last - main.wall.since_last_step)


# Any moment


def _standing(evidence: Evidence) -> Finding | None:
    """Find a line that does not move while nothing works, where no earlier step tells how long is usual."""
    held, outcome, done = evidence.held, evidence.report.outcome, evidence.report.progress
    if held is None or held.seconds < MIN_STALL_SECONDS:
        return None
    is_over = not evidence.is_running
    if is_over and not was_given_up(outcome, held):
        return None
    if used_percent(evidence.state, held.since) is None or works(evidence.state, held) is not None:
        return None
    is_done = done.steps_total is not None and done.steps_done >= done.steps_total and held.what is None
    if is_done and held.activity not in WAITS:  # a program may do or leave anything at its end
        return None
    what = f" in {held.what}" if held.what else ""
    lines = [] if held.activity in AT_EXIT else ["a guess: nothing tells how long this usually takes"]
    lines.append("the processes use no CPU, and no bytes come or go")
    title = f"Nothing {'moved in the last' if is_over else 'has moved for'} {age(held.seconds)}"
    certain = held.activity in ENDLESS and held.seconds >= MIN_STILL_SECONDS
    return _stalled_finding(f"{title}{what}: {where(held)}", lines, held, "warning" if certain else "info")


def _not_gone(evidence: Evidence) -> Finding | None:
    """Find a training that has taken its leave, and whose process does not end."""
    state = evidence.state
    until = state.host[-1].t if state.host else None
    left = silence(state, until) if until is not None and state.main.bye is not None else None
    if left is None or left.seconds < MIN_STALL_SECONDS or works(state, left) is not None:
        return None
    finding = _stalled_finding(
        f"Its process lives on for {age(left.seconds)} after all is done: something waits at exit",
        ["the processes use no CPU, and no bytes come or go", "by then all but what is registered by atexit is over"],
        severity="info",
    )
    finding.advice = "See what is registered for the exit (atexit, a tracker's finish), and give it a time limit."
    return finding
