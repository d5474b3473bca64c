"""Curves become columns with edges at fixed steps, so that a new step moves nothing but the last column."""

import math
from itertools import pairwise

import pytest
from sample_views import curve

from monitor.model.steps.series import Curve
from monitor.tui.drawing.curve_columns import Grid, across, fold, fold_means, grid, positions, round_up, top_limit


@pytest.mark.parametrize("steps", [1, 2, 7, 39, 40, 41, 214, 512])
@pytest.mark.parametrize("width", [1, 2, 4, 32])
@pytest.mark.parametrize("columns", [1, 10, 40, 150])
def test_all_of_a_curve_fits(steps: int, width: int, columns: int) -> None:
    data = curve([1.0] * steps, first=width, width=width)
    layout = grid(data, columns)
    assert layout is not None
    assert layout.columns <= columns
    assert layout.bucket(data.x[0]) == 0
    assert layout.bucket(data.x[-1]) == layout.count - 1


def test_nothing_has_no_grid() -> None:
    assert grid(Curve(), 40) is None
    assert grid(curve([1.0]), 0) is None


def test_edges_lie_at_multiples_so_old_columns_stay() -> None:
    before, after = curve([float(step) for step in range(100)]), curve([float(step) for step in range(101)])
    layout = grid(before, 60)
    assert layout is not None and grid(after, 60) == layout
    assert fold(before, layout)[:-1] == fold(after, layout)[:-1]


def test_a_bucket_holds_mean_low_and_high() -> None:
    layout = grid(curve([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), 4)
    assert layout is not None and layout.steps == 2
    bucket = fold(curve([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), layout)[1]
    assert bucket is not None
    assert (bucket.mean, bucket.low, bucket.high) == (2.5, 2.0, 3.0)


def test_gaps_and_missing_steps_are_told_apart() -> None:
    data = Curve([1.0, 2.0, 5.0], [1.0, math.nan, 3.0], [1.0, math.nan, 3.0], [1.0, math.nan, 3.0])
    layout = grid(data, 5)
    assert layout is not None
    buckets = fold(data, layout)
    assert buckets[1] is not None and math.isnan(buckets[1].mean)
    assert buckets[2] is None
    assert fold_means(data, layout) == [1.0, 0.0, 0.0, 0.0, 3.0]


def test_a_bucket_that_is_partly_not_finite_keeps_what_is() -> None:
    data = curve([1.0, math.inf, 3.0, math.nan] * 2)
    layout = grid(data, 3)
    assert layout is not None
    assert all(bucket is not None and math.isfinite(bucket.mean) for bucket in fold(data, layout))


def test_a_single_slow_step_does_not_flatten_the_rest() -> None:
    assert top_limit([18.0] * 200 + [400.0]) < 60
    assert top_limit([18.0, 400.0]) >= 400
    assert top_limit([]) == 1.0
    assert top_limit([0.0, math.nan]) == 1.0


@pytest.mark.parametrize("value", [1e-9, 0.3, 1.0, 18.3, 29.9, 65.3, 9.99, 1e6])
def test_limits_are_round_and_not_far(value: float) -> None:
    assert value <= round_up(value) * (1 + 1e-12) <= 1.5 * value


def test_steps_outside_the_grid_have_no_place() -> None:
    layout = grid(curve([1.0] * 10), 40)
    assert layout is not None
    assert positions([-5, 1, 10, 99], layout) == {0, 9}


@pytest.mark.parametrize("columns", [29, 76, 150])
def test_a_chart_is_filled_whatever_the_number_of_steps(columns: int) -> None:
    for steps in range(columns // 8 + 1, 5 * columns):
        layout = grid(curve([1.0] * steps), columns)
        assert layout is not None and 0.65 * columns <= layout.columns <= columns
        if steps > columns // 4:  # fewer are bars of one width
            assert layout.columns >= 0.65 * columns
    widths = [layout for steps in range(1, 2001) if (layout := grid(curve([1.0] * steps), columns)) is not None]
    moved = sum(before.wide != after.wide for before, after in pairwise(widths))
    assert moved < 60, "old columns mostly stay where they are"


@pytest.mark.parametrize("wide", [16, 19, 30, 32, 44, 64, 128])
def test_buckets_share_out_the_columns(wide: int) -> None:
    layout = Grid(0, 20, 1, wide)
    cells = across([float(number) for number in range(20)], layout)
    assert len(cells) == layout.columns
    assert all(cells[layout.column(bucket)] == bucket for bucket in range(20))
    apart = across([1.0] * 20, layout, apart=True)
    assert len(apart) == layout.columns and apart.count(0.0) == (20 if layout.bars else 0)


def test_charts_beside_each_other_show_the_same_steps() -> None:
    steps, seldom = curve([1.0] * 214), Curve([30.0, 60.0], [1.0, 2.0], [1.0, 2.0], [1.0, 2.0])
    alone, beside = grid(seldom, 80), grid(seldom, 80, steps)
    assert alone is not None and (alone.start, alone.last) == (30, 60)
    assert beside == grid(steps, 80) and beside is not None and beside.last == 214
    own = grid(curve([1.0] * 5, first=100_000), 80, steps)
    assert own is not None and own.start == 100_000, "numbers of its own"
