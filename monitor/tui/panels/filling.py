"""The open step as it fills up, in the head."""

from __future__ import annotations

from monitor import units as fmt
from monitor.model.report import View
from monitor.tui.ink import FILL
from monitor.tui.panels.base import Look
from monitor.tui.rows import Row, fit, row_width, spread

LONG_STEP = 2.0  # seconds open before a step is shown filling up: its phases are seen once a second


def filling(view: View, look: Look, row: Row, width: int) -> Row:
    """`row`, and behind it the open step as it fills up phase by phase, as long as the usual one would be."""
    work = view.open
    if not work.parts or work.step_seconds is None or work.step_seconds < LONG_STEP:
        return row
    totals: dict[str | None, float] = {}
    for name, seconds in work.parts:
        totals[name] = totals.get(name, 0.0) + seconds
    done = [
        f"{fit(name, 24)} {fmt.age(seconds)}"
        for name, seconds in totals.items()
        if name not in (None, work.phase) and seconds >= 1
    ]
    so_far: Row = [(f"  so far {', '.join(done[:6])}", "muted")] if done else []
    usual = f" {fmt.age(work.step_seconds)}" + (f", usual {fmt.duration(work.usual)}" if work.usual else "")
    slow = work.limit is not None and work.step_seconds > work.limit
    tail: Row = [(usual + " ", "warning bold" if slow else "muted")]
    room = min(48, width - row_width(row) - row_width(tail) - 4)
    if row_width(so_far) + 20 <= room:
        room -= row_width(so_far)
    else:
        so_far = []
    if room < 12:
        return row
    return spread([*row, *so_far], [*_filled(view, look, room), *tail], width)


def _filled(view: View, look: Look, room: int) -> Row:
    """The bar: a block is a phase that was seen, nothing is time in which none was, a line is still to come."""
    work = view.open
    whole = max(work.step_seconds or 0.0, work.usual or 0.0)
    cells: Row = [("▕", "rule")]
    at, filled = 0.0, 0
    for name, seconds in work.parts:
        at += seconds
        end = min(room, round(at / whole * room))
        sign, tone = (" ", "text") if name is None else ("█", look.phases[name] + FILL)
        cells.append((sign * (end - filled), tone))
        filled = max(filled, end)
    return [*cells, ("─" * (room - filled), "rule"), ("▏", "rule")]
