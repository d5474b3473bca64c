"""Stopping a training: SIGINT, SIGTERM, SIGKILL, each reported as it is sent."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.errors import UserError
from monitor.running import group
from monitor.runs import run_files
from trainhooks.protocol import process_identity, rundir

if TYPE_CHECKING:
    from monitor.runs import catalogue

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
STOP_WAITS = (30.0, 30.0, 10.0)  # seconds after each signal; writing a last checkpoint takes a while
ALIVE_CHECK_SECONDS = 0.1
START_LOOKS = 3  # at a process that may just have begun
REQUEST_CHECK_SECONDS = 0.5  # between two looks for a request to stop
REQUEST_PATIENCE = 10.0  # seconds until a recorder has seen a request, on a busy machine or a slow shared disk


def stop_training(
    run: Path,
    say: Callable[[str], None],
    waits: tuple[float, float, float] = STOP_WAITS,
    reason: str | None = None,
    quiet: float | None = None,
) -> bool:
    """Stop the training of a run.

    Args:
        say: receives progress, line by line.
        waits: seconds after each of SIGINT, SIGTERM, SIGKILL.
        reason: for the report, where it was no person.
        quiet: seconds in which nothing is read or written before SIGKILL is sent: a last save may take long.

    Returns:
        Whether the training has ended.

    Raises:
        UserError: it runs in another PID namespace, and nobody there can stop it.
    """
    from monitor.remote.copies import far_of, parts_of  # late, as is
    from monitor.runs import catalogue  # this one: it is large, and `trainmon run` loads this module before it forks

    began = time.monotonic()
    if parts := [part for part in parts_of(run) if far_of(part) is None and catalogue.lives(part)]:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(len(parts)) as pool:  # at once: each waits for the others
            return all(pool.map(lambda part: stop_training(part, say, waits, reason, quiet), parts))
    if _is_out_of_sight(run):
        return _ask_its_recorder(run, say, sum(waits))
    if not rundir.run_alive(run):
        lives = catalogue.lives(run)
        far = far_of(run)
        there = "on another machine; stop it there" if far is None else f"on {far.host}; there: trainmon stop {far.run}"
        say(f"{run.name} runs {there}" if lives else f"{run.name} is not running")
        return not lives
    for process in catalogue.processes(run):
        if why := _why_not(run, process.pid):
            say(f"{run.name} was not stopped: {why}")
            return False
    with suppress(OSError):  # a full disk: the run is stopped all the same
        rundir.write_json(run / rundir.STOPPED, {"asked": time.time(), "reason": reason})
    for number, wait in zip(STOP_SIGNALS, waits, strict=True):
        if number == signal.SIGKILL and quiet is not None and _ended_busy(run, quiet):
            say(f"{run.name} ended after {time.monotonic() - began:.1f} s")
            return True
        try:
            reached = [process for process in catalogue.processes(run) if _send(run, process, number)]
        except PermissionError:
            say(f"{run.name} runs as another user; stop it as that user")
            return False
        if reached:
            pids = ", ".join(str(process.pid) for process in reached)
            say(f"sent {number.name} to {run.name} (pid {pids}); waiting up to {wait:g} s")
        if _ended_within(run, wait):
            say(f"{run.name} ended after {time.monotonic() - began:.1f} s")
            return True
    say(f"{run.name} still runs after {time.monotonic() - began:.1f} s, despite SIGKILL (stuck in the kernel?)")
    return False


QUIET_CHECK_SECONDS = 5.0  # between two looks at what a stopping training reads and writes
MIN_MOVED_BYTES = 100_000  # between two looks: what the hooks and their recorder write is less


def _ended_busy(run: Path, quiet: float) -> bool:
    """Wait until the training has ended, or has read and written nothing for so long. Return whether it has ended."""
    since, before = time.monotonic(), _moved_bytes(run)
    while not _ended_within(run, min(QUIET_CHECK_SECONDS, quiet)):
        moved = _moved_bytes(run)
        if moved - before >= MIN_MOVED_BYTES:
            since = time.monotonic()
        before = moved
        if time.monotonic() - since >= quiet:
            return False
    return True


def _moved_bytes(run: Path) -> int:
    """Return the bytes that the training's living processes have read and written so far, as far as is known."""
    import psutil  # as below

    from monitor.runs import catalogue  # late, as above

    total = 0
    for root in catalogue.processes(run):
        with suppress(psutil.Error):
            parent = psutil.Process(root.pid)
            for process in (parent, *parent.children(recursive=True)):
                with suppress(psutil.Error, AttributeError, OSError):
                    counts = process.io_counters()
                    total += counts.read_chars + counts.write_chars
    return total


