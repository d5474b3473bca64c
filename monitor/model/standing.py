"""Whether what stands at a line works on or waits: by its pulses and the readings of the host. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from monitor.model.report import Outcome
from monitor.model.state import Held, RunState, used_gpus
from monitor.units import share, size
from trainhooks.protocol import calls
from trainhooks.protocol.events import Host

MAX_SILENT_SECONDS = 30.0  # without a pulse: the interpreter itself is blocked, stopped or starved
MIN_STALL_SECONDS = 45.0  # less needs no warning; with what comes before it is told within a minute
MIN_COMPUTING_PERCENT = 10.0  # of a core: who waits uses less
IDLE_PERCENT = 2.0  # of a core, for each process: its hooks look twenty times a second
MAX_WAITING = 0.95  # of the time: on a crowded machine who computes waits for a core
MIN_DOUBTFUL_SECONDS, DOUBTFUL_RATIO = 10.0, 10.0  # at a line, and times the median step: no time left is told
MIN_MOVED_BYTES = 1e6  # a second, of disks or network: a checkpoint, a download or a first read of data goes on
MAX_ENDED_BEFORE = 10.0  # seconds: pulses tell of a line once it has not moved for five, and readings follow each other
MIN_PRINTS = 3  # readings in which something was printed: a library's timeout may print a warning or two
INTERRUPTED = "KeyboardInterrupt"  # the type of exception by which a person stops a run
STALLED = "stalled"  # the name of such time in the account

# By what a library does at the line: what is waited for. Likewise before the first step.
WAITS = {
    calls.COLLECTIVE: "for other ranks",
    calls.LOCK: "for a lock",
    calls.THREAD: "for another thread",
    calls.QUEUE: "at a queue that nobody fills",
    calls.POOL: "for a worker pool",
    calls.PROCESS: "for another process",
    calls.SUBPROCESS: "for a subprocess",
    calls.LOADING: "for a DataLoader worker",
    calls.HTTP: "for a server",
    calls.FILE: "for a file",
    calls.EVENT_LOOP: "for an event of asyncio",
    calls.LOCK_FILE: "for a lock file",
    calls.EXIT: "for a thread before it can end",
    calls.INPUT: "for input",
    calls.MESSAGE: "for a message over a socket",
}
# They do not end by themselves, and no bytes of others say that they go on.
AT_EXIT = (calls.EXIT, calls.RAISED)
ENDLESS = frozenset(
    (
        calls.COLLECTIVE,
        calls.LOCK,
        calls.THREAD,
        calls.QUEUE,
        calls.POOL,
        calls.PROCESS,
        calls.LOADING,
        calls.LOCK_FILE,
        *AT_EXIT,
    )
)
# A CPU that is busy there waits for other ranks, or for the GPU.
_SPINS = (calls.COLLECTIVE, calls.TENSOR_READ)


def used_percent(state: RunState, since: float) -> float | None:
    """Return what the training's processes use of a core, in the mean; None: unknown."""
    known = [row.tree_cpu for row in state.host if row.t >= since and row.tree_cpu is not None]
    return fmean(known) if known else None


def works(state: RunState, held: Held) -> str | None:
    """Return what shows that work goes on while a rank stands at a line; None: nothing does, as far as is known."""
    rows = [row for row in state.host if row.t >= held.since]
    used = _mean(row.tree_cpu for row in rows)
    if _wanted_percent(state, rows, used, held.since) >= MIN_COMPUTING_PERCENT:
        return f"its processes compute: {share(used / 100)} of a core"
    of_tree = any(row.tree_write is not None for row in rows)  # else the machine's: its own processes are not read
    read, wrote = ("tree_read", "tree_write") if of_tree else ("disk_read", "disk_write")
    if len(state.ranks) <= 1 and _gpu_percent(state, held.since) >= MIN_COMPUTING_PERCENT:
        return "its GPU is busy"  # of several ranks it may spin in a collective
    moved = _mean(getattr(row, read) for row in rows) + _mean(getattr(row, wrote) for row in rows)
    if moved >= MIN_MOVED_BYTES:
        return f"its processes read and write {size(moved)} a second"
    came = _mean(row.net_in for row in rows) + _mean(row.net_out for row in rows)
    if came >= MIN_MOVED_BYTES and held.activity not in ENDLESS and not _lost_sender(state, held, rows):
        return f"{size(came)} a second come and go over the network"
    return "it goes on printing" if sum(bool(row.output) for row in rows) >= MIN_PRINTS else None


