"""The dashboard's surroundings: the feed of Views, the bell for alerts, and saved preferences."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from textual.app import App
from textual.message import Message

from monitor import settings
from monitor.model.view import View
from monitor.tui.actions import PANELS
from monitor.tui.textual_private import driver_of
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import clean

# The terminal's bell, and desktop notifications by OSC 9, 777 or 99. They are sent only to terminals that are known to
# support them.

MAX_NOTIFICATION = 200  # characters of a notification

_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "WarpTerminal")  # TERM_PROGRAM, or LC_TERMINAL, which SSH passes on
_OSC_777 = ("foot", "rxvt", "xterm-ghostty")  # TERM


class Ring(Message):
    """An alert for which the bell rings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class NewAlerts:
    """Selects what rings the bell: a finding that appeared or got worse, and the end of the run."""

    def __init__(self) -> None:
        self._ran = False

    def of(self, view: View) -> str | None:
        """Return the text of a notification; None if there is nothing new."""
        said = [str(turn) for turn in view.finding_changes if turn.kind in ("appeared", "worse")]
        state = view.report.outcome.state
        if self._ran and state != "running":
            said.append(f"the training {state}")
        self._ran = state == "running"
        name = view.report.run.name or view.report.run.id or "trainmon"
        return clean(f"{name}: {'; '.join(said)}", MAX_NOTIFICATION) if said else None


def ring_bell(app: App[str], text: str) -> None:
    """Ring the terminal's bell, and send a desktop notification if the terminal supports them."""
    app.bell()
    sequence = notification(text, os.environ)
    driver = driver_of(app)
    if sequence and driver is not None:
        driver.write(sequence)


def notification(text: str, environment: Mapping[str, str]) -> str:
    """Return the control sequence of a desktop notification; "" if the terminal is not known to support them."""
    text = clean(text, MAX_NOTIFICATION)
    term = environment.get("TERM", "")
    if {environment.get("TERM_PROGRAM"), environment.get("LC_TERMINAL")} & {*_OSC_9, "iTerm2"}:
        return f"\x1b]9;{text}\x07"
    if term.startswith(_OSC_777) or environment.get("VTE_VERSION"):
        return f"\x1b]777;notify;trainmon;{text}\x07"
    if term == "xterm-kitty":
        return f"\x1b]99;;{text}\x1b\\"
    return ""


NAME = "screen.json"  # in the state directory

_PANELS = [panel.name for panel in PANELS]


@dataclass(frozen=True, slots=True)
class Preferences:
    """How the dashboard starts. None is the default."""

    theme: str | None = None
    hidden: tuple[str, ...] | None = None  # panels


def load_preferences() -> Preferences:
    """Return what the last dashboard saved; a theme in the configuration comes first.

    Raises:
        UserError: the configuration is invalid.
    """
    saved = _saved()
    return Preferences(settings.theme() or saved.theme, saved.hidden)


def _saved() -> Preferences:
    """Return the saved preferences, without values that this version does not know."""
    content: dict[str, Any] = rundir.read_json(rundir.state_dir() / NAME) or {}
    theme, hidden = content.get("theme"), content.get("hidden")
    known = tuple(name for name in hidden if name in _PANELS) if isinstance(hidden, list) else None
    return Preferences(theme if theme in settings.THEMES else None, known)


def save_preferences(preferences: Preferences) -> None:
    """Save the preferences for the next dashboard; do nothing if that fails."""
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=rundir.state_dir(), prefix=f".{NAME}.")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(asdict(preferences), out)
        os.replace(temporary, Path(rundir.state_dir()) / NAME)


class Feed(Protocol):
    """Follows a run, and hands out a frozen View whenever something changed."""

    def start(self, on_view: Callable[[View], None]) -> None:
        """Start a thread that calls `on_view` with each View."""

    def stop(self) -> None:
        """Stop; no call of `on_view` begins after this returns."""

    def show_rank(self, rank: int | None) -> None:
        """Hand out Views of another rank from now on; None: of the lowest."""


StopTraining = Callable[[Callable[[str], None]], None]
"""Stops the training, and reports each action as a line; it may block."""

AskForTrace = Callable[[Callable[[str], None]], None]
TellStacks = Callable[[Callable[[str], None]], None]
"""Asks the training for a trace, and reports what becomes of it as lines; it blocks until that is known."""
