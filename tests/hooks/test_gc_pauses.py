"""Garbage collection as the interpreter tells of it; what the device's lane tells is in `simulated_device`."""

from __future__ import annotations

import gc
import weakref
from random import Random
from typing import Any

import pytest

from trainhooks.recording import gc_pauses
from trainhooks.recording.gc_pauses import LateWakes, Pauses

MS = 1_000_000


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """One that is told of collections by the test alone, as if it listened."""
    found = Pauses()
    monkeypatch.setattr(found, "_callback", lambda *_: None)
    return found


def test_only_long_collections_and_those_of_all_objects_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100, 200, 1_000, 1_000 + 2 * MS, 5 * MS, 5 * MS + 10, 6 * MS, 7 * MS])
    monkeypatch.setattr(gc_pauses, "host_clock", lambda: next(times))
    seen: list[Any] = []
    collecting = gc_pauses._callback(seen.append)
    collecting("stop", {"generation": 2})  # it began before anybody listened
    for generation in (0, 0, 2, 1):
        for phase in ("start", "stop"):
            collecting(phase, {"generation": generation, "collected": 0, "uncollectable": 0})
    assert seen == [(1_000, 1_000 + 2 * MS), (5 * MS, 5 * MS + 10), (6 * MS, 7 * MS)]


def test_collections_are_watched_on_request_and_nothing_is_kept_alive() -> None:
    before, pauses = list(gc.callbacks), Pauses()
    pauses.watch(True)
    pauses.watch(True)
    assert len(gc.callbacks) == len(before) + 1 and pauses.watching

    class Node:
        pass

    node, gone = Node(), list[Any]()
    node.itself = node  # type: ignore[attr-defined]
    weakref.finalize(node, gone.append, True)
    del node
    gc.collect()
    assert gone == [True] and pauses.by_phase([0, 2**63], ["forward"], []) != []
    pauses.watch(False)
    assert gc.callbacks == before and not pauses.watching
    pauses.watch(True)
    gc_pauses.stop_watching()
    assert gc.callbacks == before
    pauses.watch(False)


def test_pauses_count_by_phase_without_certain_work(pauses: Pauses) -> None:
    pauses._seen.extend([(90, 95), (100, 120), (190, 230), (390, 450)])
    times, names = [100, 200, 300, 400], ["data", "forward", "other"]
    # 300 is the first of the certain time, in no order; two of them overlap.
    told = dict(pauses.by_phase(times, names, [(300, 395), (205, 215), (210, 220)]) or ())
    assert told == {"data": (20 + 10) / 1e9, "forward": (5 + 10) / 1e9, "other": 5 / 1e9}


def test_pauses_since_the_last_timed_step_cover_all_steps(pauses: Pauses) -> None:
    second = 10**9
    pauses._seen.extend([(10 * second, 11 * second), (24 * second, 26 * second), (45 * second, 46 * second)])
    assert pauses.since_last(5.0) is None, "nobody told of that step"
    pauses.add_step(10.0, 10.0, True)
    assert pauses.since_last(10.0) is None, "the first one"
    pauses.add_step(20.0, 5.0, False)  # half of the second one lies in it, the other half behind it
    pauses.add_step(30.0, 10.0, True)
    assert pauses.since_last(30.0) == pytest.approx(2.0)
    pauses.add_step(40.0, 10.0, False)
    pauses.add_step(50.0, 10.0, True)
    assert pauses.since_last(50.0) == pytest.approx(1.0)


def test_pauses_are_unknown_while_not_watched() -> None:
    pauses = Pauses()
    for start in (1.0, 2.0):
        pauses.add_step(start, 1.0, True)
        assert pauses.since_last(start) is None
    assert pauses.by_phase([0, 100], ["forward"], []) is None


# In a training


class Collector:
    """Stands for the interpreter: a thread sleeps `period`, and comes late if it wakes in a collection."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, period: float) -> None:
        self.count, self.now, self.period = 0, 0.0, period
        self.wakes = LateWakes(period)
        monkeypatch.setattr(gc, "get_stats", lambda: [{}, {}, {"collections": self.count}])

    def run(self, seconds: float, every: float, lasting: float, late: float = 0.0) -> None:
        """Collect for `lasting` seconds about once in `every`; other wake-ups are `late` seconds late."""
        until, random = self.now + seconds, Random(1)
        begin = self.now + every * random.random()
        while self.now < until:
            due = self.now + self.period
            while begin + lasting < due:
                self.count, begin = self.count + 1, begin + lasting + 2 * (every - lasting) * random.random()
            woken = due + late
            if begin < due:
                self.count, woken = self.count + 1, begin + lasting
                begin = woken + 2 * (every - lasting) * random.random()
            self.wakes.add(woken - self.now - self.period)
            self.now = woken + 0.001  # what the thread does


@pytest.mark.parametrize(("every", "lasting"), [(1.0, 0.3), (2.0, 0.08), (0.31, 0.03), (0.5, 0.05), (5.0, 2.0)])
def test_late_wakes_measure_collections_of_any_length(
    monkeypatch: pytest.MonkeyPatch, every: float, lasting: float
) -> None:
    collector = Collector(monkeypatch, 0.05)
    collector.run(200.0, every, lasting)
    assert collector.wakes.seconds == pytest.approx(200.0 * lasting / every, rel=0.25)
    assert collector.wakes.facts()["full"] == pytest.approx(collector.count, rel=0.1)


def test_wakes_that_are_late_anyway_are_no_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(monkeypatch, 0.05)
    collector.run(100.0, 1.0, 0.0, late=0.04)  # something else holds the interpreter, beside short collections
    assert collector.wakes.seconds == pytest.approx(0.0, abs=0.5)
    assert collector.wakes.facts() == {}


def test_a_few_late_wakes_are_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector(monkeypatch, 0.05)
    collector.run(2.0, 1.0, 0.3)
    assert collector.wakes.seconds is None and collector.wakes.facts() == {}
