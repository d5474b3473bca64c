"""Steps read as blocks, and line by line: the same figures, whatever the lines hold."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.model.summary import report
from monitor.model.view import curves, details
from monitor.sources import journal_reader, step_lines
from monitor.sources.run_directory import RunDirectory
from monitor.step_blocks import StepBlock
from trainhooks.protocol.events import Event, Metrics, Note, Pulse, Step, Steps

from .conftest import Story, around, line_of

# A journal, and what may be wrong with it

NAMES = ("data", "phase2.1,x", 'lo"ad', "forward_1")
TEXTS = (
    b"0",
    b"-0",
    b"-0.0",
    b"5e-06",
    b"2.036e-06",
    b"1E5",
    b"17",
    b"0.25714285714285715",
    b"1e999",
    b"null",
    b'"nan"',
)
ODD = (
    b"007",
    b"-5",
    b"1.",
    b"-",
    b"1 ",
    b" 1",
    b"12345678901234567890",
    b"9007199254740993",
    b"1e400",
    b"true",
    b"[1]",
    b"",
)


def told_with(noise: random.Random, count: int, role: str | None) -> Story:
    told = Story()
    names = noise.sample(NAMES, noise.randrange(1, 4))
    for number in range(count):
        told.wait(noise.choice([0.0, 0.1, -0.05]))
        metrics = {"loss": round(noise.uniform(-2, 2), noise.choice([3, 9, 17])), "n": number % 3, "a.b": 1e-5 * number}
        told.step_with(
            {"tokens": 4000 + number % 97, "samples": 8, "metrics": metrics, "role": role, "epoch": number // 50},
            **{name: round(noise.uniform(0, 0.2), 9) for name in names},
        )
        if noise.random() < 0.05:
            told.tell(Pulse, step=number)
        if noise.random() < 0.01:
            told.tell(Metrics, values={"eval": 0.5})
        if noise.random() < 0.01:
            told.tell(Note, text="hello")
    return told


def spoilt(lines: list[bytes], noise: random.Random, share: float) -> list[bytes]:
    """Lines of which some hold another number, or are torn, missing, told twice, or put in another order."""
    out = []
    for line in lines:
        change = (
            noise.choice(["number", "odd", "torn", "missing", "twice", "space", "key"])
            if noise.random() < share
            else ""
        )
        if change in ("number", "odd"):
            begin = noise.choice([at for at, byte in enumerate(line) if byte in b":,"]) + 1
            end = begin + 1
            while end < len(line) and line[end] not in b",]}":
                end += 1
            line = line[:begin] + noise.choice(TEXTS if change == "number" else ODD) + line[end:]
        if change == "torn":
            line = line[: noise.randrange(len(line))] + b"\n"
        if change == "space":
            line = line.replace(b",", b" ,", 1)
        if change == "key":
            line = line.replace(b'"a.b"', b'"a.c"')
        out += [] if change == "missing" else [line, line] if change == "twice" else [line]
    return out


def joined(events: Sequence[Event], most: int) -> list[Event]:
    """The events with up to so many consecutive steps of a kind on one line."""
    out: list[Event] = []
    for _, group in groupby(events, lambda event: (event.kind, event.epoch if isinstance(event, Step) else event.seq)):
        alike = list(group)
        out += [_one_line(alike[at : at + most]) for at in range(0, len(alike), most)]
    return out


def _one_line(events: list[Any]) -> Event:
    first = events[0]
    if not isinstance(first, Step):
        return first
    shared = {name: getattr(first, name) for name in ("producer", "seq", "index", "samples", "role", "epoch")}
    columns = {name: [getattr(step, name) for step in events] for name in ("start", "duration", "tokens")}
    metrics = {name: [step.metrics[name] for step in events] for name in first.metrics}
    times = [[phase[1] for phase in column] for column in zip(*(step.phases for step in events), strict=True)]
    phases = [(name, column, "host", 1) for (name, *_), column in zip(first.phases, times, strict=True)]
    return Steps(t=events[-1].t, phases=phases, metrics=metrics, **shared, **columns)


def read(path: Path, by_blocks: bool) -> tuple[list[Any], Any, list[Any]]:
    """What is known of a run, how far it was read, and its events."""
    with pytest.MonkeyPatch.context() as patch:
        if not by_blocks:
            patch.setattr(step_lines, "MIN_AT_ONCE", 1 << 60)
        source, events = RunDirectory(path), []
        poll = source.poll_blocks if by_blocks else source.poll
        while found := poll():
            events += found
        position = source.position()
        source.close()
    state = RunState()
    for event in events:
        fold(state, event)
    known = [report(state, around(state)), curves(state), details(state, over=False)]
    return [plain(each) for each in known], position, events


def plain(value: Any) -> Any:
    """Dataclasses as dictionaries and tuples as lists, all the way down. A block's steps have no numbers."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value) if each.name != "seq"]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list | tuple) else value


