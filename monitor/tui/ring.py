"""An alert that reaches a person who looks elsewhere: the terminal's bell, and a desktop notification if it can.

OSC 9 and OSC 777 are two conventions of terminals; one that knows neither would pass them over, but nothing is sent to
a terminal that is not known to have them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from textual.app import App
from textual.message import Message

from monitor.model.report import View
from trainhooks.events import clean

LONGEST = 200  # characters of a notification

_OSC_9 = ("iTerm.app", "WezTerm", "ghostty", "WarpTerminal")  # TERM_PROGRAM, or LC_TERMINAL, which SSH passes on
_OSC_777 = ("foot", "rxvt", "xterm-ghostty")  # TERM


class Ring(Message):
    """Somebody should look."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class News:
    """What of a view is worth a bell: a finding that came or grew worse, and the end of the run."""

    def __init__(self) -> None:
        self._ran = False

    def of(self, view: View) -> str | None:
        said = [str(turn) for turn in view.turns if turn.kind in ("appeared", "worse")]
        state = view.report.outcome.state
        if self._ran and state != "running":
            said.append(f"the training {state}")
        self._ran = state == "running"
        name = view.report.run.name or view.report.run.id or "trainmon"
        return clean(f"{name}: {'; '.join(said)}", LONGEST) if said else None


def sound(app: App[str], text: str) -> None:
    """Ring."""
    app.bell()
    sequence = notification(text, os.environ)
    driver = app._driver  # Textual's own way out; what is written past it may land inside another sequence
    if sequence and driver is not None:
        driver.write(sequence)


def notification(text: str, environment: Mapping[str, str]) -> str:
    """The control sequence of a desktop notification; empty where the terminal is not known to have them."""
    text = clean(text, LONGEST)
    term = environment.get("TERM", "")
    if {environment.get("TERM_PROGRAM"), environment.get("LC_TERMINAL")} & {*_OSC_9, "iTerm2"}:
        return f"\x1b]9;{text}\x07"
    if term.startswith(_OSC_777) or environment.get("VTE_VERSION"):
        return f"\x1b]777;notify;trainmon;{text}\x07"
    if term == "xterm-kitty":
        return f"\x1b]99;;{text}\x1b\\"
    return ""
