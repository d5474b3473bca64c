"""Numbers as people read them: every one with its unit, and what is unknown in words."""

from __future__ import annotations

import math

UNKNOWN = "unknown"


def duration(seconds: float | None) -> str:
    """`480 ms`, `12.3 s`, `46 min 47 s`, `3 h 05 min`, `2 d 4 h`: never a bare `46:47`, which may mean either."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if seconds < 0:
        return "-" + duration(-seconds)
    if seconds < 0.9995:
        milliseconds = seconds * 1000
        digits = 3 if milliseconds < 0.1 else 1 if milliseconds < 10 else 0
        return f"{milliseconds:.{digits}f} ms" if seconds else "0 s"
    if seconds < 59.95:
        return f"{seconds:.2f} s" if seconds < 9.995 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def percent(share: float | None) -> str:
    if share is None or not math.isfinite(share):
        return UNKNOWN
    return f"{100 * share:.1f} %"


def quantity(value: float | int | None) -> str:
    """A size of bytes."""
    if value is None:
        return UNKNOWN
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:,.1f} TiB"


def per_second(value: float | None, what: str) -> str | None:
    """`12,345 tokens/s`; None where it is unknown, so that a line can leave it out."""
    if value is None or not math.isfinite(value):
        return None
    return f"{value:,.0f} {what}/s" if value >= 100 else f"{value:.3g} {what}/s"


def pace(steps_per_second: float | None) -> str | None:
    """Steps a second where they are many, seconds a step where they are few; always with the unit."""
    if steps_per_second is None or not math.isfinite(steps_per_second) or steps_per_second <= 0:
        return None
    if steps_per_second >= 1:
        return f"{steps_per_second:.2f} it/s" if steps_per_second < 100 else f"{steps_per_second:,.0f} it/s"
    return f"{1 / steps_per_second:.2f} s/it" if steps_per_second > 0.01 else f"{1 / steps_per_second:,.0f} s/it"


def figure(value: float | int | str | None) -> str:
    """A metric's value; "nan" and the infinities are news and stay."""
    if value is None:
        return UNKNOWN
    if isinstance(value, str):
        return value
    if isinstance(value, int) or (value.is_integer() and abs(value) < 1e6):
        return f"{value:,.0f}" if abs(value) < 1e9 else f"{value:.4g}"
    return f"{value:.4g}"


def count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
