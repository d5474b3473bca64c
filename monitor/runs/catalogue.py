"""The runs on this machine: which there are, which one a person means, and how each stands.

A run's state is read from its small files and the ends of its journals, so that a list of hundreds stays quick.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor.errors import UserError
from monitor.sources.decode import decode
from monitor.sources.identity import ending, identity
from trainhooks import rundir
from trainhooks.events import Bye, Event, Facts, Hello, Step, clean

REACH = 64 * 1024  # bytes read at each end of a journal
JOURNALS = ("rank-", "node-", "console-")  # how the names of a run's journals begin
FRESH_SECONDS = 90.0  # a journal on a shared disk that grew this lately is a living one's: attribute caches hold 60 s


@dataclass(frozen=True, slots=True)
class RunEntry:
    """One line of `trainmon ls`. None is unknown."""

    id: str
    name: str
    path: Path
    state: str  # running | finished | failed | killed | lost
    started: float | None  # Unix time
    age_seconds: float | None
    exit_code: int | None
    signal: int | None
    step: int | None
    steps_total: int | None
    steps_per_second: float | None
    command: tuple[str, ...]
    host: str | None
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Process:
    """One exact process: a pid is given to another once its owner is gone, the three together are not."""

    pid: int
    start_ticks: int | None
    boot_id: str | None

    def alive(self) -> bool:
        return rundir.process_alive(self.pid, self.start_ticks, self.boot_id)


# Which runs there are


def list_runs() -> list[RunEntry]:
    """Every run, newest first."""
    return [entry(path) for path in paths()]


def live_runs() -> list[RunEntry]:
    """The runs whose training lives, newest first."""
    return [found for path in paths() if state(path)[0] == "running" for found in [entry(path)]]


def paths() -> list[Path]:
    runs = rundir.runs_dir()
    try:
        found = [
            path
            for path in runs.iterdir()
            if not path.name.startswith(".") and clean(path.name) == path.name and _is_run(path)
        ]
    except OSError:
        return []
    return sorted(found, key=started_at, reverse=True)


def _is_run(path: Path) -> bool:
    """Whether it holds a run: `run.json`, or journals of a program that writes nothing else."""
    if (path / rundir.IDENTITY).is_file():
        return True
    return any(each.name.startswith(JOURNALS) for each in rundir.journals(path))


def started_at(path: Path) -> float:
    """When a run came to be here, in Unix time: its start, or when its log was imported; else its last word."""
    known = identity(path)
    started: float | None = known.get("imported_at", known.get("started"))
    return max(map(_modified, rundir.journals(path)), default=0.0) if started is None else started


# Which run is meant


def resolve(text: str | None) -> Path:
    """The directory of the run that a person means.

    Args:
        text: an id, a name (the newest of that name), a unique prefix of an id, a directory, or `last` (as None).

    Raises:
        UserError: there is none, or more than one.
    """
    try:
        if text and _is_run(Path(text)):
            return Path(text).absolute()
    except PermissionError:
        raise UserError(f"{text} may not be read; ask its owner, or look as that user") from None
    except OSError:  # longer than a path may be: a name, then
        pass
    known = paths()
    if not known:
        raise UserError(f"no runs yet in {rundir.runs_dir()}; start one: trainmon run -- python train.py")
    if text in (None, "", "last"):
        return known[0]
    for path in known:
        if path.name == text:
            return path
    for path in known:
        if identity(path).get("name") == text:
            return path
    begun = [path for path in known if path.name.startswith(str(text))]
    if len(begun) == 1:
        return begun[0]
    if begun:
        some = ", ".join(path.name for path in begun[:5]) + (", …" if len(begun) > 5 else "")
        raise UserError(f"'{text}' may be any of {len(begun)} runs: {some}; write more of the id")
    raise UserError(f"no run is called '{text}'; `trainmon ls` lists them")


# How a run stands


def state(path: Path) -> tuple[str, int | None, int | None]:
    """The state of a run (as in `RunEntry`), its exit code, and the signal that ended it."""
    code, signal = seen = _exit(path)
    if _goes_on(path, seen):
        return "running", None, None
    if signal or code is not None:
        return "killed" if signal else "failed" if code else "finished", code, signal
    byes = _farewells(path)
    if not byes or None in byes:
        return "lost", None, None
    return "failed" if any(bye.error for bye in byes if bye is not None) else "finished", None, None


def lives(path: Path) -> bool:
    """Whether its training goes on: here, or as far as its journals tell on another machine.

    Also after the launched program's exit, if that left a training behind.
    """
    return _goes_on(path, _exit(path))


def _goes_on(path: Path, seen: tuple[int | None, int | None]) -> bool:
    if seen != (None, None):
        return rundir.ranks_alive(path)
    return rundir.run_alive(path) or (_lives_elsewhere(path) and None in _farewells(path))


def _exit(path: Path) -> tuple[int | None, int | None]:
    """The exit code and the signal that the parent saw; None for what nobody did."""
    ended = ending(path) or {}
    return ended.get("exit_code"), ended.get("signal") or None


def _farewells(path: Path) -> list[Bye | None]:
    """The last word of each training process that no elastic restart has replaced; None where it is no farewell."""
    last = [next(_events(_tail(journal)[-1:]), None) for journal in _newest(path)]
    return [each if isinstance(each, Bye) else None for each in last]


def _newest(path: Path) -> list[Path]:
    """The journals of the training processes that no elastic restart has replaced."""
    journals = [journal for journal in rundir.journals(path) if journal.name.startswith("rank-")]
    restarts = {journal: _restart(journal) for journal in journals}
    of_rank: dict[str, int] = {}
    for journal, restart in restarts.items():
        rank = journal.name.split("-")[1]
        of_rank[rank] = max(restart, of_rank.get(rank, 0))
    return [journal for journal in journals if restarts[journal] == of_rank[journal.name.split("-")[1]]]


def _restart(journal: Path) -> int:
    """How many elastic restarts there had been when a process began."""
    first = next(_events(_head(journal)[:1]), None)
    return first.restart if isinstance(first, Hello) else 0


def _lives_elsewhere(path: Path) -> bool:
    """Whether another machine, whose processes cannot be seen from here, was writing to this run just now."""
    if identity(path).get("host") in (None, socket.gethostname()):
        return False
    newest = max((_modified(journal) for journal in rundir.journals(path)), default=0.0)
    return time.time() - newest < FRESH_SECONDS


def processes(path: Path) -> list[Process]:
    """The training's living processes on this machine: the one that was launched, else those that hold locks."""
    launched = _process(identity(path))
    if launched is not None and launched.alive():
        return [launched]
    owners = (_process(rundir.read_json(lock) or {}) for lock in sorted(rundir.rank_locks(path)))
    return [owner for owner in owners if owner is not None and owner.alive()]


