"""A sample of a column's values: the same steps in every column, in bounded memory."""

import random

import pytest

from monitor.arrays import np
from monitor.model.steps.series import Column, Durations, without_first
from monitor.model.steps.value_sample import MAX_SAMPLED, ValueSample


def added(parts: list[list[int]]) -> ValueSample:
    sample = ValueSample()
    for part in parts:
        steps = np.array(part, np.int64)
        sample.add(steps, steps * 2.0)
    return sample


def test_a_short_run_is_known_in_full_in_whatever_order_it_came() -> None:
    shuffled = random.Random(1).sample(range(1, 1001), 1000)
    sample = added([shuffled[:300], shuffled[300:]])
    assert sample.steps.tolist() == list(range(1, 1001)) and not sample.halvings
    assert sample.values.tolist() == [2.0 * step for step in range(1, 1001)]


@pytest.mark.parametrize("period", [2, 3, 4, 8, 10])
def test_a_long_run_has_an_even_sample_in_step_with_no_rhythm(period: int) -> None:
    steps = 100_000
    sample = added([list(range(begin, begin + 500)) for begin in range(1, steps, 500)])
    assert MAX_SAMPLED / 4 < len(sample.steps) <= MAX_SAMPLED and sample.halvings
    expected = len(sample.steps) / period
    for rest in range(period):
        assert abs(np.count_nonzero(sample.steps % period == rest) - expected) < 0.1 * expected
    for part in np.array_split(np.arange(1, steps + 1), 100):
        inside = np.count_nonzero((sample.steps >= part[0]) & (sample.steps <= part[-1]))
        assert abs(inside - len(sample.steps) / 100) <= 3


def test_it_depends_on_the_steps_alone_so_that_columns_can_be_divided() -> None:
    one = added([list(range(1, 20_001))])
    other = added([list(range(begin, begin + 7)) for begin in range(1, 20_001, 7)])
    assert set(one.steps.tolist()) == {step for step in other.steps.tolist() if step <= 20_000}
    rates = one.by(other)
    assert rates.values.tolist() == [1.0] * len(one.steps)


def test_a_value_that_is_not_finite_is_not_in_it_and_a_curve_keeps_its_own() -> None:
    column = Column()
    for step, value in enumerate([1.0, float("nan"), 3.0], 1):
        column.add(step, value)
    curve = column.curve()
    column.add(4, 9.0)
    column.settled()
    assert curve.sample is not None and curve.sample.values.tolist() == [1.0, 3.0]


def test_a_first_step_is_in_no_mean_of_others() -> None:
    column = Durations()
    for step in range(1, 2001):
        column.add(step, 60.0 if step == 1 else 0.1)
    curve = column.settled().curve()
    assert curve.width > 1 and curve.mean[0] > 10.0
    assert without_first(curve, column.opening, 1).mean[0] == pytest.approx(0.1)
    assert without_first(curve, column.opening, 2) is curve, "of a phase that began later, each counts"
