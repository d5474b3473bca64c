"""The user's configuration: one TOML file. What is wrong with it is said in one line.

    [[console.pattern]]
    regex = '^round (?P<step>\\d+) of (?P<total>\\d+): energy (?P<energy>\\S+)$'

    [screen]
    theme = "paper"

It is `$TRAINMON_DIR/config.toml` where that variable is set, else `config.toml` in the platform's directory for
configuration (`~/.config/trainmon` on Linux). Values of [run] and [screen] can be said in the environment, too, where
they win over the file: `theme` of `[screen]` is `TRAINMON_SCREEN_THEME`.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Collection
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import platformdirs

from monitor.console.patterns import MAX_PATTERNS, BadPattern, compile_pattern
from monitor.errors import UserError
from monitor.settings import keymap
from trainhooks import rundir
from trainhooks.events import clean

NAME = "config.toml"

# Every table, and what may stand in it.
TABLES: dict[str, tuple[str, ...]] = {
    "console": ("pattern",),
    "run": ("price", "expect_tps", "gpu_clock", "gpu_delay"),
    "screen": ("theme", "low_bandwidth", "ascii"),
    "alerts": ("bell", "command"),
    "retention": ("runs", "gib", "automatic"),
    "speed": ("fast", "slow"),
    "keys": tuple(keymap.DEFAULT),
}
THEMES = ("midnight", "paper", "contrast", "colour-blind")
_SAID = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def path() -> Path:
    """Where the file is, or would be."""
    if os.environ.get(rundir.STATE_VARIABLE):
        return rundir.state_dir() / NAME
    try:
        return platformdirs.user_config_path("trainmon") / NAME
    except RuntimeError:  # a user without a home: there is none
        return Path(os.devnull) / NAME


def table(name: str) -> dict[str, Any]:
    """The entries under [name]; none where there is no such table.

    Raises:
        UserError: the file cannot be read, or the name stands for something else.
    """
    source = path()
    found = _load(source).get(name, {})
    if not isinstance(found, dict):
        raise UserError(f"{source}: {name} is written as a table: [{name}]")
    return found


def amount(name: str, key: str) -> float | None:
    """A number above 0 from [name], or from the environment; None where neither tells one.

    Raises:
        UserError: something else is told.
    """
    where, told = _told(name, key)
    try:
        value = None if told is None or isinstance(told, bool) else float(told)
    except (TypeError, ValueError):
        value = math.nan
    if told is not None and not (value is not None and 0 < value < math.inf):
        raise UserError(f"{where} is {clean(told, 60)!r}; it has to be a number above 0")
    return value


def switch(name: str, key: str) -> bool | None:
    """A yes or no, likewise."""
    where, told = _told(name, key)
    value = _SAID.get(told.lower()) if isinstance(told, str) else told
    if told is not None and not isinstance(value, bool):
        raise UserError(f"{where} is {clean(told, 60)!r}; it has to be true or false")
    return value if isinstance(value, bool) else None


def choice(name: str, key: str, allowed: Collection[str]) -> str | None:
    """One of some words, likewise."""
    where, told = _told(name, key)
    if told is not None and told not in allowed:
        raise UserError(f"{where} is {clean(told, 60)!r}; it has to be one of: {', '.join(allowed)}")
    return told if isinstance(told, str) else None


def slow_link(asked: bool) -> bool:
    """Whether the screen is to send little, asked for or configured. What else is said of the screen is checked here.

    Raises:
        UserError: something of it cannot be used: better said before a screen opens than behind it.
    """
    theme()
    ascii_only()
    keys()
    return asked or bool(switch("screen", "low_bandwidth"))


def theme() -> str | None:
    return choice("screen", "theme", THEMES)


def ascii_only() -> bool | None:
    """Whether the terminal shows ASCII only; None where that is left to what the terminal says of itself."""
    return switch("screen", "ascii")


def keys() -> dict[str, tuple[str, ...]]:
    """All keys of the dashboard, the person's own in place of the defaults.

    Raises:
        UserError: one of them cannot be used.
    """
    try:
        return keymap.chosen(table("keys"))
    except keymap.BadKey as error:
        raise UserError(f"{path()}: [keys]: {clean(error, 200)}") from None


def _told(name: str, key: str) -> tuple[str, Any]:
    """Where a value comes from, and the value; None where nobody tells one."""
    variable = f"TRAINMON_{name}_{key}".upper()
    if told := os.environ.get(variable):
        return variable, told
    return f"{path()}: {key} in [{name}]", table(name).get(key)


def patterns() -> tuple[re.Pattern[str], ...]:
    """The user's own patterns for console lines; none where there is no file.

    Raises:
        UserError: the file cannot be read, or a pattern in it cannot be used.
    """
    source = path()
    given = table("console").get("pattern", [])
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
        text = _own_text(source)
    except (FileNotFoundError, NotADirectoryError):
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
        _check(source, found)
        return found
    raise UserError(f"{source}: reading it needs Python 3.11 or later, or the package tomli")


def _own_text(source: Path) -> str:
    """The file's text, if no other user could have written it: a command in it is run as us."""
    with open(source, encoding="utf-8", opener=rundir.at_once) as opened:
        found = os.fstat(opened.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise UserError(f"{source} is no regular file; settings are read from one")
        if found.st_uid not in _owners():
            raise UserError(f"{source} belongs to another user; remove it, or set TRAINMON_DIR to a directory of yours")
        if found.st_mode & stat.S_IWOTH:
            raise UserError(f"everybody may change {source}; run: chmod o-w {source}")
        return opened.read()


def _owners() -> set[int]:
    """Whose settings hold: our own, root's, and, where we are root by sudo, those of who asked for that."""
    asked = os.environ.get("SUDO_UID", "") if os.getuid() == 0 else ""
    return {0, os.getuid(), *([int(asked)] if asked.isascii() and asked.isdigit() else [])}


def _check(source: Path, found: dict[str, Any]) -> None:
    """What nobody reads was meant to be something else: it is refused, with the nearest name that is read."""
    for name, entries in found.items():
        if name not in TABLES:
            raise UserError(f"{source}: there is no [{clean(name, 60)}]{_nearest(name, TABLES)}")
        known = TABLES[name]
        for key in entries if isinstance(entries, dict) else ():
            if key not in known:
                raise UserError(f"{source}: there is no {clean(key, 60)} in [{name}]{_nearest(key, known)}")


def _nearest(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; known are: {', '.join(known)}"
