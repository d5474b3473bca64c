"""Numbers as text for people: always with a unit, and `–` for unknown.

Durations never read `46:47`, which may be taken for hours or for minutes.
"""

from __future__ import annotations

import math
import signal
from datetime import datetime

UNKNOWN = "–"

_AXIS = (
    ("µs", 1e-6, 0.001), ("ms", 0.001, 1.0), ("s", 1.0, 120.0), ("min", 60.0, 7200.0), ("h", 3600.0, math.inf),
)  # fmt: skip
DAYS_OF_A_WEEK = 7
_ROUGH = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def _digits(value: float, digits: int = 3) -> str:
    """Return `value` with about `digits` significant digits, without an exponent, for 0.001 <= |value| < 1e9."""
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def duration(seconds: float | None) -> str:
    """Return `4.2 ms`, `18.2 s`, `46 min 47 s`, `1 h 52 min`, `2 d 3 h`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        if seconds < 0.0009995:  # all below a millisecond in one unit: 100 µs beside 77 µs, and not 0.1 ms
            return f"{seconds * 1e6:.1f} µs" if seconds < 9.95e-6 else f"{seconds * 1e6:.0f} µs"
        milliseconds = seconds * 1000
        return f"{milliseconds:.0f} ms" if milliseconds >= 9.95 else f"{milliseconds:.1f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s" if seconds >= 9.995 else f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def brief(seconds: float) -> str:
    """Return a duration with one decimal, as logs have it: `45.2 s`, `3.4 s`, `110 ms`."""
    return (
        f"{seconds:.1f} s" if seconds >= 0.95 else f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else duration(seconds)
    )


def axis_seconds(seconds: float) -> str:
    """Return a short label for an axis: one number and one unit."""
    for unit, length, below in _AXIS:
        if seconds < below:
            return f"{seconds / length:.4g} {unit}"
    return UNKNOWN


def age(seconds: float | None) -> str:
    """Return a duration that ticks on screen: whole seconds, so that it changes once a second and no digit flickers."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    return f"{int(seconds)} s" if seconds < 60 else duration(int(seconds))


def rough(seconds: float | None) -> str:
    """Return an estimated duration in two digits and one unit: `20 s`, `56 min`, `1.9 h`, `2.1 d`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    if seconds < 1:
        return duration(seconds)
    length, unit = next((one for one in _ROUGH if seconds < 99.5 * one[0]), _ROUGH[-1])
    count = seconds / length
    return f"{count:.1f} {unit}" if count < 9.95 else f"{count:,.0f} {unit}"


def duration_range(low: float | None, high: float | None, middle: float | None = None) -> str:
    """Render a range of durations, as one where both ends read the same; `middle` is used for an unknown range."""
    first, last = duration(low), duration(high)
    if UNKNOWN in (first, last):
        one = duration(middle)
        return one if one == UNKNOWN else f"about {one}"
    return first if first == last else f"{first} – {last}"


def moment(then: float, now: float) -> str:
    """Return when something was, as short as it is clear at `now`: `14:02`, `Thu 14:02`, `12 Mar`, `12 Mar 2025`.

    Args:
        then: Unix time, as is `now`.
    """
    try:
        one, other = datetime.fromtimestamp(then), datetime.fromtimestamp(now)
    except (OverflowError, ValueError, OSError):  # years that no calendar has
        return UNKNOWN
    days = abs((other.date() - one.date()).days)
    if days < DAYS_OF_A_WEEK:
        return one.strftime("%H:%M" if not days else "%a %H:%M")
    return f"{one.day} {one.strftime('%b' if one.year == other.year else '%b %Y')}"


def pace(steps_per_second: float | None) -> str:
    """Return `3.42 it/s`, or `18.2 s/it` below one a second: always with its unit."""
    if steps_per_second is None or not math.isfinite(steps_per_second) or steps_per_second <= 0:
        return UNKNOWN
    if steps_per_second >= 1:
        return f"{_digits(steps_per_second)} it/s"
    return f"{_digits(1 / steps_per_second)} s/it"


def rate(per_second: float | None, unit: str) -> str:
    """Return `412 tok/s`, `19,800 tok/s`, `1.24M tok/s`."""
    if per_second is None or not math.isfinite(per_second) or per_second < 0:
        return UNKNOWN
    if per_second >= 999_500:
        return f"{per_second / 1e6:,.2f}M {unit}"
    if per_second == 0 or per_second >= 99.95:
        return f"{per_second:,.0f} {unit}"
    return f"{_digits(max(per_second, 0.001))} {unit}"


def share(fraction: float | None) -> str:
    if fraction is None or not math.isfinite(fraction):
        return UNKNOWN
    percent = fraction * 100
    if 0 < percent < 0.1:
        return "<0.1%"
    return f"{percent:.1f}%" if 0 < percent < 9.95 else f"{percent:.0f}%"


def times(factor: float) -> str:
    """Return a ratio with enough digits to multiply by: `1.48x`, `12x`."""
    return f"{factor:.2f}x" if factor < 9.995 else f"{factor:.0f}x"


def percent(value: float | None) -> str:
    return UNKNOWN if value is None or not math.isfinite(value) else f"{value:.0f}%"


def size(count: float | None) -> str:
    """Return the bytes in binary units: `61.2 GiB`."""
    if count is None or not math.isfinite(count) or count < 0:
        return UNKNOWN
    value, unit = float(count), 0
    while value >= 999.5 and unit < len(_BINARY) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0 or value == 0:
        return f"{value:.0f} {_BINARY[unit]}"
    return f"{value:.0f} {_BINARY[unit]}" if value >= 99.95 else f"{value:.1f} {_BINARY[unit]}"


def size_of(used: float | None, total: float | None, separator: str = " of ") -> str:
    """Return `61.2 of 139 GiB`: both in the unit of the total."""
    whole = size(total)
    if whole == UNKNOWN or total is None:
        return size(used)
    number, unit = whole.split(" ")
    if used is None or not math.isfinite(used) or used < 0:
        return f"{UNKNOWN}{separator}{whole}"
    value = used / 1024 ** _BINARY.index(unit)
    return f"{value:.{0 if value >= 99.95 else 1}f}{separator}{number} {unit}"


def flow(bytes_per_second: float | None) -> str:
    """Return `12.4 MiB/s`; `none` where nothing moves."""
    text = size(bytes_per_second)
    return text if text == UNKNOWN else "none" if not bytes_per_second else f"{text}/s"


def number(value: float | str | None) -> str:
    """Return a metric's value in about four digits: `0.4132`, `1,234`, `1.2e-05`, `nan`."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if 1e-3 <= abs(value) < 1e6:
        return _digits(value, 4)
    return f"{value:.3g}"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def plural(number: int, one: str, many: str) -> str:
    """Return `1 process`, `2 processes`."""
    return f"{number:,} {one if number == 1 else many}"


def money(amount: float | None) -> str:
    if amount is None or not math.isfinite(amount):
        return UNKNOWN
    return f"${amount:,.2f}" if amount < 999.5 else f"${amount:,.0f}"


def signal_name(number: int | None) -> str:
    if number is None:
        return "a signal"
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(fraction: float, width: int) -> str:
    """Return a horizontal bar in eighths of a cell; a fraction above zero is always visible."""
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    if fraction > 0:
        eighths = max(1, eighths)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else ""))[: max(0, width)]
