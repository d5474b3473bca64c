"""The fuzzer in its short form, inside the tests: some thousand inputs a target, and that it finds what is broken."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz.__main__ import ALL, SHOWN, feed, main
from tests.fuzz.inputs import HOSTILE, line
from tests.fuzz.targets import Decoder, Printed, clean_text
from trainhooks.protocol.limits import clean

ROOT = Path(__file__).resolve().parents[2]
SHORT = {"decode": 20_000, "console": 3_000, "journals": 2_000, "sequence": 3_000, "screens": 80}


@pytest.mark.parametrize("target", ALL, ids=lambda target: target.name)
def test_nothing_breaks(target: type[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRAINMON_DIR", str(tmp_path))
    fed, failed = feed(target(), Random(target.name), SHORT[target.name])
    assert not failed, failed[0]
    assert fed >= SHORT[target.name]


@given(st.binary(max_size=200))
def test_any_bytes_as_a_line(data: bytes) -> None:
    Decoder().check(data)


@given(st.lists(st.binary(max_size=80), max_size=6))
def test_any_bytes_as_output(pieces: list[bytes]) -> None:
    printed = Printed()
    for piece in pieces:
        printed.check(piece)


def test_the_same_seed_makes_the_same_inputs() -> None:
    one, other = Random(5), Random(5)
    assert [line(one) for _ in range(200)] == [line(other) for _ in range(200)]


def test_a_gate_that_lets_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fuzzer itself can fail: with the cleaning of names left out, it says so, with the input."""
    from monitor.sources import decode

    monkeypatch.setattr(decode, "clean_name", lambda text: text)
    _, failed = feed(Decoder(), Random(1), 20_000)
    assert len(failed) == SHOWN and all(isinstance(given, bytes) for given, _ in failed)


def test_a_reader_that_raises_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def check(self: Decoder, given: bytes) -> None:
        raise OverflowError

    monkeypatch.setattr(Decoder, "check", check)
    assert main(["--only", "decode", "--inputs", "10", "--seed", "3"]) == 1
    assert "OverflowError" in capsys.readouterr().out


def test_every_hostile_text_is_harmless_once_it_is_cleaned() -> None:
    for text in HOSTILE:
        clean_text(clean(text))


def test_it_runs_from_the_command_line() -> None:
    words = [sys.executable, "-m", "tests.fuzz", "--only", "sequence", "--inputs", "300", "--seed", "1"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0 and "seed 1" in done.stdout and "sequence" in done.stdout


def test_the_guided_form_says_what_it_lacks() -> None:
    done = subprocess.run([sys.executable, "-m", "tests.fuzz.guided"], cwd=ROOT, capture_output=True, timeout=100)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
