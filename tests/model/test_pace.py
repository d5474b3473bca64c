"""How fast, and how long still."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.arrays import np
from monitor.model.steps.pace import MAX_MARKS, Pace
from monitor.model.steps.time_left import time_left

PORTION = 50  # steps that come together


def pace_of(*stretches: tuple[int, float], pause: float = 0.0, tokens: int = 0, samples: int = 0) -> Pace:
    """Stretches of (steps, seconds a step)."""
    pace, now = Pace(), 50.0
    for steps, seconds in stretches:
        for first in range(0, steps, PORTION):
            count = min(PORTION, steps - first)
            ends = now + seconds + (seconds + pause) * np.arange(float(count))
            pace.extend(now, ends, {"tokens": np.full(count, tokens), "samples": np.full(count, samples)})
            now = float(ends[-1]) + pause
    return pace


def test_steps_done_by_a_moment_lie_on_a_line_between_the_marks() -> None:
    pace = pace_of((1000, 1.0))
    assert [pace.done(t) for t in (0.0, 50.0, 10**6)] == [0.0, 0.0, pace.whole[-1][1]]
    assert pace.done(550.5) == pytest.approx(500.5, abs=0.01)
    assert Pace().done(3.0) == 0.0


@given(st.integers(2, 3000), st.floats(0.001, 100), st.integers(1, 5000))
def test_a_constant_speed_is_told_as_it_is(steps: int, seconds: float, left: int) -> None:
    pace = pace_of((steps, seconds), tokens=100, samples=4)
    for rates in (pace.whole_run(), pace.recent_rates()):
        assert rates.steps_per_second == pytest.approx(1 / seconds, rel=1e-6)
        assert rates.tokens_per_second == pytest.approx(100 / seconds, rel=1e-6)
        assert rates.samples_per_second == pytest.approx(4 / seconds, rel=1e-6)
    times = time_left(pace, left)
    assert times is not None and times[0] == pytest.approx(left * seconds, rel=1e-6)
    alike, unknown = (left * seconds,) * 2, (left * seconds / 2, left * seconds * 2)
    # Of one part of a run nothing is known of how the others will differ.
    assert times[1:] == pytest.approx(alike, rel=1e-6) or times[1:] == pytest.approx(unknown, rel=1e-6)


def test_pauses_between_steps_count() -> None:
    rates = pace_of((100, 1.0), pause=1.0).whole_run()
    assert rates.steps_per_second == pytest.approx(0.5, rel=0.01)
    assert rates.tokens_per_second is None and rates.samples_per_second is None


@pytest.mark.parametrize(("first", "then"), [(0.1, 1.0), (1.0, 0.1)])
def test_a_change_of_speed_shows_in_the_recent_rate_and_the_range(first: float, then: float) -> None:
    pace = pace_of((1000, first), (400, then))
    assert pace.recent_rates().steps_per_second == pytest.approx(1 / then, rel=0.05)
    times = time_left(pace, 100)
    assert times is not None
    likeliest, low, high = times
    assert low <= likeliest <= high
    assert low <= 100 * then * 1.05 and high >= 100 * then * 0.95


@given(st.lists(st.floats(0.001, 50), min_size=2, max_size=600))
def test_the_range_holds_the_likeliest(durations: list[float]) -> None:
    times = time_left(pace_of(*((1, seconds) for seconds in durations)), 10)
    assert times is not None and 0 < times[1] <= times[0] <= times[2]


def test_nothing_is_said_too_early() -> None:
    assert time_left(Pace(), 5) is None
    assert Pace().whole_run().steps_per_second is None
    assert Pace().recent_rates().steps_per_second is None
    assert time_left(pace_of((1, 1.0)), 5) is None
    assert time_left(pace_of((3, 0.0)), 5) is None


def test_marks_are_bounded() -> None:
    pace = pace_of((200_000, 0.7))
    assert len(pace.recent) <= MAX_MARKS and len(pace.whole) <= MAX_MARKS
    assert pace.recent_rates().steps_per_second == pytest.approx(1 / 0.7, rel=1e-6)


@pytest.mark.parametrize(("uncounted", "rate"), [(0, 100.0), (1, 100.0), (5, None)])
def test_a_rate_needs_the_work_of_nearly_all_steps(uncounted: int, rate: float | None) -> None:
    pace = Pace()
    for at in range(20):
        known = at >= uncounted
        tokens = np.array([100.0 if known else math.nan])
        pace.extend(float(at), np.array([at + 1.0]), {"tokens": tokens}, np.array([not known]))
    assert pace.whole_run().tokens_per_second == (None if rate is None else pytest.approx(rate))
    assert pace.whole_run().steps_per_second == pytest.approx(1.0)
    assert pace.whole_run().counted == pytest.approx(1 - uncounted / 20)
