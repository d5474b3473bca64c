"""List the runs on this machine, resolve a name to a run, and tell the state of a run.

A run's state is read from its small files and the ends of its journals, so that a list of hundreds stays quick.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor.errors import UserError
from monitor.remote.copies import far_of
from monitor.runs import jobs
from monitor.runs.run_files import ending, identity
from monitor.sources.decode import decode
from monitor.sources.step_lines import single_events
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.events import Bye, Event, Facts, Hello, Step
from trainhooks.protocol.limits import clean

# The list of runs.

JOURNAL_END_BYTES = 64 * 1024  # bytes read at each end of a journal
JOURNALS = ("rank-", "node-", "console-", "actor-")  # how the names of a run's journals begin
_OF_RANK = re.compile(r"rank-([0-9]{1,9})-")
FRESH_SECONDS = 90.0  # a journal on a shared disk that grew this recently is still written: attribute caches hold 60 s


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
    verdict: str | None = None  # of an ended run that was looked at, as at its own end
    fix: str | None = None  # what to do first


@dataclass(frozen=True, slots=True)
class Process:
    """One process, identified by all three fields: a pid alone is reused."""

    pid: int
    start_ticks: int | None
    boot_id: str | None

    def alive(self) -> bool:
        return process_identity.process_alive(self.pid, self.start_ticks, self.boot_id)


# Listing runs


def list_runs() -> list[RunEntry]:
    """Return every run, newest first."""
    return [entry(path) for path in runs()]


def live_runs() -> list[RunEntry]:
    """Return the runs whose training is alive, newest first."""
    return [entry(path) for path in runs() if state(path)[0] == "running"]


def runs() -> list[Path]:
    """Return the directory of every run, newest first; for the parts that one job has left, that of the whole."""
    return jobs.together(paths())


def paths() -> list[Path]:
    """Return the directories of this user's runs, newest first, each part of a job by itself."""
    runs = rundir.runs_dir()
    try:
        directories = [
            path
            for path in runs.iterdir()
            if not path.name.startswith(".") and clean(path.name) == path.name and _is_run(path)
        ]
    except OSError:
        return []
    return sorted(directories, key=started_at, reverse=True)


def _is_run(path: Path) -> bool:
    """Return whether a directory holds a run: `run.json`, or journals of a program that writes nothing else."""
    if (path / rundir.IDENTITY).is_file():
        return True
    return any(journal.name.startswith(JOURNALS) for journal in rundir.journals(path))


def started_at(path: Path) -> float:
    """Return the Unix time of a run's start or import; the last change of its journals where both are unknown."""
    known = identity(path)
    started: float | None = known.get("imported_at", known.get("started"))
    return max(map(_modified, rundir.journals(path)), default=0.0) if started is None else started


# Resolving a name


def resolve(text: str | None) -> Path:
    """Return the directory of the run that a text names.

    Args:
        text: an id, a name (the newest of that name), a unique prefix of an id, a directory, or `last` (as None).

    Raises:
        UserError: no run matches, or more than one.
    """
    try:
        if text and _is_run(Path(text)):
            return Path(text).absolute()
    except PermissionError:
        raise UserError(f"{text}: permission denied; ask its owner for read access") from None
    except OSError:  # too long for a path, so it is a name
        pass
    known = runs()
    if not known:
        raise UserError(f"no runs yet in {rundir.runs_dir()}; start one with: trainmon run -- python train.py")
    if text in (None, "", "last"):
        return known[0]
    for path in (*known, *paths()):  # a part of a job, too, by its own id
        if path.name == text:
            return path
    for path in known:
        if identity(path).get("name") == text:
            return path
    matching = [path for path in known if path.name.startswith(str(text))]
    if len(matching) == 1:
        return matching[0]
    if matching:
        some = ", ".join(path.name for path in matching[:5]) + (", …" if len(matching) > 5 else "")
        raise UserError(f"'{text}' matches {len(matching)} runs: {some}; give more of the id")
    raise UserError(f"no run named '{text}'; `trainmon ls` lists the runs")


def resolve_training(text: str | None) -> tuple[Path, int | None]:
    """Return the run that a text names, and the place of one training of it: RUN#2 is the second of its command.

    Raises:
        UserError: no run matches, or more than one.
    """
    name, mark, number = (text or "").rpartition("#")
    try:
        return resolve(text), None
    except UserError:
        if not mark or not (number.isascii() and number.isdigit()) or not 0 < len(number) < 6 or int(number) < 1:
            raise
    return resolve(name), int(number) - 1


# The state of a run


def state(path: Path) -> tuple[str, int | None, int | None]:
    """Return the state of a run (as in `RunEntry`), its exit code, and the signal that ended it."""
    code, signal = exit_status = _exit(path)
    if _is_running(path, exit_status):
        return "running", None, None
    if (path / rundir.STOPPED).exists():
        return "killed", code, signal
    if signal or code is not None:
        return "killed" if signal else "failed" if code else "finished", code, signal
    byes = _final_byes(path)
    if not byes or None in byes:
        return "lost", None, None
    return "failed" if any(bye.error for bye in byes if bye is not None) else "finished", None, None


def lives(path: Path) -> bool:
    """Return whether the training is running, here or, judged by its journals, on another machine.

    It may run on after the launched program's exit, if that left a training behind.
    """
    return _is_running(path, _exit(path))


