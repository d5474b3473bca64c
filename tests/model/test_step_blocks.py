"""Steps by the block make the state that they make one by one, however a journal is written and cut."""

from __future__ import annotations

import dataclasses
import math
import random
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from monitor.model.fold import fold
from monitor.model.history import History, in_pairs
from monitor.model.state import RunState
from monitor.model.steps.latest_steps import MAX_LATEST, LatestSteps
from monitor.model.summary import make_report
from monitor.sources.decode import decode, decode_numbered
from monitor.sources.journal_reader import Sequencer
from monitor.sources.step_lines import decode_lines, single_events, single_step_lines, step_blocks
from monitor.step_blocks import StepBlock, block_of
from trainhooks.protocol.encoding import lines_encoder, to_dict
from trainhooks.protocol.events import Event, Metrics, Note, Step, Steps
from trainhooks.recording.step_blocks import MAX_BLOCK_BYTES, MAX_BLOCK_STEPS, OpenBlock, PlainStep, StepShape

from .conftest import Story, around, line_of

ORDERS: list[dict[str, float]] = [
    {"data": 0.1, "forward": 1.0, "backward": 2.0},
    {"data": 0.1, "forward": 1.0, "backward": 2.0, "checkpoint": 3.0},
    {"backward": 1.0, "data": 0.2},
    {"other": 2.0},
    {"rollout": 3.0, "forward": 1.0},
    {"reward": 1.0, "other": 0.5},
]
FIELDS: list[dict[str, Any]] = [
    {"tokens": 100, "samples": 4, "metrics": {"loss": 0.5, "n": 3}},
    {"tokens": 100, "samples": 4, "metrics": {"loss": 0.25, "n": 2, "eval": 1.5}},
    {"tokens": 90, "padded_tokens": 128, "samples": 4, "lengths": (10.0, 20.0, 32.0), "metrics": {"loss": 1}},
    {"samples": 2, "forwards": 4},
    {"samples": 4, "forwards": 4},
    {"metrics": {"loss": "nan"}},
    {"metrics": {"loss": 1e308, "n": 2**53}},
    {"status": "skipped", "reason": "no code"},
    {"role": "verifier", "stage": "2", "metrics": {"loss": 0.1}},
    {"thread": "loader"},
    {"epoch": 0.5, "background": [("reward", 0.5, "host", 1)]},
    {"uncounted": True},
    {"duration": 0.0},
    {"phases": [("data", 2.0, "cuda", 3), ("data", 2.0, "cuda", 1), ("forward", 90.0, "host", 1)]},
]


def tell(story: Story, kind: int, noise: random.Random) -> None:
    if kind == 0:
        story.pulse(step=1, step_open=noise.random(), phase="forward", phase_open=0.1)
    elif kind == 1:
        story.tell(Metrics, values={"loss": noise.random(), "late": "inf"}, step=3)
    elif kind == 2:
        story.span("checkpoint", whole(noise.random()))
    elif kind == 3:
        story.tell(Note, text="a note", level="warning")
    else:
        longer = 12.0 if kind == 4 else 1.0
        order = ORDERS[0] if kind < 20 else noise.choice(ORDERS)
        fields = FIELDS[0] if kind < 24 else noise.choice(FIELDS)
        seconds = {name: whole(longer * s * (0.9 + 0.2 * noise.random())) for name, s in order.items()}
        story.step_with(fields, **seconds)


def whole(seconds: float) -> float:
    """Seconds that are whole nanoseconds and a whole float."""
    return max(1, round(512 * seconds)) / 512


def told(kinds: list[int], seed: int) -> list[bytes]:
    story, noise = Story(), random.Random(seed)
    for kind in kinds:
        tell(story, kind, noise)
    return [line_of(event)[:-1] for event in story.events]


def in_blocks(lines: list[bytes]) -> list[bytes]:
    """The same journal as the hooks write it today: plain steps in blocks."""
    encode, block, out = lines_encoder(), OpenBlock(), []

    def close() -> None:
        if len(block):
            out.extend(block.close(first, "p", encode).split(b"\n")[:-1])

    first = 0
    for number, line in enumerate(lines):
        step = plain(decode(line))
        if step is None:
            close()
            out.append(line)
            continue
        if not block.accepts(step):
            close()
        if not len(block):
            first = number
        block.add(step)
    close()
    return out


