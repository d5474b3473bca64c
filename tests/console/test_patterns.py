"""Patterns that users write, and the file that holds them."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor import settings
from monitor.console.user_patterns import BadPattern, compile_pattern, read_pattern
from monitor.errors import UserError
from trainhooks.protocol import rundir

ROUND = r"round (?P<step>\d+) of (?P<total>\d+): energy (?P<energy>\S+)"


def test_named_groups_are_values() -> None:
    reading = read_pattern("it was round 5 of 9: energy -1.5e3", (compile_pattern(ROUND),))
    assert reading is not None
    assert (reading.step, reading.total, reading.metrics) == (5, 9, {"energy": -1500.0})


def test_pattern_reads_times_rates_roles_and_reasons() -> None:
    pattern = compile_pattern(
        r"(?P<role>\w+) took (?P<seconds>\S+) at (?P<tokens_per_second>\S+), skipped as (?P<reason>.*)"
    )
    reading = read_pattern("actor took 1m16s at 19.8k, skipped as empty", (pattern,))
    assert reading is not None
    assert (reading.role, reading.seconds, reading.tokens_rate) == ("actor", 76.0, 19800.0)
    assert reading.reason == "empty"


@pytest.mark.parametrize(
    ("regex", "why"),
    [
        ("round (?P<step>", "not a regular expression"),
        (r"round \d+", "no named group"),
        (r"(?P<step>(a+)+)$", "repeats a repetition"),
        (r"(?P<step>(?:\s*\w+)*)=", "repeats a repetition"),
        (r"(?P<step>a)?(?(step)(?:b+)+|c)", "repeats a repetition"),
        (5, "missing or not a text"),
        (None, "missing or not a text"),
    ],
)
def test_bad_pattern_is_reported_in_one_line(regex: object, why: str) -> None:
    with pytest.raises(BadPattern, match=why) as caught:
        compile_pattern(regex)
    assert "\n" not in str(caught.value)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    return tmp_path / settings.FILE_NAME


def test_no_file_gives_no_patterns(home: Path) -> None:
    assert settings.patterns() == ()


def test_patterns_are_read_from_the_file(home: Path) -> None:
    home.write_text(f"[[console.pattern]]\nregex = '{ROUND}'\n[[console.pattern]]\nregex = 'x (?P<loss>.+)'\n")
    assert [pattern.pattern for pattern in settings.patterns()] == [ROUND, "x (?P<loss>.+)"]


@pytest.mark.parametrize(
    "text", ["[[console", "console = 5", "[console]\npattern = 5", "[[console.pattern]]\n", "a = 1\na = 2"]
)
def test_bad_file_is_reported_in_one_line(home: Path, text: str) -> None:
    home.write_text(text)
    with pytest.raises(UserError) as caught:
        settings.patterns()
    assert str(home) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_that_is_not_text_is_reported(home: Path) -> None:
    home.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError):
        settings.patterns()
