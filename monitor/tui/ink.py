"""Where the terminal has few colours or none, or only ASCII: patterns for phases, and plain characters. Pure."""

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

from monitor.tui.rows import Row, Span

FILL = " fill"  # behind the tone of cells whose colour alone says which phase they are

# One character a tone. They differ in ASCII, too, where blocks become other signs.
_PATTERNS = {
    "phase0": "█", "phase1": "▒", "phase2": "=", "phase3": "o", "phase4": "/", "phase5": "+", "phase6": "x",
    "phase7": "░", "phase8": "$", "phase9": "&", "other": "·", "between": "-", "accent": "#",
    "muted": ":", "faint": "-", "text": "%",
}  # fmt: skip
_KEYS = {" ": 0, **{sign: level for level, sign in enumerate("▁▂▃▄▅▆▇█", 1)}}
_KEYS |= {sign: level for level, sign in enumerate("▏▎▍▌▋▊▉", 1)}
_HALF = 4  # eighths of a cell
_OF_OLD = frozenset(("linux", "vt100", "vt102", "vt220", "ansi", "cons25"))  # their fonts have no braille


@dataclass(frozen=True)
class Ink:
    """What the terminal lacks."""

    patterns: bool = False  # colours do not tell ten phases apart
    ascii: bool = False


def ink(environment: Mapping[str, str], colours: ColorSystem | None, ascii_only: bool | None = None) -> Ink:
    """
    Args:
        colours: how many there are.
        ascii_only: as the configuration says; None where it says nothing.
    """
    if ascii_only is None:
        names = (environment.get(name) for name in ("LC_ALL", "LC_CTYPE", "LANG"))
        # Nothing set is no word against Unicode: containers have no locale, and the terminal lies outside of them.
        told = next((name for name in names if name), "utf-8")
        ascii_only = "utf" not in told.lower() or environment.get("TERM", "") in _OF_OLD
    few = colours is None or colours == ColorSystem.STANDARD
    # Without Unicode a cell cannot hold two colours, so the layers of a chart need signs of their own there, too.
    return Ink("NO_COLOR" in environment or few or ascii_only, ascii_only)


def patterned(row: Row) -> Row:
    """`row` with a pattern for the colour of each phase, in charts, bars and legends."""
    found: Row = []
    for text, tone in row:
        front = tone.partition(" ")[0]
        if tone.endswith(FILL):
            found += [_filled(sign, front) for sign in text]
        elif "■" in text and front in _PATTERNS:
            found.append((text.replace("■", _PATTERNS[front]), tone))
        else:
            found.append((text, tone))
    return found


def _filled(sign: str, tone: str) -> Span:
    """The pattern of what fills most of the cell; a sliver at the end of a bar stays one."""
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
    """`text` in ASCII, as many cells wide."""
    return text if text.isascii() else "".join(sign if sign.isascii() else _plain(sign) for sign in text)


class PlainCharacters(LineFilter):
    """Everything that is drawn, in ASCII."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(plain(text), style, control) for text, style, control in segments]
