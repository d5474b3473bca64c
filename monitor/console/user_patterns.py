"""The regular expressions that users write for their own lines; named groups are values.

A pattern sees the first 4 KiB of a line, and may not repeat what repeats within itself without bound: such a pattern
can take years over one line.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from monitor.console.field_mapping import set_value
from monitor.console.printed_values import number, scale, seconds, whole
from monitor.console.reading import MAX_LINE_CHARACTERS, Reading
from trainhooks.protocol.limits import clean

_parser: Any = import_module("re._parser" if hasattr(re, "_parser") else "sre_parse")

MAX_PATTERNS = 100


class BadPattern(Exception):
    """A pattern that cannot be used; the message says why, in one line."""


def compile_pattern(text: object) -> re.Pattern[str]:
    """Compile one pattern of the configuration.

    Raises:
        BadPattern: it is none, has no named group, or may take too long.
    """
    if not isinstance(text, str):
        raise BadPattern("'regex' is missing or not a text")
    printable = clean(text, 80)
    try:
        pattern = re.compile(text)
        tree = _parser.parse(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise BadPattern(f"'{printable}' is not a regular expression: {clean(error, 120)}") from error
    if not pattern.groupindex:
        raise BadPattern(f"'{printable}' has no named group, as (?P<step>\\d+) is one")
    if _nested(tree, False):
        raise BadPattern(f"'{printable}' repeats a repetition, as (a+)+ does; which may take forever")
    return pattern


def _nested(node: Any, inside: bool) -> bool:
    """Return whether a parsed pattern, or a part of one, repeats something unbounded without bound."""
    if isinstance(node, tuple) and node and str(node[0]) in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        _, most, repeated = node[1]
        unbounded = most == _parser.MAXREPEAT
        return (unbounded and inside) or _nested(repeated, inside or unbounded)
    if isinstance(node, (tuple, list, _parser.SubPattern)):
        return any(_nested(part, inside) for part in node)
    return False


def read_pattern(text: str, patterns: tuple[re.Pattern[str], ...]) -> Reading | None:
    """Return the reading of the first pattern that matches a line; None without a match."""
    for pattern in patterns:
        match = pattern.search(text[:MAX_LINE_CHARACTERS])
        if match is not None:
            return _reading(match.groupdict())
    return None


def _reading(groups: dict[str, str | None]) -> Reading:
    reading = Reading("pattern", key="pattern")
    for called, value in groups.items():
        if value is None:
            continue
        if called in ("role", "reason"):
            setattr(reading, called, clean(value, 200) or None)
        elif called in ("step", "total", "epochs"):
            count = whole(value)
            if count is not None:
                setattr(reading, called, count)
        elif called in ("seconds", "elapsed"):
            setattr(reading, called, _time(value))
        elif (value_of := number(value)) is not None:
            set_value(reading, called, value_of)
        elif (scaled := scale(value)) is not None:
            set_value(reading, called, scaled)
        elif (time := seconds(value)) is not None:
            set_value(reading, called, time, time)
    return reading


def _time(text: str) -> float | None:
    spent = seconds(text)
    if spent is None and isinstance(plain := number(text), (int, float)) and plain >= 0:
        return float(plain)
    return spent
