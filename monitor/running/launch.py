"""The front end of `trainmon run`: start a training, and represent it to the terminal and the caller.

The front forks a supervisor (see `supervise`), which starts the training in a session of its own. The training runs on
when the front dies; until then the front passes on output, signals and the exit code.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from monitor import __version__
from monitor.running import command, group, inherited, lifetime, output, recorder, supervise
from monitor.running.command import CannotRecord, CannotRun
from monitor.running.exec_state import ExecState
from monitor.running.journal_writer import Writer
from trainhooks import process_identity, rundir

TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to a whole process group
SAME_SIGNAL_SECONDS = 0.3  # between the arrivals of one signal at several processes, on a busy machine, too
WITNESS_BYTES = 64 * supervise.SIGNAL_TIME.size  # read at once: whole rows, as each is written whole

# Errors that say what is short for two more processes, or for a longer environment.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.E2BIG)

GROWING_SECONDS = 0.02  # between two copies of output that grows
QUIET_SECONDS = 0.04  # between two copies of output that does not grow
WATCH_SECONDS = 0.2  # between two checks of the processes while the dashboard is shown


@dataclass(frozen=True)
class Options:
    """Options of `trainmon run`."""

    name: str | None = None
    dashboard: bool = False
    pty: bool = False
    price: float | None = None  # dollars per hour
    expect_tps: float | None = None  # expected tokens per second
    tags: dict[str, str] = field(default_factory=dict)
    gpu_clock: bool | None = None  # whether steps are also timed on the GPU; None: from the environment, else yes
    gpu_delay: bool | None = (
        None  # whether the GPU is delayed at the start of a few steps; None: from the environment, else no
    )


@dataclass(frozen=True)
class Ended:
    """How the training ended. None is unknown."""

    exit_code: int | None
    signal: int | None

    @property
    def status(self) -> int:
        """Return the exit code that a shell would give; 1 where the end is unknown."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.exit_code is None else self.exit_code


