"""The ranks beside each other: how long a step takes each of them, and how much of it is waiting for others."""

from __future__ import annotations

import math

from monitor import units as fmt
from monitor.model.report import RankRow, Report, View
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.panels.header import shown_rank
from monitor.tui.rows import Row, column, row_width

_LEAST_BAR = 8
WORKS, WAITS = "▇", "░"  # a gap between the rows, so that they do not grow together
LEGEND: Row = [(WORKS, "accent"), (f" works  {WAITS} waits for others", "muted")]
STEPS_TOO = 60  # cells from which on the number of steps has a place
_NUMBERS, _STEPS = 22, 15  # cells of a rank's figures, and of their number of steps
_SLOWEST = "  slowest"


def of_rank(title: str, report: Report) -> str:
    """A title that says whose figures these are, where there are several ranks."""
    return ", ".join(filter(None, (title, shown_rank(report))))


def rank_rows(ranks: list[RankRow], slowest: int | None, width: int) -> list[Row]:
    """A line a rank: its median step as a bar, of which the waiting is the pale end."""
    longest = max((row.step_seconds or 0.0 for row in ranks), default=0.0)
    return [_rank(row, slowest, longest, width) for row in ranks]


def _rank(row: RankRow, slowest: int | None, longest: float, width: int) -> Row:
    is_slowest = row.rank == slowest
    head: Row = [(column(f" {row.rank}", 6), "warning bold" if is_slowest else "text")]
    tail: Row = [(column(fmt.duration(row.step_seconds), 8, right=True), "text")]
    tail += [("  waits ", "muted"), (column(fmt.duration(row.usual_wait), 6, right=True), "text")]
    if width >= STEPS_TOO:
        tail.append((column(f"{row.steps:,} steps", _STEPS, right=True), "muted"))
    if is_slowest and row_width(head) + row_width(tail) + len(_SLOWEST) <= width:
        tail.append((_SLOWEST, "warning"))
    room = width - row_width(head) - _NUMBERS - (_STEPS if width >= STEPS_TOO else 0) - len(_SLOWEST)
    if room < _LEAST_BAR or not longest or not row.step_seconds:
        return [*head, *tail]
    filled = max(1, round(row.step_seconds / longest * room))
    waiting = min(filled, round((row.usual_wait or 0.0) / row.step_seconds * filled))
    bar: Row = [(WORKS * (filled - waiting), "accent"), (WAITS * waiting, "muted"), (" " * (room - filled), "text")]
    return [*head, *bar, *tail]


def by_interest(ranks: list[RankRow], slowest: int | None) -> list[RankRow]:
    """The slowest first, then those that wait least: the others wait for them, too. Where that reads alike, by rank."""
    like: dict[str, float] = {}  # the least of those that read alike
    for seconds in sorted(row.usual_wait for row in ranks if row.usual_wait is not None):
        like.setdefault(fmt.duration(seconds), seconds)
    return sorted(
        ranks, key=lambda row: (row.rank != slowest, like.get(fmt.duration(row.usual_wait), math.inf), row.rank)
    )


class Ranks(ScrollPanel):
    number = 8

    def data(self, view: View, look: Look) -> object:
        return view.report.ranks, view.report.straggler

    def heading(self, view: View, look: Look) -> str:
        return "Ranks"

    def has_place(self, view: View, look: Look) -> bool:
        return len(view.report.ranks) > 1

    def aside(self, view: View, look: Look) -> Row:
        slow = view.report.straggler
        if slow is None:
            return list(LEGEND)
        number = len(view.report.ranks)
        return [(f"rank {slow.rank} of {number:,} is slowest, others wait {fmt.share(slow.share)}", "muted")]

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        """In their order, or where there are more than rows by interest."""
        ranks = view.report.ranks
        if len(ranks) < 2:
            return [[("  one process trains: there is nothing to compare", "muted")]]
        slowest = view.report.straggler.rank if view.report.straggler is not None else None
        return rank_rows(by_interest(ranks, slowest) if len(ranks) >= self.size.height else ranks, slowest, width)
