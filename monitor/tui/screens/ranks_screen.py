"""The ranks screen: all ranks, with the time that each waits for others."""

from __future__ import annotations

from monitor import units
from monitor.model.report import RankRow
from monitor.model.view import View
from monitor.tui.drawing.rows import Row, side_by_side, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.ranks_panel import LEGEND, WORKS, by_interest, clock_of, rank_rows
from monitor.tui.screens.page import Body, screen

MIN_RANK_WIDTH = 37  # cells of one rank: its number, time, wait, and the mark of the slowest
RANK_GAP = 2
COLUMNS_NOTE = " median step of each rank and its waiting part"
ORDER_NOTE = "; least waiting first"


def _columns(ranks: list[RankRow], width: int, height: int) -> int:
    """Return the fewest columns that hold every rank, limited to what fits into `width`."""
    needed = -(-len(ranks) // max(1, height))
    return max(1, min(needed, width // (MIN_RANK_WIDTH + RANK_GAP)))


def rank_table(ranks: list[RankRow], slowest: int | None, width: int, height: int) -> list[Row]:
    """Return the ranks in columns, downward; if not all fit, across and by interest, so that the first are visible."""
    columns = _columns(ranks, width, height)
    tall = -(-len(ranks) // columns)
    across = tall > height
    ranks = by_interest(ranks, slowest) if across else ranks
    wide = (width - RANK_GAP * (columns - 1)) // columns
    drawn = rank_rows(ranks, slowest, wide)
    parts = range(columns)
    placed = [drawn[at::columns] for at in parts] if across else [drawn[at * tall : (at + 1) * tall] for at in parts]
    return side_by_side(placed, wide, RANK_GAP)


@screen
class Ranks(Body):
    screen_name = "ranks"
    title = "Ranks"
    about = (
        "In synchronous training all ranks take the same time per step: fast ranks wait in a collective, mostly inside"
        " backward. The straggler is therefore the rank that waits least. `waits` is the time of a rank in collectives"
        " beyond the shortest of all ranks, per step.",
        "On GPUs these are GPU times once enough steps of every rank were timed, host times until then (see the title)."
        " A wait is a lower bound; – is unknown: one rank, too few steps in common, or a GPU that runs behind its host."
        " A straggler is named only over enough steps and for a significant share of the time.",
    )

    def heading(self, view: View, options: ViewOptions) -> str:
        return f"{self.title}, {clock}" if (clock := clock_of(view.report)) else self.title

    def data(self, view: View, options: ViewOptions) -> object:
        return view.report.ranks, view.report.straggler, view.report.device is None, self._away

    def aside(self, view: View, options: ViewOptions) -> Row:
        ranks = view.report.ranks
        table = rank_table(ranks, None, self.size.width, self.size.height - 3) if len(ranks) > 1 else []
        if not any(WORKS in text for row in table for text, _ in row):
            return []  # no bars, so nothing to explain
        return list(LEGEND)

    def everything(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        report = view.report
        if len(report.ranks) < 2:
            rows: list[Row] = [[("  single rank: nothing to compare", "muted")], []]
            text = "Ranks appear automatically under torchrun, accelerate launch, mpirun and srun."
            return [*rows, *wrap([("  ", "text"), (text, "muted")], width - 2)]
        slow = report.straggler
        if slow is not None:
            head: Row = [(f" rank {slow.rank} slowest", "warning bold")]
            head += [(f" in {slow.culprit}", "text")] if slow.culprit else []
            head.append((f": others wait {units.duration(slow.seconds)} per step, ", "text"))
            head.append((f"{units.share(slow.share)} of the step-to-step time, ", "text"))
            head.append((f"over the last {slow.steps:,} steps", "text"))
        elif any(rank.wait_seconds is not None for rank in report.ranks):
            head = [(" no straggler: no rank keeps the others waiting", "muted")]
        else:
            head = [(" straggler unknown: too few steps in common, or no collectives seen", "muted")]
        who = slow.rank if slow is not None else None
        above = [*wrap(head, width - 1, 1), *wrap([(COLUMNS_NOTE, "muted")], width - 1, 1)]
        room = self.size.height - 1 - len(above)
        table = rank_table(report.ranks, who, width, room)
        if len(table) > room:
            above = [*wrap(head, width - 1, 1), *wrap([(COLUMNS_NOTE + ORDER_NOTE, "muted")], width - 1, 1)]
        return [*above, *table]
