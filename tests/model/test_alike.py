"""Steps read as columns at once, and line by line: the same state, whatever the lines hold."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from monitor.sources import journal_reader, run_directory
from monitor.sources.run_directory import RunDirectory
from monitor.step_columns import StepBatch
from trainhooks.protocol.events import Metrics, Note, Pulse

from .conftest import Story, line_of
from .test_slabs import state_of

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


def read(path: Path, at_once: bool) -> tuple[str, Any, list[Any]]:
    source, events = RunDirectory(path), []
    poll = source.poll_batches if at_once else source.poll
    while batch := poll():
        events += batch
    position = source.position()
    source.close()
    return state_of(events), position, events


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_directory, "LONG", 1)
    monkeypatch.setattr(run_directory, "CHUNK", 1 << 14)
    monkeypatch.setattr(journal_reader, "CHUNK", 1 << 14)
    monkeypatch.setattr(journal_reader, "BATCH", 1 << 12)
    monkeypatch.setattr(run_directory, "MAX_FOLDED", 1 << 16)


def write(path: Path, lines: list[bytes]) -> None:
    path.mkdir(exist_ok=True)
    (path / "rank-0-x.jsonl").write_bytes(b"".join(lines))


def lines_of(told: Story) -> list[bytes]:
    return [line_of(event) for event in told.events]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.001, 0.01, 0.2]), st.sampled_from([None, "actor"]))
@example(4009, 0.2, None)  # no hello, and the first line that can be read belongs to a batch
def test_a_journal_is_the_same_at_once_and_line_by_line(
    tmp_path: Path, small: None, seed: int, share: float, role: str | None
) -> None:
    noise = random.Random(seed)
    write(tmp_path / "run", spoilt(lines_of(told_with(noise, 400, role)), noise, share))
    at_once, alone = read(tmp_path / "run", True), read(tmp_path / "run", False)
    is_same = at_once[0] == alone[0]  # not in the assertion: its explanation of texts that long takes minutes
    assert is_same
    assert at_once[1] == alone[1]


def test_a_long_journal_is_read_at_once(tmp_path: Path, small: None) -> None:
    """Whatever else stands between its steps: what is read line by line is the exception."""
    told = told_with(random.Random(3), 1500, "actor")
    write(tmp_path / "run", lines_of(told))
    _, _, events = read(tmp_path / "run", True)
    arrays = [len(each) for each in events if isinstance(each, StepBatch) and hasattr(each.t, "dtype")]
    assert sum(arrays) > 1400