def plain(event: Any) -> PlainStep | None:
    """A step as the hooks' background thread holds it; None where it has to be a line of its own."""
    if type(event) is not Step or event.status != "ok" or event.thread or event.background or not event.duration:
        return None
    if event.lengths or any(isinstance(value, str) for value in event.metrics.values()):
        return None
    if any(clock != "host" for _, _, clock, _ in event.phases):
        return None
    shape = StepShape(
        tuple(row[0] for row in event.phases),
        tuple(row[3] for row in event.phases),
        event.role,
        event.stage,
        event.epoch,
        bool(event.uncounted),
    )
    began = round(event.start * 1e9)
    amounts = [event.tokens, event.padded_tokens, event.samples, event.forwards]
    phases = [round(seconds * 1e9) for _, seconds, _, _ in event.phases]
    ended = began + round(event.duration * 1e9)
    return PlainStep(shape, event.index, began, ended, phases, event.metrics, amounts)


def read(lines: list[bytes], cuts: list[int]) -> RunState:
    """The state of a journal that is read in pieces, by blocks."""
    state, sequencer = RunState(), Sequencer()
    cuts = sorted({cut % (len(lines) + 1) for cut in cuts})
    for first, end in zip([0, *cuts], [*cuts, len(lines)], strict=True):
        for event in step_blocks(sequencer.push_all(decode_lines(lines[first:end], decode_numbered))):
            fold(state, event)
    assert sequencer.missing == 0
    return state


def read_singly(lines: list[bytes]) -> RunState:
    state = RunState()
    for event in single_events(map(decode, lines)):
        fold(state, event)
    return state


def alike(one: Any, other: Any) -> bool:
    """Whether two reports say the same, floats to 1e-6: nanoseconds are rounded."""
    if isinstance(one, float) or isinstance(other, float):
        return one == other or math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-7)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return bool(one == other)


def same(one: RunState, other: RunState) -> bool:
    found, known = (msgspec.to_builtins(make_report(state, around(state))) for state in (one, other))
    return alike(found, known) and steps_of(one) == steps_of(other)


def steps_of(state: RunState) -> list[Any]:
    steps = [step for rank in state.hooked.values() for step in rank.latest.steps()]
    return [(step.index, [row[0] for row in step.phases], step.tokens, step.metrics, step.role) for step in steps]


KINDS = st.lists(st.integers(0, 40), max_size=300)
CUTS = st.lists(st.integers(0, 400), max_size=5)


@settings(max_examples=40, deadline=None)
@given(KINDS, CUTS, st.integers(0, 1000))
def test_blocks_make_the_state_of_single_steps(kinds: list[int], cuts: list[int], seed: int) -> None:
    lines = told(kinds, seed)
    is_same = same(read(lines, cuts), read_singly(lines))
    assert is_same  # by itself: a difference of two texts of this size takes minutes to print


@settings(max_examples=40, deadline=None)
@given(KINDS, CUTS, st.integers(0, 1000))
@example([4, 4, 20, 4, 5, 5, 5, 5, 5, 5, 5], [], 1)  # a phase that begins late
def test_a_journal_of_blocks_is_the_journal_of_its_steps(kinds: list[int], cuts: list[int], seed: int) -> None:
    lines = told(kinds, seed)
    is_same = same(read(in_blocks(lines), cuts), read_singly(lines))
    assert is_same
    shown = [line for block in in_blocks(lines) for line in single_step_lines(block)]
    events, known = [decode(line) for line in shown], [decode(line) for line in lines]
    assert [(type(event), event.seq) for event in events] == [(type(event), event.seq) for event in known]  # type: ignore[union-attr]
    for event, step in zip(events, known, strict=True):
        if type(event) is Step and type(step) is Step:
            found, meant = (dataclasses.replace(each, t=0, start=0, duration=0, phases=[]) for each in (event, step))
            assert found == meant
            assert event.t == pytest.approx(step.t) and event.duration == pytest.approx(step.duration, abs=1e-9)
            assert [(row[0], row[2], row[3]) for row in event.phases] == [
                (row[0], row[2], row[3]) for row in step.phases
            ]


def test_most_steps_are_read_in_long_blocks() -> None:
    lines = told([10] * 500 + [0] + [10] * 500, 1)
    blocks = [event for event in step_blocks(decode_lines(lines, decode_numbered)) if isinstance(event, StepBlock)]
    assert [len(block) for block in blocks] == [1000], "a pulse between them is folded after them"
    few = in_blocks(lines)
    assert len(few) < 25 and len(b"\n".join(few)) < 0.45 * len(b"\n".join(lines))


