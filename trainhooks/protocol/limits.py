"""Limits of what producers write, and the cleaning of names, texts and numbers. Both sides hold to them."""

from __future__ import annotations

import math
import re
from typing import Any, Optional, Union

MAX_LINE = 64 * 1024  # bytes, newline included
MAX_NAME = 128  # characters of a phase, metric, span, role... name
MAX_TEXT = 4096  # characters of a note, a reason, a fact
MAX_METRICS = 2000  # metric names a run; what comes after shares the bucket OVERFLOW
MAX_INTEGER = 2**53  # beyond it JSON readers in other languages lose digits
MAX_GPU_PROCESSES = 64  # on one GPU
MAX_OTHER_THREADS = 8  # of a process that stands still, whose lines are told
MAX_COLLECTIVES = 8  # likewise: the newest that it called
MAX_CALLS = 1500  # collectives of a window of steps, by one rank
OVERFLOW = "overflow"

Number = Union[int, float, str]  # a non-finite number travels as "nan", "inf" or "-inf"

# Control characters, line separators, bidirectional controls, zero-width characters and lone surrogates: none has a
# meaning in a name, and each can corrupt a terminal or disguise a text.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]+"
)


def clean(text: Any, limit: int = MAX_TEXT) -> str:
    """Return `text` as one printable line of at most `limit` characters; control characters become one space."""
    if not isinstance(text, str):
        try:
            text = str(text)
        except Exception:  # a foreign __str__ may raise anything
            text = f"<{type(text).__name__}>"
    return _UNPRINTABLE.sub(" ", text[: 4 * limit]).strip()[:limit].rstrip()


def escape(text: str) -> str:
    """Return `text` with what `clean` removes as JSON escapes. In a line of JSON that changes no value."""
    return _UNPRINTABLE.sub(lambda match: "".join(f"\\u{ord(character):04x}" for character in match.group()), text)


def number(value: Any) -> Optional[Number]:
    """Return `value` as it is sent: an int, a finite float, or "nan", "inf", "-inf"; None where it is no number."""
    kind = type(value)
    if kind is float:
        return value if math.isfinite(value) else repr(value)
    if kind is int:
        return value if -MAX_INTEGER <= value <= MAX_INTEGER else _float(value)
    if kind is bool:
        return int(value)
    if isinstance(value, (int, float)) or hasattr(value, "__float__"):
        return _float(value)
    return None


def _float(value: Any) -> Optional[Number]:
    try:
        try:
            return number(float(value))
        except OverflowError:
            return "inf" if value > 0 else "-inf"
    except Exception:  # a foreign __float__ may raise anything; then it is no number
        return None
