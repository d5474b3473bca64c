"""Columns as lists and as arrays: the same numbers, to the last bit."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitor import step_columns
from monitor.model.steps.baseline import Baseline
from monitor.model.steps.series import CHUNK, Column, Durations, Quantiles, _edge
from monitor.sources import run_directory
from tests.bench.journals import write_run

NUMBERS = st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=600)


def same(one: Any, other: Any) -> bool:
    return repr(step_columns.as_list(one)) == repr(step_columns.as_list(other))


@given(NUMBERS, st.floats(-1e9, 1e9))
def test_arithmetic_is_the_same_to_the_last_bit(values: list[float], first: float) -> None:
    array, other = step_columns.as_array(values), list(reversed(values))
    assert step_columns.is_array(array) and not step_columns.is_array(values)
    assert same(step_columns.plus(values, other), step_columns.plus(array, step_columns.as_array(other)))
    assert same(step_columns.minus(values, other), step_columns.minus(array, step_columns.as_array(other)))
    assert same(step_columns.before(values, first), step_columns.before(array, first))
    assert same(step_columns.ordered([each + 0.0 for each in values]), step_columns.ordered(array + 0.0))
    assert step_columns.exceeds(values, other) == step_columns.exceeds(array, step_columns.as_array(other))
    assert repr(step_columns.total(values, first)) == repr(step_columns.total(array, first))
    assert step_columns.most(values) == step_columns.most(array)
    assert same(values, array)


def test_what_is_not_known_stays_in_a_list() -> None:
    assert step_columns.as_array([1, None], int) == [1, None]
    assert step_columns.as_array([1.5, None]) == [1.5, None]
    assert step_columns.joined([step_columns.as_array([1, 2], int), [3, None]], int) == [1, 2, 3, None]
    assert same(step_columns.joined([step_columns.as_array([1, 2], int), [3]], int), [1, 2, 3])
    assert same(step_columns.floats(step_columns.as_array([1, 2**53], int)), [1.0, 2.0**53])


@given(st.integers(0, 2**70), st.lists(st.integers(0, 2**62), min_size=1, max_size=50))
def test_whole_numbers_add_up_to_any_size(before: int, values: list[int]) -> None:
    assert same(step_columns.rising(before, values), step_columns.rising(before, step_columns.as_array(values, int)))
    assert step_columns.rising(before, values)[-1] == before + sum(values)


@settings(deadline=None)
@given(st.lists(st.integers(1, 700), min_size=1, max_size=6), st.integers(0, 9))
def test_an_array_of_durations_is_judged_as_each_by_itself(cuts: list[int], seed: int) -> None:
    noise = random.Random(seed)
    single, whole, place = Baseline(), Baseline(), 0
    slow: dict[str, list[int]] = {"single": [], "whole": []}

    def rows(first: int, end: int) -> list[dict[str, float]]:
        return [{"forward": float(place + at)} for at in range(first, end)]

    def slow_alone(at: int) -> None:
        slow["single"].append(place + at)

    def slow_in_whole(at: int) -> None:
        slow["whole"].append(place + at)

    for count in cuts:
        durations = [noise.choice([1.0, 1.0, 1.0, 1.5, 3.0]) * noise.lognormvariate(0, 0.2) for _ in range(count)]
        whole.take(step_columns.as_array(durations), rows, slow_in_whole)
        for duration in durations:
            single.take([duration], rows, slow_alone)
            place += 1
        assert repr(single) == repr(whole)
    assert slow["single"] == slow["whole"]


def told(column: Column) -> str:
    if isinstance(column, Durations):  # of its bins the order says nothing
        column.quantiles.bins = dict(sorted(column.quantiles.bins.items()))
    return repr(column)


def wavering(count: int, seed: int) -> list[float]:
    noise = random.Random(seed)
    return [noise.choice([0.0, -0.0, 1e-13, noise.lognormvariate(-2, 1)]) for _ in range(count)]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 5000), st.lists(st.integers(1, 9 * CHUNK), max_size=4), st.integers(0, 99), st.booleans())
@example(0, [3733, 3, 2738], 80, True)
@pytest.mark.parametrize("kind", [Column, Durations])
def test_a_column_is_the_same_however_its_values_come(
    kind: type[Column], first: int, counts: list[int], seed: int, finite: bool
) -> None:
    """One by one, in lists, and in arrays; also where steps are left out, begin again, or are not finite."""
    alone, lists, arrays = kind(), kind(), kind()
    noise, x = random.Random(seed), first
    for count in counts:
        x = noise.choice([x, x, x + 1000, first])
        xs = range(x, x + count)
        values = wavering(count, seed)
        if kind is Column and not finite:
            values[noise.randrange(count)] = noise.choice([math.nan, math.inf, 1e308])
        for each, value in zip(xs, values, strict=True):
            alone.add(each, value)
        lists.extend(xs, values)
        arrays.extend(xs, step_columns.as_array(values))
        x = xs.stop
    assert told(alone) == told(lists) == told(arrays)
    assert told(alone.digested()) == told(lists.digested()) == told(arrays.digested())


@given(st.lists(st.integers(-900, 900), min_size=1, max_size=50))
def test_a_value_at_an_edge_has_one_bin(bins: list[int]) -> None:
    edges = [_edge(bin_) for bin_ in bins]
    values = [each for edge in edges for each in (math.nextafter(edge, 0.0), edge, math.nextafter(edge, math.inf))]
    together, apart = Quantiles(), Quantiles()
    together.extend(step_columns.as_array(values))
    for value in values:
        apart.extend([value])
    assert together == Quantiles(dict(sorted(apart.bins.items())), apart.zeros)


FOLDED = """
import sys
if sys.argv[3] == "without":
    sys.modules["numpy"] = None  # as where it is not installed
from pathlib import Path
from monitor.runs.follow import Run
from monitor.sources import run_directory
run_directory.LONG = int(sys.argv[2])
run = Run(Path(sys.argv[1]))
while run.advance():
    pass
run.view()
print(run.state.main.steps_ok, run.state.main.step_seconds.digested().sum, bool(sys.modules.get("numpy")))
"""


def folded(run: Path, long: int, numpy: str = "with") -> list[str]:
    words = [sys.executable, "-c", FOLDED, str(run), str(long), numpy]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_numpy_is_loaded_for_a_long_history_only_and_not_needed_for_it(tmp_path: Path) -> None:
    run = write_run(tmp_path, 6000)
    short, long, without = folded(run, run_directory.LONG), folded(run, 1 << 10), folded(run, 1 << 10, "without")
    assert short == ["6000", short[1], "False"]
    assert long == ["6000", short[1], "True"]
    assert without == short
