"""All ranks on one screen: who waits for whom."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from monitor import units as fmt
from monitor.model.report import RankRow, View
from monitor.tui.actions import screen_bindings
from monitor.tui.panels.base import Look
from monitor.tui.panels.ranks import LEGEND, WORKS, by_interest, clock_of, rank_rows
from monitor.tui.rows import Row, cut, row_width, wrap
from monitor.tui.screens.page import Body, PageScreen

LEAST_WIDTH = 37  # cells of one rank: its number, its time, its waiting, and that it is slowest
GAP = 2
EXPLAINED = " each rank's median step, and how much of it is waiting"
ORDER = "; those that wait least first"


def _columns(ranks: list[RankRow], width: int, height: int) -> int:
    """As few columns as hold every rank, and no more than there is room for."""
    needed = -(-len(ranks) // max(1, height))
    return max(1, min(needed, width // (LEAST_WIDTH + GAP)))


def rank_table(ranks: list[RankRow], slowest: int | None, width: int, height: int) -> list[Row]:
    """The ranks in columns, downwards; where not all fit by interest, across: the first ones are in sight."""
    columns = _columns(ranks, width, height)
    tall = -(-len(ranks) // columns)
    across = tall > height
    ranks = by_interest(ranks, slowest) if across else ranks
    wide = (width - GAP * (columns - 1)) // columns
    drawn = [cut(row, wide) for row in rank_rows(ranks, slowest, wide)]
    rows: list[Row] = []
    for y in range(tall):
        row: Row = []
        for index, cells in enumerate(drawn[y * columns : (y + 1) * columns] if across else drawn[y::tall]):
            row += [(" " * (index * (wide + GAP) - row_width(row)), "text"), *cells]
        rows.append(row)
    return rows


class Ranks(Body):
    screen_name = "ranks"
    title = "Ranks"
    about = (
        "In synchronous training every step takes all ranks the same time, because whoever is early waits in a"
        " collective, mostly inside backward. So the slow rank is not the one with the longest step, but the one that"
        " waits least: `waits` is what a rank's time in collectives exceeds the shortest of all, of each step.",
        "On GPUs the times are the GPUs' once enough steps of every rank were timed, and the host's until then: the"
        " title says which. A wait is a lower bound, and – where it cannot be told: one rank, too few steps in common,"
        " or a GPU that runs behind its host. A rank is named as slowest only over enough steps, and where it costs a"
        " worthwhile share.",
    )

    def heading(self, view: View, look: Look) -> str:
        return f"{self.title}, {told}" if (told := clock_of(view.report)) else self.title

    def data(self, view: View, look: Look) -> object:
        return view.report.ranks, view.report.straggler, view.report.device is None, self._away

    def aside(self, view: View, look: Look) -> Row:
        ranks = view.report.ranks
        table = rank_table(ranks, None, self.size.width, self.size.height - 3) if len(ranks) > 1 else []
        if not any(WORKS in text for row in table for text, _ in row):
            return []  # no bars, so nothing to explain
        return list(LEGEND)

    def everything(self, view: View, look: Look, width: int) -> list[Row]:
        report = view.report
        if len(report.ranks) < 2:
            rows: list[Row] = [[("  one process trains: there is nothing to compare", "muted")], []]
            text = "Several ranks show up by themselves under torchrun, accelerate launch, mpirun and srun."
            return [*rows, *wrap([("  ", "text"), (text, "muted")], width - 2)]
        slow = report.straggler
        if slow is not None:
            head: Row = [(f" rank {slow.rank} is slowest", "warning bold")]
            head += [(f" in {slow.culprit}", "text")] if slow.culprit else []
            head.append((f": the others wait {fmt.duration(slow.seconds)} a step for it, ", "text"))
            head.append((f"{fmt.share(slow.share)} of the time from step to step, ", "text"))
            head.append((f"over the last {slow.steps:,} steps", "text"))
        elif any(rank.wait_seconds is not None for rank in report.ranks):
            head = [(" no rank stands out: none keeps the others waiting for long", "muted")]
        else:
            head = [
                (" who waits for whom cannot be told yet: too few steps in common, or no collectives seen", "muted")
            ]
        who = slow.rank if slow is not None else None
        told = [*wrap(head, width - 1, 1), *wrap([(EXPLAINED, "muted")], width - 1, 1)]
        room = self.size.height - 1 - len(told)
        table = rank_table(report.ranks, who, width, room)
        if len(table) > room:
            told = [*wrap(head, width - 1, 1), *wrap([(EXPLAINED + ORDER, "muted")], width - 1, 1)]
        return [*told, *table]


class RanksScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("ranks")]

    def __init__(self) -> None:
        super().__init__(Ranks())
