"""The supervisor of a launched training: a process that outlives the terminal and the dashboard.

It starts the training, records while it runs, waits for it and records how it ended. The training does not depend on
it: the supervisor may be stopped or killed at any time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from monitor.errors import UserError
from monitor.hooks_reach import LITTLE_ROOM, RECORDING_ENDED
from monitor.running import (
    disk_budget,
    disk_space,
    exit_record,
    group,
    inherited,
    leaving,
    output,
    output_reader,
    recorder,
    recorder_process,
    stopping,
    terminal_input,
)
from monitor.running.command import NOT_EXECUTABLE, NOT_FOUND
from monitor.running.exec_state import ExecState
from monitor.running.journal_writer import Writer
from monitor.running.output_marks import OutputMarks
from trainhooks.protocol import limits, process_identity, rundir

if TYPE_CHECKING:
    from monitor.running.relay import Relay

LOG_NAME = "supervisor.log"
MERGE_SECONDS = 0.1
# Seconds to wait for the last reading of a driver that may hang, and for a terminal's last output.
MAX_END_SECONDS = 2.0

# Signals that terminals, session managers and people send to all of trainmon's processes. They must not end the
# recording of a running training; the front passes on those that are meant for the training.
SIGNAL_TIME = struct.Struct("<Bd")  # what the supervisor tells the front of a signal: its number, time.monotonic()
# Beyond the common ones: schedulers send SIGXCPU, SIGPWR and real-time signals, people SIGABRT to see a stack.
_NAMES = ("INT", "TERM", "QUIT", "USR1", "USR2", "ABRT", "ALRM", "VTALRM", "PROF", "IO", "PWR", "XCPU")
_REAL_TIME = range(getattr(signal, "SIGRTMIN", 0), getattr(signal, "SIGRTMAX", -1) + 1)
FORWARDED: tuple[int, ...] = (
    *(int(getattr(signal, f"SIG{name}")) for name in _NAMES if hasattr(signal, f"SIG{name}")),
    *_REAL_TIME,
)
IGNORED_SIGNALS = (signal.SIGHUP, *FORWARDED)


@dataclass(frozen=True)
class Plan:
    """What to start, and how."""

    run: Path
    command: list[str]
    environment: dict[str, str]
    separate_streams: bool = False  # stdout and stderr in separate files
    unrecorded: str | None = None  # why the output goes to the caller's own stdout and stderr, and to no file
    read_live: bool = False  # whether somebody reads the output as it comes, on a terminal or the dashboard
    inherit_stdin: bool = False
    asked_terminal: tuple[int, int] | None = None  # columns and rows of a terminal as its stdin; None: it has nothing
    terminal: tuple[int, int] | None = None  # columns and rows of a pseudo-terminal
    leads: bool = True  # whether the program leads its process group, as it would without trainmon
    signal_mask: set[signal.Signals | int] = field(default_factory=set)  # of the training
    state: ExecState = field(default_factory=ExecState)  # what else the training would have had from its caller
    warning: str | None = None  # to show to the user
    signal_pipe: int = -1  # the end of a pipe to the front, for the signals that reach the supervisor
    front: int = 0  # its pid
    copied: output.Copied | None = None  # what the front has passed on of the output


@dataclass(frozen=True)
class Started:
    """The training, and the master ends of its pseudo-terminals."""

    pid: int
    master: int | None = None  # for its output
    stdin: int | None = None
    streams: tuple[int, int] | None = None  # the console file as its stdout and as its stderr has it open


def main(plan: Plan, ready: int) -> NoReturn:
    """Run the supervisor in the process forked for it. Never returns.

    Args:
        ready: descriptor for one line of JSON: the training's `pid`, or `error`, exit `code` and `errno` if it cannot
            start.
    """
    try:
        os.setsid()
        _handle_signals(plan)
        exit_record.reserve_exit_file(plan.run)
        # Held until this process ends; before a reader sees the run without a recorder.
        recorder_process.acquire_recorder_lock(plan.run)
        try:
            started = _start(plan)
        except OSError as error:
            _say(ready, {**_refusal(plan.command[0], error), "errno": error.errno})
        else:
            inherited.release()  # at once: the program may close its own, and take a lock that our copies hold
            _write_identity(plan.run, started.pid)
            _say(ready, {"pid": started.pid})
            _leave_terminal(plan.run)
            _record_until_end(plan, started)
    except BaseException:  # no caller's code may run in the forked process
        traceback.print_exc()
    finally:
        _end()


def go_on(plan: Plan, started: Started, kills: tuple[str | None, int | None]) -> NoReturn:
    """Go on without recording, in a process that has replaced the supervisor's. Never returns.

    Args:
        kills: as for `leaving.leave`.
    """
    try:
        _handle_signals(plan)
        is_alone, _ = recorder_process.acquire_recorder_lock(plan.run)
        plan = replace(plan, separate_streams=plan.separate_streams and is_alone)  # a recorder merges them, too
        _record_until_end(plan, started, recorder.KernelKills(*kills))
    except BaseException:
        traceback.print_exc()
    finally:
        _end()


def _handle_signals(plan: Plan) -> None:
    for number in IGNORED_SIGNALS:
        # A handler, not SIG_IGN: the training would inherit the latter. Ignored signals stay ignored (nohup).
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, _: _tell_front(plan.signal_pipe, number))
    signal.pthread_sigmask(signal.SIG_SETMASK, plan.signal_mask)


def _end() -> NoReturn:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(0)


def _tell_front(witness: int, number: int) -> None:
    """Tell the front that a signal has reached this process: it was sent to all of them, and to the training, too."""
    with contextlib.suppress(OSError):  # the front has ended
        os.write(witness, SIGNAL_TIME.pack(number, time.monotonic()))


def _say(ready: int, message: dict[str, object]) -> None:
    with contextlib.suppress(OSError):  # the front was killed
        os.write(ready, json.dumps(message).encode() + b"\n")
    os.close(ready)


def _refusal(program: str, error: OSError) -> dict[str, object]:
    if error.errno == errno.ENOENT:
        return {
            "error": f"{program}: cannot start: its interpreter or the working directory does not exist",
            "code": NOT_FOUND,
        }
    if error.errno == errno.ENOEXEC:
        return {"error": f"{program}: not a program; add a '#!' line or name its interpreter", "code": NOT_EXECUTABLE}
    return {"error": f"{program}: cannot start: {error.strerror}", "code": NOT_EXECUTABLE}


# Starting the training


def _start(plan: Plan) -> Started:
    """Start the training."""
    master: int | None = None
    streams: tuple[int, int] | None = None
    stdin, given = (None, None) if plan.asked_terminal is None else terminal_input.open_input(*plan.asked_terminal)
    if given is None and not plan.inherit_stdin:
        given = inherited.open_nothing()
    out: int | None = None
    errors: int | None = subprocess.STDOUT
    if plan.terminal is not None:
        master, out = terminal_input.open_terminal(*plan.terminal)
    elif plan.separate_streams:
        out = output.open_append(plan.run / output.STDOUT)
        errors = output.open_append(plan.run / output.STDERR)
    elif plan.unrecorded is not None:
        errors = None
    else:
        # Twice: the position of each tells which one was written through last.
        out, errors = streams = (
            output.open_append(plan.run / rundir.CONSOLE), output.open_append(plan.run / rundir.CONSOLE),
        )  # fmt: skip
    closed = plan.state.closed if plan.terminal is None else ()
    start = partial(
        subprocess.Popen,
        plan.command,
        stdin=None if plan.inherit_stdin else given,
        # What stands for a closed one in this process is closed by the exec.
        stdout=None if 1 in closed else out,
        stderr=None if 2 in closed else out if errors == subprocess.STDOUT else errors,
        env=_environment(plan),
        close_fds=False,  # descriptors that the caller passes reach the training, as without trainmon
    )
    if plan.terminal is not None:  # only the leader of a session can adopt a terminal
        child = group.start_leader(start, lambda: _adopt_terminal(plan.state))  # no thread has been started yet
    else:
        begin = plan.state.restore if plan.state.is_special else None
        child = group.start_leader(start, begin) if plan.leads else group.start_member(start, begin)
    for passed in (given,) if streams is not None else (out, errors, given):
        if passed is not None and passed >= 0:
            os.close(passed)
    return Started(child, master, stdin, streams)


def _environment(plan: Plan) -> dict[str, str]:
    """Return the training's environment, with the run directory and, on PYTHONPATH, the bootstrap of the hooks."""
    path = os.pathsep.join(filter(None, (rundir.BOOTSTRAP, plan.environment.get("PYTHONPATH"))))
    lines = {rundir.LINES_VARIABLE: "1"} if plan.read_live else {}
    return {**plan.environment, rundir.RUN_VARIABLE: str(plan.run), "PYTHONPATH": path, **lines}