def test_a_block_has_limits() -> None:
    block, encode = OpenBlock(), lines_encoder()
    wide = StepShape(tuple(f"phase {n}" for n in range(200)), (1,) * 200)
    for number in range(MAX_BLOCK_STEPS):
        step = PlainStep(wide, number, number, number + 1, [123456789] * 200, None, None)
        assert block.accepts(step)
        block.add(step)
    other = PlainStep(wide._replace(epoch=2.0), MAX_BLOCK_STEPS, 0, 1, [1] * 200, None, None)
    assert not block.accepts(step._replace(number=MAX_BLOCK_STEPS)) and not block.accepts(other)
    lines = block.close(7, "p", encode).splitlines()
    assert len(lines) > 1 and max(map(len, lines)) <= MAX_BLOCK_BYTES
    assert [step.seq for line in lines for step in single_events([decode(line)])] == list(range(7, 7 + MAX_BLOCK_STEPS))


# Numbers count steps, not lines


def steps_line(seq: int, count: int, **fields: Any) -> Steps:
    start = [float(seq + place) for place in range(count)]
    made = Steps(producer="p", seq=seq, t=seq + count, index=seq, start=start, duration=[0.5] * count)
    return dataclasses.replace(made, metrics={"loss": start}, **fields)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.randoms(), st.integers(0, 3))
def test_steps_come_once_and_in_order(sizes: list[int], noise: random.Random, lost: int) -> None:
    """Lines repeated, out of order, in other blocks than before, and some lost."""
    total = sum(sizes)
    lines, at = [], 0
    for size in sizes:
        lines.append(steps_line(at, size))
        at += size
    lines += [steps_line(n, 1) for n in range(total) if noise.random() < 0.3]
    noise.shuffle(lines)
    kept = lines[lost:]
    covered = {seq for line in kept for seq in range(line.seq, line.next_seq)}
    sequencer = Sequencer()
    out = [event for line in kept for event in sequencer.push(line)] + sequencer.release_waiting()
    seqs = [step.seq for step in single_events(out)]
    assert seqs == sorted(covered)
    assert sequencer.missing == (max(covered) + 1 - len(covered) if covered else 0)


def test_a_lost_block_is_missing_by_its_steps() -> None:
    sequencer = Sequencer()
    sequencer.push(steps_line(0, 3))
    sequencer.push(steps_line(53, 2))
    sequencer.release_waiting()
    assert sequencer.missing == 50


# What is wrong with a line


def changed(**fields: Any) -> Any:
    mapping = to_dict(steps_line(0, 3, phases=[("data", [0.1] * 3, "host", 1)]))
    return decode(msgspec.json.encode({**mapping, **fields}))


@pytest.mark.parametrize(
    "fields",
    [
        {"start": []},
        {"start": [1.0], "duration": [1.0, 1.0]},
        {"duration": [0.5, -1.0, 0.5]},
        {"duration": [0.5, 1e300, 0.5]},
        {"index": -1},
        {"index": 2**60},
        {"start": "x"},
    ],
    ids=repr,
)
def test_a_block_without_times_is_unreadable(fields: dict[str, Any]) -> None:
    assert changed(**fields) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"phases": [["data", [0.1], "host", 1]]},
        {"phases": [["data", [0.1, -1.0, 0.1], "host", 1]]},
        {"metrics": {"loss": [1.0]}},
        {"metrics": {"loss": "x"}},
        {"tokens": [1, 2]},
        {"tokens": -5},
        {"epoch": "nan"},
        {"role": 3},
        {"quantum": [1]},
    ],
    ids=repr,
)
def test_what_does_not_fit_is_left_out(fields: dict[str, Any]) -> None:
    event = changed(**fields)
    assert isinstance(event, Steps) and len(event) == 3
    steps = list(single_events([event]))
    (name,) = fields
    assert all(getattr(step, name, None) in (None, [], {}) for step in steps)


def test_texts_are_clean() -> None:
    event = changed(phases=[["da\x1bta", [0.1] * 3, "host", 1]], metrics={"lo\x00ss": [1.0, 2.0, None]}, role="a\nb")
    first, _, last = single_events([event])
    assert (first.phases[0][0], first.metrics, last.metrics, first.role) == ("da ta", {"lo ss": 1.0}, {}, "a b")


