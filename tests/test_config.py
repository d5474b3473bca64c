"""The configuration: what nobody reads is refused with the nearest name, and the environment wins over the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor.errors import UserError
from monitor.settings import config
from monitor.tui.themes import PALETTES
from monitor.tui.wishes import Wishes, leave, wishes


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINMON_DIR", str(tmp_path))
    return tmp_path / config.NAME


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[scren]\ntheme = 'paper'", r"there is no \[scren\]; did you mean screen\?"),
        ("[screen]\nthem = 'paper'", r"there is no them in \[screen\]; did you mean theme\?"),
        ("[run]\nxyz = 1", r"there is no xyz in \[run\]; known are: price, expect_tps"),
        ("prize = 1", r"there is no \[prize\]"),
        ("[screen]\ntheme = 'mauve'", "theme in .screen. is 'mauve'; it has to be one of: midnight, paper"),
        ("[screen]\nlow_bandwidth = 'perhaps'", "is 'perhaps'; it has to be true or false"),
        ("[run]\nprice = 'cheap'", "is 'cheap'; it has to be a number above 0"),
        ("[run]\nprice = -1", "it has to be a number above 0"),
        ("[run]\nprice = true", "it has to be a number above 0"),
        ("[screen", "config.toml"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(file: Path, text: str, says: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=says) as told:
        config.slow_link(False)
        config.amount("run", "price")
    assert "\n" not in str(told.value)


def test_without_a_file_nothing_is_told(file: Path) -> None:
    assert (config.slow_link(False), config.theme(), config.amount("run", "price")) == (False, None, None)


def test_the_environment_wins_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("[run]\nprice = 2\nexpect_tps = 100\n[screen]\ntheme = 'paper'\nlow_bandwidth = true\n")
    assert (config.amount("run", "price"), config.theme(), config.slow_link(False)) == (2.0, "paper", True)
    monkeypatch.setenv("TRAINMON_RUN_PRICE", "3.5")
    monkeypatch.setenv("TRAINMON_SCREEN_THEME", "contrast")
    monkeypatch.setenv("TRAINMON_SCREEN_LOW_BANDWIDTH", "no")
    assert (config.amount("run", "price"), config.theme(), config.slow_link(False)) == (3.5, "contrast", False)
    assert config.slow_link(True)  # and a flag over both
    assert config.amount("run", "expect_tps") == 100.0


def test_a_wrong_value_of_the_environment_names_the_variable(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMON_RUN_PRICE", "nan")
    with pytest.raises(UserError, match="TRAINMON_RUN_PRICE is 'nan'"):
        config.amount("run", "price")


def test_the_themes_are_those_there_are() -> None:
    assert tuple(palette.name for palette in PALETTES) == config.THEMES


def test_the_next_dashboard_begins_as_the_last_one_ended(file: Path) -> None:
    assert wishes() == Wishes()
    leave(Wishes("paper", ("console", "ranks"), "gpus"))
    assert wishes() == Wishes("paper", ("console", "ranks"), "gpus")
    file.write_text("[screen]\ntheme = 'contrast'")
    assert wishes().theme == "contrast"


@pytest.mark.parametrize("text", ["", "[]", "{", '{"theme": 7, "hidden": "all", "screen": "moon"}', '{"hidden": [1]}'])
def test_what_another_program_left_counts_for_nothing(file: Path, text: str) -> None:
    (file.parent / "screen.json").write_text(text)
    found = wishes()
    assert (found.theme, found.screen) == (None, None)
    assert not found.hidden
