"""Feeds that a test drives by hand, and an app on them. Nothing here waits for time to pass."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import pytest
import sample_views as views
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode
from textual.drivers.headless_driver import HeadlessDriver

from monitor.model.view import View
from monitor.palettes import PALETTES, PhaseTones
from monitor.tui.app import TrainmonApp
from monitor.tui.drawing.characters import TerminalCapabilities
from monitor.tui.panels.base import ViewOptions

LETTERS = string.ascii_letters + string.digits + string.punctuation  # styles of one screen


class HandFeed:
    """Hands out one view at the start, and the others when the test says so."""

    def __init__(self, view: View | None) -> None:
        self.first = view
        self.stopped = False
        self.rank: int | None = None  # the one that was asked for
        self.push: Callable[[View], None] = lambda view: None

    def start(self, on_view: Callable[[View], None]) -> None:
        self.push = on_view
        if self.first is not None:
            on_view(self.first)

    def stop(self) -> None:
        self.stopped = True

    def show_rank(self, rank: int | None) -> None:
        self.rank = rank


class AppOnView:
    def __call__(self, view: View | None, **options: Any) -> TrainmonApp:
        self.feed = HandFeed(view)
        options.setdefault("title", "rl-code-rft")
        options.setdefault("ink", TerminalCapabilities())
        return TrainmonApp(self.feed, **options)


@pytest.fixture
def app_on() -> AppOnView:
    """`app_on(view)` makes an app; `app_on.feed` is the feed behind it."""
    return AppOnView()


def text_of(app: TrainmonApp) -> str:
    """What is on the screen, as text."""
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def drawn(app: TrainmonApp) -> str:
    """What is on the screen, as text; below it a letter for the style of each cell, and what the letters stand for."""
    letters: dict[str, str] = {}
    rows = []
    for strip in app.screen._compositor.render_strips():
        cells = ((letters.setdefault(str(each.style), LETTERS[len(letters)]), each.cell_length) for each in strip)
        rows.append("".join(letter * length for letter, length in cells))
    plain = "\n".join(line.rstrip() for line in text_of(app).split("\n"))
    styles = "\n".join(f"{letter} {style}" for style, letter in letters.items())
    return "\n\n".join((plain, "\n".join(rows), styles)) + "\n"


class Texts(SingleFileSnapshotExtension):
    _write_mode = WriteMode.TEXT
    _file_extension = "txt"

    def serialize(self, data: str, **_: object) -> str:
        return data


@pytest.fixture
def held(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    """Compares a text with the one in `__snapshots__`."""
    return snapshot.use_extension(Texts)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written to the terminal: as if there were one."""
    parts: list[str] = []
    monkeypatch.setattr(HeadlessDriver, "is_headless", False)
    monkeypatch.setattr(HeadlessDriver, "write", lambda self, data: parts.append(data))
    return parts


@pytest.fixture
def screen_text() -> Callable[[TrainmonApp], str]:
    return text_of


@pytest.fixture
def options() -> ViewOptions:
    tones = PhaseTones()
    tones.learn(views.USUAL)
    return ViewOptions("title", PALETTES[0], tones)
