"""Lines of a writer that takes types less seriously: 512.0 tokens, a loss that is null, a phase without its clock.

One odd value must not cost the step it stands in. What can be absent is then taken for unknown, and a null, or a yes
or no in a number's place, for left out; where something is odd without which the event says nothing, or what it says
would be guessed, the whole line cannot be read.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any, get_type_hints

import msgspec

from trainhooks.events import MAX_INTEGER, Event

_any = msgspec.json.Decoder()
_BARE = re.compile(
    rb"(?<=[:,\[])(\s*)(-?)(nan|inf(?:inity)?|[0-9]+(?:\.[0-9]+)?e\+?[0-9]{3,})(?=\s*[,}\]])", re.IGNORECASE
)
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"%s%s|(%s|%s)|\\." % (_HIGH, _LOW, _HIGH, _LOW), re.DOTALL)


@cache
def _types(kind: type) -> dict[str, Any]:
    return {name: told for name, told in get_type_hints(kind).items() if name != "kind"}


def salvaged(line: bytes, kind: type) -> Event:
    """The event of a line that did not fit its type; a ValueError where nothing can be saved."""
    found = _any.decode(line)
    if not isinstance(found, dict):
        raise ValueError("no event")
    kept = {}
    for name, told in _types(kind).items():
        value = _fitting(found.get(name))
        if value is None or (isinstance(value, bool) and bool not in (told, *_choices(told))):
            continue
        if name in ("metrics", "values") and isinstance(value, dict):
            value = {each: number for each, number in value.items() if _is_number(number)}
        elif name in ("phases", "background") and isinstance(value, list):
            value = [_whole_phase(row) for row in value]
        try:
            kept[name] = msgspec.convert(value, told)
        except msgspec.ValidationError:
            if type(None) not in _choices(told):
                raise
    event: Event = kind(**kept)  # a TypeError where the producer, the number or the time is missing
    return event


def _choices(told: Any) -> tuple[Any, ...]:
    return getattr(told, "__args__", ())


def mended(line: bytes) -> bytes:
    """The line with numbers that are none in quotes: printf writes `nan`, Python `NaN`, and JSON knows neither; one
    that no float holds is infinite. Half of a surrogate pair, which a text that was cut may end in, is no character.
    """
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], _BARE.sub(_quoted, line))


def _quoted(found: re.Match[bytes]) -> bytes:
    space, sign, word = found.groups()
    if math.isfinite(float(word)):
        return found[0]
    return space + (b'"nan"' if word.lower() == b"nan" else b'"' + sign + b'inf"')


def _fitting(value: Any) -> Any:
    """A whole number that was written as 512.0, as an integer: whatever takes a fraction takes that, too."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INTEGER else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _whole_phase(row: Any) -> Any:
    """A phase of which only the name and the seconds are told; its times entered may be written as 1.0."""
    if not isinstance(row, list) or not 2 <= len(row) <= 4:
        return row
    return [*row[:3], *([] if len(row) > 2 else ["host"]), _fitting(row[3]) if len(row) > 3 else 1]
