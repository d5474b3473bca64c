"""The supervisor of a launched training: a process of its own that outlives the terminal and the dashboard.

It starts the training, records while it runs, waits for it and writes down how it ended. The training does not
need it: it may be stopped or killed at any time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NoReturn

from monitor.errors import UserError
from monitor.running import output, recorder, reserve
from monitor.running.command import NOT_EXECUTABLE, NOT_FOUND
from monitor.running.writer import Writer
from trainhooks import events, rundir

LOG = "supervisor.log"
MERGE_SECONDS = 0.1
PATIENCE = 2.0  # seconds for the last reading of a driver that may hang, and for a terminal's last output

# Sent by terminals, session managers and people to whatever belongs to trainmon. None of them may end the recording
# of a training that goes on; the front passes on those that are meant for the training.
UNHEEDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


@dataclass(frozen=True)
class Plan:
    """What is to be started, and how."""

    run: Path
    command: list[str]
    environment: dict[str, str]
    apart: bool = False  # stdout and stderr in files of their own
    inherit_stdin: bool = False
    terminal: tuple[int, int] | None = None  # columns and rows of a pseudo-terminal
    signal_mask: set[signal.Signals | int] = field(default_factory=set)  # that the training shall have
    warning: str | None = None  # what the person who watches has to know


def main(plan: Plan, ready: int) -> NoReturn:
    """The supervisor's life, in the process forked for it.

    Args:
        ready: where one line of JSON goes: the training's `pid`, or the `error` and exit `code` if it cannot start.
    """
    try:
        os.setsid()
        for number in UNHEEDED:
            # A handler, not SIG_IGN: the training would inherit the latter. What was ignored before stays so (nohup).
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_SETMASK, plan.signal_mask)
        recorder.spare(plan.run)
        recorder.elect(plan.run)  # before anybody sees the run alive and misses its recorder; until this process ends
        try:
            child, master = _start(plan)
        except OSError as error:
            _say(ready, _refusal(plan.command[0], error))
        else:
            _write_identity(plan.run, child.pid)
            _say(ready, {"pid": child.pid})
            _leave_terminal(plan.run)
            _accompany(plan, child, master)
    except BaseException:  # nothing above this frame may run in the forked process
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(0)


def _say(ready: int, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the front has been killed
        os.write(ready, json.dumps(message).encode() + b"\n")
    os.close(ready)


def _refusal(program: str, error: OSError) -> dict[str, object]:
    if error.errno == errno.ENOENT:
        return {"error": f"{program}: cannot start: its interpreter, or this directory, is gone", "code": NOT_FOUND}
    if error.errno == errno.ENOEXEC:
        return {"error": f"{program}: not a program; does its first line lack '#!'?", "code": NOT_EXECUTABLE}
    return {"error": f"{program}: cannot start: {error.strerror}", "code": NOT_EXECUTABLE}


# Starting the training


def _start(plan: Plan) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start the training; also the master end of its pseudo-terminal, if it has one."""
    master: int | None = None
    errors: int | IO[bytes] = subprocess.STDOUT
    if plan.terminal is not None:
        master, out = _open_terminal(*plan.terminal)
    elif plan.apart:
        out = output.create(plan.run / output.STDOUT)
        errors = output.create(plan.run / output.STDERR)
    else:
        out = output.create(plan.run / rundir.CONSOLE)
    child = subprocess.Popen(
        plan.command,
        stdin=None if plan.inherit_stdin else subprocess.DEVNULL,
        stdout=out,
        stderr=errors,
        env=_environment(plan),
        close_fds=False,  # descriptors that the caller passes on reach the training, as without trainmon
        start_new_session=True,
        preexec_fn=_adopt_terminal if plan.terminal is not None else None,  # no thread has been started yet
    )
    os.close(out)
    if isinstance(errors, int) and errors >= 0:
        os.close(errors)
    return child, master


def _environment(plan: Plan) -> dict[str, str]:
    """The training's own, with where it may report to, and with what lets a Python in it do so unasked."""
    path = os.pathsep.join(filter(None, (rundir.BOOTSTRAP, plan.environment.get("PYTHONPATH"))))
    return {**plan.environment, rundir.RUN_VARIABLE: str(plan.run), "PYTHONPATH": path}


