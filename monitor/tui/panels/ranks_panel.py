"""The ranks panel: the usual step of each rank, and how much of it is waiting for other ranks."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean, median

from monitor import units
from monitor.model.ranks.rank_waits import MAX_STEP_SPREAD, MIN_OTHERS_WAIT
from monitor.model.report import RankRow, Report
from monitor.model.view import View
from monitor.tui.drawing.clock_lanes import GPU_CLOCK, HOST_CLOCK
from monitor.tui.drawing.rows import Row, column, fit, row_width, text_width
from monitor.tui.panels.base import ScrollPanel, ViewOptions, on_board
from monitor.tui.panels.header import shown_rank

_MIN_RANK_BAR = 8
MIN_BAR_DIFFERENCE = 0.5  # cells: bars that differ by less are drawn equal
WORKS, WAITS = "▇", "░"  # not full height, so that rows do not touch
LEGEND: Row = [(WORKS, "accent"), (f" working  {WAITS} waiting", "muted")]
STRIP_RANKS = 64  # from which on a strip shows all of them at once
MAX_STRIP_ROWS = 8
UNEQUAL = ("░", "muted"), ("▒", "warning"), ("█", "bad")  # cells of the strip: alike, longer, much longer
RANK_WIDTH = 7  # cells
MIN_WIDTH_FOR_STEPS = 60  # cells from which on the number of steps is shown
_HEAD, _NUMBERS, _STEPS = 6, 22, 15  # cells of the rank, its figures and its number of steps
_SLOWEST = "  slowest"
MAX_HOST = 16  # cells of a host's name


def _silent(report: Report) -> list[str | None]:
    return [host.hostname for host in report.run.hosts if host.silent_seconds is not None and host.hostname]


def of_rank(title: str, report: Report) -> str:
    """Return `title`, with the rank whose figures are shown if there are several."""
    return ", ".join(filter(None, (title, shown_rank(report))))


def clock_of(report: Report) -> str:
    """Return the clock of the ranks' times; empty without GPUs or with a single rank."""
    if report.device is None or len(report.ranks) < 2:
        return ""
    return GPU_CLOCK if all(row.clock == "cuda" for row in report.ranks) else HOST_CLOCK


def rank_rows(ranks: list[RankRow], slowest: int | None, width: int, silent: Collection[str | None] = ()) -> list[Row]:
    """Return a row per rank: its usual step as a bar, with the waiting part pale at the end.

    Args:
        silent: the hosts of which nothing came for a while.
    """
    longest = max((row.step_seconds or 0.0 for row in ranks), default=0.0)
    room = (
        width - host_width(ranks) - _HEAD - _NUMBERS - (_STEPS if width >= MIN_WIDTH_FOR_STEPS else 0) - len(_SLOWEST)
    )
    scale = room / longest if room >= _MIN_RANK_BAR and longest else 0.0
    whole = whole_cells([(row.step_seconds or 0.0) * scale for row in ranks])
    waits = whole_cells([(row.usual_wait or 0.0) * scale for row in ranks])
    none = "0 " + units.duration(max((row.usual_wait or 0.0 for row in ranks), default=0.0)).rpartition(" ")[2]
    rows: list[Row] = []
    for row, filled, waiting in zip(ranks, whole, waits, strict=True):
        drawn = rank_bar(max(1, filled), min(filled, waiting), room) if scale and row.step_seconds else []
        wait = none if row.usual_wait == 0 else units.duration(row.usual_wait)
        rows.append(_rank(row, row.rank == slowest, drawn, wait, width, row.host in silent))
    return rows


def whole_cells(lengths: list[float]) -> list[int]:
    """Round lengths to whole cells; lengths less than `MIN_DIFFERENCE` apart get the same number."""
    groups: list[list[float]] = []
    for length in sorted(set(lengths)):
        if groups and length - groups[-1][0] < MIN_BAR_DIFFERENCE:
            groups[-1].append(length)
        else:
            groups.append([length])
    cells = {length: round(fmean(group)) for group in groups for length in group}
    return [cells[length] for length in lengths]


def rank_bar(filled: int, waiting: int, room: int) -> Row:
    return [(WORKS * (filled - waiting), "accent"), (WAITS * waiting, "muted"), (" " * (room - filled), "text")]


def _rank(row: RankRow, is_slowest: bool, drawn: Row, wait: str, width: int, is_silent: bool) -> Row:
    head: Row = [(column(f" {row.rank}", _HEAD), "warning bold" if is_slowest else "text")]
    tail: Row = [(column(units.duration(row.step_seconds), 8, right=True), "text")]
    tail += [("  waits ", "muted"), (column(wait, 6, right=True), "text")]
    if width >= MIN_WIDTH_FOR_STEPS:
        tail.append((column(units.plural(row.steps, "step", "steps"), _STEPS, right=True), "muted"))
    if row.host is not None and row_width(head) + row_width(tail) + text_width(host_of(row)) <= width:
        tail.append((host_of(row), "warning" if is_silent else "muted"))
    if is_slowest and row_width(head) + row_width(tail) + len(_SLOWEST) <= width:
        tail.append((_SLOWEST, "warning"))
    return [*head, *drawn, *tail]


