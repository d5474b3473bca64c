"""A thread of ours that the program does not meet.

It is started below `threading`: no list, count or trace function of the program has it. No signal of the program ends
in it, and its stack is of its own size. It is gone while the process forks, as Python warns of forks beside threads.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` takes a millisecond to load
import _thread
import contextlib
import os
import select
import sys
from time import monotonic
from types import FrameType
from typing import Any, Callable, List, Optional

from trainhooks.program_errors import pass_on

STACK_BYTES = 4 << 20  # to read a source takes Python's parser more than a megabyte
# Signals of an error in the thread itself; all others are the program's.
ERRORS = ("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT")
MAX_PAUSE = 0.02  # seconds that a fork waits for the threads' ends: one may be waiting for a disk
POLL_SECONDS = 0.0002
MAX_ASKED = 1000  # lines of other hooks, at most
LEAVE, PAUSE = 1, 2  # why a thread is to return from its work: for good, or for a fork


def unpatched(module: Any, name: str) -> Any:
    """Return a function of a module as Python made it: gevent's would let the program's greenlets run."""
    monkey = sys.modules.get("gevent.monkey")
    return getattr(module, name) if monkey is None else monkey.get_original(module.__name__, name)


allocate_lock = unpatched(_thread, "allocate_lock")
_start_new_thread = unpatched(_thread, "start_new_thread")
_select = unpatched(select, "select")


def release_interpreter() -> None:
    """Let other threads run, without the timer that sleep(0) arms."""
    _select((), (), (), 0)


class OwnThread:
    """A thread that can be woken, and that pauses while the process forks.

    Args:
        work: what it does. Returns False once that is done; True if `pausing` told it to return: it is called again.

    Attributes:
        pausing: whether `work` is to return soon.
        over: whether `work` is done.
    """

    def __init__(self, work: Callable[[], bool]) -> None:
        self._work = work
        self._calls = allocate_lock()  # released to wake it
        self._calls.acquire()
        self._running = allocate_lock()  # held until its end
        self.pausing = False
        self.over = False

    def start(self) -> bool:
        """Start it, if it does not run. Return False where that is refused, or all is done.

        Raises:
            BaseException: what a signal handler of the program raised meanwhile.
        """
        self.pausing = False
        if not self.over and self._running.acquire(False):  # else it runs, or sees on its way out that it goes on
            if self not in _threads:
                _threads.append(self)
            try:
                _start(self._run)
            except RuntimeError as error:  # by limits, or at the interpreter's end
                pass_on(error)
                self._end()
        return not self.over

    def _run(self) -> None:
        while True:
            goes_on = False
            try:
                goes_on = self._work()
            finally:
                if not goes_on:
                    self._end()
            if not goes_on:
                return
            self._running.release()
            if self.pausing or not self._running.acquire(False):
                return  # else it was started once more before it had ended

    def _end(self) -> None:
        self.over = True
        _threads.remove(self)
        self._running.release()

    def wait(self, seconds: float) -> bool:
        """For the thread: wait at most so long. Return whether it was woken."""
        woken: bool = self._calls.acquire(True, seconds)
        if sys.getprofile() is not None:  # it was set in all threads
            sys.setprofile(None)
        if sys.gettrace() is not None:
            sys.settrace(None)
        return woken

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it has not seen yet that it was woken before
            self._calls.release()

    def join(self, seconds: float) -> bool:
        """Wait at most so many seconds for its end, or its pause. Return whether it has come."""
        if not self._running.acquire(True, seconds):
            return False
        self._running.release()
        return True

    def pause(self) -> None:
        self.pausing = True
        self.wake()


def _start(run: Callable[[], None]) -> None:
    """Start a thread, with nothing changed afterwards for the one that calls.

    Raises:
        RuntimeError: refused.
    """
    set_mask, stack_size = getattr(_signal, "pthread_sigmask", None), _thread.stack_size
    before = set_mask(_signal.SIG_BLOCK, ()) if set_mask is not None else None
    size = stack_size()
    try:
        if set_mask is not None:
            set_mask(_signal.SIG_BLOCK, _signal.valid_signals() - {getattr(_signal, name, None) for name in ERRORS})
        try:
            stack_size(STACK_BYTES)
            _start_new_thread(run, ())
        finally:
            stack_size(size)
    finally:
        if set_mask is not None:
            set_mask(_signal.SIG_SETMASK, before)


_never = allocate_lock()
_never.acquire()


def sleep(seconds: float) -> None:
    """Sleep, also where the program has replaced `time.sleep`."""
    _never.acquire(True, seconds)


# Forks

_threads: List[OwnThread] = []  # started, and not over
_paused: List[OwnThread] = []
_raised: List[BaseException] = []


def before_fork() -> None:
    """Pause our threads, where the program has one of its own: beside others Python warns anyway."""
    threads = list(_threads)
    if not threads or _count_threads() > 1 + len(threads):
        return
    _paused.extend(threads)
    for thread in threads:
        thread.pause()
    until = monotonic() + MAX_PAUSE
    for thread in threads:
        thread.join(max(0.0, until - monotonic()))
    while _count_threads() > 1 and monotonic() < until:
        sleep(POLL_SECONDS)


def _count_threads() -> int:
    """Return how many threads this process has, as the kernel and with it Python count them."""
    try:
        return os.stat("/proc/self/task").st_nlink - 2
    except OSError:  # no such file system
        return 1 + _thread._count()


def raise_later(error: BaseException) -> None:
    """Raise an error once the fork has returned."""
    _raised.append(error)


def after_fork_in_parent(forks: Optional[FrameType]) -> None:
    """Go on once the fork has returned: there some versions of Python count threads, after these hooks.

    Args:
        forks: the frame that forks.
    """
    if _paused or _raised:
        _AfterFork(forks).ask()


def after_fork_in_child() -> None:
    _threads.clear()
    _paused.clear()
    _raised.clear()


class _AfterFork:
    """Asked for its truth by the main thread before each of its next lines, until the fork has returned.

    That is one of few calls that the interpreter can be made to do (`Py_AddPendingCall`) and that may raise.
    """

    def __init__(self, forks: Optional[FrameType]) -> None:
        self._forks = forks
        self._asked = 0

    def ask(self) -> None:
        global _asking
        self._asked += 1
        _asking = self  # the interpreter does not hold it
        if not _call_soon(self):
            _go_on()

    def __bool__(self) -> bool:
        if sys._getframe(1) is self._forks or self._asked > MAX_ASKED:
            self._forks = None
            _go_on()
        else:
            self.ask()
        return False  # else the interpreter looks for an error


_asking: Optional[_AfterFork] = None


def _go_on() -> None:
    while _paused:
        _paused.pop().start()
    if _raised:
        raise _raised.pop()


def _call_soon(question: object) -> bool:
    """Have the main thread ask for the truth of an object. Return False where that is refused."""
    try:
        from ctypes import PyDLL, c_void_p, cast, py_object

        python = PyDLL(None)  # not `pythonapi`, which is everybody's
        add = python.Py_AddPendingCall
        add.argtypes = [c_void_p, py_object]
        return bool(add(cast(python.PyObject_IsTrue, c_void_p), question) == 0)
    except Exception:  # a Python without ctypes, or without these names
        return False
