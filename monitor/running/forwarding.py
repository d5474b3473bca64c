"""Passing on the signals that reach the front, as they would arrive without trainmon.

Handlers only note a signal. A thread, started at the first one, waits until it is known whether a signal was sent to
all processes: a main thread that waited in its handlers would be interrupted by the next ones while it does.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import queue
import resource
import signal
import time
from collections.abc import Callable

from monitor.running import supervise
from monitor.running.launched_training import LaunchedTraining

TERMINAL_SIGNALS = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends these to a whole process group
SAME_SIGNAL_SECONDS = 0.3  # between the arrivals of one signal at several processes, on a busy machine, too
SIGNAL_READ_BYTES = 64 * supervise.SIGNAL_TIME.size  # read at once: whole rows, as each is written whole


def forward_signals(training: LaunchedTraining, signal_pipe: int, hangup: bool) -> None:
    """Pass on all signals to the training from here on. Call it while they are blocked.

    Args:
        signal_pipe: the end of a pipe on which the supervisor tells of the signals that reach it.
        hangup: whether SIGHUP ends only this process.
    """
    passing = _Passing(training, signal_pipe)

    def detach(number: int, _frame: object) -> None:
        if not training.must_outlive_training:
            os._exit(128 + number)  # the terminal is gone; the training continues

    def pause(_number: int, _frame: object) -> None:
        training.signal_group(signal.SIGSTOP)  # SIGTSTP does nothing to a group without a terminal
        os.kill(os.getpid(), signal.SIGSTOP)
        training.signal_group(signal.SIGCONT)  # the shell has continued this process

    handlers: dict[int, Callable[[int, object], None]] = dict.fromkeys(supervise.FORWARDED, passing.note)
    handlers[signal.SIGTSTP] = pause
    if hangup:
        handlers[signal.SIGHUP] = detach
    for number, handler in handlers.items():
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored by nohup and by shells for background jobs
            signal.signal(number, handler)


class _Passing:
    """The signals that have reached this process, and the thread that passes them on."""

    def __init__(self, training: LaunchedTraining, signal_pipe: int) -> None:
        self._training = training
        self._signal_pipe = signal_pipe
        self._noted: queue.SimpleQueue[tuple[int, float]] = queue.SimpleQueue()  # with the time of arrival
        self._sent_to_supervisor: list[tuple[int, float]] = []  # signals, and when they reached it
        self._has_thread = False

    def note(self, number: int, _frame: object) -> None:
        """Handle a signal, in the main thread."""
        training = self._training
        if number == signal.SIGXCPU and _is_over_time():
            return  # this process's own limit, not the training's
        training.was_terminated |= number == signal.SIGTERM
        if not training.is_alive() and (ended := training.poll()) is not None:
            raise SystemExit(ended.status)  # only output is left to copy, and its reader may be blocked
        self._noted.put((number, time.monotonic()))
        if not self._has_thread:
            self._has_thread = True
            self._start()

    def _start(self) -> None:
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they interrupt the main thread alone
        try:
            _thread.start_new_thread(self._pass_all, ())  # a handler must not wait for the locks of `threading`
        except RuntimeError:  # too many processes: nothing tells who else got it
            self._has_thread = False
            self._pass(self._noted.get()[0])
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _pass_all(self) -> None:
        while True:
            number, at = self._noted.get()
            if number in TERMINAL_SIGNALS and _in_foreground():
                self._training.signal_group(number)
            elif not self._is_sent_to_all(number, at):
                self._pass(number)

    def _pass(self, number: int) -> None:
        """Send a signal to the program alone, which decides about its workers."""
        if self._training.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._training.pid, number)

    def _is_sent_to_all(self, number: int, at: float) -> bool:
        """Return whether the supervisor, which nobody means, got this signal at the same time: so did the program."""
        time.sleep(max(0.0, at + SAME_SIGNAL_SECONDS - time.monotonic()))
        with contextlib.suppress(BlockingIOError):
            while rows := os.read(self._signal_pipe, SIGNAL_READ_BYTES):
                self._sent_to_supervisor += supervise.SIGNAL_TIME.iter_unpack(rows)
        since = at - SAME_SIGNAL_SECONDS
        self._sent_to_supervisor = [row for row in self._sent_to_supervisor if row[1] >= since]
        return any(signaled == number for signaled, _ in self._sent_to_supervisor)


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
