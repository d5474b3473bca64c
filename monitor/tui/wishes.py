"""What a person wants of the screen: told in the configuration, or left behind by the last dashboard."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from monitor.settings import config
from monitor.tui.actions import PANELS, SCREENS
from trainhooks import rundir

NAME = "screen.json"  # in the state directory

_PANELS = [name for name, _ in PANELS]
_SCREENS = [row.name for row in SCREENS]


@dataclass(frozen=True, slots=True)
class Wishes:
    """How the dashboard begins. None: as it comes."""

    theme: str | None = None
    hidden: tuple[str, ...] | None = None  # panels
    screen: str | None = None  # the one in place of the overview


def wishes() -> Wishes:
    """What was left behind, with the theme of the configuration where it names one.

    Raises:
        UserError: the configuration is wrong.
    """
    left = _left()
    return Wishes(config.theme() or left.theme, left.hidden, left.screen)


def _left() -> Wishes:
    """What the last dashboard left; another version's words, or another program's, count for nothing."""
    found: dict[str, Any] = rundir.read_json(rundir.state_dir() / NAME) or {}
    theme, hidden, screen = found.get("theme"), found.get("hidden"), found.get("screen")
    known = tuple(name for name in hidden if name in _PANELS) if isinstance(hidden, list) else None
    return Wishes(theme if theme in config.THEMES else None, known, screen if screen in _SCREENS else None)


def leave(left: Wishes) -> None:
    """Keep this for the next dashboard. Failing is no harm."""
    with contextlib.suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=rundir.state_dir(), prefix=f".{NAME}.")
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            json.dump(asdict(left), out)
        os.replace(temporary, Path(rundir.state_dir()) / NAME)
