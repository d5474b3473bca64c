"""The configuration: what nobody reads is refused with the nearest name, and the environment wins over the file."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from monitor import settings
from monitor.errors import UserError
from monitor.palettes import PALETTES
from monitor.tui.feed import Preferences, load_preferences, save_preferences


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINMON_DIR", str(tmp_path))
    return tmp_path / settings.FILE_NAME


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[scren]\ntheme = 'paper'", r"unknown table \[scren\]; did you mean screen\?"),
        ("[screen]\nthem = 'paper'", r"unknown key them in \[screen\]; did you mean theme\?"),
        ("[run]\nxyz = 1", r"unknown key xyz in \[run\]; known: price, expect_tps"),
        ("prize = 1", r"unknown table \[prize\]"),
        ("[screen]\ntheme = 'mauve'", "theme in .screen. is 'mauve'; it must be one of: midnight, paper"),
        ("[screen]\nlow_bandwidth = 'perhaps'", "is 'perhaps'; it must be true or false"),
        ("[run]\nprice = 'cheap'", "is 'cheap'; it must be a number above 0"),
        ("[run]\nprice = -1", "it must be a number above 0"),
        ("[run]\nprice = true", "it must be a number above 0"),
        ("[screen", "config.toml"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=says) as told:
        settings.saves_bandwidth(False)
        settings.amount("run", "price")
    assert "\n" not in str(told.value)


def test_without_a_file_nothing_is_told(file: Path) -> None:
    assert (settings.saves_bandwidth(False), settings.theme(), settings.amount("run", "price")) == (False, None, None)


def test_the_environment_wins_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[run]\nprice = 2\nexpect_tps = 100\n[screen]\ntheme = 'paper'\nlow_bandwidth = true\n")
    assert (settings.amount("run", "price"), settings.theme(), settings.saves_bandwidth(False)) == (2.0, "paper", True)
    monkeypatch.setenv("TRAINMON_RUN_PRICE", "3.5")
    monkeypatch.setenv("TRAINMON_SCREEN_THEME", "contrast")
    monkeypatch.setenv("TRAINMON_SCREEN_LOW_BANDWIDTH", "no")
    assert (settings.amount("run", "price"), settings.theme(), settings.saves_bandwidth(False)) == (
        3.5,
        "contrast",
        False,
    )
    assert settings.saves_bandwidth(True)  # and a flag over both
    assert settings.amount("run", "expect_tps") == 100.0


def test_a_wrong_value_of_the_environment_names_the_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMON_RUN_PRICE", "nan")
    with pytest.raises(UserError, match="TRAINMON_RUN_PRICE is 'nan'"):
        settings.amount("run", "price")


def test_the_themes_are_those_there_are() -> None:
    assert tuple(palette.name for palette in PALETTES) == settings.THEMES


def test_the_next_dashboard_looks_as_the_last_one_and_opens_on_the_overview(file: Path) -> None:
    assert load_preferences() == Preferences()
    save_preferences(Preferences("paper", ("console", "ranks")))
    assert load_preferences() == Preferences("paper", ("console", "ranks"))
    file.write_text("[screen]\ntheme = 'contrast'")
    assert load_preferences().theme == "contrast"
    assert not any("screen" in each.name for each in fields(Preferences)), "the first screen answers why"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"theme": 7, "hidden": "all", "screen": "moon"}', '{"hidden": [1]}'])
def test_what_another_program_left_counts_for_nothing(file: Path, text: str) -> None:
    (file.parent / "screen.json").write_text(text)
    found = load_preferences()
    assert found.theme is None and not found.hidden
