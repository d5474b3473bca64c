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

from monitor.errors import UserError
from monitor.running import group
from monitor.runs import catalogue, run_files
from trainhooks.protocol import process_identity, rundir

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
STOP_WAITS = (30.0, 30.0, 10.0)  # seconds after each signal; writing a last checkpoint takes a while
ALIVE_CHECK_SECONDS = 0.1
REQUEST_CHECK_SECONDS = 0.5  # between two looks for a request to stop
REQUEST_PATIENCE = 10.0  # seconds until a recorder has seen a request, on a busy machine or a slow shared disk


def stop_training(run: Path, say: Callable[[str], None], waits: tuple[float, float, float] = STOP_WAITS) -> bool:
    """Stop the training of a run.

    Args:
        say: receives progress, line by line.
        waits: seconds after each of SIGINT, SIGTERM, SIGKILL.

    Returns:
        Whether the training has ended.

    Raises:
        UserError: it runs in another PID namespace, and nobody there can stop it.
    """
    began = time.monotonic()
    if _is_out_of_sight(run):
        return _ask_its_recorder(run, say, sum(waits))
    if not rundir.run_alive(run):
        lives = catalogue.lives(run)
        say(f"{run.name} runs on another machine; stop it there" if lives else f"{run.name} is not running")
        return not lives
    if not all(_may_signal(run, process.pid) for process in catalogue.processes(run)):
        say(f"{run.name} was not stopped: its files and its process belong to different users")
        return False
    with suppress(OSError):  # a full disk: the run is stopped all the same
        rundir.write_json(run / rundir.STOPPED, {"asked": time.time()})
    for number, wait in zip(STOP_SIGNALS, waits, strict=True):
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


def _is_out_of_sight(run: Path) -> bool:
    """Return whether the run lives in another PID namespace: another container that shares the state directory."""
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
    if not process.alive() or not _may_signal(run, process.pid):
        return False
    with contextlib.suppress(ProcessLookupError):
        own = group.of_training(process.pid, run_files.identity(run).get("group"))
        if own is not None:
            os.killpg(own, number)
        else:
            os.kill(process.pid, number)
        return True
    return False


def _may_signal(run: Path, pid: int) -> bool:
    """Return whether the run's files may name this process: they belong to us or to the owner of the process.

    So a run directory, or a link or file in one, can never make another user's processes stop, not even when root asks.
    """
    import psutil  # late: `trainmon run` loads this module before it forks

    try:
        paths = [path for path in (str(run / rundir.IDENTITY), *rundir.rank_locks(run)) if os.path.lexists(path)]
        owners = {os.lstat(path).st_uid for path in [str(run), *paths]}
        return owners == {os.getuid()} or owners == {psutil.Process(pid).uids().real}
    except (OSError, psutil.Error):
        return False


def _ended_within(run: Path, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while rundir.run_alive(run):
        if time.monotonic() >= until:
            return False
        time.sleep(ALIVE_CHECK_SECONDS)
    return True