def difference(one: Any, other: Any, where: str = "") -> str | None:
    """Return where two such values differ by more than a rounding; None: nowhere."""
    if isinstance(one, dict) and isinstance(other, dict) and list(one) == list(other):
        pairs = [(f"{where}.{key}", one[key], other[key]) for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(f"{where}[{place}]", *pair) for place, pair in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, float) and isinstance(other, float):
        return None if one == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True) else f"{where}: {one} {other}"
    else:
        return None if one == other else f"{where}: {one} {other}"[:500]
    return next((found for path, *pair in pairs if (found := difference(*pair, path)) is not None), None)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "CHUNK", 1 << 14)


def write(path: Path, lines: list[bytes]) -> None:
    path.mkdir(exist_ok=True)
    (path / "rank-0-x.jsonl").write_bytes(b"".join(lines))


def lines_of(events: Sequence[Event]) -> list[bytes]:
    return [line_of(event) for event in events]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 2**32),
    st.sampled_from([0.0, 0.001, 0.01, 0.2]),
    st.sampled_from([None, "actor"]),
    st.sampled_from([1, 7, 64]),
)
@example(4009, 0.2, None, 1)  # no hello, and the first line that can be read is a step's
def test_a_journal_is_the_same_by_blocks_and_line_by_line(
    tmp_path: Path, small: None, seed: int, share: float, role: str | None, together: int
) -> None:
    noise = random.Random(seed)
    told = joined(told_with(noise, 400, role).events, together)
    write(tmp_path / "run", spoilt(lines_of(told), noise, share))
    by_blocks, alone = read(tmp_path / "run", True), read(tmp_path / "run", False)
    assert difference(by_blocks[0], alone[0]) is None
    assert by_blocks[1] == alone[1]


@pytest.mark.parametrize("together", [1, 64])
def test_a_long_journal_is_read_by_blocks(tmp_path: Path, together: int) -> None:
    """Whatever else stands between its steps: what is read line by line is the exception."""
    told = told_with(random.Random(3), 1500, "actor").events
    write(tmp_path / "run", lines_of(joined(told, together)))
    _, _, events = read(tmp_path / "run", True)
    blocks = [each for each in events if isinstance(each, StepBlock)]
    assert sum(map(len, blocks)) == 1500 and all(each.odd is None for each in blocks)
    breaks = sum(isinstance(each, Metrics | Note) for each in told)
    assert len(blocks) <= 1 + breaks


def test_steps_are_the_same_one_by_one_and_together_on_lines(tmp_path: Path) -> None:
    told = told_with(random.Random(5), 600, "actor").events
    write(tmp_path / "single", lines_of(told))
    write(tmp_path / "together", lines_of(joined(told, 64)))
    single, together = read(tmp_path / "single", False), read(tmp_path / "together", True)
    assert difference(single[0], together[0]) is None
    assert single[1].expected == together[1].expected and single[1].missing == together[1].missing == 0
