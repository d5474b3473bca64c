"""Step time over the run, stacked by phase, with a mark above every slow step."""

from __future__ import annotations

import math
from collections.abc import Collection

from monitor import units as fmt
from monitor.model.report import View
from monitor.tui.axis import beside_rows, grounded
from monitor.tui.columns import Grid, across, fold_means, grid, top_limit
from monitor.tui.cursor import at, column_of, crossed, footed
from monitor.tui.lane import Lane, lane, with_clock
from monitor.tui.panels.base import Look, Panel
from monitor.tui.panels.plot import ABOVE, framed, steps_axis
from monitor.tui.panels.ranks import of_rank
from monitor.tui.rows import Row, Span, fit, flow, printable, row_width, separated, text_width, wrap
from monitor.tui.stack import Layer, stacked
from monitor.tui.themes import OTHER
from monitor.tui.timeline import BOTH, CHECKPOINT, EVAL, SLOW, WORDS, held_back, marked

ORDER = (SLOW, CHECKPOINT, EVAL, BOTH)  # in which signs are explained
GUTTER = 8  # cells before the columns
TALL = 10  # rows of a panel from which on the legend may take two


def phase_layers(shown: Lane, layout: Grid) -> dict[str, list[float]]:
    """Mean seconds a step of each phase, and of the rest, a value for every bucket of the grid."""
    layers: dict[str, list[float]] = {}
    for name, curve in shown.phase_seconds.items():
        layers[name] = fold_means(curve, layout)
    if OTHER not in layers:
        rest = []
        for index, total in enumerate(fold_means(shown.step_seconds, layout)):
            left = total - sum(values[index] for values in layers.values())
            rest.append(left if left > 0.005 * total else 0.0)
        layers[OTHER] = rest
    else:
        layers[OTHER] = layers.pop(OTHER)  # last, whatever order it came in
    return layers


def _marks(signs: dict[int, Span], layout: Grid, totals: list[float], top: float, width: int) -> Row:
    """A sign above each step that has one, `▴` where a column was merely cut."""
    cut_off = {index for index, total in enumerate(totals) if total > top}
    row: Row = []
    at = 0
    for index in sorted(signs.keys() | cut_off):
        middle = layout.column(index) - layout.bars
        if at <= middle < width:
            row += [(" " * (middle - at), "text"), signs.get(index, (ABOVE, "muted"))]
            at = middle + 1
    return [*row, (" " * (width - at), "text")]


def pointed_phases(shown: Lane, cursor: int) -> dict[str, str]:
    """How long each phase took where the time cursor is."""
    found = {}
    for name, curve in shown.phase_seconds.items():
        moment, step = at(curve, cursor), at(shown.step_seconds, cursor)
        # A phase does not occur in every step: an older value is none of this one.
        if moment is not None and step is not None and moment.last >= step.first and math.isfinite(moment.value):
            found[name] = fmt.duration(moment.value)
    return found


def legend(
    look: Look, layers: dict[str, list[float]], signs: Collection[Span], width: int, rows: int, least: float = 0.0,
    told: dict[str, str] | None = None,
) -> list[Row]:  # fmt: skip
    """What the colours and signs mean; with the cursor, the time of each phase in place of the signs.

    Args:
        least: the seconds that are drawn: a phase that never takes so long comes after the others.
    """
    seen = [name for name, values in layers.items() if any(values)]
    seen.sort(key=lambda name: (max(layers[name]) < least, -sum(layers[name])))
    parts: list[Row] = [[("■ ", look.phases[name]), (fit(name, 24), "muted")] for name in seen]
    if told is not None:
        parts = [[*part, (f" {told.get(name, fmt.UNKNOWN)}", "text")] for name, part in zip(seen, parts, strict=True)]
        signs = ()
    if rows == 1:  # signs first: the panel beside has the colours, and nothing else has them
        return [separated([*_brief(signs, width), *parts[:3]], width, ("  ", "text"))]
    for kept in range(len(parts), 0, -1):  # the signs come last, and each has its place
        for marks in _wordings(signs):
            if len(lines := flow([*parts[:kept], *marks], width, limit=3)) <= 2:
                return lines
    return flow([*_brief(signs, width), *parts], width, limit=2)


def _wordings(signs: Collection[Span]) -> list[list[Row]]:
    """What the signs mean, the fewest words last."""
    both = {BOTH: "both"} if {CHECKPOINT, EVAL} <= set(signs) else {}
    short = {**WORDS, EVAL: "eval", **both}
    found = [WORDS, short, {**short, SLOW: "slow", CHECKPOINT: "saved"}]
    return [[[sign, (f" {words[sign]}", "muted")] for sign in ORDER if sign in signs] for words in found]


def _brief(signs: Collection[Span], width: int) -> list[Row]:
    """What the signs mean, in so many words as fit into a row."""
    *longer, shortest = _wordings(signs)[1:]
    return next((row for row in longer if sum(row_width(part) + 2 for part in row) - 2 <= width), shortest)