def _open_terminal(columns: int, rows: int) -> tuple[int, int]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    modes = termios.tcgetattr(slave)
    modes[1] &= ~termios.ONLCR  # lines end as the program ends them; the reader's terminal adds the return
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    return master, slave


def _adopt_terminal() -> None:
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)


def _write_identity(run: Path, pid: int) -> None:
    identity = rundir.read_json(run / rundir.IDENTITY) or {}
    identity.update(pid=pid, start_ticks=rundir.start_ticks(pid), boot_id=rundir.boot_id())
    with contextlib.suppress(OSError):  # a full disk must not leave the training without its supervisor
        rundir.write_json(run / rundir.IDENTITY, identity)


# Accompanying it


def _leave_terminal(run: Path) -> None:
    """Let go of the caller's terminal, pipes and working directory, so that nobody waits for us to close them."""
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        log = output.create(run / LOG)
    except OSError:
        log = nothing
    for target, source in ((0, nothing), (1, nothing), (2, log)):
        os.dup2(source, target)
    os.chdir("/")
    with contextlib.suppress(OSError):
        os.nice(5)  # where the cores do not suffice, the training goes first


def _accompany(plan: Plan, child: subprocess.Popen[bytes], master: int | None) -> None:
    """Record until the training has ended, then write down how."""
    over = threading.Event()
    writer = _writer(plan.run)
    if writer is not None and plan.warning is not None:
        writer.write(events.Note("", 0, time.monotonic(), text=plan.warning, level="warning", code="tied"))
    recording = threading.Thread(target=_record, args=(plan.run, writer, child.pid, over), daemon=True)
    recording.start()
    threading.Thread(target=_prune, args=(writer, over), daemon=True).start()
    merge = output.Merge.of(plan.run) if plan.apart else None
    carrying = threading.Thread(target=_carry, args=(plan.run, merge, master, over), daemon=True)
    carrying.start()
    reading = recorder.Watch(plan.run)
    returncode = _await_end(child)
    over.set()
    carrying.join(PATIENCE if master is not None else None)
    if merge is not None:
        merge.finish()
    reading.finish()
    recorder.write_exit(plan.run, writer, returncode)
    recording.join(PATIENCE)
    if writer is not None:
        writer.close()
    with contextlib.suppress(OSError):
        log = plan.run / LOG
        if log.stat().st_size == 0:
            log.unlink()


def _await_end(child: subprocess.Popen[bytes]) -> int:
    """Wait for the training's end; its return code.

    The training stays to be waited for, so that the front still learns how it ended if we are killed before we have
    written it down.
    """
    if not hasattr(os, "waitid"):
        return child.wait()
    ended = os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # it is only without waiting that there may be none
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _writer(run: Path) -> Writer | None:
    try:
        return Writer(run)
    except OSError:
        traceback.print_exc()
        return None


def _record(run: Path, writer: Writer | None, pid: int, over: threading.Event) -> None:
    if writer is not None:
        recorder.Recorder(run, writer, lambda: [pid]).record(over.wait)


def _prune(writer: Writer | None, over: threading.Event) -> None:
    """Remove old runs. Nobody waits for it: what a brief run leaves undone, the next one does."""
    try:
        from monitor.runs import retention  # the training has started; nothing waits for this import

        retention.prune(over.is_set)
    except Exception as error:
        # Whatever is wrong with old runs, or with the configuration, this run's recording goes on.
        if isinstance(error, UserError) and writer is not None:
            text = events.clean(f"old runs stay: {error}")
            writer.write(events.Note("", 0, time.monotonic(), text=text, level="warning", code="retention"))
        else:
            traceback.print_exc()


def _carry(run: Path, merge: output.Merge | None, master: int | None, over: threading.Event) -> None:
    """Bring the training's output into the console's file; where it writes that itself, see that there is room."""
    if master is not None:
        output.pump(master, output.create(run / rundir.CONSOLE))
        return
    written = output.files(run)
    room = reserve.Reserve(written)
    while True:
        room.step()
        while merge is not None and merge.step() and not over.is_set():
            room.step()
        if over.wait(MERGE_SECONDS):
            break
    room.close()
    reserve.release(written)
