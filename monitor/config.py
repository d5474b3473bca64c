"""The user's configuration: one TOML file. What is wrong with it is said in one line.

    [[console.pattern]]
    regex = '^round (?P<step>\\d+) of (?P<total>\\d+): energy (?P<energy>\\S+)$'

It is `$TRAINMON_DIR/config.toml` where that variable is set, else `config.toml` in the platform's directory for
configuration (`~/.config/trainmon` on Linux).
"""

from __future__ import annotations

import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import platformdirs

from monitor.console.patterns import MAX_PATTERNS, BadPattern, compile_pattern
from monitor.runs import UserError
from trainhooks import rundir
from trainhooks.events import clean

NAME = "config.toml"


def path() -> Path:
    """Where the file is, or would be."""
    if os.environ.get(rundir.STATE_VARIABLE):
        return rundir.state_dir() / NAME
    return platformdirs.user_config_path("trainmon") / NAME


def patterns() -> tuple[re.Pattern[str], ...]:
    """The user's own patterns for console lines; none where there is no file.

    Raises:
        UserError: the file cannot be read, or a pattern in it cannot be used.
    """
    source = path()
    console = _load(source).get("console", {})
    given = console.get("pattern", []) if isinstance(console, dict) else None
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise UserError(f"{source}: patterns are written as [[console.pattern]] with a line regex = '...'")
    if len(given) > MAX_PATTERNS:
        raise UserError(f"{source}: {len(given)} patterns; {MAX_PATTERNS} is the most")
    out = []
    for number, each in enumerate(given, 1):
        try:
            out.append(compile_pattern(each.get("regex")))
        except BadPattern as error:
            raise UserError(f"{source}: pattern {number}: {error}") from None
    return tuple(out)


def _load(source: Path) -> dict[str, Any]:
    try:
        text = source.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{source}: {clean(error, 200)}") from None
    for module in ("tomllib", "tomli"):  # the first came with Python 3.11
        try:
            loads = import_module(module).loads
        except ImportError:
            continue
        try:
            found: dict[str, Any] = loads(text)
        except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
            raise UserError(f"{source}: {clean(error, 200)}") from None
        return found
    raise UserError(f"{source}: reading it needs Python 3.11 or later, or the package tomli")
