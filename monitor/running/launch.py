"""`trainmon run`: the front, which starts a training and stands in for it before the terminal and the caller.

The front forks a supervisor (see `supervise`), which starts the training in a session of its own. Whatever becomes of
the front, the training goes on; while it lives, the caller sees the training's output, signals and exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from monitor import __version__
from monitor.running import command, output, recorder, supervise, ties
from monitor.running.command import CannotRun
from monitor.running.writer import Writer
from trainhooks import rundir

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)

GROWING_SECONDS = 0.02  # between looks at output that grows, and at output that does not
QUIET_SECONDS = 0.04
WATCH_SECONDS = 0.2  # between looks at the processes while the dashboard is shown

_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Options:
    """What the person asked for."""

    name: str | None = None
    dashboard: bool = False
    pty: bool = False
    price: float | None = None  # dollars an hour
    expect_tps: float | None = None  # tokens a second that would be right
    tags: dict[str, str] = field(default_factory=dict)
    gpu_clock: bool | None = None  # whether steps are also timed on the GPU; None: as the environment says, else yes
    gpu_delay: bool | None = None  # whether the GPU is held up at the begin of a few; likewise, else no


@dataclass(frozen=True)
class Ended:
    """How the training ended, as far as it is known."""

    exit_code: int | None
    signal: int | None

    @property
    def status(self) -> int:
        """The exit code that a shell would give; 1 where nobody was there to see it end."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.exit_code is None else self.exit_code


class Front:
    """A started training, as the process that started it sees it."""

    def __init__(
        self, run: Path, supervisor: int, pid: int, copies: list[output.Copy], subreaper: bool, tie: ties.Tie | None
    ) -> None:
        self.run = run
        self._exit = run / rundir.EXIT  # made once: it is looked for again and again
        self.pid = pid
        self.tie = tie
        self._supervisor = supervisor
        self._copies = copies
        self._subreaper = subreaper
        self._start_ticks = rundir.start_ticks(pid)
        self.told_to_end = False  # by SIGTERM: whoever sent it wants us gone, too, when the training has ended
        self._statuses: dict[int, int] = {}  # of children that we have waited for
        self._alone = False  # the supervisor has died before its time
        self._ended: Ended | None = None

    @property
    def stays(self) -> bool:
        """Whether this process must not end before the training, which would end with it."""
        return self.tie is not None and self.tie.to_us

    def poll(self) -> Ended | None:
        """How the training ended, or None while it runs. Also does what a parent owes its children."""
        if self._ended is None:
            self._ended = self._written() or self._look()
        return self._ended

    def forward(self, number: int) -> bool:
        """Send a signal to the training's processes; False if it has ended."""
        if not rundir.process_alive(self.pid, self._start_ticks, None):
            return False
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)
        return True

    def passthrough(self) -> Ended:
        """Copy the training's output until it has ended, and then what is left of it."""
        while True:
            ended = self.poll()  # before the copying: what was written by then is copied after it
            moved = [copy.step() for copy in self._copies]
            if ended is not None:
                while any(copy.step() for copy in self._copies):
                    pass
                return ended
            time.sleep(GROWING_SECONDS if any(moved) else QUIET_SECONDS)

    def wait(self) -> Ended:
        """Wait for the training's end, with nobody to show its output to."""
        while (ended := self.poll()) is None:
            time.sleep(WATCH_SECONDS)
        return ended

    def watch(self, on_end: Callable[[], None]) -> None:
        """Keep polling in a thread, while the dashboard has this process; tell `on_end` when the training ended."""

        def look() -> None:
            while self.poll() is None:
                time.sleep(WATCH_SECONDS)
            on_end()

        threading.Thread(target=look, name="front", daemon=True).start()

    def _written(self) -> Ended | None:
        written = rundir.read_json(self._exit)
        return Ended(written.get("exit_code"), written.get("signal")) if written is not None else None

    def _look(self) -> Ended | None:
        """See to the processes; the training's end is ours to write down if the supervisor cannot."""
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
        if not rundir.process_alive(self.pid, self._start_ticks, None) and not self._awaits_us():
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
        # All that descends from us and has lost its parent ends here, too. It lives in other sessions; a child in
        # ours belongs to other code in this process, which waits for it itself. To the first process of a container
        # any session's orphans come.
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if os.getsid(dead.si_pid) == os.getsid(0) and os.getpid() != 1:
                    return
                pid, status = os.waitpid(dead.si_pid, 0)
                if pid in (self._supervisor, self.pid):
                    self._statuses[pid] = status

    def _awaits_us(self) -> bool:
        """Whether the training is a child of ours that has ended and waits to be reaped."""
        try:
            return self._subreaper and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def _replace_recorder(self) -> None:
        with contextlib.suppress(OSError):  # too many processes, no memory: what is lost is readings, not the training
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
        words: the command, one that `command.check` let pass.
        options: what the person asked for. Descriptors 0, 1 and 2 must be open.

    Raises:
        CannotRun: the system refuses to start it.
        OSError: its run directory cannot be made.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # or the kernel throws exit codes away
    run = _new_run(words, options)
    one_stream = options.dashboard or options.pty or _same_file(1, 2)
    # A signal that comes before the handlers are in place waits for them, instead of killing the front alone.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, FORWARDED)
    tie = ties.tie()
    plan = supervise.Plan(
        run=run,
        command=words,
        environment={**os.environ, **_on_the_gpu(options)},
        apart=not one_stream,
        inherit_stdin=not options.dashboard and not os.isatty(0),
        terminal=_terminal_size() if options.pty else None,
        signal_mask=set(mask),
        warning=tie.text if tie is not None and options.dashboard else None,
    )
    names = [rundir.CONSOLE] if one_stream else [output.STDOUT, output.STDERR]
    for name in names:
        os.close(output.create(run / name))
    copies = [] if options.dashboard else [output.Copy(run / name, 1 + place) for place, name in enumerate(names)]
    subreaper = _become_subreaper()
    supervisor, pid = _fork(plan)
    front = Front(run, supervisor, pid, copies, subreaper, tie)
    _forward_signals(front, hangup=front.stays or not options.dashboard)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if plan.inherit_stdin:
        # The training reads it. As long as we hold it, too, a writer there would not learn that the training stopped.
        _let_go_of_stdin()
    return front


