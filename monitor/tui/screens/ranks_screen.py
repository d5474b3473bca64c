"""The ranks screen: every rank with its phases and its wait, and one of them beside the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from monitor import units
from monitor.keymap import OPEN, RESTORE
from monitor.model.ranks.rank_waits import MIN_OTHERS_WAIT
from monitor.model.report import Report
from monitor.model.view import View
from monitor.step_blocks import OTHER
from monitor.tui.drawing.rows import Row, column, fit, row_width, text_width, wrap
from monitor.tui.panels.base import ViewOptions
from monitor.tui.panels.ranks_panel import (
    LEGEND,
    MAX_STRIP_ROWS,
    RANK_WIDTH,
    STRIP_RANKS,
    by_interest,
    clock_of,
    host_of,
    host_width,
    rank_bar,
    strip,
    strip_words,
    usual,
)
from monitor.tui.screens.page import ListBody, screen
from trainhooks.protocol.vocabulary import BETWEEN_STEPS

FLAT_HEIGHT = 12  # rows below which only the ranks have room
MIN_BAR, MAX_BAR = 12, 40  # cells of a bar behind a rank's figures, where there is room
TIME_WIDTH, MAX_NAME_WIDTH = 9, 14  # cells
MIN_PHASES = 3  # columns that hosts leave
ARROW = 3  # cells at the end of a row, for the arrow of a list that goes on
ALL = 10_000  # cells in which every phase has room
NAMES = {BETWEEN_STEPS: "between"}  # where there is little room


@dataclass(frozen=True, slots=True)
class Table:
    """What all rows of the table share."""

    phases: tuple[str, ...]  # that have a column
    median: Mapping[str, float]  # seconds of each phase on the rank in the middle
    step: float  # seconds of its step
    longest: float  # seconds of the longest step
    room: int  # cells that the columns leave free
    hosts: int  # cells of the hosts' column; 0 where ranks are on one host, or there is no room

    def is_long(self, phase: str, seconds: float) -> bool:
        """Return whether a rank takes longer in a phase than the others, by more than the scheduler's share."""
        return seconds - self.median.get(phase, 0.0) >= MIN_OTHERS_WAIT * self.step > 0.0


def table_of(report: Report, width: int) -> Table:
    """Return the columns that fit: the phases that take most of a step, in the order of the step."""
    ranks = report.ranks
    names = dict.fromkeys([*(row.name for row in report.phases), *(name for row in ranks for name in row.phases)])
    ordered = [name for name in names if name not in (OTHER, BETWEEN_STEPS)]
    ordered += [name for name in (OTHER, BETWEEN_STEPS) if name in names]
    middle = {name: median(row.phases.get(name, 0.0) for row in ranks) for name in ordered}
    most = {name: max(row.phases.get(name, 0.0) for row in ranks) for name in ordered}
    room, shown = width - RANK_WIDTH - 2 * TIME_WIDTH - ARROW, set()
    hosts = host_width(ranks)
    hosts = hosts if room - hosts >= MIN_PHASES * TIME_WIDTH else 0
    room -= hosts
    for name in sorted(ordered, key=lambda name: -most[name]):
        if most[name] <= 0.0 or name_width(name) > room:
            break
        shown.add(name)
        room -= name_width(name)
    steps = [row.step_seconds for row in ranks if row.step_seconds is not None]
    phases = tuple(name for name in ordered if name in shown)
    return Table(phases, middle, median(steps) if steps else 0.0, max(steps, default=0.0), room, hosts)


def name_width(name: str) -> int:
    return max(TIME_WIDTH, min(MAX_NAME_WIDTH, text_width(NAMES.get(name, name)) + 2))