def _lost_sender(state: RunState, held: Held, rows: Sequence[Host]) -> bool:
    """Return whether a message is waited for since a process of the training ended: the network is the machine's."""
    if held.activity != calls.MESSAGE or not rows or not rows[-1].tree_ended:
        return False
    before = [row for row in state.host if row.t < held.since - MAX_ENDED_BEFORE]
    return rows[-1].tree_ended > ((before[-1].tree_ended or 0) if before else 0)


def _wanted_percent(state: RunState, rows: Sequence[Host], used: float, since: float) -> float:
    """Return what its processes would use of a core for their work, if they waited for none."""
    recorder = state.producers.get(rows[-1].producer) if rows else None
    here = [each for each in state.producers.values() if recorder is not None and each.host == recorder.host]
    living = sum(each.source == "hooks" and (each.ended is None or each.ended > since) for each in here)
    spins = 100.0 * sum(each.busy for each in state.held.values() if each.activity in _SPINS)
    waiting = min(MAX_WAITING, _mean(row.tree_waiting for row in rows))
    return (used - spins - living * IDLE_PERCENT) / (1.0 - waiting)


def _gpu_percent(state: RunState, since: float) -> float:
    """Return how busy the training's GPUs were, in the mean; 0 where it uses none."""
    used = used_gpus(state) or ()
    return _mean(row.utilization for uuid in used for row in state.gpus.get(uuid, ()) if row.t >= since)


def _mean(values: Iterable[float | None]) -> float:
    return fmean([value for value in values if value is not None] or [0.0])


def was_given_up(outcome: Outcome, held: Held | None = None) -> bool:
    """Return whether a signal or a person has ended the run, or a program that waited for its threads at its end."""
    if outcome.state == "killed" or (outcome.error or "").partition(":")[0] == INTERRUPTED:
        return True
    return outcome.state != "running" and held is not None and held.activity in AT_EXIT


def silence(state: RunState, until: float) -> Held | None:
    """Return the time in which the leading rank has told nothing, up to `until`; None: it has, or never told a pulse.

    After its bye that is the time in which its process lived on.
    """
    main, newest = state.main, state.host[-1] if state.host else None
    signs = [t for t in (main.bye, main.pulse.t if main.pulse is not None else None) if t is not None]
    if not signs or main.begins_again:
        return None
    heard = max(*signs, main.wall.last_step or signs[0])
    if until - heard < MAX_SILENT_SECONDS or (main.bye is not None and (newest is None or not newest.trainers_rss)):
        return None
    if main.pulse is None or main.bye is not None:
        return Held("", None, heard, until)
    what = main.pulse.spans[-1][0] if main.pulse.spans else main.pulse.phase
    return Held("", None, heard, until, main.pulse.step, what)


def stall(state: RunState, outcome: Outcome, until: float) -> Held | None:
    """Return where the run stands still at `until`, or stood when it was given up; None: it goes on, or works."""
    held = state.held.get(state.main.rank)
    if outcome.state != "running" and not was_given_up(outcome, held):
        return None
    if held is not None and (held.seconds < MIN_STALL_SECONDS or held.activity == calls.INPUT):
        held = None
    silent = silence(state, until) if outcome.state == "running" or state.main.bye is None else None
    if silent is not None:  # it has stood before: as a whole
        held = replace(silent, since=held.since if held is not None else silent.since)
    return held if held is not None and works(state, held) is None else None


def doing(activity: str | None) -> str:
    """Return what a thread does where a library does this: `waits for a lock`."""
    if activity == calls.RAISED:
        return "has raised an exception"
    cause = WAITS.get(activity or "")
    return f"waits {cause}" if cause else "sleeps" if activity == calls.SLEEP else "stands"


def where(held: Held) -> str:
    """Return `waits for a lock at train.py:31 in score`."""
    if held.activity == calls.EXIT and held.threads:
        name, place, _ = held.threads[0]
        return f"its end waits for thread {name} at {place}"
    return f"{doing(held.activity)} at {held.place}"


def may_stall(state: RunState) -> bool:
    """Return whether the run stands at a line for far longer than a step takes: when it goes on is not known."""
    held, typical = state.held.get(state.main.rank), state.main.step_seconds.settled().quantiles.at(0.5)[0]
    if held is None or held.seconds < max(MIN_DOUBTFUL_SECONDS, DOUBTFUL_RATIO * typical):
        return False
    return works(state, held) is None