class Front:
    """A started training, as seen by the process that started it."""

    def __init__(
        self,
        run: Path,
        supervisor: int,
        pid: int,
        copies: list[output.Copy],
        subreaper: bool,
        tie: lifetime.LifetimeLimit | None,
        witness: int,
    ) -> None:
        """
        Args:
            witness: the end of a pipe on which the supervisor tells of the signals that reach it.
        """
        self.run = run
        self._exit = run / rundir.EXIT  # made once: it is read in every poll
        self.pid = pid
        self.tie = tie
        self._supervisor = supervisor
        self._copies = copies
        self._subreaper = subreaper
        self._witness = witness
        self._sent_to_supervisor: list[tuple[int, float]] = []  # signals, and when they reached it
        self._start_ticks = process_identity.start_ticks(pid)
        self.unrecorded: str | None = None  # why the output is not recorded
        self.was_terminated = False  # by SIGTERM: exit, too, when the training has ended
        self._statuses: dict[int, int] = {}  # of children that were reaped: pid -> wait status
        self._alone = False  # the supervisor died before the training
        self._ended: Ended | None = None

    @property
    def stays(self) -> bool:
        """Return whether this process must not end before the training, which would end with it."""
        return self.tie is not None and self.tie.this_process

    def poll(self) -> Ended | None:
        """Return how the training ended, or None while it runs. Also reap children."""
        if self._ended is None:
            self._ended = self._written() or self._check_processes()
        return self._ended

    def forward(self, number: int) -> bool:
        """Pass a signal on as it would arrive without trainmon; False if the training has ended.

        What a terminal sends goes to the training's process group, everything else to the program alone, which decides
        about its workers. A signal that its sender has sent to all processes has reached the program already.
        """
        if not process_identity.process_alive(self.pid, self._start_ticks, None):
            return False
        if number in TERMINAL_SIGNALS and _in_foreground():
            self.signal_group(number)
        elif not self._is_sent_to_all(number):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, number)
        return True

    def signal_group(self, number: int) -> None:
        """Send a signal to the program and its workers, if they still run."""
        if process_identity.process_alive(self.pid, self._start_ticks, None):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(self.pid), number)

    def _is_sent_to_all(self, number: int) -> bool:
        """Return whether the supervisor, which nobody means, got this signal at the same time."""
        since = time.monotonic() - SAME_SIGNAL_SECONDS
        time.sleep(SAME_SIGNAL_SECONDS)
        # Kept: the handler of another signal may come in between, and read what is for this one.
        with contextlib.suppress(BlockingIOError):
            self._sent_to_supervisor += supervise.SIGNAL_TIME.iter_unpack(os.read(self._witness, WITNESS_BYTES))
        return any(signaled == number and at >= since for signaled, at in self._sent_to_supervisor)

    def passthrough(self) -> Ended:
        """Copy the training's output until it has ended and all output is copied."""
        while True:
            ended = self.poll()  # before copying, so that output written before the end is copied below
            moved = [copy.step() for copy in self._copies]
            if ended is not None:
                while any(copy.step() for copy in self._copies):
                    pass
                return ended
            if not any(copy.is_behind for copy in self._copies):
                time.sleep(GROWING_SECONDS if any(moved) else QUIET_SECONDS)

    @property
    def lost_output(self) -> int:
        """Return the bytes of output that were not passed on, since the disk was full."""
        return sum(copy.lost for copy in self._copies)

    def wait(self) -> Ended:
        """Wait for the training's end without showing its output."""
        while (ended := self.poll()) is None:
            time.sleep(WATCH_SECONDS)
        return ended

    def watch(self, on_end: Callable[[], None]) -> None:
        """Poll in a thread while the dashboard runs; call `on_end` when the training has ended."""

        def poll_until_end() -> None:
            while self.poll() is None:
                time.sleep(WATCH_SECONDS)
            on_end()

        threading.Thread(target=poll_until_end, name="front", daemon=True).start()

    def _written(self) -> Ended | None:
        written = rundir.read_json(self._exit)
        return Ended(written.get("exit_code"), written.get("signal")) if written is not None else None

    def _check_processes(self) -> Ended | None:
        """Reap children and return how the training ended; write it down if the supervisor died before."""
        self._reap()
        if not self._alone:
            if self._supervisor not in self._statuses:
                return None
            written = self._written()
            if written is not None:
                return written
            self._alone = True
            self._replace_recorder()
        if self.pid in self._statuses:
            return self._write_end(os.waitstatus_to_exitcode(self._statuses[self.pid]))
        if not process_identity.process_alive(self.pid, self._start_ticks, None) and not self._awaits_reaping():
            return Ended(None, None)
        return None

    def _reap(self) -> None:
        if not self._subreaper:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self._supervisor, os.WNOHANG)
                if pid:
                    self._statuses[pid] = status
            return
        for pid in (self._supervisor, self.pid):
            with contextlib.suppress(ChildProcessError):  # reaped before, or still the supervisor's own
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    self._statuses[pid] = os.waitpid(pid, 0)[1]
        # Orphaned descendants are reaped here, too. They are in other sessions; a child in our session belongs to
        # other code in this process, which waits for it. The first process of a container gets orphans of any session.
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if os.getsid(dead.si_pid) == os.getsid(0) and os.getpid() != 1:
                    return
                pid, status = os.waitpid(dead.si_pid, 0)
                if pid in (self._supervisor, self.pid):
                    self._statuses[pid] = status

    def _awaits_reaping(self) -> bool:
        """Return whether the training is a child of this process that has ended and waits to be reaped."""
        try:
            return self._subreaper and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def _replace_recorder(self) -> None:
        with contextlib.suppress(OSError):  # too many processes, no memory: only readings are lost
            recorder.ensure(self.run)

    def _write_end(self, returncode: int) -> Ended:
        try:
            writer = Writer(self.run)
        except OSError:
            recorder.write_exit(self.run, None, returncode)
        else:
            recorder.write_exit(self.run, writer, returncode)
            writer.close()
        return Ended(returncode, None) if returncode >= 0 else Ended(None, -returncode)


