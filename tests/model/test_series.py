"""Curves and quantiles: bounded, and true to the values."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.arrays import np
from monitor.model.steps.series import MAX_BUCKETS, Column, Quantiles

FINITE = st.floats(-1e15, 1e15)
ANY = st.one_of(FINITE, st.sampled_from([math.nan, math.inf, -math.inf]))


def column_of(rows: list[tuple[int, float]]) -> Column:
    column = Column()
    for x, value in rows:
        column.add(x, value)
    return column.settled()


@given(st.lists(ANY, max_size=700))
def test_sums_and_extremes_are_exact(values: list[float]) -> None:
    column = column_of(list(enumerate(values)))
    finite = [value for value in values if math.isfinite(value)]
    assert column.count == len(finite) and column.nonfinite == len(values) - len(finite)
    assert column.sum == pytest.approx(math.fsum(finite), rel=1e-9, abs=1e-9 * sum(map(abs, finite)) + 1e-9)
    if finite:
        assert (column.least, column.most) == (min(finite), max(finite))
    if values:
        assert column.last == values[-1] or math.isnan(values[-1])


@given(st.lists(st.tuples(st.integers(0, 5000), ANY), max_size=1500), st.integers(1, 400))
def test_a_curve_keeps_the_whole_run_in_any_order(rows: list[tuple[int, float]], portion: int) -> None:
    column = Column()
    for at in range(0, len(rows), portion):
        xs, values = zip(*rows[at : at + portion], strict=True)
        column.extend(np.array(xs), np.array(values))
    curve = column.curve()
    truth: dict[int, list[float]] = {}
    for x, value in rows:
        truth.setdefault(x // curve.width, []).append(value)
    assert list(curve.x) == [bucket * curve.width for bucket in sorted(truth)]
    assert len(curve.x) <= MAX_BUCKETS and curve.end == (max(x for x, _ in rows) if rows else None)
    for bucket, count, *figures in zip(
        sorted(truth), column.history.of("count"), curve.mean, curve.low, curve.high, strict=True
    ):
        finite = [value for value in truth[bucket] if math.isfinite(value)]
        assert count == len(finite)
        if finite:
            mean = pytest.approx(math.fsum(finite) / len(finite), abs=1e-9 * sum(map(abs, finite)) + 1e-9)
            assert figures == [mean, min(finite), max(finite)]
        else:
            assert all(math.isnan(figure) for figure in figures)


@pytest.mark.parametrize("order", ["rising", "falling", "shuffled", "far apart", "twice over"])
def test_size_is_bounded_whatever_the_order(order: str) -> None:
    n = 200_000
    xs = {
        "rising": lambda: list(range(n)),
        "falling": lambda: list(range(n, 0, -1)),
        "shuffled": lambda: random.Random(1).sample(range(n), n),
        "far apart": lambda: [i * 1_000_003 for i in range(n // 10)],
        "twice over": lambda: [*range(n // 2), *range(0, n, 2)],
    }[order]()
    column = column_of([(x, 1.0) for x in xs])
    index = column.history.index.tolist()
    assert 1 < len(index) <= MAX_BUCKETS and index == sorted(set(index))
    assert column.history.of("count").sum() == column.count == len(xs)


@pytest.mark.parametrize("first", [0, 1, 2, 511])
@pytest.mark.parametrize("gap", [None, 700])
def test_buckets_joined_in_pairs_are_as_those_joined_one_by_one(first: int, gap: int | None) -> None:
    """With a value in each, beside a bucket without one (nan), and with an odd one at either end."""
    values = {x: math.nan if x == gap else math.sin(x) for x in range(first, first + 40 * MAX_BUCKETS)}
    column = column_of(list(values.items()))
    curve = column.curve()
    assert curve.width == 64
    rows = zip(curve.x, column.history.of("count"), curve.low, curve.high, curve.mean, strict=True)
    for begin, *figures in rows:
        finite = [values[x] for x in values if begin <= x < begin + curve.width and math.isfinite(values[x])]
        mean = pytest.approx(math.fsum(finite) / len(finite))
        assert figures == [len(finite), min(finite), max(finite), mean]


def test_edges_are_aligned_and_never_move() -> None:
    column = Column()
    before: set[float] = set()
    for step in range(1, 20_001):
        column.add(step, float(step))
        if step % 2500 == 0:
            curve = column.curve()
            assert all(x % curve.width == 0 for x in curve.x)
            assert curve.width & (curve.width - 1) == 0
            assert set(curve.x) - before <= {x for x in curve.x if x > step - 2500 - curve.width} | {0.0}
            before |= set(curve.x)


def test_a_bucket_without_a_finite_value_is_a_gap() -> None:
    curve = column_of([(0, 1.0), (1, math.nan), (2, math.inf), (3, 4.0)]).curve()
    assert [math.isnan(mean) for mean in curve.mean] == [False, True, True, False]
    assert list(curve.x) == [0, 1, 2, 3]


def test_sums_beyond_a_float_stay_within_the_values() -> None:
    column = column_of([(i // 2, 1.7e308) for i in range(600)])
    assert set(column.curve().mean) == {1.7e308}
    column_of([(0, 1.7e308), (0, math.nan), (0, 1.7e308), (0, -1.7e308)])


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=400), st.floats(0, 1))
def test_quantiles_are_right_within_two_percent(values: list[float], share: float) -> None:
    quantiles = Quantiles()
    quantiles.extend(np.array(values))
    truth = sorted(values)[int(share * (len(values) - 1))]
    assert quantiles.at(share)[0] == pytest.approx(truth, rel=0.02)


def test_quantiles_of_zeros_and_of_nothing() -> None:
    quantiles = Quantiles()
    assert quantiles.at(0.5) == [0.0]
    quantiles.extend(np.array([0.0, 0.0, 0.0, 5.0]))
    assert quantiles.at(0.5, 1.0) == [0.0, pytest.approx(5.0, rel=0.02)]
