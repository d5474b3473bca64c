"""When the next trace is due, by a clock that the test sets."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from trainhooks.lane_entries import NANOSECOND
from trainhooks.recording import trace_events
from trainhooks.tracing import profiler, tracer
from trainhooks.tracing.tracer import Finished, Tracer


class Training:
    """A training of so many steps a second, whose tracer is asked each second."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.steps = NANOSECOND, 0.0
        monkeypatch.setattr(tracer, "host_clock", lambda: self.now)
        monkeypatch.setattr(profiler, "why_never", lambda on_cuda: None)
        monkeypatch.setattr(profiler, "doubts", lambda on_cuda: [])
        monkeypatch.setitem(sys.modules, "torch", sys)
        self.tracer = Tracer()
        self.traced: list[float] = []  # seconds

    def goes(self, seconds: int, steps_per_second: float) -> None:
        for _ in range(seconds):
            self.now += NANOSECOND
            self.steps += steps_per_second
            if self.tracer.is_due(True, int(self.steps)):
                self.traced.append(self.now / NANOSECOND - 1)
                self.tracer.learn(_finished(pause=20_000_000), steps=1, events=1000)


def _finished(pause: int) -> Finished:
    nothing: Any = None
    return Finished(nothing, nothing, True, 0, 0, False, 0, 0, pause)


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> Training:
    return Training(monkeypatch)


def test_one_soon_one_when_it_is_paid_for_then_each_half_hour(training: Training) -> None:
    training.goes(4000, 10.0)
    first, second, *later = training.traced
    assert first == 1.0 and second == pytest.approx(60.0, abs=2), "three steps of 20 ms are 0.1% of a minute"
    assert len(later) == 2 and later[0] - second == pytest.approx(1800.0, abs=2)


def test_another_pace_is_traced_sooner(training: Training) -> None:
    training.goes(600, 10.0)
    before = len(training.traced)
    training.goes(120, 4.0)
    assert len(training.traced) == before + 1
    training.goes(600, 4.0)
    assert len(training.traced) == before + 1, "the new pace is the usual one now"


def test_a_pace_that_hardly_changes_is_none(training: Training) -> None:
    training.goes(600, 10.0)
    before = len(training.traced)
    training.goes(300, 8.0)
    assert len(training.traced) == before


def test_the_launches_of_a_forward_pass_tell_what_a_first_trace_would_cost(training: Training) -> None:
    training.tracer.launches = 5000
    training.goes(100, 10.0)
    assert training.traced == [] and training.tracer.status == tracer.EXPENSIVE


def test_steps_after_the_first_are_fewer_or_none_where_each_stops_the_training_long(training: Training) -> None:
    training.tracer.learn(_finished(pause=25_000_000), steps=1, events=1000)
    assert training.tracer._steps_next == 2, "two of 25 ms are within 60 ms"
    training.tracer.learn(_finished(pause=140_000_000), steps=2, events=2000)
    training.goes(4000, 10.0)
    assert training.traced == [] and training.tracer.status == tracer.EXPENSIVE


def test_reading_what_holds_the_interpreter_is_a_part_of_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0]
    monkeypatch.setattr(trace_events, "host_clock", lambda: now[0])

    class Result:
        def events(self) -> list[Any]:
            now[0] += 7_000_000
            return []

    session: Any = SimpleNamespace(torch=SimpleNamespace(autograd=SimpleNamespace(DeviceType=SimpleNamespace(CPU=0))))
    trace, recorded = trace_events._read(_finished(pause=20_000_000)._replace(result=Result(), session=session))
    assert trace.pause == 27_000_000 and recorded == []
