"""Steps read as blocks, and line by line: the same figures, whatever the lines hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.model.view import curve_arguments
from monitor.sources import journal_reader, step_lines
from monitor.sources.run_directory import Position, RunDirectory
from monitor.step_blocks import StepBlock
from trainhooks.protocol.events import Metrics, Note, Pulse

from .conftest import Story, line_of
from .test_step_blocks import alike, in_blocks, same

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


def read(path: Path, by_blocks: bool) -> tuple[RunState, Position, list[Any]]:
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
    return state, position, events


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "JOURNAL_CHUNK", 1 << 14)


def write(path: Path, lines: list[bytes]) -> None:
    path.mkdir(exist_ok=True)
    (path / "rank-0-x.jsonl").write_bytes(b"".join(lines))


def lines_of(told: Story, together: bool) -> list[bytes]:
    """A journal's lines; `together`: as the hooks write steps today."""
    lines = [line_of(event)[:-1] for event in told.events]
    return [line + b"\n" for line in (in_blocks(lines) if together else lines)]


def curves_of(state: RunState) -> Any:
    return msgspec.json.decode(
        msgspec.json.encode(curve_arguments(state), enc_hook=lambda array: array.tolist())
    )  # a gap becomes null


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.001, 0.01, 0.2]), st.sampled_from([None, "actor"]), st.booleans())
@example(4009, 0.2, None, False)  # no hello, and the first line that can be read is a step's
@pytest.mark.long
def test_a_journal_is_the_same_by_blocks_and_line_by_line(
    tmp_path: Path, small: None, seed: int, share: float, role: str | None, together: bool
) -> None:
    noise = random.Random(seed)
    write(tmp_path / "run", spoilt(lines_of(told_with(noise, 400, role), together), noise, share))
    by_blocks, alone = read(tmp_path / "run", True), read(tmp_path / "run", False)
    is_same = same(by_blocks[0], alone[0]) and alike(curves_of(by_blocks[0]), curves_of(alone[0]))
    assert is_same  # not in the assertion: its explanation of texts that long takes minutes
    assert by_blocks[1] == alone[1]


@pytest.mark.parametrize("together", [False, True])
def test_a_long_journal_is_read_by_blocks(tmp_path: Path, small: None, together: bool) -> None:
    """Whatever else stands between its steps: what is read line by line is the exception."""
    told = told_with(random.Random(3), 1500, "actor")
    write(tmp_path / "run", lines_of(told, together))
    _, _, events = read(tmp_path / "run", True)
    blocks = [each for each in events if isinstance(each, StepBlock)]
    assert sum(map(len, blocks)) == 1500
    breaks = sum(isinstance(each, Metrics | Note) for each in told.events)
    chunks = (tmp_path / "run" / "rank-0-x.jsonl").stat().st_size // journal_reader.JOURNAL_CHUNK
    assert len(blocks) <= 2 + breaks + chunks