def ranks_live(path: Path) -> bool:
    """Return whether a process that reports lives, which may outlive the launched program."""
    far = far_of(path)
    return rundir.ranks_alive(path) if far is None else far.ranks


def _is_running(path: Path, exit_status: tuple[int | None, int | None]) -> bool:
    far = far_of(path)
    if far is not None:
        return far.ranks if exit_status != (None, None) else far.alive
    if exit_status != (None, None):
        return rundir.ranks_alive(path)
    return rundir.run_alive(path) or (_is_alive_elsewhere(path) and None in _final_byes(path))


def _exit(path: Path) -> tuple[int | None, int | None]:
    """Return the exit code and the signal that the parent recorded; None where unknown."""
    ended = ending(path) or {}
    return ended.get("exit_code"), ended.get("signal") or None


def _final_byes(path: Path) -> list[Bye | None]:
    """Return the `bye` that ends each current journal (see `_newest`); None where another event ends it."""
    last = [next(_events(_tail(journal)[-1:]), None) for journal in _newest(path)]
    return [event if isinstance(event, Bye) else None for event in last]


def _newest(path: Path) -> list[Path]:
    """Return the journals of the training processes that no elastic restart has replaced."""
    journals = [journal for journal in rundir.journals(path) if journal.name.startswith("rank-")]
    restarts = {journal: _restart(journal) for journal in journals}
    of_rank: dict[str, int] = {}
    for journal, restart in restarts.items():
        rank = journal.name.split("-")[1]
        of_rank[rank] = max(restart, of_rank.get(rank, 0))
    return [journal for journal in journals if restarts[journal] == of_rank[journal.name.split("-")[1]]]


def _restart(journal: Path) -> int:
    """Return the number of elastic restarts before a process began."""
    first = next(_events(_head(journal)[:1]), None)
    return first.restart if isinstance(first, Hello) else 0


def _is_alive_elsewhere(path: Path) -> bool:
    """Return whether another machine, whose processes are not visible here, wrote to this run recently."""
    if identity(path).get("host") in (None, socket.gethostname()):
        return False
    newest = max((_modified(journal) for journal in rundir.journals(path)), default=0.0)
    return time.time() - newest < FRESH_SECONDS


def processes(path: Path) -> list[Process]:
    """Return the training's live processes that are visible here: the launched one, else those that hold locks."""
    launched = _process(identity(path))
    if launched is not None and launched.alive():
        return [launched]
    owners = (_process(rundir.read_json(lock) or {}) for lock in sorted(rundir.rank_locks(path)))
    return [owner for owner in owners if owner is not None and owner.alive()]


def _process(known: dict[str, Any]) -> Process | None:
    pid = known.get("pid")
    if process_identity.has_foreign_pids(known):
        return None
    return Process(pid, known.get("start_ticks"), known.get("boot_id")) if isinstance(pid, int) and pid > 1 else None


def entry(path: Path) -> RunEntry:
    """Return one run as an entry of the list."""
    known = identity(path)
    run_state, code, signal = state(path)
    step, total, speed = _progress(path)
    started = known.get("started")
    return RunEntry(
        id=path.name,
        name=known.get("name") or path.name,
        path=path,
        state=run_state,
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
    """Return the last step of the lowest rank here, the steps planned, and the steps per second since the first one."""
    all_journals = rundir.journals(path)
    ranks = {journal: int(match[1]) for journal in all_journals if (match := _OF_RANK.match(journal.name))}
    lowest = min(ranks.values(), default=None)
    journals = [journal for journal, rank in ranks.items() if rank == lowest]
    journals = journals or [journal for journal in all_journals if journal.name.startswith("console-")]
    if not journals:
        return None, None, None
    newest = max(journals, key=_modified)
    steps = _steps(_tail(newest))
    planned = None
    for journal in sorted(journals, key=_modified):
        for event in (*_events(_head(journal)), *_events(_tail(journal))):
            if isinstance(event, Facts) and event.total_steps is not None:
                planned = event.total_steps
    timed = [step for step in (*_steps(_head(newest)), *steps) if step.duration > 0]
    seconds = timed[-1].start + timed[-1].duration - timed[0].start if timed else 0.0
    done = timed[-1].index - timed[0].index + 1 if timed else 0
    return steps[-1].index if steps else None, planned, done / seconds if seconds > 0 and done > 0 else None


def _steps(lines: list[bytes]) -> list[Step]:
    return [event for event in single_events(_events(lines)) if isinstance(event, Step) and event.thread is None]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


# The ends of journals


def _head(path: Path) -> list[bytes]:
    """Return the whole lines within the first `JOURNAL_END_BYTES` bytes."""
    try:
        with open(path, "rb", opener=rundir.open_at_once) as source:
            return source.read(JOURNAL_END_BYTES).split(b"\n")[:-1]
    except OSError:
        return []


def _tail(path: Path) -> list[bytes]:
    """Return the whole lines within the last `JOURNAL_END_BYTES` bytes."""
    try:
        with open(path, "rb", opener=rundir.open_at_once) as source:
            size = os.fstat(source.fileno()).st_size
            source.seek(max(0, size - JOURNAL_END_BYTES))
            lines = source.read(JOURNAL_END_BYTES).split(b"\n")[:-1]
    except OSError:
        return []
    return lines if size <= JOURNAL_END_BYTES else lines[1:]


def _events(lines: list[bytes]) -> Iterator[Event]:
    for line in lines:
        event = decode(line)
        if isinstance(event, Event):
            yield event