def _is_out_of_sight(run: Path) -> bool:
    """Return whether the run lives in another PID namespace: another container that shares the state directory."""
    from monitor.runs import catalogue  # late, as above

    foreign = process_identity.has_foreign_pids(run_files.identity(run)) and not catalogue.processes(run)
    return foreign and rundir.run_alive(run)


def _ask_its_recorder(run: Path, say: Callable[[str], None], seconds: float) -> bool:
    """Ask whoever records the run where it runs to stop it, and wait so long. Return whether it has ended."""
    where = f"{run.name} runs in another container (PID namespace)"
    began = time.monotonic()
    request = run / rundir.STOP_REQUEST
    try:
        if not rundir.recorder_alive(run):
            raise UserError(f"{where}, and no trainmon there records it; stop it there")
        rundir.write_json(request, {"asked": time.time()})
    except OSError as error:
        raise UserError(f"{where}, and cannot be asked to stop ({error.strerror}); stop it there") from None
    say(f"{where}; its own trainmon was asked to stop it; waiting up to {seconds + REQUEST_PATIENCE:g} s")
    while request.exists() and rundir.run_alive(run):
        if time.monotonic() - began > REQUEST_PATIENCE:
            request.unlink(missing_ok=True)  # it must not stop the training later
            raise UserError(f"{where}, and its trainmon does not answer; stop it there: trainmon stop {run.name}")
        time.sleep(ALIVE_CHECK_SECONDS)
    if not _ended_within(run, seconds):
        say(f"{run.name} still runs after {time.monotonic() - began:.1f} s; stop it there")
        return False
    say(f"{run.name} ended after {time.monotonic() - began:.1f} s")
    return True


def obey_requests(run: Path, over: threading.Event) -> None:
    """Stop the training when somebody asks by a file who cannot signal it. For those who record it, in a thread."""
    request = run / rundir.STOP_REQUEST
    while not over.wait(REQUEST_CHECK_SECONDS):
        if request.exists():
            try:
                request.unlink()
                stop_training(run, lambda line: None)
            except (OSError, UserError):  # the directory is being removed, or was made read-only
                return


def _send(run: Path, process: catalogue.Process, number: signal.Signals) -> bool:
    """Send a signal to this process, or to its group if that is the training's own. Return whether it was sent."""
    if not process.alive() or _why_not(run, process.pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        own = group.of_training(process.pid, run_files.identity(run).get("group"))
        if own is not None:
            os.killpg(own, number)
        else:
            os.kill(process.pid, number)
        return True
    return False


def _why_not(run: Path, pid: int) -> str | None:
    """Return why the run's files may not name this process; None if they may.

    They belong to us or to the owner of the process, so that a run directory, or a link or file in one, can never make
    another user's processes stop, not even when root asks. And the process, or its supervisor, bears the run's mark.
    """
    import psutil  # late: `trainmon run` loads this module before it forks

    if run_files.identity(run).get("attached"):
        return f"it was only attached to, and trainmon sends nothing to such a process: kill {pid}"
    try:
        paths = [path for path in (str(run / rundir.IDENTITY), *rundir.rank_locks(run)) if os.path.lexists(path)]
        owners = {os.lstat(path).st_uid for path in [str(run), *paths]}
        if owners not in ({os.getuid()}, {psutil.Process(pid).uids().real}):
            return "its files and its process belong to different users"
    except (OSError, psutil.Error):
        return "its files or its process cannot be looked at"
    if any(_is_marked(run, each) for each in (pid, process_identity.parent(pid) or pid)):
        return None
    return f"process {pid}, which its files name, has nothing to do with it"


def _environment(pid: int) -> bytes:
    found = b""
    for _ in range(START_LOOKS):
        with open(f"/proc/{pid}/environ", "rb") as source:
            found = source.read()
        if found:
            break
        time.sleep(ALIVE_CHECK_SECONDS)  # a process that has just begun has none yet
    return found


def _is_marked(run: Path, pid: int) -> bool:
    """Return whether a process has the run's variable or one of its files open; True where the system does not tell."""
    place = os.path.realpath(run)
    try:
        rows = dict(row.partition(b"=")[::2] for row in _environment(pid).split(b"\0"))
        if os.path.realpath(rows.get(rundir.RUN_VARIABLE.encode(), b"")) == os.fsencode(place):
            return True
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(FileNotFoundError):  # closed meanwhile
                if os.path.dirname(os.readlink(f"/proc/{pid}/fd/{number}")) == place:
                    return True
    except OSError:
        return True
    return False


def _ended_within(run: Path, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while rundir.run_alive(run):
        if time.monotonic() >= until:
            return False
        time.sleep(ALIVE_CHECK_SECONDS)
    return True