def _new_run(words: list[str], options: Options) -> Path:
    given: dict[str, Any] = {"price": options.price, "expect_tps": options.expect_tps, "tags": options.tags or None}
    return rundir.new_run(
        options.name or command.name(words),
        command=command.masked(words),
        cwd=_directory(),
        version=__version__,
        launched=True,
        named=options.name is not None,
        **{key: value for key, value in given.items() if value is not None},
    )


def _on_the_gpu(options: Options) -> dict[str, str]:
    wanted = {"TRAINMON_GPU_CLOCK": options.gpu_clock, "TRAINMON_GPU_DELAY": options.gpu_delay}
    return {name: "1" if value else "0" for name, value in wanted.items() if value is not None}


def _directory() -> str | None:
    try:
        return os.getcwd()
    except FileNotFoundError:  # removed under the shell; the training may not care
        return None


def _fork(plan: supervise.Plan) -> tuple[int, int]:
    """Fork the supervisor and wait until it has started the training; the pids of both."""
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
    said: dict[str, Any] = json.loads(answer) if answer else {}
    if "pid" not in said:
        os.waitpid(supervisor, 0)
        if not answer:
            raise CannotRun(f"the supervisor died before it started the training; see {plan.run}", 1)
        shutil.rmtree(plan.run, ignore_errors=True)  # new, and nothing has happened in it
        raise CannotRun(said["error"], said["code"])
    return supervisor, said["pid"]


def _forward_signals(front: Front, hangup: bool) -> None:
    def forward(number: int, _frame: object) -> None:
        front.told_to_end |= number == signal.SIGTERM
        if not front.forward(number) and (ended := front.poll()) is not None:
            raise SystemExit(ended.status)  # only the copying is left, into something that does not take it

    def detach(number: int, _frame: object) -> None:
        if front.stays:
            return
        os._exit(128 + number)  # the terminal is gone, there is nobody to tell; the training goes on

    handlers: dict[signal.Signals, Callable[[int, object], None]] = dict.fromkeys(FORWARDED, forward)
    if hangup:
        handlers[signal.SIGHUP] = detach
    for number, handler in handlers.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup and shells in the background want it
            signal.signal(number, handler)


def _become_subreaper() -> bool:
    """Ask to become the parent of a training whose supervisor dies, so that its exit code is not lost (Linux)."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0  # type: ignore[no-any-return]
    except (OSError, AttributeError):
        return False


def _same_file(one: int, other: int) -> bool:
    return os.path.sameopenfile(one, other)


def _terminal_size() -> tuple[int, int]:
    for handle in (1, 2, 0):
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(handle)
            if size.columns and size.lines:
                return size.columns, size.lines
    return 120, 40


def _let_go_of_stdin() -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