def _adopt_terminal(state: ExecState) -> None:
    fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    state.restore()


def _write_identity(run: Path, pid: int) -> None:
    identity = rundir.read_json(run / rundir.IDENTITY) or {}
    identity.update(process_identity.identity_of(pid), group=os.getpgid(pid))
    with contextlib.suppress(OSError):  # a full disk must not leave the training without its supervisor
        rundir.write_json(run / rundir.IDENTITY, identity)


# While the training runs


def _leave_terminal(run: Path) -> None:
    """Release the caller's terminal, streams and working directory, so that nobody waits for us to close them."""
    nothing = inherited.open_nothing()
    try:
        log = output.open_append(run / LOG_NAME)
    except OSError:
        log = nothing
    for target, source in ((0, nothing), (1, nothing), (2, log)):
        os.dup2(source, target)
    os.chdir("/")


def _record_until_end(plan: Plan, started: Started, kills: recorder.KernelKills | None = None) -> None:
    """Record until the training has ended, then record its exit.

    Args:
        kills: given where the recording of GPUs, host and output has ended already.
    """
    over = threading.Event()
    writer = _writer(plan.run)
    _note(writer, plan.warning, "tied")
    merge = output.Merge.of(plan.run) if plan.separate_streams else None
    threading.Thread(target=_keep_within, args=(plan, writer, merge, over), daemon=True).start()
    if kills is None:
        with contextlib.suppress(OSError):
            # Where cores are short, the training has priority; not before the thread that keeps the disk free.
            os.nice(5)
    moving = threading.Thread(target=_move_output, args=(plan, merge, started, over), daemon=True)
    moving.start()
    if started.stdin is not None:
        threading.Thread(target=terminal_input.end_reads, args=(started.stdin, over), daemon=True).start()
    recording = None
    if kills is None:
        short = _shortage(started.pid)
        _note(writer, short, LITTLE_ROOM)
        recording = _Recording(plan.run, writer, started.pid, over) if short is None else None
        kills = _kernel_kills(started.pid)
    if recording is not None and _await_little_memory(started.pid, writer):
        leaving.leave(plan, started, kills.known if kills is not None else (None, None))
    returncode = _await_end(started.pid)
    over.set()
    moving.join(MAX_END_SECONDS if started.master is not None else None)
    if merge is not None:
        merge.finish()
    if recording is not None:
        recording.reading.finish()
    exit_record.write_exit(plan.run, writer, returncode, kills.count() if kills is not None else None)
    if recording is not None:
        recording.recorder.join(MAX_END_SECONDS)
    if writer is not None:
        writer.close()
    if recording is not None and recording.relay is not None:
        recording.relay.close()
    with contextlib.suppress(OSError):
        log = plan.run / LOG_NAME
        if log.stat().st_size == 0:
            log.unlink()


