"""How a run stands against the last one of its command: only what is certain is told, and only on equal work."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from monitor.model.comparison.compare import Side
from monitor.model.comparison.last_run import Standing, standing
from monitor.model.comparison.loop_pace import loop_time
from monitor.model.summary import make_report
from monitor.units import moment

from ..model.conftest import Story, around, folded

noise = random.Random(3)


def side(seconds: float, n: int = 200, *words: str, spread: float = 0.05, **fields: float) -> Side:
    told = Story()
    for _ in range(n):
        told.step_with(fields, forward=seconds * (1 + spread * noise.random()))
    state = folded(told)
    known = make_report(state, around(state, id="run", started=1000.0, command=["python", "t.py", *words]))
    return Side(known, loop_time(state, known))


def words(before: Side, after: Side) -> str:
    found = standing(before, after)
    return "" if found is None else found.words()


@pytest.mark.parametrize(("seconds", "told"), [(0.15, "1.5"), (0.11, "0% slower"), (0.09, "% faster"), (0.05, "2.0")])
def test_faster_or_slower_is_told(seconds: float, told: str) -> None:
    assert told in words(side(0.1), side(seconds))


def test_what_starts_of_a_program_differ_by_is_no_difference() -> None:
    assert words(side(0.1), side(0.102)) == "as fast"
    repeats = side(0.08).loop, side(0.12).loop  # of the same command
    assert words(replace(side(0.1), repeats=repeats), side(0.12)) == "", "it may be faster or slower"


def test_other_work_is_not_compared() -> None:
    assert words(side(0.1, 200, "--batch-size", "8"), side(0.2, 200, "--batch-size", "16")) == ""
    assert words(side(0.2, 200, "--batch-size", "16"), side(0.1, 200, "--batch-size", "8")) == ""
    assert words(side(0.1), side(0.2, 4)) == "", "too few steps to say"


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (Standing(0.943, 0.91, 0.98), "6% faster"),
        (Standing(1.06, 1.01, 1.11), "6% slower"),
        (Standing(2.0, 1.9, 2.1), "2.00x slower"),
        (Standing(0.5, 0.4, 0.6), "2.00x faster"),
        (Standing(1.01, 0.95, 1.07), "as fast"),
        (Standing(1.01, 0.85, 1.2), ""),
    ],
)
def test_the_words(row: Standing, told: str) -> None:
    assert row.words() == told


def test_a_moment_is_as_short_as_it_is_clear() -> None:
    now = 1_760_000_000.0
    assert ":" in moment(now - 1, now) and len(moment(now, now)) == len("14:02")
    assert len(moment(now - 2 * 86400, now)) == len("Thu 14:02")
    assert moment(now - 30 * 86400, now).split()[1].isalpha()
    assert moment(now - 400 * 86400, now).split()[2].isdigit()
    assert moment(1e300, now) == "–"
