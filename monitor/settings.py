r"""The user's configuration: one TOML file. Errors in it are reported in one line.

    [[console.pattern]]
    regex = '^round (?P<step>\d+) of (?P<total>\d+): energy (?P<energy>\S+)$'

    [screen]
    theme = "paper"

It is `$TRAINMON_DIR/config.toml` where that variable is set, else `config.toml` in the platform's directory for
configuration (`~/.config/trainmon` on Linux). Environment variables override values of [run], [screen] and [metrics]:
that of `theme` in `[screen]` is `TRAINMON_SCREEN_THEME`.
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

from monitor.assigned_keys import BadKey, assigned_keys
from monitor.console.user_patterns import MAX_PATTERNS, BadPattern, compile_pattern
from monitor.errors import UserError
from monitor.keymap import DEFAULT_KEYS
from monitor.model.steps.speed_classes import Bounds
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import clean

FILE_NAME = "config.toml"

# The tables of the file with their keys.
TABLES: dict[str, tuple[str, ...]] = {
    "console": ("pattern",),
    "run": ("price", "expect_tps", "gpu_clock", "trace", "control", "stop_on"),
    "screen": ("theme", "low_bandwidth", "ascii"),
    "alerts": ("bell", "command"),
    "metrics": ("textfile", "otlp"),
    "retention": ("runs", "gib", "run_gib", "automatic"),
    "speed": ("fast", "slow"),
    "keys": tuple(DEFAULT_KEYS),
}
FREE_TABLES = ("hosts",)  # whose keys are names of the user's own
THEMES = ("midnight", "paper", "contrast", "colour-blind")
_SWITCH_WORDS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class _Defaults:
    """Whether this process uses the defaults only."""

    everything = False


def ignore() -> None:
    """Use the defaults from now on, in this process and its forks: a bad value must not stop a training's start."""
    _Defaults.everything = True


def is_ignored() -> bool:
    return _Defaults.everything


def path() -> Path:
    """Return the path of the configuration file, which need not exist."""
    if os.environ.get(rundir.STATE_VARIABLE):
        return rundir.state_dir() / FILE_NAME
    try:
        return platformdirs.user_config_path("trainmon") / FILE_NAME
    except RuntimeError:  # a user without a home directory has no configuration
        return Path(os.devnull) / FILE_NAME


def table(name: str) -> dict[str, Any]:
    """Return the entries under [name]; empty without that table.

    Raises:
        UserError: the file cannot be read, or the name is not that of a table.
    """
    if is_ignored():
        return {}
    source = path()
    entries = _load(source).get(name, {})
    if not isinstance(entries, dict):
        raise UserError(f"{source}: {name} must be a table: [{name}]")
    return entries


def amount(name: str, key: str) -> float | None:
    """Return a number above 0 from the environment or from [name]; None if it is not set.

    Raises:
        UserError: the value is not a number above 0.
    """
    where, setting = _setting(name, key)
    try:
        value = None if setting is None or isinstance(setting, bool) else float(setting)
    except (TypeError, ValueError):
        value = math.nan
    if setting is not None and not (value is not None and 0 < value < math.inf):
        raise UserError(f"{where} is {clean(setting, 60)!r}; it must be a number above 0")
    return value


def switch(name: str, key: str) -> bool | None:
    """Return a boolean from the environment or from [name]; None if it is not set.

    Raises:
        UserError: the value is not a boolean.
    """
    where, setting = _setting(name, key)
    value = _SWITCH_WORDS.get(setting.lower()) if isinstance(setting, str) else setting
    if setting is not None and not isinstance(value, bool):
        raise UserError(f"{where} is {clean(setting, 60)!r}; it must be true or false")
    return value if isinstance(value, bool) else None


def words(name: str, key: str) -> str | None:
    """Return a text from the environment or from [name]; None if it is not set.

    Raises:
        UserError: the value is no text.
    """
    where, setting = _setting(name, key)
    if setting is not None and not isinstance(setting, str):
        raise UserError(f"{where} is {clean(setting, 60)!r}; it must be a text")
    return setting if isinstance(setting, str) else None


def choice(name: str, key: str, allowed: Collection[str]) -> str | None:
    """Return one of the allowed words from the environment or from [name]; None if it is not set.

    Raises:
        UserError: the value is none of these words.
    """
    where, setting = _setting(name, key)
    if setting is not None and setting not in allowed:
        raise UserError(f"{where} is {clean(setting, 60)!r}; it must be one of: {', '.join(allowed)}")
    return setting if isinstance(setting, str) else None