def usual(ranks: Sequence[RankRow]) -> str:
    """Return what the figures of all ranks are."""
    return "mean" if ranks and all(row.is_mean for row in ranks) else "median"


def host_of(row: RankRow) -> str:
    """Return the host of a rank, behind a gap; empty where ranks are on one."""
    return "" if row.host is None else f"  {fit(row.host, MAX_HOST)}"


def host_width(ranks: Sequence[RankRow]) -> int:
    return max((text_width(host_of(row)) for row in ranks), default=0)


def by_interest(ranks: list[RankRow], slowest: int | None) -> list[RankRow]:
    """Return the slowest rank first, then by rising wait as displayed, then by rank."""
    shortest: dict[str, float] = {}  # the shortest wait by its displayed text
    for seconds in sorted(row.usual_wait for row in ranks if row.usual_wait is not None):
        shortest.setdefault(units.duration(seconds), seconds)
    return sorted(
        ranks, key=lambda row: (row.rank != slowest, shortest.get(units.duration(row.usual_wait), math.inf), row.rank)
    )


def work_of(row: RankRow) -> float | None:
    """Return the seconds of a rank's step in which it does not wait for others; None: unknown."""
    return None if row.step_seconds is None else row.step_seconds - (row.usual_wait or 0.0)


def strip(ranks: Sequence[RankRow], width: int, most: int) -> tuple[list[Row], int]:
    """Return cells for all ranks, by how much longer each works than the one in the middle, and the ranks of a cell.

    Where there are more ranks than cells in `most` rows, a cell is the rank of some that works longest.
    """
    known = [work for row in ranks if (work := work_of(row)) is not None]
    wide = (width - RANK_WIDTH) // 8 * 8
    if not known or wide < 8:
        return [], 1
    middle = median(known)
    each = -(-len(ranks) // (wide * most))
    rows: list[Row] = []
    for first in range(0, len(ranks), wide * each):
        row = ranks[first : first + wide * each]
        parts = (row[at : at + each] for at in range(0, len(row), each))
        cells = (_cell(max((work for one in part if (work := work_of(one)) is not None), default=None), middle)
                 for part in parts)  # fmt: skip
        rows.append([(column(f" {row[0].rank}", RANK_WIDTH), "muted"), *cells])
    return rows, each


def strip_words(each: int) -> Row:
    """Return what the cells of a strip mean."""
    alike, longer, much = UNEQUAL
    limits = units.share(MIN_OTHERS_WAIT), units.share(MAX_STEP_SPREAD)
    several = f"{each} ranks a cell, " if each > 1 else ""
    return [
        (f" {several}the time of a step in which {'the longest' if each > 1 else 'each'} works, beside the median: ",
         "muted"),
        alike, (f" less than {limits[0]} longer  ", "muted"),
        longer, (f" to {limits[1]}  ", "muted"), much, (" more", "muted"),
    ]  # fmt: skip


def _cell(work: float | None, middle: float) -> tuple[str, str]:
    if work is None:
        return "·", "faint"
    beyond = work - middle
    return UNEQUAL[(beyond >= MIN_OTHERS_WAIT * middle > 0.0) + (beyond >= MAX_STEP_SPREAD * middle > 0.0)]


@on_board("ranks", 8, "Ranks", wide=(2, 3), middle=(4, 1), narrow=7)
class Ranks(ScrollPanel):
    def data(self, view: View, options: ViewOptions) -> object:
        return view.report.ranks, view.report.straggler, view.report.device is None, _silent(view.report)

    def heading(self, view: View, options: ViewOptions) -> str:
        return f"Ranks, {clock}" if (clock := clock_of(view.report)) else "Ranks"

    def has_place(self, view: View, options: ViewOptions) -> bool:
        return len(view.report.ranks) > 1

    def aside(self, view: View, options: ViewOptions) -> Row:
        slow = view.report.straggler
        if slow is None:
            return list(LEGEND)
        number = len(view.report.ranks)
        return [(f"rank {slow.rank} of {number:,} slowest, others wait {units.share(slow.share)}", "muted")]

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        """Return the ranks in order; by interest if there are more ranks than rows."""
        ranks = view.report.ranks
        if len(ranks) < 2:
            return [[("  single rank: nothing to compare", "muted")]]
        slowest = view.report.straggler.rank if view.report.straggler is not None else None
        shown = by_interest(ranks, slowest) if len(ranks) >= self.size.height else ranks
        rows = rank_rows(shown, slowest, width, _silent(view.report))
        room = (self.size.height - 1) // 2
        cells = strip(ranks, width, room)[0] if len(ranks) >= STRIP_RANKS and room > 0 else []
        return [*rows[:1], *cells, *rows[1:]]  # the slowest, all at once, and those that wait least
