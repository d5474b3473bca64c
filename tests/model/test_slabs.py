"""Steps taken in many at once make the very state that they make one by one, however a journal is cut."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from monitor.model.fold import fold
from monitor.model.state import RankState, RunState
from monitor.sources.decode import UNKNOWN, decode
from monitor.sources.journal_reader import BATCH, batches, lines_of
from monitor.sources.step_batches import merged, step_batches
from monitor.sources.step_schema import FEW, Decoded, Row, StepSchema
from monitor.step_columns import StepBatch, append_all
from trainhooks.protocol.events import Event, Metrics, Note, Pulse, Step
from trainhooks.protocol.limits import MAX_LINE

from .conftest import Story, line_of

ORDERS: list[dict[str, float]] = [
    {"data": 0.1, "forward": 1.0, "backward": 2.0},
    {"data": 0.1, "forward": 1.0, "backward": 2.0, "checkpoint": 3.0},
    {"backward": 1.0, "data": 0.2},
    {"other": 2.0},
]
FIELDS: list[dict[str, Any]] = [
    {"tokens": 100, "samples": 4, "metrics": {"loss": 0.5, "n": 3}},
    {"tokens": 100, "samples": 4, "metrics": {"loss": 0.25, "n": 2, "eval": 1.5}},
    {"tokens": 90, "padded_tokens": 128, "samples": 4, "lengths": (10.0, 20.0, 32.0), "metrics": {"loss": 1}},
    {"samples": 2, "forwards": 4},
    {"samples": 4, "forwards": 4},
    {"metrics": {"loss": "nan"}},
    {"metrics": {"loss": 1e308, "n": 2**60}},  # the order of the first step: the columns keep no other one
    {"status": "skipped", "reason": "no code"},
    {"role": "verifier", "stage": "2", "metrics": {"loss": 0.1}},
    {"thread": "loader"},
    {"epoch": 0.5, "background": [("reward", 0.5, "host", 1)]},
    {"duration": 0.0},
    {"phases": [("data", 2.0, "cuda", 3), ("data", 2.0, "cuda", 1), ("forward", 90.0, "host", 1)]},
]
USUAL = FIELDS[0]


def rows_of(lines: list[bytes], cuts: list[int]) -> list[Any]:
    """The events of a journal that is read in pieces."""
    shape, out = StepSchema(), []
    for first, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        out += [each for each in shape.events(lines[first:end], decode) if each is not None and each is not UNKNOWN]
    return out


def state_of(events: list[Any]) -> str:
    state = RunState()
    for event in events:
        fold(state, event)
    tables = [*state.ranks.values(), *(each for figures in figures_of(state) for each in figures.phases.values())]
    for durations in [*(each.seconds for each in tables), *(figures.step_seconds for figures in figures_of(state))]:
        durations.quantiles.bins = dict(sorted(durations.quantiles.bins.items()))  # of these the order says nothing
    return repr(state)  # to the last digit, in the same order; and nan is nan


def figures_of(state: RunState) -> list[RankState]:
    return [*state.hooked.values(), *([] if state.console is None else [state.console])]


def told_lines(told: Story) -> list[bytes]:
    return [line_of(event)[:-1] for event in told.events]


def same_state(lines: list[bytes], cuts: list[int]) -> list[Event | StepBatch]:
    out: list[Event | StepBatch] = []
    rows = rows_of(lines, cuts)
    for first, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        out += step_batches(rows[first:end])
    same = state_of(out) == state_of([decode(line) for line in lines])
    assert same  # by itself: a difference of two texts of this size takes minutes to print
    same_when_joined(lines, cuts)
    return out


def copied(event: Any) -> Any:
    """An event that may be put into arrays, with its own columns."""
    return replace(event, phases=[replace(each) for each in event.phases]) if isinstance(event, StepBatch) else event


def same_when_joined(lines: list[bytes], cuts: list[int]) -> None:
    """The way of a long history: whole blocks decoded, and the slabs of several put together."""
    shape, out = StepSchema(), []
    for first, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        found = shape.read(b"".join(line + b"\n" for line in lines[first:end]), decode)
        kept = [each for each in found if each is not None and each is not UNKNOWN]
        out += step_batches(Decoded(kept, found.again) if isinstance(found, Decoded) else kept)
    expected = state_of([decode(line) for line in lines])
    for arrays in (False, True):
        same = state_of(merged(map(copied, out), arrays)) == expected
        assert same


def tell(told: Story, kind: int, noise: random.Random) -> None:
    if kind == 0:
        told.pulse(step=1, step_open=noise.random(), phase="forward", phase_open=0.1)
    elif kind == 1:
        told.tell(Metrics, values={"loss": noise.random(), "late": "inf"}, step=3)
    elif kind == 2:
        told.span("checkpoint", noise.random())
    elif kind == 3:
        told.tell(Note, text="a note", level="warning")
    else:
        longer = 12.0 if kind == 4 else 1.0
        order = ORDERS[0] if kind < 20 else noise.choice(ORDERS)
        fields = USUAL if kind < 24 else noise.choice(FIELDS)
        told.step_with(fields, **{name: longer * s * (0.9 + 0.2 * noise.random()) for name, s in order.items()})


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 400), st.integers(5, 28), st.lists(st.integers(1, 400), max_size=4))
def test_many_at_once_is_one_by_one(seed: int, count: int, most: int, cuts: list[int]) -> None:
    noise, told = random.Random(seed), Story()
    for _ in range(count):
        tell(told, noise.randint(0 if noise.random() < 0.2 else 5, most), noise)
    lines = told_lines(told)
    same_state(lines, sorted(min(each, len(lines)) for each in cuts))


def test_a_journal_with_pulses_is_a_few_slabs() -> None:
    told = Story()
    for number in range(3000):
        told.step_with(USUAL, data=0.1, forward=1.0 + number % 7 / 100)
        if number % 4 == 0:
            told.pulse(step=number, step_open=0.1)
    found = [each for each in same_state(told_lines(told), []) if isinstance(each, StepBatch)]
    assert len(found) <= 2 * FEW and sum(map(len, found)) > 2900


def test_names_without_end_share_a_row_in_the_steps_order() -> None:
    told = Story()
    for number in range(600):
        told.step_with(
            {"metrics": {f"m{(number + more) % 500}": float(number) for more in range(9)}},
            **{f"p{number % 250}": 1.0, f"q{number % 3}": 0.5},
        )
    same_state(told_lines(told), [])


def test_rows_are_the_steps_that_the_gate_gives() -> None:
    noise, told = random.Random(5), Story()
    for _ in range(400):
        tell(told, noise.randint(5, 28), noise)
    lines = told_lines(told)
    rows = rows_of(lines, [])
    assert sum(isinstance(each, Row) for each in rows) > 50
    assert [each.step() if isinstance(each, Row) else each for each in rows] == [decode(line) for line in lines]


TORN = [
    b'{"kind":"step",',
    b'{"kind":"step","producer":"p","seq":5,"t":1,"metrics":',
    b'{"kind":"step","producer":"p","seq":5,"t":1} {"kind":"step","producer":"p","seq":6,"t":1}',
    b'{"kind":"step","producer":"p","seq":-1,"t":1,"duration":1}',
    b'{"kind":"step","producer":"p\\u001b[2J","seq":9,"t":1,"duration":1,"metrics":{"\\u202e":1}}',
    b'{"kind":"step","producer":"p","seq":9,"t":1,"duration":1e13}',
    b'{"kind":"step","producer":"p","seq":9,"t":1,"duration":1,"metrics":{"loss":true}}',
    b'{"kind":"step","producer":"p","seq":9,"t":1,"duration":1,"tokens":-4,"background":null}',
    b'{"kind":"step","producer":"p","seq":9,"t":1,"phases":[["data",0.1,"host",1,2]],"duration":1}',
    b"\xff",
    b"",
    b'{"kind":"step","producer":"p","seq":9,"t":1,"text":"' + b"x" * 70_000 + b'"}',
]


@pytest.mark.parametrize("torn", TORN)
@pytest.mark.parametrize("at", [0, 40, 99])
def test_a_bad_line_among_good_ones(torn: bytes, at: int) -> None:
    told = Story()
    for number in range(100):
        told.step_with(USUAL, data=0.1, forward=1.0 + number % 5)
    lines = told_lines(told)
    lines.insert(at, torn)
    shape = StepSchema()
    shape.events(lines[:20], decode)
    found = shape.events(lines, decode)
    assert [each.step() if isinstance(each, Row) else each for each in found] == [decode(line) for line in lines]
    assert any(isinstance(each, Row) for each in found) or len(torn) > 60_000


@given(st.integers(0, 40), st.lists(st.integers(1, 60), max_size=9), st.integers(10, 20), st.integers(1, 9))
def test_the_newest_are_kept_as_if_one_came_after_the_other(had: int, counts: list[int], most: int, cut: int) -> None:
    one, many = list(range(min(had, most))), list(range(min(had, most)))
    number = 100
    for count in counts:
        new = list(range(number, number + count))
        append_all(many, count, lambda first, end, new=new: iter(new[first:end]), most, cut)  # type: ignore[misc]
        for each in new:
            one.append(each)
            if len(one) > most:
                del one[:cut]
        number += count
    assert many == one


def test_steps_told_by_others_are_folded_like_the_hooks_own() -> None:
    step = Step("p", 0, 2.0, index=1, start=1.0, duration=1.0)
    assert state_of([step]) == state_of(list(step_batches([step])))
    assert step_batches([Pulse("p", 0, 1.0)]) == [Pulse("p", 0, 1.0)]


def long_story(steps: int, **fields: Any) -> list[bytes]:
    told = Story()
    for number in range(steps):
        told.step_with({**USUAL, **fields}, data=0.1, forward=9.0 if number % 400 == 399 else 1.0 + number % 7 / 100)
        if number % 10 == 0:
            told.pulse(step=number, step_open=0.1)
        if number == steps // 2:
            told.step_with(USUAL, backward=1.0, data=0.2)
    return told_lines(told)


@pytest.mark.parametrize("fields", [{}, {"padded_tokens": 128}, {"forwards": 4}])
def test_batches_of_a_long_history_become_one_slab_and_the_same_state(fields: dict[str, Any]) -> None:
    lines = long_story(3000, **fields)
    cuts = list(range(300, len(lines), 300))
    same_when_joined(lines, cuts)
    shape, out = StepSchema(), []
    for first, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        out += step_batches(shape.read(b"\n".join(lines[first:end]) + b"\n", decode))
    slab = max((each for each in merged(out) if isinstance(each, StepBatch)), key=len)
    assert len(slab) > 3 * 300  # of many batches, though a phase that is new makes a cut
    expected = {step.index: step for step in map(decode, lines) if isinstance(step, Step)}
    assert [step == expected[step.index] for step in slab.steps(0, len(slab))] == [True] * len(slab)
    assert [row.index for row in (slab.rows[0], slab.rows[777], slab.rows[-1])] == [
        slab.index[0],
        slab.index[777],
        slab.index[-1],
    ]


@pytest.mark.parametrize("pause", [0.0, -0.3])
def test_figures_that_some_steps_lack_and_steps_that_overlap(pause: float) -> None:
    told = Story()
    for number in range(1500):
        told.wait(pause if number % 7 == 0 else 0.0)
        fields = {
            **USUAL,
            "tokens": 100 + number if number % 3 else None,
            "metrics": {"n": 3, "loss": 1 / (1 + number)},
        }
        if number % 5 == 0:
            fields["metrics"] = {"n": 3}
        told.step_with(fields, data=0.1, forward=9.0 if number % 400 == 399 else 1.0 + number % 7 / 100)
    lines = told_lines(told)
    same_when_joined(lines, list(range(100, len(lines), 100)))


def test_slabs_that_tell_different_things_stay_apart() -> None:
    lines = long_story(200)
    more = [line.replace(b'"loss"', b'"cost"') for line in long_story(200)]
    shape, out = StepSchema(), []
    for part in (lines, more, lines):
        out += step_batches(shape.read(b"\n".join(part) + b"\n", decode))
    told = [set(each.metrics) for each in merged(out) if isinstance(each, StepBatch)]
    assert all(names in ({"loss", "n"}, {"cost", "n"}) for names in told) and len(told) >= 3


def test_a_line_that_is_too_long_is_no_step_in_a_block_either() -> None:
    lines = long_story(40)
    shape = StepSchema()
    shape.events(lines, decode)
    steps = [line for line in lines if b'"kind":"step"' in line]
    far = steps[0][:-1] + b',"text":"' + b"x" * MAX_LINE + b'"}'
    found = shape.read(b"\n".join([*steps[:20], far, *steps[20:]]) + b"\n", decode)
    assert found[20] is None and found.count(None) == 1


def test_batches_are_the_block_cut_at_ends_of_lines() -> None:
    lines = [b"x" * (11 * number) for number in range(400)] + [b"y" * (2 * BATCH)]
    block = b"\n".join(lines) + b"\n"
    cut = list(batches(block))
    assert len(cut) > 2 and b"".join(cut) == block and all(each.endswith(b"\n") for each in cut)
    assert [line for each in cut for line in lines_of(each)] == lines