def _note(writer: Writer | None, text: str | None, code: str) -> None:
    if writer is not None and text is not None:
        writer.note(text, code)


class _Recording:
    """The threads that read GPUs, host and output, and that serve others: where there is room for them."""

    def __init__(self, run: Path, writer: Writer | None, child: int, over: threading.Event) -> None:
        self.relay: Relay | None = None
        if writer is not None:
            try:
                from monitor.running.relay import Relay  # a library of sockets

                self.relay = Relay(run, writer.note_unpublished)
            except Exception:  # short of descriptors or memory: viewers read the journals
                traceback.print_exc()
        self.recorder = threading.Thread(target=_record, args=(run, writer, child, over), daemon=True)
        self.recorder.start()
        threading.Thread(target=stopping.obey_requests, args=(run, over), daemon=True).start()
        threading.Thread(target=_prune, args=(writer, over), daemon=True).start()
        if writer is not None and "SLURM_JOB_ID" in os.environ:
            from monitor.running import job_limit

            threading.Thread(target=job_limit.tell, args=(writer.write, over.wait), daemon=True).start()
        self.reading = output_reader.OutputReader(run)


def _shortage(child: int) -> str | None:
    """Return the note on a container without room for all of trainmon; None where there is room."""
    from monitor.running import room

    try:
        short = room.shortage(child)
    except Exception:  # as below
        traceback.print_exc()
        return None
    return short and f"{short}: it is the program's, and trainmon reads neither GPUs nor host nor output"


