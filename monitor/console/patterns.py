"""Patterns that users write for lines of their own: regular expressions whose named groups are figures. Pure.

A pattern sees the first 4 KiB of a line, and may not repeat what repeats within itself without bound: such a pattern
can take years over one line.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from monitor.console.figures import number, scale, seconds
from monitor.console.place import figure
from monitor.console.reading import Reading
from trainhooks.events import clean

_parser: Any = import_module("re._parser" if hasattr(re, "_parser") else "sre_parse")

REACH = 4096  # characters of a line that a pattern sees
MAX_PATTERNS = 100


class BadPattern(Exception):
    """A pattern that cannot be used; the message says why, in one line."""


def compile_pattern(text: object) -> re.Pattern[str]:
    """One pattern of the configuration.

    Raises:
        BadPattern: it is none, has no named group, or may take too long.
    """
    if not isinstance(text, str):
        raise BadPattern("'regex' is missing, or is no text")
    shown = clean(text, 80)
    try:
        pattern = re.compile(text)
        tree = _parser.parse(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPattern(f"'{shown}' is no regular expression: {clean(error, 120)}") from error
    if not pattern.groupindex:
        raise BadPattern(f"'{shown}' has no named group, as (?P<step>\\d+) is one")
    if _nested(tree, False):
        raise BadPattern(f"'{shown}' repeats a repetition, as (a+)+ does; that may take for ever")
    return pattern


def _nested(tree: Any, inside: bool) -> bool:
    """Whether something unbounded is repeated without bound."""
    for code, argument in tree:
        name = str(code)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            unbounded = argument[1] == _parser.MAXREPEAT
            if (unbounded and inside) or _nested(argument[2], inside or unbounded):
                return True
        elif name == "SUBPATTERN":
            if _nested(argument[3], inside):
                return True
        elif name == "BRANCH":
            if any(_nested(branch, inside) for branch in argument[1]):
                return True
        elif name in ("ASSERT", "ASSERT_NOT", "ATOMIC_GROUP") and _nested(
            argument[1] if isinstance(argument, tuple) else argument, inside
        ):
            return True
    return False


def read_pattern(text: str, patterns: tuple[re.Pattern[str], ...]) -> Reading | None:
    """What the first pattern that matches reads from a line."""
    for pattern in patterns:
        found = pattern.search(text[:REACH])
        if found is not None:
            return _reading(found.groupdict())
    return None


def _reading(groups: dict[str, str | None]) -> Reading:
    reading = Reading("pattern", key="pattern")
    for called, value in groups.items():
        if value is None:
            continue
        if called in ("role", "reason"):
            setattr(reading, called, clean(value, 200) or None)
        elif called in ("step", "total", "epochs"):
            told = scale(value)
            if told is not None and 0 <= told < 2**53:
                setattr(reading, called, int(told))
        elif called in ("seconds", "elapsed"):
            setattr(reading, called, _time(value))
        elif (value_of := number(value)) is not None:
            figure(reading, called, value_of)
        elif (scaled := scale(value)) is not None:
            figure(reading, called, scaled)
        elif (time := seconds(value)) is not None:
            figure(reading, called, time, seconds=time)
    return reading


def _time(text: str) -> float | None:
    told = seconds(text)
    if told is None and isinstance(plain := number(text), (int, float)) and plain >= 0:
        told = float(plain)
    return told