def test_the_last_steps_of_a_block_hold_no_memory_of_the_others() -> None:
    noise = random.Random(4)
    story = Story()
    for number in range(400):
        phases = {"data": 0.1, "forward": 0.2} if noise.random() < 0.5 else {"forward": 0.3}
        metrics = {"loss": noise.random()} if noise.random() < 0.7 else {}
        known = {"tokens": noise.randrange(9), "lengths": (1.0, 2.0, 3.0)} if number % 3 else {"epoch": 1.5}
        story.step_with({"metrics": metrics, **known}, **phases)
    (block,) = step_blocks([event for event in story.events if isinstance(event, Step)])
    assert isinstance(block, StepBlock) and len(block.patterns) == 2
    last = block.last(50)
    assert list(last.steps()) == list(block.steps(350))
    arrays = [last.index, last.start, *last.amounts.values(), *(metric.values for metric in last.metrics.values())]
    assert all(array.base is None for array in arrays)


# The newest steps, and bounded histories


def test_the_newest_steps_are_kept_one_by_one() -> None:
    latest, total = LatestSteps(), 0
    for size in (1, 3, 700, 2, 5000, 64):
        events = [
            Step(producer="p", seq=0, t=n + 1.0, index=n, start=n, duration=1.0) for n in range(total, total + size)
        ]
        (block,) = step_blocks(events)
        assert isinstance(block, StepBlock)
        latest.add(block)
        total += size
        if size != 2:
            found = [step.index for step in latest.steps()]
            assert MAX_LATEST <= len(found) <= 2 * MAX_LATEST or len(found) == total
            assert found == list(range(total - len(found), total))
    latest.add_metrics({"late": 1.0}, total - 1)
    assert latest.steps()[-1].metrics == {"late": 1.0}


def test_a_step_comes_back_from_its_block() -> None:
    for fields in FIELDS:
        story = Story().step_with({"phases": [("data", 0.1, "host", 2), ("data", 0.2, "cuda", 1)], **fields})
        step = story.events[-1]
        assert isinstance(step, Step)
        assert list(block_of(step).steps()) == [step]
        singly, together = step_blocks([step]), step_blocks([step, dataclasses.replace(step, seq=2, index=2)])
        for events in (singly, together):
            blocks = [event for event in events if isinstance(event, StepBlock)]
            found = next(iter(blocks[0].steps()))
            assert dataclasses.replace(found, seq=step.seq) == step


@given(
    st.lists(st.tuples(st.integers(-50, 5000), st.floats(-1e6, 1e6)), max_size=400),
    st.integers(1, 60),
    st.integers(2, 40),
)
def test_a_history_keeps_all_in_bounded_memory(rows: list[tuple[int, float]], portion: int, most: int) -> None:
    history = History(most)
    for at in range(0, len(rows), portion):
        places, values = (np.array(column) for column in zip(*rows[at : at + portion], strict=True))
        columns = {"count": np.ones(len(places)), "total": values, "low": values, "high": values}
        history.add(places.astype(np.int64), columns)
    truth: dict[int, list[float]] = {}
    for place, value in rows:
        truth.setdefault(place // history.width, []).append(value)
    assert history.index.tolist() == sorted(truth) and len(history) <= most
    for at, bucket in enumerate(history.index.tolist()):
        values = truth[bucket]
        found = [float(history.of(name)[at]) for name in ("count", "total", "low", "high")]
        assert found == [len(values), pytest.approx(math.fsum(values), abs=1e-6), min(values), max(values)]


def test_rows_are_joined_in_pairs() -> None:
    assert in_pairs([1, 2, 3, 4, 5], int.__add__) == [3, 7, 5]
    assert in_pairs([], int.__add__) == [] and in_pairs([1], int.__add__) == [1]


def test_events_of_other_kinds_stay_as_they_are() -> None:
    lines = told([0, 1, 2, 3], 1)
    events = [decode(line) for line in lines]
    assert step_blocks(events) == events and all(isinstance(event, Event) for event in events)
    assert [single_step_lines(line) for line in [*lines, b"", b"{", b'{"kind":"steps"}']] == [
        *([line] for line in lines), [b""], [b"{"], [b'{"kind":"steps"}'],
    ]  # fmt: skip