def silence(view: View, width: int, height: int) -> list[Row]:
    """Why there is no step to show, as far as it can be told, and what to do. The verdict says the rest."""
    found = next((finding for finding in view.report.findings if finding.code == "nothing-reports"), None)
    if found is None:
        return [[("  no step has finished yet", "muted")]]
    rows: list[Row] = []
    for line in found.evidence:
        rows += wrap([("  · ", "accent"), (printable(line[:800]), "text")], width - 1, 4)
    if found.advice:
        rows += wrap([("  → ", "accent"), (printable(found.advice[:800]), "text")], width - 1, 4)
    if len(rows) > height:
        rows[max(0, height - 1) :] = [[("  the screen ", "muted"), ("why", "accent"), (" has it all", "muted")]]
    return rows


def seconds_axis(highest: float, height: int) -> tuple[float, list[str]]:
    """What the top edge stands for, and a label a row, all in one unit. The foot of a labelled row is its value."""
    number, unit = fmt.axis_seconds(highest).split(" ")
    top, told = grounded(float(number), height)
    labels = [f"{value:.6g} {unit}" if value else "0" for value in told.values()]
    return max(highest, top * (highest / float(number))), list(beside_rows(labels, list(told), height))


def chart(view: View, look: Look, width: int, height: int) -> list[Row]:
    shown = lane(view, look.host)
    layout = grid(shown.step_seconds, width - GUTTER)
    if layout is None or height < 3:
        return silence(view, width, height)
    room = width - GUTTER
    layers = phase_layers(shown, layout)
    totals = [sum(column) for column in zip(*layers.values(), strict=True)]
    highest = min(top_limit(totals), max(totals, default=0.0) or 1.0)
    signs = marked(view, layout)
    told = pointed_phases(shown, look.cursor) if look.cursor is not None else None
    lines = 2 if height >= TALL else 1
    half_a_cell = highest / (2 * height)
    words = legend(look, layers, signs.values(), room, lines, half_a_cell, told) if height >= 6 else []
    held = held_back(view, layout, room) if height >= 8 else []
    plot_height = max(1, height - 2 - len(words) - bool(held))
    top, labels = seconds_axis(highest, plot_height)
    bars = [Layer(look.phases[name], across(values, layout, apart=True)) for name, values in layers.items()]
    above = [*([held] if held else []), _marks(signs, layout, totals, top, room)]
    column = column_of(layout, look.cursor, room)
    picture = crossed([*above, *stacked(bars, room, plot_height, top)], column)
    rows = framed(picture, [*[""] * len(above), *labels], GUTTER, stands=True)
    foot = None if column is None else GUTTER + column
    between = [] if words else [separated(row, room, ("  ", "text")) for row in _wordings(signs.values())[1:]]
    rows.append(footed(steps_axis(layout, GUTTER, room, between), foot))
    return [*rows, *([(" " * GUTTER, "text"), *row] for row in words)]


class Steps(Panel):
    number = 1
    short = "Step time"

    def data(self, view: View, look: Look) -> object:
        slow = [slow.step for slow in view.report.slow_steps]
        beside = view.details.spans, view.details.held_back, look.cursor
        shown = lane(view, look.host)
        told = shown.clock, shown.step_seconds, shown.phase_seconds
        return told, slow, beside, [] if shown.step_seconds.x else view.report.findings

    def heading(self, view: View, look: Look) -> str:
        self.short = with_clock(Steps.short, view.report, look.host)
        return of_rank(with_clock("Step time by phase", view.report, look.host), view.report)

    def aside(self, view: View, look: Look) -> Row:
        curve = lane(view, look.host).step_seconds
        moment = at(curve, look.cursor) if look.cursor is not None else None
        if moment is not None:
            return [(f"{moment.name} ", "accent"), (fmt.duration(moment.value), "text")]
        last = next((value for value in reversed(curve.mean) if math.isfinite(value)), None)
        newest: Row = (
            [("last ", "muted"), (fmt.duration(last), "text")] if last is not None and curve.width == 1 else []
        )
        layout = grid(curve, self.size.width - GUTTER)
        if layout is None or layout.steps == 1:
            return newest
        number = f"{layout.steps:,}"
        wordings = (f"each bar: mean of {number} steps", f"mean of {number} steps", f"mean of {number}")
        gap: Row = [("  ", "text")] if newest else []
        asides: list[Row] = [[(words, "muted"), *gap, *newest] for words in wordings]
        asides.append([(wordings[1], "muted")])
        for title in (self.heading(view, look), self.short):
            room = self.size.width - text_width(title) - 9  # what the title's rule and number leave
            for aside in asides:
                if row_width(aside) <= room:
                    return aside
        return asides[-1]

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        return chart(view, look, width, height)
