"""torch's profiler of kernels, as the hooks and a program find it: sessions over the calls that the device was given.

There is one session a process. What was launched before it has no call in it, what the device has not done by its end
is missing, and one that begins while another thread's is on takes it over without a word. A begin takes time, and so
does an end, by the event. Where it is asked for (TEARDOWN_CUPTI=1), CUDA lets go of a session some time after its end,
in a call; one that begins before sees nothing. Else each call goes on to cost more.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from tests.simulated_device.clock import SECOND
from tests.simulated_device.cuda import Face, by_hooks

BUFFERS = 2  # asked for at the begin of a session
# What torch calls the activity and where things run, where it is made up.
CUDA, HOST, ON_DEVICE = "cuda", 0, 1
_NAMES = ("_prepare_profiler", "_enable_profiler", "_disable_profiler", "_profiler_enabled")


@dataclass
class Session:
    """One of them, in nanoseconds of the host's clock; `ended` is when its end was asked for."""

    thread: int
    by_hooks: bool
    sees: bool
    began: int
    ended: int = 0


class Kineto:
    """The profiler of a process.

    Args:
        face: whose devices it watches.
        torch: the real one, whose own profiler is asked where kernels are not wanted; None: there is none.
    """

    def __init__(self, face: Face, torch: Any = None) -> None:
        self._face, self._clock = face, face.clock
        self._own = {} if torch is None else {name: getattr(torch._C._autograd, name) for name in _NAMES}
        self._cuda: Any = CUDA if torch is None else torch.profiler.ProfilerActivity.CUDA
        types = None if torch is None else torch.autograd.DeviceType
        self._types: Any = (HOST, ON_DEVICE) if types is None else (types.CPU, types.CUDA)
        self.sessions: list[Session] = []
        self._open: Session | None = None
        self._attached = False
        self._detaches = 0  # from when on a call lets go of the last session
        self._buffers = 0
        self.wall = time.time_ns() - self._clock.now

    # What torch calls

    def functions(self) -> dict[str, Callable[..., Any]]:
        return dict(zip(_NAMES, (self.prepare, self.enable, self.disable, self.enabled), strict=True))

    def prepare(self, config: Any, activities: Any, **more: Any) -> None:
        if self._cuda not in activities:
            self._own["_prepare_profiler"](config, activities, **more)

    def enable(self, config: Any, activities: Any, *more: Any) -> None:
        if self._cuda not in activities:
            self._own["_enable_profiler"](config, activities, *more)
            return
        face, ours, other = self._face, by_hooks(), self._open
        if ours and face.captured:
            face.misdeed("a session after a graph was captured")
        if ours and other is not None and not other.by_hooks:
            face.misdeed("a session in place of the program's")
        if not ours and other is not None and other.by_hooks:
            face.misdeed("the program's session had to take the hooks' over")
        if other is not None and other.thread == get_ident():
            raise RuntimeError("Profiler is already enabled on this thread.")
        sees = not self._attached
        face.call("_enable_profiler", face.devices[0].costs.session)
        for each in face.devices:
            each.keep_calls()
            each.before_call = self._call
        self._attached, self._buffers = True, BUFFERS
        self._open = Session(get_ident(), ours, sees, self._clock.now)
        self.sessions.append(self._open)

    def disable(self) -> Any:
        session = self._open
        if session is None and self._own and self._own["_profiler_enabled"]():
            return self._own["_disable_profiler"]()
        if session is None or session.thread != get_ident():
            if by_hooks():
                self._face.misdeed("a session ended on another thread, or twice")
            raise RuntimeError("Can't disable Kineto profiler when it's not running")
        session.ended = self._clock.now
        events = list(self._events(session)) if session.sees else []
        costs = self._face.devices[0].costs
        self._open = None
        self._face.call("_disable_profiler", costs.session_end + costs.event * len(events))
        if os.environ.get("TEARDOWN_CUPTI") == "1":
            self._detaches = self._clock.now + costs.detach
        return Result(events, session.began + self.wall)

    def enabled(self) -> bool:
        session = self._open
        if session is None:
            return bool(self._own and self._own["_profiler_enabled"]())
        return session.thread == get_ident()

    # What goes on beside

    def _call(self) -> None:
        """A call of CUDA's begins. While it is attached each costs more."""
        if get_ident() != self._face._thread:
            return
        self.touched()
        device = self._face.devices[0]
        if self._attached:
            self._clock.pass_by(device.costs.traced)
        if self._open is not None and self._buffers:
            self._buffers -= 1
            began = self._clock.now
            self._clock.pass_by(device.costs.buffer)
            device.called("Activity Buffer Request", began)

    def touched(self) -> None:
        """A call reaches CUDA, which may let go of the last session in it."""
        if self._open is None and self._detaches and self._clock.now >= self._detaches:
            self._attached, self._detaches = False, 0

    def sleep(self, real: Callable[[Any], None]) -> Callable[[Any], None]:
        """time.sleep, for which the hooks hold the training thread up: it passes by its own clock."""

        def sleeping(seconds: Any) -> None:
            if get_ident() == self._face._thread and by_hooks():
                self._clock.pass_by(int(seconds * SECOND))
            else:
                real(seconds)

        return sleeping

    def _events(self, session: Session) -> Iterator[Event]:
        host, on_device = self._types
        for device in self._face.devices:
            calls = list(device.calls)  # in one go: other threads go on calling
            for number, call in enumerate(calls, 1 + 10**7 * device.index):
                if session.began <= call.began:
                    yield Event(
                        call.name, call.began + self.wall, call.ended - call.began, host, 0, call.thread, number
                    )
                for piece in call.pieces:
                    if session.began <= piece.start and piece.end <= session.ended:
                        yield Event(
                            piece.name, piece.start + self.wall, piece.end - piece.start, on_device, piece.stream, 0,
                            number, piece.size,
                        )  # fmt: skip


class Result:
    """torch._C._autograd._ProfilerResult."""

    def __init__(self, events: list[Event], began: int) -> None:
        self._events, self._began = events, began

    def events(self) -> list[Event]:
        return self._events

    def trace_start_ns(self) -> int:
        return self._began


class Event:
    """torch._C._autograd._KinetoEvent, as far as it is of kernels and calls."""

    def __init__(
        self, name: str, start: int, duration: int, kind: Any, stream: int, thread: int, correlation: int, size: int = 0
    ) -> None:
        self._name, self._start, self._duration, self._kind = name, start, duration, kind
        self._stream, self._thread, self._correlation, self._size = stream, thread, correlation, size

    def name(self) -> str:
        return self._name

    def start_ns(self) -> int:
        return self._start

    def duration_ns(self) -> int:
        return self._duration

    def device_type(self) -> Any:
        return self._kind

    def device_resource_id(self) -> int:
        return self._stream

    def start_thread_id(self) -> int:
        return self._thread

    def correlation_id(self) -> int:
        return self._correlation

    def nbytes(self) -> int:
        return self._size