def saves_bandwidth(asked: bool) -> bool:
    """Return whether to save bandwidth, by the command line or the configuration; check all screen settings.

    Raises:
        UserError: a setting is invalid. Call this before a screen opens, so that the message is visible.
    """
    theme()
    ascii_only()
    keys()
    return asked or bool(switch("screen", "low_bandwidth"))


def theme() -> str | None:
    """Return the configured theme; None if it is not set."""
    return choice("screen", "theme", THEMES)


def ascii_only() -> bool | None:
    """Return whether to draw in ASCII only; None if the terminal's environment decides."""
    return switch("screen", "ascii")


def keys() -> dict[str, tuple[str, ...]]:
    """Return all keys of the dashboard, with the configured ones in place of the defaults.

    Raises:
        UserError: a configured key cannot be used.
    """
    try:
        return assigned_keys(table("keys"))
    except BadKey as error:
        raise UserError(f"{path()}: [keys]: {clean(error, 200)}") from None


def _setting(name: str, key: str) -> tuple[str, Any]:
    """Return the source of a value, for messages, and the value; None if it is not set."""
    if is_ignored():
        return "", None
    variable = f"TRAINMON_{name}_{key}".upper()
    if setting := os.environ.get(variable):
        return variable, setting
    return f"{path()}: {key} in [{name}]", table(name).get(key)


def patterns() -> tuple[re.Pattern[str], ...]:
    """Return the user's patterns for console lines; empty without a file.

    Raises:
        UserError: the file cannot be read, or a pattern is invalid.
    """
    source = path()
    given = table("console").get("pattern", [])
    if not isinstance(given, list) or not all(isinstance(pattern, dict) for pattern in given):
        raise UserError(f"{source}: write patterns as [[console.pattern]] with a line regex = '...'")
    if len(given) > MAX_PATTERNS:
        raise UserError(f"{source}: {len(given)} patterns; the limit is {MAX_PATTERNS}")
    out = []
    for number, pattern in enumerate(given, 1):
        try:
            out.append(compile_pattern(pattern.get("regex")))
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
            tables: dict[str, Any] = loads(text)
        except (ValueError, RecursionError) as error:  # TOMLDecodeError is a ValueError
            raise UserError(f"{source}: {clean(error, 200)}") from None
        _check(source, tables)
        return tables
    raise UserError(f"{source}: install tomli, or use Python 3.11 or later, to read it")


def _own_text(source: Path) -> str:
    """Return the file's text; refuse one that other users can write, as commands in it run as this user."""
    with open(source, encoding="utf-8", opener=rundir.open_at_once) as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{source} is not a regular file")
        if status.st_uid not in _trusted_owners():
            raise UserError(f"{source} belongs to another user; remove it, or set TRAINMON_DIR to a directory of yours")
        if status.st_mode & stat.S_IWOTH:
            raise UserError(f"{source} is writable by everybody; run: chmod o-w {source}")
        return opened.read()


def _trusted_owners() -> set[int]:
    """Return the users whose configuration is trusted: this user, root, and under sudo the user who ran it."""
    sudo_uid = os.environ.get("SUDO_UID", "") if os.getuid() == 0 else ""
    return {0, os.getuid(), *([int(sudo_uid)] if sudo_uid.isascii() and sudo_uid.isdigit() else [])}


def _check(source: Path, tables: dict[str, Any]) -> None:
    """Raise UserError for an unknown table or key, with the most similar known name: it is probably a typo."""
    for name, entries in tables.items():
        if name in FREE_TABLES:
            continue
        if name not in TABLES:
            raise UserError(f"{source}: unknown table [{clean(name, 60)}]{_nearest_name(name, TABLES)}")
        known = TABLES[name]
        for key in entries if isinstance(entries, dict) else ():
            if key not in known:
                raise UserError(f"{source}: unknown key {clean(key, 60)} in [{name}]{_nearest_name(key, known)}")


def _nearest_name(name: str, known: Collection[str]) -> str:
    near = get_close_matches(name, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"


def bounds() -> Bounds | None:
    """Return the configured bounds of fast and slow steps; None if they are not set.

    [speed]
    fast = 0.5  # seconds; steps up to this are fast
    slow = 2.0  # steps from this are slow

    Raises:
        UserError: the file cannot be read, or the bounds are invalid.
    """
    entries = table("speed")
    if not entries:
        return None
    fast, slow = entries.get("fast"), entries.get("slow")
    if not isinstance(fast, int | float) or not isinstance(slow, int | float) or not 0 < fast < slow:
        raise UserError(f"{path()}: [speed] needs two step times in seconds, fast < slow: fast = 0.5 and slow = 2.0")
    return Bounds(float(fast), float(slow))
