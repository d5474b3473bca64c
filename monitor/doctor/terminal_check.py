"""What the terminal can draw."""

from __future__ import annotations

import locale
import os
import sys
from collections.abc import Mapping

from monitor.doctor.checks import Check

MIN_SCREEN = (80, 24)  # columns and rows below which panels are left out


def terminal() -> Check:
    """Check the terminal that this command was started on."""
    on_terminal = all(os.isatty(handle) for handle in (0, 1))
    try:
        columns, rows = os.get_terminal_size(1) if on_terminal else (0, 0)
    except OSError:
        columns, rows = 0, 0
    encoding = getattr(sys.stdout, "encoding", None) or locale.getpreferredencoding(False)
    return check_terminal(os.environ, on_terminal, encoding, (columns, rows))


def check_terminal(environment: Mapping[str, str], on_terminal: bool, encoding: str, room: tuple[int, int]) -> Check:
    """
    Args:
        room: columns and rows; zeros where unknown.
    """
    part = "terminal"
    name = environment.get("TERM", "")
    details = {"term": name or None, "encoding": encoding, "columns": room[0] or None, "rows": room[1] or None}
    if not on_terminal:
        text = "not a terminal: `trainmon run` passes output through, `attach --once` prints a screen"
        return Check(part, "missing", text, None, details=details)
    if name in ("", "dumb"):
        text = f"TERM is {name or 'not set'}: the dashboard cannot run"
        return Check(part, "broken", text, "Set TERM to your terminal type, e.g. xterm-256color.", details=details)
    colors = _colors(environment)
    hints = []
    size = f"{room[0]}x{room[1]}" if all(room) else "size unknown"
    if not encoding.lower().replace("-", "").startswith("utf8"):
        hints.append("Charts need Unicode: set LANG to a UTF-8 locale, e.g. C.UTF-8.")
    if all(room) and (room[0] < MIN_SCREEN[0] or room[1] < MIN_SCREEN[1]):
        hints.append(f"Below {MIN_SCREEN[0]}x{MIN_SCREEN[1]} some panels are hidden: enlarge the window.")
    if colors is not None and colors < 256 and not environment.get("NO_COLOR"):
        hints.append("Few colors: set COLORTERM=truecolor if your terminal supports it.")
    if environment.get("NO_COLOR"):
        known = "no colors (NO_COLOR is set)"
    else:
        known = "colors unknown" if colors is None else f"{colors:,} colors"
    details["colours"] = colors
    text = f"{name}, {size}, {known}, {encoding}"
    return Check(part, "limited" if hints else "works", text, " ".join(hints) or None, details=details)


def _colors(environment: Mapping[str, str]) -> int | None:
    """Return the number of colors that the terminal reports; None where unknown."""
    if environment.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return 1 << 24
    name = environment.get("TERM", "")
    if name.endswith("-direct"):
        return 1 << 24
    if "256color" in name:
        return 256
    try:
        import curses

        curses.setupterm(name, 1)
        number = curses.tigetnum("colors")
    except Exception:  # no curses or no terminfo; the errors have no common class
        return None
    return number if number > 0 else None
