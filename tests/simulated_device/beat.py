"""The hooks' background thread, made to live by the virtual clock: a pass each 50 ms of the training's own time.

By the machine's own clock it would wake a few dozen times in a play of minutes, and would see the training's stack
where the simulator spends its time, not where the training does. So the training stands still, where the virtual clock
has come to the thread's next wake, until that pass is over; a wait of 300 ms is looked at three times.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tests.simulated_device.clock import NEVER, SECOND, Clock
from tests.simulated_device.cuda import is_machinery

PATIENCE = 30.0  # real seconds for a pass: it is over in a millisecond, and what hangs must not hang the play for good
_STARTING = 60.0  # real seconds for the background thread to import what it needs and to begin


class Beat:
    """Lets the background thread and the training take turns. Made on the training's thread.

    Args:
        clock: the virtual one, which calls back where a wake is due.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._training = threading.get_ident()
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._waits = False  # the background thread, for its next wake
        self._wanted = False  # it is to make its pass
        self._over = False
        self._second: Callable[[], None] = lambda: None
        self._next_second = NEVER
        clock.call_at(clock.now, self._due)

    def now(self) -> None:
        """A pass of the background thread, out of turn."""
        self._due()

    def install(self) -> None:
        """In place of the wait of every outbox that is made from here on, and of the stack that it looks at."""
        from trainhooks.recording import background_writer

        global installed
        installed = self
        made, frames = background_writer.BackgroundWriter.__init__, sys._current_frames
        beat = self

        def make(self: Any, lanes: Any, stopped: Callable[[float], bool], *rest: Any) -> None:
            made(self, lanes, lambda seconds: beat.sleep(seconds, stopped), *rest)

        def current_frames() -> dict[int, Any]:
            found = frames()
            if beat._training in found:
                found[beat._training] = outside(found[beat._training])
            return found

        background_writer.BackgroundWriter.__init__ = make  # type: ignore[method-assign]
        sys._current_frames = current_frames

    def sleep(self, seconds: float, stopped: Callable[[float], bool]) -> bool:
        """For the background thread: until the virtual clock has moved on by so much, or the program ends."""
        if seconds <= 0.0 or self._pid != os.getpid():
            return stopped(seconds)
        over = False
        with self._turn:
            self._waits = True
            self._clock.call_at(self._clock.now + int(seconds * SECOND), self._due)
            self._turn.notify_all()
            while not self._wanted and not over:
                over = stopped(0.0)  # says so once
                self._turn.wait(0.0 if over else 0.02)
            self._waits = self._wanted = False
            self._over = over
        return over

    def each_second(self, call: Callable[[], None]) -> None:
        """Besides, call this each second of the virtual clock."""
        self._second, self._next_second = call, self._clock.now + SECOND

    def _due(self) -> None:
        """For the training, where the clock has come to a wake: the other one's turn."""
        while self._clock.now >= self._next_second:
            self._next_second += SECOND
            self._second()
        if threading.get_ident() != self._training or self._over or not self._thread_is_there():
            self._clock.call_at(self._clock.now + SECOND // 20, self._due)
            return
        with self._turn:
            if not self._turn.wait_for(lambda: self._waits, _STARTING):
                return
            self._wanted = True
            self._clock.call_at(NEVER, self._due)
            self._turn.notify_all()
            self._turn.wait_for(lambda: self._waits and not self._wanted, PATIENCE)

    @staticmethod
    def _thread_is_there() -> bool:
        session = sys.modules.get("trainhooks.session")
        return session is not None and bool(session._session.started)


installed: Beat | None = None  # in this process


def outside(frame: FrameType | None) -> FrameType | None:
    """The stack without what stands for C++ and the driver: of it, a real one would show nothing."""
    found, inner = frame, frame
    while inner is not None:
        path = inner.f_code.co_filename
        if is_machinery(path):
            found = inner.f_back
        elif "site-packages" not in path and not _is_plumbing(path):
            break
        inner = inner.f_back
    return found


def _is_plumbing(path: str) -> bool:
    return path.startswith(_STANDARD)


_STANDARD = os.path.dirname(os.path.abspath(threading.__file__)) + os.sep