# Starting


def start(words: list[str], options: Options) -> Front:
    """Start a training.

    Args:
        words: the command, checked by `command.check_executable`.
        options: the options of the command line. Descriptors 0, 1 and 2 must be open.

    Raises:
        CannotRun: the system refuses to start it.
        CannotRecord: its run directory cannot be created, or the system is out of processes or descriptors.
    """
    # A signal that arrives before the handlers are set stays pending, instead of killing only the front.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, (*supervise.FORWARDED, signal.SIGTSTP))
    state = ExecState.take()
    tie = lifetime.lifetime_limit()
    try:
        output.check_room(rundir.runs_dir())
        plan, copies, witness = _prepared(words, options, set(mask), tie, state)
        subreaper = group.become_subreaper()  # a training whose supervisor dies keeps its exit code
        supervisor, pid = _fork_program(plan)
    except OSError as error:  # the program has not been started
        group.become_subreaper(False)  # what replaces this process would keep that
        state.restore()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        is_directory = not isinstance(error, rundir.UnsafeDirectory) and error.errno not in SHORTAGES
        hint = "; set TRAINMON_DIR to a writable directory" if is_directory else ""
        raise CannotRecord(f"not recorded: {error}{hint}") from None
    os.close(plan.witness)
    front = Front(plan.run, supervisor, pid, copies, subreaper, tie, witness)
    front.unrecorded = plan.unrecorded
    if plan.unrecorded is not None and inherited.is_pipe(1):
        inherited.release_standard(1)  # its reader waits for the last writer, which is the program
    _forward_signals(front, hangup=front.stays or not options.dashboard)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if plan.inherit_stdin:
        # The training reads it. While this process also holds it, a writer would not learn that the training stopped.
        inherited.release_standard(0)
    inherited.release()
    return front


def _prepared(
    words: list[str],
    options: Options,
    mask: set[signal.Signals | int],
    tie: lifetime.LifetimeLimit | None,
    state: ExecState,
) -> tuple[supervise.Plan, list[output.Copy], int]:
    """Make the run's directory, its output files and the pipe for signals; return what both processes need."""
    run = _new_run(words, options)
    # A file would take no more than that, and the next print would fail or end the program: a terminal takes all.
    unrecorded = output.limit(run)
    pty = options.pty or (unrecorded is not None and options.dashboard)
    unrecorded = None if pty else unrecorded
    one_stream = options.dashboard or pty or _same_file(1, 2)
    copied = output.Copied()
    witness, told = os.pipe()
    os.set_blocking(witness, False)
    os.set_blocking(told, False)
    plan = supervise.Plan(
        run=run,
        command=words,
        environment={**os.environ, **_gpu_environment(options)},
        apart=not one_stream and unrecorded is None,
        unrecorded=unrecorded,
        read_live=options.dashboard or os.isatty(1),
        inherit_stdin=not options.dashboard and not os.isatty(0),
        terminal=_terminal_size() if pty else None,
        leads=group.leads(),
        signal_mask=mask,
        state=state,
        warning=tie.text if tie is not None and options.dashboard else None,
        witness=told,
        front=os.getpid(),
        copied=copied,
    )
    names = () if unrecorded else (rundir.CONSOLE,) if one_stream else output.STREAMS
    for name in names:
        os.close(output.open_append(run / name))
    # stderr gets the report at the end, and so does stdout where it is the same.
    shown = [] if options.dashboard else list(enumerate(names))
    copies = [output.Copy(run / name, 1 + place, copied, alone=name == output.STDOUT) for place, name in shown]
    return plan, copies, witness


def _new_run(words: list[str], options: Options) -> Path:
    given: dict[str, Any] = {"price": options.price, "expect_tps": options.expect_tps, "tags": options.tags or None}
    return rundir.new_run(
        options.name or command.run_name(words),
        command=command.masked_command(words),
        cwd=_directory(),
        version=__version__,
        launched=True,
        named=options.name is not None,
        **{key: value for key, value in given.items() if value is not None},
    )