@screen
class Ranks(ListBody):
    screen_name = "ranks"
    title = "Ranks"
    about = (
        "In synchronous training all ranks take the same time per step: fast ranks wait in a collective, mostly inside"
        " backward. The straggler is therefore the rank that waits least. `waits` is the time of a rank in collectives"
        " beyond the shortest of all ranks, per step. Step and phases are medians of the latest steps, or means where"
        " the waits are (see the title); a time that is longer than the median of the ranks by 5% of a step stands"
        " out. Enter shows one rank beside the others; Enter again shows that rank on all screens, until Esc on the"
        " overview.",
        "On GPUs these are GPU times once enough steps of every rank were timed, host times until then (see the title)."
        " A wait is a lower bound; – is unknown: one rank, too few steps in common, or a GPU that runs behind its host."
        " A straggler is named only over enough steps and for a significant share of the time.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._made: tuple[Report, int, Table] | None = None

    def _table(self, report: Report, width: int) -> Table:
        """Return the table's columns, computed once a report."""
        if self._made is None or self._made[0] is not report or self._made[1] != width:
            self._made = report, width, table_of(report, width)
        return self._made[2]

    def do_open(self) -> None:
        if self.opened and isinstance(self.selected, int):
            self.call_later(self.app.run_action, f"app.rank({self.selected})")
            return
        super().do_open()

    def heading(self, view: View, options: ViewOptions) -> str:
        title = f"Rank {self.selected}" if self.opened and self.selected is not None else self.title
        if self.opened:
            host = next((row.host for row in view.report.ranks if row.rank == self.selected), None)
            title += f" on {host}" if host is not None else ""
        return f"{title}, {clock}" if (clock := clock_of(view.report)) else title

    def data(self, view: View, options: ViewOptions) -> object:
        report = view.report
        return report.ranks, report.straggler, report.device is None, self.selected, self.opened, self._away

    def aside(self, view: View, options: ViewOptions) -> Row:
        if self.opened:
            words = f": rank {self.selected} on all screens  "
            return [(OPEN.shown, "accent"), (words, "muted"), (RESTORE.shown, "accent"), (" back to all", "muted")]
        if len(view.report.ranks) < 2:
            return []
        has_bars = self._table(view.report, self.size.width).room >= MIN_BAR + 25
        return [
            (f"{usual(view.report.ranks)} step of each rank", "muted"),
            *([("   ", "text"), *LEGEND] if has_bars else []),
        ]

    def keys(self, view: View, options: ViewOptions) -> list[object]:
        """Return the ranks in their order; by interest where a screen does not hold them."""
        ranks = view.report.ranks
        if len(ranks) < 2:
            return []
        slow = view.report.straggler
        rows = by_interest(ranks, None if slow is None else slow.rank) if len(ranks) > self.size.height - 6 else ranks
        return [row.rank for row in rows]

    def nothing(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        rows: list[Row] = [[("  single rank: nothing to compare", "muted")], []]
        text = "Ranks appear automatically under torchrun, accelerate launch, mpirun and srun."
        return [*rows, *wrap([("  ", "text"), (text, "muted")], width - 2)]

    def fixed(self, view: View, options: ViewOptions, width: int) -> list[Row]:
        report = view.report
        table = self._table(report, width)
        flat = self.size.height < FLAT_HEIGHT
        head = wrap(_head(report), width - 1, 1, 1 if flat else 6)
        drawn: list[Row] = []
        if len(report.ranks) >= STRIP_RANKS:
            cells, each = strip(report.ranks, width, max(1, min(MAX_STRIP_ROWS, self.size.height // 3)))
            drawn = [*wrap(strip_words(each), width - 1, 1), *cells] if cells else []
            drawn = drawn if len(drawn) < self.size.height // 2 else []
        names: Row = [(column(" rank", RANK_WIDTH) + column("host" if table.hosts else "", table.hosts), "muted")]
        names += [(column(name, TIME_WIDTH, right=True), "muted") for name in ("step", "waits")]
        for name in table.phases:
            wide = name_width(name)
            tone = "muted" if name in NAMES else options.phases[name]
            names.append((column(fit(NAMES.get(name, name), wide - 1), wide, right=True), tone))
        middle: Row = [(column(" median", RANK_WIDTH + table.hosts), "muted")]
        middle += [(column(units.duration(table.step or None), TIME_WIDTH, right=True), "muted")]
        waits = [row.usual_wait for row in report.ranks if row.usual_wait is not None]
        middle += [(column(units.duration(median(waits) if waits else None), TIME_WIDTH, right=True), "muted")]
        for name in table.phases:
            middle.append((column(units.duration(table.median[name]), name_width(name), right=True), "muted"))
        return [*head, names] if flat else [*head, *drawn, names, middle]

    def entry(self, key: object, view: View, options: ViewOptions, width: int, chosen: bool) -> list[Row]:
        report = view.report
        table, slow = self._table(report, width), report.straggler
        row = next(row for row in report.ranks if row.rank == key)
        late = slow is not None and slow.rank == row.rank
        tone = "warning bold" if late else "text"
        cells: Row = [(f"{'▸' if chosen else ' '}", "accent"), (column(str(row.rank), RANK_WIDTH - 1), tone)]
        cells.append((column(host_of(row).lstrip() if table.hosts else "", table.hosts), "muted"))
        cells.append((column(units.duration(row.step_seconds), TIME_WIDTH, right=True), "text"))
        cells.append((column(units.duration(row.usual_wait), TIME_WIDTH, right=True), "text"))
        for name in table.phases:
            seconds = row.phases.get(name)
            long = seconds is not None and table.is_long(name, seconds)
            drawn = column(units.duration(seconds), name_width(name), right=True)
            cells.append((drawn, "warning bold" if long else "text"))
        steps, mark = "  " + units.plural(row.steps, "step", "steps"), "  slowest"
        bar = min(MAX_BAR, table.room - len(steps) - len(mark) - 1)
        if bar >= MIN_BAR and row.step_seconds:
            filled, waiting = (round(each * bar / table.longest) for each in (row.step_seconds, row.usual_wait or 0.0))
            cells += [(" ", "text"), *rank_bar(max(1, filled), min(filled, waiting), bar)]
        for words, tone in ((steps, "muted"), *([(mark, "warning")] if late else [])):
            if row_width(cells) + len(words) <= width:
                cells.append((words, tone))
        return [cells]

    def opened_rows(self, key: object, view: View, options: ViewOptions, width: int) -> list[Row]:
        """Return one rank beside the others: where it is longer, and where it waits."""
        report = view.report
        row = next(row for row in report.ranks if row.rank == key)
        table = table_of(report, ALL)
        wide = 11 if width >= 70 else 9
        share = "" if row.wait_share is None else f", {units.share(row.wait_share)}"
        head: Row = [(f" step {units.duration(row.step_seconds)}", "text bold")]
        head += [(f"  waits for others {units.duration(row.usual_wait)}{share}  {row.steps:,} steps", "text")]
        rows = wrap(head, width - 1, 1)
        if report.straggler is not None and report.straggler.rank == row.rank:
            rows += wrap(_head(report), width - 1, 1)
        rows += [[], _cells("phase", ("this one", "median", "least", "most"), "muted", "muted", wide)]
        for name in table.phases:
            all_of_it = [each.phases.get(name, 0.0) for each in report.ranks]
            mine = row.phases.get(name, 0.0)
            told = [units.duration(each) for each in (mine, table.median[name], min(all_of_it), max(all_of_it))]
            tone = "warning bold" if table.is_long(name, mine) else "text"
            rows.append(_cells(name, told, "muted" if name in NAMES else options.phases[name], tone, wide))
        if not table.phases:
            rows += wrap([(" no phases of this rank are known", "muted")], width - 1, 1)
        return rows


def _cells(name: str, times: Sequence[str], name_tone: str, tone: str, wide: int) -> Row:
    head = (column(f" {fit(name, 20)}", 2 * wide), name_tone)
    return [head, *((column(each, wide, right=True), tone) for each in times)]


def _head(report: Report) -> Row:
    """Return the straggler, or that there is none."""
    slow = report.straggler
    if slow is None:
        if any(rank.wait_seconds is not None for rank in report.ranks):
            return [(" no straggler: no rank keeps the others waiting", "muted")]
        return [(" straggler unknown: too few steps in common, or no collectives seen", "muted")]
    head: Row = [(f" rank {slow.rank} slowest", "warning bold")]
    if slow.culprit is not None:
        took = f" ({units.duration(slow.own_seconds)}, the others {units.duration(slow.others_seconds)})"
        head.append((f" {slow.where}{took if slow.own_seconds is not None else ''}", "text"))
    head.append((f": others wait {units.duration(slow.seconds)} per step, ", "text"))
    head.append((f"{units.share(slow.share)} of the step-to-step time, ", "text"))
    head.append((f"over the last {slow.steps:,} steps", "text"))
    return head
