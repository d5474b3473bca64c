"""The ranks beside each other: how long a step takes each of them, and how much of it is waiting for others."""

from __future__ import annotations

import math
from statistics import fmean

from monitor import units as fmt
from monitor.model.report import RankRow, Report, View
from monitor.tui.lane import GPU_CLOCK, HOST_CLOCK
from monitor.tui.panels.base import Look, ScrollPanel
from monitor.tui.panels.header import shown_rank
from monitor.tui.rows import Row, column, row_width

_LEAST_BAR = 8
NO_OTHER = 0.5  # of a cell: what is apart by less is drawn alike
WORKS, WAITS = "▇", "░"  # a gap between the rows, so that they do not grow together
LEGEND: Row = [(WORKS, "accent"), (f" works  {WAITS} waits for others", "muted")]
STEPS_TOO = 60  # cells from which on the number of steps has a place
_HEAD, _NUMBERS, _STEPS = 6, 22, 15  # cells of a rank's number, of its figures, and of their number of steps
_SLOWEST = "  slowest"


def of_rank(title: str, report: Report) -> str:
    """A title that says whose figures these are, where there are several ranks."""
    return ", ".join(filter(None, (title, shown_rank(report))))


def clock_of(report: Report) -> str:
    """Whose clock the ranks' times are by, where GPUs are used; they have no other lane."""
    if report.device is None or len(report.ranks) < 2:
        return ""
    return GPU_CLOCK if all(row.clock == "cuda" for row in report.ranks) else HOST_CLOCK


def rank_rows(ranks: list[RankRow], slowest: int | None, width: int) -> list[Row]:
    """A line a rank: its median step as a bar, of which the waiting is the pale end."""
    longest = max((row.step_seconds or 0.0 for row in ranks), default=0.0)
    room = width - _HEAD - _NUMBERS - (_STEPS if width >= STEPS_TOO else 0) - len(_SLOWEST)
    scale = room / longest if room >= _LEAST_BAR and longest else 0.0
    whole = like([(row.step_seconds or 0.0) * scale for row in ranks])
    waits = like([(row.usual_wait or 0.0) * scale for row in ranks])
    none = "0 " + fmt.duration(max((row.usual_wait or 0.0 for row in ranks), default=0.0)).rpartition(" ")[2]
    rows: list[Row] = []
    for row, filled, waiting in zip(ranks, whole, waits, strict=True):
        drawn = _bar(max(1, filled), min(filled, waiting), room) if scale and row.step_seconds else []
        wait = none if row.usual_wait == 0 else fmt.duration(row.usual_wait)
        rows.append(_rank(row, row.rank == slowest, drawn, wait, width))
    return rows


def like(lengths: list[float]) -> list[int]:
    """Whole cells for lengths in cells: the same for those that are less than half a cell apart."""
    groups: list[list[float]] = []
    for length in sorted(set(lengths)):
        if groups and length - groups[-1][0] < NO_OTHER:
            groups[-1].append(length)
        else:
            groups.append([length])
    cells = {length: round(fmean(group)) for group in groups for length in group}
    return [cells[length] for length in lengths]


def _bar(filled: int, waiting: int, room: int) -> Row:
    return [(WORKS * (filled - waiting), "accent"), (WAITS * waiting, "muted"), (" " * (room - filled), "text")]


def _rank(row: RankRow, is_slowest: bool, drawn: Row, wait: str, width: int) -> Row:
    head: Row = [(column(f" {row.rank}", _HEAD), "warning bold" if is_slowest else "text")]
    tail: Row = [(column(fmt.duration(row.step_seconds), 8, right=True), "text")]
    tail += [("  waits ", "muted"), (column(wait, 6, right=True), "text")]
    if width >= STEPS_TOO:
        tail.append((column(f"{row.steps:,} steps", _STEPS, right=True), "muted"))
    if is_slowest and row_width(head) + row_width(tail) + len(_SLOWEST) <= width:
        tail.append((_SLOWEST, "warning"))
    return [*head, *drawn, *tail]


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
        return view.report.ranks, view.report.straggler, view.report.device is None

    def heading(self, view: View, look: Look) -> str:
        return f"Ranks, {told}" if (told := clock_of(view.report)) else "Ranks"

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
