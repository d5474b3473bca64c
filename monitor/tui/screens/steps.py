"""The table of steps."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from monitor import units as fmt
from monitor.model.report import View
from monitor.tui.actions import screen_bindings
from monitor.tui.lane import GPU_CLOCK, clock
from monitor.tui.panels.base import Look
from monitor.tui.panels.header import shown_rank
from monitor.tui.panels.steps import silence
from monitor.tui.rows import Row, Span, column, fit, row_width, text_width, wrap
from monitor.tui.screens.one_step import step_detail
from monitor.tui.screens.page import ListBody, PageScreen
from monitor.tui.screens.step_rows import MEAN, Column, Placed, StepLine, columns, ordered, placed, step_lines

STATUS = 9  # cells that the status always has: `skipped`
MOST_STATUS = 42
NARROW = 36  # cells below which the sign before the row is its status
KINDS = "  status, role / stage"
BESIDE = 12  # cells of the title's rule that the title and its ends take


class StepTable(ListBody):
    screen_name = "steps"
    title = "Steps"
    of_the_list = ("sort(1)", "reverse", "slow")
    has_lanes = True
    about = (
        "A row is one step where single steps are kept: the latest ones, and every slow one. ▲ before it means"
        " that it was slow, - that it was skipped. Further back a row is a stretch of steps with their means, and its"
        " first column names both ends. – is unknown, or a phase that did not occur. tok/s is within the step: by its"
        " own time, without the pause before it. Behind it, where there is room, stands what the training is about: its"
        " reward, or its loss.",
        "On a GPU the times are the GPU's, of the steps that CUDA events timed: all of them, or a random sample where"
        " steps are short. h shows every step by the host's clock, which says where Python was.",
        "→ and ← choose the column that sorts, v turns the order round, x leaves only slow and skipped steps. Enter"
        " opens a row: its phases beside the usual ones, metrics, GPUs, what was printed meanwhile, and where the"
        " program stood.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._sort = 0
        self._falling = True
        self._only_slow = False
        self._taken: tuple[View | None, int, bool, bool, bool] = (None, 0, True, False, False)
        self._lines: list[StepLine] = []
        self._columns: list[Column] = []

    def data(self, view: View, look: Look) -> object:
        steps = view.details.steps
        newest = steps[-1].index if steps else 0
        own = self._sort, self._falling, self._only_slow, self.selected, self.opened
        times = view.console_times if self.opened else ()
        timed = view.details.timed
        lanes = look.host, view.step_seconds, view.host_step_seconds, len(timed), timed[-1].step if timed else 0
        return newest, len(steps), lanes, view.report.slow_steps, times, own

    def _take(self, view: View, look: Look) -> None:
        taken = (view, self._sort, self._falling, self._only_slow, look.host)
        if self._taken[0] is view and self._taken[1:] == taken[1:]:
            return
        self._taken = taken
        lines = step_lines(view, look.host)
        self._columns = columns(view, lines, look.host)
        self._sort = min(self._sort, len(self._columns) - 1)
        if self._only_slow:
            lines = [line for line in lines if line.status not in ("", "ok", MEAN)]
        self._lines = ordered(lines, self._columns[self._sort], self._falling)

    def aside(self, view: View, look: Look) -> Row:
        if self.opened:
            return [("Enter or Esc", "accent"), (" back to the table", "muted")]
        self._take(view, look)
        row: Row = [(self._told(view, look), "muted")]
        more = self._more(view, self.size.width)
        beside = BESIDE + text_width(self.heading(view, look)) - text_width(self.title)
        return [*more, *row] if more and row_width(more) + row_width(row) + beside <= self.size.width else row

    def _told(self, view: View, look: Look) -> str:
        """How many rows there are, and of what."""
        single = sum(line.count == 1 for line in self._lines)
        device = clock(view.report, look.host) == GPU_CLOCK
        timed = len({told.step for told in view.details.timed}) if device and not self._only_slow else 0
        what = "slow and skipped steps only, " if self._only_slow else ""
        kind = "timed step" if timed else "single step"
        words = f"{what}{fmt.plural(timed or single, kind, f'{kind}s')}"
        words += f" of {of}" if (of := shown_rank(view.report)) else ""
        others = len(self._lines) - (timed or single)
        beside = "" if device else " before them"  # of steps that were timed some lie between
        return words + (f", {fmt.plural(others, 'stretch', 'stretches')}{beside}" if others else "")

    def _more(self, view: View, width: int) -> Row:
        """How many columns are out of sight, and the key that leads to them."""
        shown, status = self._placed(width)
        hidden = len(self._columns) - len(shown)
        kinds = _kinds(view) and status < len(KINDS)
        if hidden:
            return [("→", "accent"), (f" {fmt.plural(hidden + kinds, 'more column', 'more columns')}  ", "muted")]
        return [("Enter", "accent"), (": one step's role, stage and more  ", "muted")] if kinds else []

    def keys(self, view: View, look: Look) -> list[object]:
        self._take(view, look)
        return [line.key for line in self._lines]

    def nothing(self, view: View, look: Look, width: int) -> list[Row]:
        if self._only_slow:
            return [[("  no step was slow or skipped; ", "muted"), ("x", "accent"), (" shows all", "muted")]]
        return silence(view, width, self.size.height)

    def fixed(self, view: View, look: Look, width: int) -> list[Row]:
        arrow = "↓" if self._falling else "↑"
        row: Row = [("  ", "text")]
        shown, status = self._placed(width)
        for each in shown:
            title = f"{fit(each.column.title, each.width - 2)}{arrow}" if each.sorts else each.column.title
            title = fit(title, each.width - 1)  # a cell between two
            phase = each.column.phase
            tone = "accent bold" if each.sorts else look.phases[phase] if phase else "muted"
            row.append((column(title, each.width, right=True), tone))
        words = KINDS if _kinds(view) and status >= len(KINDS) else "  status"
        return [[*row, (words if status else "", "muted")]]

    def _placed(self, width: int) -> tuple[list[Placed], int]:
        """The columns in sight, and cells for the status behind them."""
        room = width - 4  # before them the cursor, behind them the arrow that says that there is more
        status = STATUS if room >= NARROW else 0
        shown, left = placed(self._columns, self._sort, room - status)
        return shown, min(MOST_STATUS, status + left) if status else 0

    def entry(self, key: object, view: View, look: Look, width: int, chosen: bool) -> list[Row]:
        line = next(each for each in self._lines if each.key == key)
        tone = "bad" if line.slow is not None else "muted" if line.count > 1 or line.status != "ok" else "text"
        row: Row = [("▶" if chosen else " ", "accent bold"), _sign(line)]
        shown, status = self._placed(width)
        for each in shown:
            bold = " bold" if chosen or each.sorts else ""
            row.append((column(each.column.cell(line), each.width, right=True), tone + bold))
        if status:
            said = _status(line, status - 2, status >= len(KINDS))
            row.append((f"  {said}", "warning" if line.status.startswith("skipped") else tone))
        return [row]

    def opened_rows(self, key: object, view: View, look: Look, width: int) -> list[Row]:
        line = next((each for each in self._lines if each.key == key), None)
        if line is None:
            return []
        wanted = self._wanted
        words = f" step {wanted:,} was not timed on the GPU; the timed step nearest to it:"
        beside: list[Row] = (
            wrap([(words, "muted")], width - 1, 1) if line.by_device and wanted not in line.steps else []
        )
        return [*beside, *step_detail(line, view, look, width)]

    @property
    def _wanted(self) -> int:
        """The step that was selected, by whichever clock."""
        return self.selected[0] if isinstance(self.selected, tuple) else 0

    def choice(self, keys: list[object]) -> int:
        """The same step by the other clock, or the one nearest to it: a sample has not every step."""
        if self.selected is None or self.selected in keys:
            return super().choice(keys)
        return min(range(len(keys)), key=lambda place: abs(self._lines[place].step - self._wanted))

    def do_sort(self, by: int) -> None:
        if self._columns:
            self._sort = (self._sort + by) % len(self._columns)
            self._falling = True

    def do_reverse(self) -> None:
        self._falling = not self._falling

    def do_slow(self) -> None:
        self._only_slow = not self._only_slow


def _kinds(view: View) -> bool:
    return any(step.role or step.stage for step in view.details.steps)


def _status(line: StepLine, room: int, kinds: bool) -> str:
    """What became of it, and with `kinds` its role and stage; in fewer words where `room` asks for that."""
    kind = ""
    if kinds and line.event is not None and (line.event.role or line.event.stage):
        kind = ", " + " / ".join(part for part in (line.event.role, line.event.stage) if part)
    if line.slow is not None:
        culprit = line.slow.culprit
        ways = [f"▲ slow: {culprit} grew most{kind}", f"▲ {culprit}{kind}", f"▲ {culprit}"] if culprit else []
        ways.append("▲ slow")
    elif line.count > 1:
        ways = ["mean of the stretch", "mean"]
    else:
        ways = [line.status + kind, line.status, line.status.partition(":")[0]]
    return fit(next((words for words in ways if text_width(words) <= room), ways[-1]), room)


def _sign(line: StepLine) -> Span:
    """Before the row, for its colour says it to some only, and the status has no room on a narrow screen."""
    if line.slow is not None:
        return "▲", "bad bold"
    return ("-", "warning") if line.status.startswith("skipped") else (" ", "text")


class StepsScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("steps")]

    def __init__(self) -> None:
        super().__init__(StepTable())
