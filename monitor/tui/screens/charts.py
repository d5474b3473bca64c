"""Every metric as a small chart: found by name, on a logarithmic scale, smoothed, and two in one."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import BindingType

from monitor import units as fmt
from monitor.model.report import Curve, MetricRow, View
from monitor.tui.actions import screen_bindings
from monitor.tui.columns import ends, grid
from monitor.tui.curve_forms import logarithms, smoothed
from monitor.tui.panels.base import Look
from monitor.tui.panels.metric import pointed_value, summary
from monitor.tui.panels.plot import GUTTER, band_told, line_chart
from monitor.tui.rows import Row, cut, fit, row_width, spread
from monitor.tui.screens.page import Finder, ListBody, PageScreen, with_arrow

LEAST_WIDTH, LEAST_HEIGHT = 36, 7  # of a small chart: less shows no curve
MAX_ACROSS = 4
SMOOTH = (0.0, 0.6, 0.9)  # none, a little, much
SMOOTH_WORDS = ("not smoothed", "a little smoothed", "much smoothed")
GAP = 2


class Charts(Finder, ListBody):
    screen_name = "charts"
    title = "Metrics"
    about = (
        "Every metric that was logged, each with its own scale; the pale band behind a line is the range between the"
        " lowest and the highest value where a column stands for several steps. × marks values that are not finite, ▴"
        " and ▾ those above and below the scale. A line ends where no value came for more than three times as long as"
        " usual.",
        "/ finds by name. y draws logarithms (what is not above zero is left out), n smooths, d marks the chosen metric"
        " and draws it, in a second colour and between limits of its own, into each other one. Enter makes one large.",
    )

    def __init__(self) -> None:
        super().__init__()
        self._logarithmic = False
        self._smooth = 0
        self._over: str | None = None
        self._across = 1

    def data(self, view: View, look: Look) -> object:
        own = self.selected, self.opened, self._logarithmic, self._smooth, self._over, self.wanted, self.typing
        return view.metrics, view.report.metrics, ends(view.step_seconds), own, look.cursor

    def aside(self, view: View, look: Look) -> Row:
        found, every = len(self.keys(view, look)), len({*view.metrics, *view.report.metrics})
        number = f"{found:,} of {every:,}" if self.wanted else f"{every:,} metric{'s' * (every != 1)}"
        forms = ["logarithmic"] if self._logarithmic else []
        forms += [SMOOTH_WORDS[self._smooth]] if self._smooth else []
        room = self.size.width - len(self.title) - 6  # what a scale means has its place before how many there are
        band = [[*words, ("   ", "text")] for words in band_told()] if self._banded(view, found) else []
        row: Row = []
        for words, name in (([number, *forms], 24), (forms, 24), (forms, 12), (forms, 0)):
            row = [(", ".join(words), "muted")]
            if self._over and name:
                row += [("  with ", "muted"), (fit(self._over, name), "warning bold")]
            if row_width(row) <= room:
                break
        row = row if row[0][0] or len(row) > 1 else []
        return next(([*words, *row] for words in band if row_width([*words, *row]) <= room), row)

    def _banded(self, view: View, charts: int) -> bool:
        """Whether a column of the small charts stands for several steps: what is behind their lines is told once."""
        _, across = arranged(max(1, charts), max(1, min(MAX_ACROSS, self.size.width // LEAST_WIDTH)))
        layout = grid(view.step_seconds, (self.size.width - GAP * across) // across - GUTTER)
        return charts > 0 and not self.opened and layout is not None and layout.steps > 1

    def keys(self, view: View, look: Look) -> list[object]:
        names = list(dict.fromkeys([*view.metrics, *view.report.metrics]))
        return [name for name in names if self.matches(name)]

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        line = self.line(width)
        head = [line] if line else []
        return [*head, *self._charts(view, look, width, height - len(head))]

    def _charts(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        names = self.keys(view, look)
        self.empty = not names
        if not names:
            if view.metrics:
                return [[("  no metric has this in its name", "muted")]]
            return [
                [("  no metric has been logged yet", "muted")],
                [("  ", "text"), ("trainhooks.log(loss=loss)", "accent"), (" logs one from any loop", "muted")],
            ][:height]
        at = self.choice(names)
        if self.opened:
            return self._one(str(names[at]), view, look, width, height, True, height > LEAST_HEIGHT + 1)
        lines, across = arranged(len(names), max(1, min(MAX_ACROSS, width // LEAST_WIDTH)))
        self._across = across
        shown = max(1, min(lines, height // LEAST_HEIGHT))
        first = min(max(0, at // across - shown // 2), lines - shown)
        beyond = GAP if shown < lines else 0  # the arrows that say so have cells of their own
        wide = (width - beyond - GAP * (across - 1)) // across
        roomy = height // shown > LEAST_HEIGHT + 1  # for all of them, so that they are alike
        rows: list[Row] = []
        for number in range(first, first + shown):
            end = (number - first + 1) * height // shown
            tall = end - len(rows)
            part = names[number * across : (number + 1) * across]
            charts = [self._one(str(name), view, look, wide, tall, name == names[at], roomy) for name in part]
            rows += beside(charts, wide, tall)
        if first > 0:
            rows[0] = with_arrow(rows[0], "↑", width)
        if first + shown < lines:
            rows[-1] = with_arrow(rows[-1], "↓", width)
        return rows

    def _one(self, name: str, view: View, look: Look, width: int, height: int, chosen: bool, roomy: bool) -> list[Row]:
        row = view.report.metrics.get(name, MetricRow())
        last: Row = [(fit(fmt.number(row.last), 14), "bad bold" if isinstance(row.last, str) else "text bold")]
        plain = view.metrics.get(name, Curve())
        pointed = None if look.cursor is None else pointed_value(plain, look.cursor)
        last = last if pointed is None else pointed
        room = width - 3 - (0 if roomy else row_width(last) + 1)
        title: Row = [("▶ " if chosen else "  ", "accent bold"), (fit(name, room), "text bold")]
        rows = [spread(title, [] if roomy else last, width)]
        if roomy:
            rows.append([("  ", "text"), *summary(row, width - 2, pointed)])
        over = view.metrics.get(self._over) if self._over not in (None, name) else None
        curve = self._formed(plain)
        other = self._formed(over) if over is not None else None
        room = height - len(rows) - roomy
        form = self._logarithmic, look.cursor, view.step_seconds, self.opened
        return [*rows, *line_chart(curve, width, room, other, *form)]

    def _formed(self, curve: Curve) -> Curve:
        if self._smooth:
            curve = smoothed(curve, SMOOTH[self._smooth])
        return logarithms(curve) if self._logarithmic else curve

    def do_move(self, rows: int) -> None:
        if self._view is None or self._look is None:
            return
        names = self.keys(self._view, self._look)
        if names:
            self.selected = names[max(0, min(len(names) - 1, self.choice(names) + rows))]

    def do_beside(self, columns: int) -> None:
        """Among small charts the one beside; in a large one the time cursor."""
        if self.opened:
            self.app.call_later(self.app.run_action, f"cursor({columns})")
        else:
            self.do_move(columns)

    def do_move_page(self, pages: int) -> None:
        self.do_move(pages * self._across)

    def do_logarithm(self) -> None:
        self._logarithmic = not self._logarithmic

    def do_smooth(self) -> None:
        self._smooth = (self._smooth + 1) % len(SMOOTH)

    def do_overlay(self) -> None:
        if self._view is None or self._look is None:
            return
        names = self.keys(self._view, self._look)
        chosen = str(names[self.choice(names)]) if names else None
        self._over = None if self._over == chosen else chosen

    def scroll_rows(self, rows: int) -> None:
        self.do_move(rows)
        self.draw_again(force=True)


def arranged(number: int, most: int) -> tuple[int, int]:
    """Rows, and charts in each, at most so many: as alike as they can be, so that none stands alone below others."""
    lines = -(-number // most)
    return lines, -(-number // lines)


def beside(charts: list[list[Row]], width: int, height: int) -> list[Row]:
    """Charts of so many cells in one row of charts."""
    rows: list[Row] = []
    for y in range(height):
        row: Row = []
        for index, chart in enumerate(charts):
            cells = cut(chart[y], width) if y < len(chart) else []
            pad = width - row_width(cells) + (GAP if index + 1 < len(charts) else 0)
            row += [*cells, (" " * pad, "text")]
        rows.append(row)
    return rows


class ChartsScreen(PageScreen):
    BINDINGS: ClassVar[list[BindingType]] = [*screen_bindings("charts")]

    def __init__(self) -> None:
        super().__init__(Charts())
