"""Parse numbers, times and units as programs print them. Every pattern is of bounded length."""

from __future__ import annotations

import re

from trainhooks.protocol import limits
from trainhooks.protocol.limits import Number

# 1,234.5  12  .5  1e-05  nan  inf
NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3}){1,6}(?![\d,])(?:\.\d{1,24})?|\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?"
)
NONFINITE = r"[-+]?(?:nan|NaN|NAN|inf(?:inity)?|Inf(?:inity)?|INF)(?![A-Za-z])"

CLOCK = r"\d{1,4}:\d{2}(?::\d{2})?(?:\.\d{1,6})?"  # mm:ss or h:mm:ss, as bars have it

_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
SCALE = r"[kKMGBT](?![A-Za-z])"

_UNITS = {
    **dict.fromkeys(("ns", "nsec"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
TIME_UNIT = (
    r"(?:nsec|ns|usec|us|µs|μs|msecs?|ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
    r"(?![A-Za-z/])"
)
# 1m16s  2h 3m  2s263ms  1 day, 2:03:04  46:47
SPAN = (
    rf"(?:\d{{1,4}} days?,? )?{CLOCK}"
    r"|\d{1,6}(?:\.\d{1,9})? ?[dDhm] ?\d{1,2} ?[hms](?: ?\d{1,2} ?[ms])?(?![A-Za-z])"
    r"|\d{1,6}(?:s|m(?=\d{1,3}ms)) ?\d{1,3} ?ms(?![A-Za-z/])"
)

# [====>   ]  [███░░]
DRAWN_BAR = re.compile(r"\[(?=[^\]]{0,200}[=#>█▉▊▋▌▍▎▏●■])[-=#>.*+ █▏▎▍▌▋▊▉░▒▓●○■□]{3,200}\]")

_PIECE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s?([a-zA-Zµμ]{1,12})")
_CLOCK = re.compile(r"(?:(\d{1,4}) days?,? )?(\d{1,4}):(\d{2})(?::(\d{2}))?(\.\d{1,6})?")


def number(text: str) -> Number | None:
    """Parse a number; return "nan", "inf" or "-inf" for one that is not finite, None for anything else."""
    text = text.strip().replace(",", "")
    try:
        is_integer = len(text) <= 15 and text.lstrip("+-").isdigit() and text.isascii()
        return int(text) if is_integer else limits.number(float(text))
    except ValueError:
        return None


def whole(text: str) -> int | None:
    """Parse a count, `5,438` or `1.2k`; return None for anything else or beyond the largest integer of an event."""
    scaled = scale(text)
    return int(scaled) if scaled is not None and 0 <= scaled <= limits.MAX_INTEGER else None


def scale(text: str) -> float | None:
    """Parse a number with its letter: `0.03M` is 30,000."""
    text = text.strip()
    factor = _SCALES.get(text[-1:], 1.0)
    value = number(text[:-1] if text[-1:] in _SCALES else text)
    return None if value is None or isinstance(value, str) else value * factor


def unit_seconds(unit: str) -> float | None:
    """Return the seconds of a unit of time; None for other units."""
    return _UNITS.get(unit if unit in _UNITS else unit.lower())


def seconds(text: str) -> float | None:
    """Parse a time, in seconds. `46:47` is minutes and seconds; `1m16s`, `1:02:03`, `45.2ms`, `3 sec`."""
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        days, first, second, third, rest = clock.groups()
        parts = (int(first) * 60 + int(second)) * 60 + int(third) if third else int(first) * 60 + int(second)
        return 86400.0 * int(days or 0) + parts + float(rest or 0)
    total, at = 0.0, 0
    for piece in _PIECE.finditer(text):
        length = unit_seconds(piece.group(2))
        if length is None or text[at : piece.start()].strip():
            return None
        total += float(piece.group(1)) * length
        at = piece.end()
    return total if at and at == len(text) else None
