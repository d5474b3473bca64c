"""Printed positions beside counted steps: a total is taken where both move in accord, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from monitor.model.printed_position import MAX_SAMPLES, Printed


def printed(rows: list[tuple[float, int]], **known: int) -> Printed:
    position = Printed()
    for t, step in rows:
        position.take({"step": step, **known}, t)
    return position


def every(seconds: float) -> Callable[[float], float]:
    """Return a count of steps that take `seconds` each."""
    return lambda moment: float(max(0, int(moment / seconds + 1e-9)))


SECOND = every(1.0)


def test_same_count_gives_its_total() -> None:
    rows = [(float(t), t) for t in range(5, 40, 5)]
    assert printed(rows, total=300).in_steps(SECOND, 35) == 300


def test_epochs_of_equal_length_give_the_steps_of_all() -> None:
    rows = [(25.0, 1), (50.0, 2), (75.0, 3)]
    assert printed(rows, total=10).in_steps(SECOND, 75) == 250


def test_batches_of_accumulated_steps_are_divided() -> None:
    rows = [(float(t), 4 * t) for t in range(4, 60, 4)]
    assert printed(rows, total=960, batches=480).in_steps(SECOND, 56) == 240


@pytest.mark.parametrize(
    ("rows", "known"),
    [
        ([(20.0, 20), (40.0, 40)], {"total": 300}),  # two positions prove nothing
        ([(20.0, 20), (30.0, 23), (40.0, 40)], {"total": 300}),  # not in accord on the way
        ([(7.0, 1), (21.0, 2), (30.0, 3), (44.0, 4)], {"total": 10}),  # epochs, or episodes, of uneven length
        ([(20.0, 2), (40.0, 3), (60.0, 4)], {"total": 10}),  # printed when an epoch begins
        ([(float(t), 4 * t) for t in range(4, 60, 4)], {"total": 966, "batches": 483}),  # ends within a step
        ([(float(t), t) for t in range(5, 40, 5)], {"total": 30}),  # fewer than were done
        ([(float(t), t) for t in range(5, 40, 5)], {}),
        ([(float(t), 100 + t) for t in range(5, 40, 5)], {"total": 300}),  # resumed, by another count
    ],
)
def test_other_counts_give_none(rows: list[tuple[float, int]], known: dict[str, int]) -> None:
    assert printed(rows, **known).in_steps(SECOND, 35) is None


def test_what_passes_while_a_line_is_read_leaves_it_open() -> None:
    rows = [(t / 10, t) for t in range(5, 12)]
    assert printed(rows, total=300).in_steps(every(0.1), 11) is None


def test_memory_is_bounded_and_keeps_first_and_last() -> None:
    position = printed([(float(t), t) for t in range(1, 5000)], total=9000)
    assert len(position.samples) <= MAX_SAMPLES
    assert (position.samples[0].step, position.samples[-1].step) == (1, 4999)
    assert position.in_steps(SECOND, 4999) == 9000


def test_place_needs_epoch_and_batches() -> None:
    assert printed([(1.0, 18)], epoch=2, batch=18, batches=25).place == (18, 25)
    assert printed([(1.0, 18)], epoch=2).place is None
    assert printed([(1.0, 18)], epoch=2, batch=26, batches=25).place is None


@pytest.mark.parametrize("row", [None, [], "x", {"step": "9", "total": -4}, {"step": True}])
def test_malformed_rows_are_ignored(row: object) -> None:
    position = Printed()
    position.take(row, 1.0)
    assert (position.samples, position.total) == ([], None)