def _process(known: dict[str, Any]) -> Process | None:
    pid = known.get("pid")
    return Process(pid, known.get("start_ticks"), known.get("boot_id")) if isinstance(pid, int) and pid > 1 else None


def entry(path: Path) -> RunEntry:
    """One run as a list shows it."""
    known = identity(path)
    how, code, signal = state(path)
    step, total, speed = _progress(path)
    started = known.get("started")
    return RunEntry(
        id=path.name,
        name=known.get("name") or path.name,
        path=path,
        state=how,
        started=started,
        age_seconds=time.time() - started if started else None,
        exit_code=code,
        signal=signal,
        step=step,
        steps_total=total,
        steps_per_second=speed,
        command=tuple(known.get("command", ())),
        host=known.get("host"),
        tags=known.get("tags", {}),
    )


def _progress(path: Path) -> tuple[int | None, int | None, float | None]:
    """The last step of rank 0, the steps planned, and the steps a second of the journal's end."""
    told = rundir.journals(path)
    journals = [journal for journal in told if journal.name.startswith("rank-0-")]
    journals = journals or [journal for journal in told if journal.name.startswith("console-")]
    if not journals:
        return None, None, None
    tail = _tail(max(journals, key=_modified))
    steps = [event for event in _events(tail) if isinstance(event, Step) and event.thread is None]
    planned = None
    for journal in sorted(journals, key=_modified):
        for event in (*_events(_head(journal)), *_events(_tail(journal))):
            if isinstance(event, Facts) and event.total_steps is not None:
                planned = event.total_steps
    timed = [step for step in steps if step.duration > 0]
    seconds = timed[-1].start + timed[-1].duration - timed[0].start if timed else 0.0
    return steps[-1].index if steps else None, planned, len(timed) / seconds if seconds > 0 else None


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


# The ends of journals


def _head(path: Path) -> list[bytes]:
    """The whole lines within the first `REACH` bytes."""
    try:
        with open(path, "rb", opener=rundir.at_once) as source:
            return source.read(REACH).split(b"\n")[:-1]
    except OSError:
        return []


def _tail(path: Path) -> list[bytes]:
    """The whole lines within the last `REACH` bytes."""
    try:
        with open(path, "rb", opener=rundir.at_once) as source:
            size = os.fstat(source.fileno()).st_size
            source.seek(max(0, size - REACH))
            lines = source.read(REACH).split(b"\n")[:-1]
    except OSError:
        return []
    return lines if size <= REACH else lines[1:]


def _events(lines: list[bytes]) -> Iterator[Event]:
    for line in lines:
        event = decode(line)
        if isinstance(event, Event):
            yield event