def _gpu_environment(options: Options) -> dict[str, str]:
    wanted = {"TRAINMON_GPU_CLOCK": options.gpu_clock, "TRAINMON_GPU_DELAY": options.gpu_delay}
    return {name: "1" if value else "0" for name, value in wanted.items() if value is not None}


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was removed; the training may not need it
        return None


class _NotStarted(CannotRun):
    def __init__(self, message: str, code: int, number: int) -> None:
        super().__init__(message, code)
        self.errno = number


def _fork_program(plan: supervise.Plan) -> tuple[int, int]:
    """Start the training as `_fork` does. A script without `#!` is given to the shell, as execvp(3) does.

    Raises:
        OSError: something is short for trainmon's own processes, which the program may not need.
        CannotRun: the program cannot be started.
    """
    try:
        try:
            return _fork(plan)
        except _NotStarted as refused:
            words = command.for_shell(plan.command) if refused.errno == errno.ENOEXEC else None
            if words is None:
                raise
            return _fork(replace(plan, command=words))
    except _NotStarted as error:
        shutil.rmtree(plan.run, ignore_errors=True)  # new, and still empty
        if error.errno in SHORTAGES:
            raise OSError(error.errno, os.strerror(error.errno)) from None
        raise


def _fork(plan: supervise.Plan) -> tuple[int, int]:
    """Fork the supervisor and wait until it has started the training. Return the pids of both."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    supervisor = os.fork()
    if supervisor == 0:
        os.close(reading)
        supervise.main(plan, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        answer = answers.readline()
    message: dict[str, Any] = json.loads(answer) if answer else {}
    # A supervisor that was killed just before its answer has written whom it started; the front then replaces it.
    pid = message.get("pid") if answer else (rundir.read_json(plan.run / rundir.IDENTITY) or {}).get("pid")
    if pid is None:
        os.waitpid(supervisor, 0)
        if not answer:
            raise CannotRun(f"the supervisor died while it started the training; see the logs in {plan.run}", 1)
        raise _NotStarted(message["error"], message["code"], message["errno"])
    return supervisor, pid


def _forward_signals(front: Front, hangup: bool) -> None:
    def forward(number: int, _frame: object) -> None:
        if number == signal.SIGXCPU and _is_over_time():
            return  # this process's own limit, not the training's
        front.was_terminated |= number == signal.SIGTERM
        if not front.forward(number) and (ended := front.poll()) is not None:
            raise SystemExit(ended.status)  # only output is left to copy, and its reader may be blocked

    def detach(number: int, _frame: object) -> None:
        if front.stays:
            return
        os._exit(128 + number)  # the terminal is gone; the training continues

    def pause(_number: int, _frame: object) -> None:
        front.signal_group(signal.SIGSTOP)  # SIGTSTP does nothing to a group without a terminal
        os.kill(os.getpid(), signal.SIGSTOP)
        front.signal_group(signal.SIGCONT)  # the shell has continued this process

    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(supervise.FORWARDED, forward)
    handlers[signal.SIGTSTP] = pause
    if hangup:
        handlers[signal.SIGHUP] = detach
    for number, handler in handlers.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by nohup and by shells for background jobs
            signal.signal(number, handler)


def _is_over_time() -> bool:
    """Return whether this process has used the processor time that it may use (ulimit -t)."""
    limit = resource.getrlimit(resource.RLIMIT_CPU)[0]
    return limit != resource.RLIM_INFINITY and time.process_time() >= limit


def _in_foreground() -> bool:
    """Return whether this process is in the foreground of a terminal, which then is taken to have sent the signal."""
    try:
        terminal = os.open(os.ctermid(), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


def _same_file(one: int, other: int) -> bool:
    return os.path.sameopenfile(one, other)


def _terminal_size() -> tuple[int, int]:
    for handle in (1, 2, 0):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(handle)
            if size.columns and size.lines:
                return size.columns, size.lines
    return 120, 40
