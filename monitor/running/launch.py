"""The start of a training by `trainmon run`.

This process, the front, forks a supervisor (see `supervise`), which starts the training in a session of its own. The
training runs on when the front dies; until then the front passes on output, signals and the exit code (see `front`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from monitor import __version__
from monitor.running import command, group, inherited, lifetime, output, run_name, supervise
from monitor.running.command import CannotRecord, CannotRun
from monitor.running.exec_state import ExecState
from monitor.running.forwarding import forward_signals
from monitor.running.launched_training import LaunchedTraining
from trainhooks.protocol import environment, rundir

# Errors that say what is short for two more processes, or for a longer environment.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.E2BIG)


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
    trace: bool | None = None  # whether a few steps are traced; None: from the environment, else yes
    control: bool | None = None  # whether the training may be asked for a trace; None: likewise
    mirror: tuple[str, ...] = ()  # trackers whose open run gets trainmon's figures


def start(words: list[str], options: Options) -> LaunchedTraining:
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
    state = ExecState.capture()
    limit = lifetime.lifetime_limit()
    try:
        output.check_room(rundir.runs_dir())
        plan, copies, signal_pipe = _prepared(words, options, set(mask), limit, state)
        subreaper = group.become_subreaper()  # a training whose supervisor dies keeps its exit code
        supervisor, pid = _fork_program(plan)
    except OSError as error:  # the program has not been started
        group.become_subreaper(False)  # what replaces this process would keep that
        state.restore()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        is_directory = not isinstance(error, rundir.UnsafeDirectory) and error.errno not in SHORTAGES
        hint = "; set TRAINMON_DIR to a writable directory" if is_directory else ""
        raise CannotRecord(f"not recorded: {error}{hint}") from None
    os.close(plan.signal_pipe)
    training = LaunchedTraining(plan.run, supervisor, pid, copies, subreaper, limit)
    training.unrecorded = plan.unrecorded
    if plan.unrecorded is not None and inherited.is_pipe(1):
        inherited.release_standard(1)  # its reader waits for the last writer, which is the program
    forward_signals(training, signal_pipe, hangup=training.must_outlive_training or not options.dashboard)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if plan.inherit_stdin:
        # The training reads it. While this process also holds it, a writer would not learn that the training stopped.
        inherited.release_standard(0)
    inherited.release()
    return training


def _prepared(
    words: list[str],
    options: Options,
    mask: set[signal.Signals | int],
    limit: lifetime.LifetimeLimit | None,
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
    signal_reader, signal_writer = os.pipe()
    os.set_blocking(signal_reader, False)
    os.set_blocking(signal_writer, False)
    plan = supervise.Plan(
        run=run,
        command=words,
        environment={**PROFILER, **os.environ, **_measurements(options)},
        separate_streams=not one_stream and unrecorded is None,
        unrecorded=unrecorded,
        read_live=options.dashboard or os.isatty(1),
        inherit_stdin=not options.dashboard and not os.isatty(0),
        asked_terminal=_terminal_size() if os.isatty(0) else None,
        terminal=_terminal_size() if pty else None,
        leads=group.leads(),
        signal_mask=mask,
        state=state,
        warning=limit.text if limit is not None and options.dashboard else None,
        signal_pipe=signal_writer,
        front=os.getpid(),
        copied=copied,
    )
    names = () if unrecorded else (rundir.CONSOLE,) if one_stream else output.STREAMS
    for name in names:
        os.close(output.open_append(run / name))
    # stderr gets the report at the end, and so does stdout where it is the same.
    shown = [] if options.dashboard else list(enumerate(names))
    copies = [output.Copy(run / name, 1 + place, copied, alone=name == output.STDOUT) for place, name in shown]
    return plan, copies, signal_reader


def _new_run(words: list[str], options: Options) -> Path:
    given: dict[str, Any] = {"price": options.price, "expect_tps": options.expect_tps, "tags": options.tags or None}
    return rundir.new_run(
        options.name or run_name.run_name(words),
        command=command.masked_command(words),
        cwd=_directory(),
        version=__version__,
        environment=environment.recorded(),
        launched=True,
        named=options.name is not None,
        **{key: value for key, value in given.items() if value is not None},
    )


# For torch's profiler, which traces a few steps: it prints nothing, and leaves nothing in CUDA. A value of the user's
# stays.
PROFILER = {"KINETO_LOG_LEVEL": "6", "TEARDOWN_CUPTI": "1"}


def _measurements(options: Options) -> dict[str, str]:
    wanted = {
        "TRAINMON_GPU_CLOCK": options.gpu_clock,
        "TRAINMON_TRACE": options.trace,
        "TRAINMON_CONTROL": options.control,
    }
    known = {name: "1" if value else "0" for name, value in wanted.items() if value is not None}
    return {**known, rundir.MIRROR_VARIABLE: ",".join(options.mirror)} if options.mirror else known


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


def _same_file(one: int, other: int) -> bool:
    return os.path.sameopenfile(one, other)


def _terminal_size() -> tuple[int, int]:
    for handle in (1, 2, 0):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(handle)
            if size.columns and size.lines:
                return size.columns, size.lines
    return 120, 40
