"""Tones and lines as characters, for terminals that lack colors or Unicode."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

from monitor.tui.drawing.rows import Row, Span
from monitor.tui.drawing.themes import FILL

_PATTERNS = {
    "phase0": "█", "phase1": "▒", "phase2": "=", "phase3": "o", "phase4": "/", "phase5": "+", "phase6": "x",
    "phase7": "░", "phase8": "$", "phase9": "&", "other": "·", "between": "-", "accent": "#",
    "muted": ":", "faint": "-", "text": "%",
}  # fmt: skip
_KEYS = {" ": 0, **{sign: level for level, sign in enumerate("▁▂▃▄▅▆▇█", 1)}}
_KEYS |= {sign: level for level, sign in enumerate("▏▎▍▌▋▊▉", 1)}
_HALF = 4  # eighths of a cell
_TERMS_WITHOUT_BRAILLE = frozenset(("linux", "vt100", "vt102", "vt220", "ansi", "cons25"))  # values of TERM


@dataclass(frozen=True)
class TerminalCapabilities:
    """What the terminal lacks."""

    patterns: bool = False  # too few colors for ten phases: patterns distinguish them
    ascii: bool = False


def ink(
    environment: Mapping[str, str], colors: ColorSystem | None, ascii_only: bool | None = None
) -> TerminalCapabilities:
    """Return what the terminal lacks, from its environment variables and its color system.

    Args:
        colors: the color system; None without colors.
        ascii_only: the configured value; None where it is not configured.
    """
    if ascii_only is None:
        names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
        # Assume UTF-8 without a locale: containers have none, and the terminal runs outside of them.
        locale = next((name for name in names if name), "utf-8")
        ascii_only = "utf" not in locale.lower() or environment.get("TERM", "") in _TERMS_WITHOUT_BRAILLE
    few = colors is None or colors == ColorSystem.STANDARD
    # Without Unicode a cell cannot hold two colors, so the layers of a chart need patterns as well.
    return TerminalCapabilities("NO_COLOR" in environment or few or ascii_only, ascii_only)


def patterned(row: Row) -> Row:
    """Return `row` with a pattern in place of each phase's color, in charts, bars and legends."""
    out: Row = []
    for text, tone in row:
        front = tone.partition(" ")[0]
        if tone.endswith(FILL):
            out += [_filled(sign, front) for sign in text]
        elif "■" in text and front in _PATTERNS:
            out.append((text.replace("■", _PATTERNS[front]), tone))
        else:
            out.append((text, tone))
    return out


def _filled(sign: str, tone: str) -> Span:
    """Return the pattern of the tone that fills most of the cell; a sliver at the end of a bar stays one."""
    front, _, back = tone.partition("/")
    level = _KEYS.get(sign, 8)
    if level >= _HALF:
        return _PATTERNS.get(front, sign), front
    return (_PATTERNS.get(back, sign), back) if back else (sign, front)


_SIGNS = {
    **dict.fromkeys("─╌", "-"), "━": "=", **dict.fromkeys("│┃▏▕▌▎", "|"), **dict.fromkeys("┤├┼╭╮╰╯┌┐└┘", "+"),
    **dict.fromkeys("▁▂", "_"), **dict.fromkeys("▃▄▅", "="), **dict.fromkeys("▆▇█▊▉▋", "#"), "▒": "%", "░": ":",
    "▍": "|", "●": "*", "■": "#", "▶": ">", "▲": "^", "›": ">", "→": ">", "←": "<", "↑": "^", "↓": "v", "×": "x",
    "✖": "x", "✔": "+", "≡": "=", "·": ".", "…": "~", "–": "-", "—": "-", "−": "-", "µ": "u", "°": " ", "’": "'",
    "▴": "^", "▾": "v", "“": '"', "”": '"', "\xa0": " ",
}  # fmt: skip
_BRAILLE = range(0x2800, 0x2900)
_UPPER, _LOWER = 0x1B, 0xE4  # the dots of the upper and of the lower half of a cell


def _plain(sign: str) -> str:
    if sign in _SIGNS:
        return _SIGNS[sign]
    code = ord(sign)
    if code in _BRAILLE:
        dots = code - _BRAILLE.start
        return (":" if dots & _LOWER else "'") if dots & _UPPER else "." if dots else " "
    simple = unicodedata.normalize("NFKD", sign)[:1]
    wide = cell_len(sign)
    return simple if simple.isascii() and simple.isprintable() and wide == 1 else "?" * wide


@lru_cache(maxsize=4096)
def plain(text: str) -> str:
    """Return `text` in ASCII, with the same width in cells."""
    return text if text.isascii() else "".join(sign if sign.isascii() else _plain(sign) for sign in text)


class PlainCharacters(LineFilter):
    """Filter that turns everything drawn into ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(plain(text), style, control) for text, style, control in segments]
