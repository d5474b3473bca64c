"""`trainmon snapshot`: each screen as a picture that loads nothing, whatever the run's names hold."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
import sample_views as views

from monitor.keymap import SCREENS
from monitor.palettes import PALETTES
from monitor.runs.follow import load
from monitor.runs.replay import recorded
from monitor.tui.snapshot import OVERVIEW, picture
from tests.fuzz.targets import clean_text
from tests.launch.conftest import State
from tests.security import hostile

RECORDING = Path(__file__).parents[2] / "demo" / "recordings" / "sft-cpu.jsonl"
SVG = "{http://www.w3.org/2000/svg}"
ELEMENTS = {SVG + name for name in ("svg", "style", "defs", "clipPath", "rect", "text", "g", "circle")}


def shown(drawn: str) -> str:
    """The words of a picture, once it is checked that it is one and loads nothing."""
    root = ElementTree.fromstring(drawn)
    for each in root.iter():
        assert each.tag in ELEMENTS, each.tag
        assert not any(name.startswith("on") or "href" in name or name == "src" for name in each.attrib)
    styles = "".join(each.text or "" for each in root.iter(SVG + "style"))
    assert "url" not in styles and "import" not in styles and "font-face" not in styles
    clean_text(drawn)
    return " ".join("".join(each.text or "" for each in root.iter(SVG + "text")).replace("\xa0", " ").split())


@pytest.mark.parametrize("screen", [OVERVIEW, *SCREENS])
def test_each_screen_is_drawn(screen: str) -> None:
    words = shown(picture(recorded(RECORDING), screen, (120, 35)))
    assert "REPLAY" in words and "sft_trainer" in words
    titles = {OVERVIEW: "Step time by phase", "findings": "cpu-starved", "log": "Console", "setup": "sft_trainer.py"}
    assert titles.get(screen, "") in words


def test_a_size_and_a_theme_are_those_asked_for() -> None:
    view = recorded(RECORDING)
    paper = next(palette for palette in PALETTES if not palette.dark)
    small, large = (picture(view, size=size, theme=paper.name) for size in ((80, 24), (200, 60)))
    assert paper.background in small and len(shown(small)) < len(shown(large))
    assert PALETTES[0].background not in small


@pytest.mark.parametrize("screen", [OVERVIEW, "findings", "charts", "gpus"])
def test_no_text_of_a_hostile_journal_becomes_markup(tmp_path: Path, screen: str) -> None:
    assert hostile.MARK in shown(picture(load(hostile.write(tmp_path / "a")), screen))


def test_the_command_writes_a_file_or_to_stdout(tmp_path: Path) -> None:
    state, file = State(tmp_path / "state"), tmp_path / "screen.svg"
    words = ("snapshot", str(RECORDING), "--screen", "why", "--size", "100x30")
    done = state.call(*words, "-o", str(file))
    assert (done.returncode, done.stdout) == (0, b"") and "cpu-starved" in shown(file.read_text(encoding="utf-8"))
    done = state.call(*words)
    assert (done.returncode, done.stderr) == (0, b"") and shown(done.stdout.decode())
    for wrong in (("--size", "1000x1"), ("--size", "wide"), ("--screen", "none"), ("-o", str(tmp_path))):
        done = state.call(*words, *wrong)
        (line,) = done.stderr.decode().splitlines()
        assert (done.returncode, done.stdout) == (2, b"") and line.startswith("trainmon: ")


async def test_a_key_writes_the_screen(app_on, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    app = app_on(views.running())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("s", "ctrl+s")
        await pilot.pause()
        (file,) = tmp_path.iterdir()
        assert file.name.startswith("trainmon-rl-code-rft-steps-") and "generation" in shown(file.read_text())
        app.title = "[/b]\x1b]52;c;aGk=\x07/../x"
        (tmp_path / "gone").mkdir()
        monkeypatch.chdir(tmp_path / "gone")
        (tmp_path / "gone").rmdir()
        await pilot.press("escape", "ctrl+s")
        await pilot.pause()
        assert app.is_running, "where nothing can be written, it is said"
        assert list(tmp_path.iterdir()) == [file]


@pytest.mark.long
def test_a_report_is_a_picture_too(tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    file = tmp_path / "overview.svg"
    assert state.call("report", str(RECORDING), "--svg", str(file)).returncode == 0
    assert "REPLAY" in shown(file.read_text())
    both = state.call("report", str(RECORDING), "--svg", str(file), "--json")
    assert both.returncode == 2 and b"two forms" in both.stderr
