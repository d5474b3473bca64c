"""Lanes that are wrong in known ways: `tests` show that the checks fail for each. Applied where a play is told to.

Most change what the lane reads or tells, not its own lines, so that they go on to apply while these change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any


def apply(name: str, face: Any) -> None:
    """Make this process's hooks wrong; they have been imported, and nothing has been trained."""
    if name:
        MUTANTS[name](face)


def _host_clock(face: Any) -> None:
    """The host's clock as the device's time: when it recorded the marks, not when the device came by."""

    def elapsed_time(self: Any, end: Any) -> float:
        milliseconds: float = (end.recorded_at - self.recorded_at) / 1e6
        return milliseconds

    face.Event.elapsed_time = elapsed_time


def _interval_as_busy(face: Any) -> None:
    """Whatever lies between two marks was work."""
    from trainhooks.device import device_times

    to_dict = device_times.to_dict

    def told(event: Any) -> Any:
        if getattr(event, "seconds", 0.0):
            event.busy, event.busy_phases = event.seconds, list(event.phases)
            event.busy_phases.append(("other", event.seconds - sum(seconds for _, seconds in event.phases)))
        return to_dict(event)

    device_times.to_dict = told  # type: ignore[assignment]


class _Changed(deque[Any]):
    """What the lane has read, changed on the way to the background thread."""

    def __init__(self, change: Callable[[list[float]], list[float]]) -> None:
        super().__init__()
        self._change = change

    def append(self, read: Any) -> None:
        super().append(read._replace(milliseconds=self._change(list(read.milliseconds))))


def _changing(change: Callable[[list[float]], list[float]]) -> None:
    from trainhooks import session

    session.device.resolved = _Changed(change)


def _begin_for_end(face: Any) -> None:
    """Each phase ends by the event that it began with: the time belongs to the phase after it."""
    _changing(lambda times: [times[0], *times[:-1]] if times else times)


def _fixed_k(face: Any) -> None:
    """Each k-th step is timed, and no other."""
    from trainhooks.device.device_sampling import Sampling

    assert hasattr(Sampling, "_below"), "this mutant no longer applies"
    Sampling._below = lambda self, most: 0  # type: ignore[method-assign,assignment]


def _every_step(face: Any) -> None:
    """All steps are timed, whatever it costs."""
    from trainhooks.device.device_sampling import Sampling

    Sampling.due = lambda self, now: True  # type: ignore[method-assign]


def _waits(face: Any) -> None:
    """The device is waited for, not asked."""
    query = face.Event.query

    def waiting(self: Any) -> bool:
        from tests.simulated_device.cuda import by_hooks

        if by_hooks() and self.timed:
            self.synchronize()
        asked: bool = query(self)
        return asked

    face.Event.query = waiting


def _beside(face: Any) -> None:
    """The background thread asks the device."""
    from trainhooks import session
    from trainhooks.device import device_times

    take = device_times.DeviceTimes.take

    def taking(self: Any) -> Any:
        for step in list(session.device._under_way):
            exec(compile("step.events[0].query()", device_times.__file__, "exec"), {"step": step})
        return take(self)

    device_times.DeviceTimes.take = taking  # type: ignore[method-assign]


def _blind_to_captures(face: Any) -> None:
    """A capture that another thread has open is none of its business."""
    from trainhooks.device import cuda

    assert hasattr(cuda, "is_quiet"), "this mutant no longer applies"
    cuda.is_quiet = lambda: True


def _traced_by_time(face: Any) -> None:
    """A kernel belongs to the phase in which it ran."""
    from trainhooks.recording import trace_events

    kernel_trace = trace_events.kernel_trace

    def joined(recorded: Any, *rest: Any) -> Any:
        ran = {one.correlation: one.began for one in recorded if one.on_device}
        moved = [one if one.on_device else one._replace(began=ran.get(one.correlation, one.began)) for one in recorded]
        return kernel_trace(moved, *rest)

    trace_events.kernel_trace = joined  # type: ignore[assignment]


def _whole_session(face: Any) -> None:
    """All that a session recorded is of the steps that were to be traced."""
    from trainhooks.recording import trace_events

    kernel_trace = trace_events.kernel_trace
    trace_events.kernel_trace = lambda recorded, marks, since, until: kernel_trace(recorded, marks, since, 1 << 62)


MUTANTS: dict[str, Callable[[Any], None]] = {
    "host clock as device time": _host_clock,
    "interval as busy": _interval_as_busy,
    "the wrong event": _begin_for_end,
    "a fixed k": _fixed_k,
    "every step": _every_step,
    "waits for the device": _waits,
    "asks from another thread": _beside,
    "blind to captures": _blind_to_captures,
    "kernels by when they ran": _traced_by_time,
    "a whole session as its steps": _whole_session,
}
