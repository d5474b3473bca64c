"""Slopes that outliers do not move, and whether they are more than chance."""

from __future__ import annotations

import random

from monitor.model.steps.growth import MAX_POINTS, MIN_POINTS, is_jump, slope


def test_a_rise_is_found_beside_noise_and_outliers() -> None:
    noise = random.Random(1)
    points = [(float(i), 2.0 * i + noise.gauss(0, 10) + (500 if i % 9 == 0 else 0)) for i in range(60)]
    found = slope(points)
    assert found is not None and found.rises
    assert found.low < 2.0 < found.high and abs(found.rate - 2.0) < 0.7


def test_noise_seldom_rises() -> None:
    noise = random.Random(2)
    rises = 0
    for _ in range(200):
        found = slope([(float(i), noise.gauss(0, 1)) for i in range(30)])
        rises += found is not None and found.rises
    assert rises <= 2


def test_what_levels_out_or_swings_does_not_rise() -> None:
    for values in ([5.0] * 40, [float(i % 5) for i in range(40)], [float(-i) for i in range(40)]):
        found = slope(list(enumerate(values)))
        assert found is not None and not found.rises


def test_of_few_points_nothing_is_known() -> None:
    assert slope([(float(i), float(i)) for i in range(MIN_POINTS - 1)]) is None
    least = slope([(float(i), float(i)) for i in range(MIN_POINTS)])
    assert least is not None and least.rises, "each above the one before"
    assert slope([(1.0, float(i)) for i in range(20)]) is None, "no steps were done meanwhile"


def test_many_points_cost_no_more_than_some() -> None:
    found = slope([(float(i), 0.5 * i) for i in range(100 * MAX_POINTS)])
    assert found is not None and abs(found.rate - 0.5) < 1e-9


def test_a_jump_is_told_from_a_gradual_rise() -> None:
    noise = random.Random(2)
    jump = [1.0 + (at >= 40) + noise.gauss(0, 0.03) for at in range(100)]
    assert is_jump(jump)
    assert not is_jump([1.0 + at / 100 for at in range(100)])
    assert not is_jump([1.0 + min(1.0, at / 50) for at in range(100)])
    assert not is_jump([-value for value in jump])
    assert not is_jump([1.0, 2.0])