def _await_little_memory(child: int, writer: Writer | None) -> bool:
    """Wait until the program has ended or memory is near its limit. Return whether it is, with a note."""
    from monitor.running import room

    try:
        end = os.pidfd_open(child)
    except (AttributeError, OSError):  # an older system: nothing tells of both
        return False
    try:
        ended = select.poll()
        ended.register(end, select.POLLIN)
        near, seconds = room.near_limit(child)
        while near is None and not ended.poll(1000 * seconds):
            near, seconds = room.near_limit(child)
    except Exception:  # as below
        traceback.print_exc()
        near = None
    finally:
        os.close(end)
    _note(writer, near, RECORDING_ENDED)
    return near is not None


def _kernel_kills(child: int) -> recorder.KernelKills | None:
    try:
        return recorder.KernelKills.of(child)
    except Exception:  # what it reads is the system's own; the end of the training is awaited without it
        traceback.print_exc()
        return None


def _await_end(child: int) -> int:
    """Wait for the training's end. Return its return code.

    The training is not reaped, so that the front still learns how it ended if the supervisor is killed before it has
    recorded the exit.
    """
    if not hasattr(os, "waitid"):
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ended = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert ended is not None  # None is possible only with WNOHANG
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
    """Remove old runs. Nothing waits for it: what a short run leaves, the next run removes."""
    try:
        from monitor.runs import retention  # the training has started; nothing waits for this import

        retention.prune(over.is_set)
    except Exception as error:
        # An error with old runs or with the configuration must not stop this run's recording.
        if isinstance(error, UserError) and writer is not None:
            _note(writer, limits.clean(f"old runs were not removed: {error}"), "retention")
        else:
            traceback.print_exc()


def _keep_within(plan: Plan, writer: Writer | None, merge: output.Merge | None, over: threading.Event) -> None:
    budget = disk_budget.DiskBudget(plan.run, _told(writer), partial(_copied, plan, merge))
    while not over.wait(budget.step()):
        pass


def _told(writer: Writer | None) -> Callable[[str], None]:
    return writer.note_budget if writer is not None else lambda _: None


def _copied(plan: Plan, merge: output.Merge | None, name: str, waits: bool) -> int:
    """Return how much of an output file may be freed: what is in the console file and, if the front lives, passed on.

    Args:
        waits: whether there is the space to wait for both; if not, all of it may be freed.
    """
    if not waits:
        return output.Copied.GIVEN_UP
    merged = merge.position(name) if merge is not None and name in output.STREAMS else output.Copied.GIVEN_UP
    if plan.copied is None or os.getppid() != plan.front:
        return merged
    return min(merged, plan.copied.of(name))


def _move_output(plan: Plan, merge: output.Merge | None, started: Started, over: threading.Event) -> None:
    """Move the training's output into the console file; where it writes that itself, only reserve disk space.

    Either way note when it grew.
    """
    if started.master is not None:
        console = output.open_append(plan.run / rundir.CONSOLE)
        output.pump(started.master, console, OutputMarks(plan.run))
        return
    marks = OutputMarks(plan.run, started.streams) if merge is None and plan.unrecorded is None else None
    written = output.output_files(plan.run)
    room = disk_space.Preallocation(written)
    is_over = False
    while True:
        room.step()
        while merge is not None and merge.step() and not over.is_set():
            room.step()
        if marks is not None:
            marks.step()
        if is_over:
            break
        is_over = over.wait(MERGE_SECONDS)
    room.close()
    disk_space.release_preallocated(written)
