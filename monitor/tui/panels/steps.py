"""Step time over the run, stacked by phase, with a mark above every slow step."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from monitor import units as fmt
from monitor.model.report import View
from monitor.tui.columns import Grid, across, fold_means, grid, top_limit
from monitor.tui.cursor import at, column_of, crossed, footed
from monitor.tui.panels.base import Look, Panel
from monitor.tui.panels.plot import framed, scale, steps_axis, ticks
from monitor.tui.panels.ranks import of_rank
from monitor.tui.rows import Row, Span, fit, flow, printable, separated, wrap
from monitor.tui.stack import Layer, stacked
from monitor.tui.themes import OTHER
from monitor.tui.timeline import BOTH, CHECKPOINT, EVAL, SLOW, WORDS, held_back, marked

TALL = 10  # rows of a panel from which on the legend may take two


def phase_layers(view: View, layout: Grid) -> dict[str, list[float]]:
    """Mean seconds a step of each phase, and of the rest, a value for every bucket of the grid."""
    layers: dict[str, list[float]] = {}
    for name, curve in view.phase_seconds.items():
        layers[name] = fold_means(curve, layout)
    if OTHER not in layers:
        rest = []
        for index, total in enumerate(fold_means(view.step_seconds, layout)):
            left = total - sum(values[index] for values in layers.values())
            rest.append(left if left > 0.005 * total else 0.0)
        layers[OTHER] = rest
    else:
        layers[OTHER] = layers.pop(OTHER)  # on top, whatever order it came in
    return layers


def _marks(signs: dict[int, Span], layout: Grid, totals: list[float], top: float, width: int) -> Row:
    """A sign above each step that has one, `↑` where a column was merely cut."""
    cut_off = {index for index, total in enumerate(totals) if total > top}
    row: Row = []
    at = 0
    for index in sorted(signs.keys() | cut_off):
        middle = layout.column(index) - layout.bars
        if at <= middle < width:
            row += [(" " * (middle - at), "text"), signs.get(index, ("↑", "muted"))]
            at = middle + 1
    return [*row, (" " * (width - at), "text")]


def pointed_phases(view: View, cursor: int) -> dict[str, str]:
    """How long each phase took where the time cursor is."""
    found = {}
    for name, curve in view.phase_seconds.items():
        moment, step = at(curve, cursor), at(view.step_seconds, cursor)
        # A phase does not occur in every step: an older value is none of this one.
        if moment is not None and step is not None and moment.last >= step.first and math.isfinite(moment.value):
            found[name] = fmt.duration(moment.value)
    return found


def legend(
    look: Look, layers: dict[str, list[float]], signs: Iterable[Span], width: int, rows: int,
    told: dict[str, str] | None = None,
) -> list[Row]:  # fmt: skip
    """What the colours and signs mean; with the cursor, the time of each phase in place of the signs."""
    seen = sorted((name for name, values in layers.items() if any(values)), key=lambda name: -sum(layers[name]))
    parts: list[Row] = [[("■ ", look.phases[name]), (fit(name, 24), "muted")] for name in seen]
    if told is not None:
        parts = [[*part, (f" {told.get(name, fmt.UNKNOWN)}", "text")] for name, part in zip(seen, parts, strict=True)]
        signs = ()
    signs = set(signs)
    if rows == 1:  # letters first: the panel beside has the colours, and nothing else has them
        return [separated([*_short(signs), *parts[:3]], width, ("  ", "text"))]
    marks: list[Row] = [[sign, (f" {words}", "muted")] for sign, words in WORDS.items() if sign in signs]
    parts[3:3] = marks  # the largest phases come first: of the others some may have no room
    return flow(parts, width, limit=2)


def _short(signs: Collection[Span]) -> list[Row]:
    """The signs in few words."""
    words = {**WORDS, EVAL: "eval"} | ({BOTH: "both"} if {CHECKPOINT, EVAL} <= set(signs) else {})
    return [[sign, (f" {words[sign]}", "muted")] for sign in (CHECKPOINT, EVAL, BOTH, SLOW) if sign in signs]


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


def seconds_scale(top: float, height: int) -> list[str]:
    """A label a row from 0 to `top`, all in the unit of the top."""
    number, unit = fmt.axis_seconds(top).split(" ")
    whole = float(number)
    told = [(each, f"{each:g} {unit}" if each else "0") for each in ticks(0.0, whole, height)]
    return scale(told, 0.0, whole, height)


def chart(view: View, look: Look, width: int, height: int) -> list[Row]:
    gutter = 8
    layout = grid(view.step_seconds, width - gutter)
    if layout is None or height < 3:
        return silence(view, width, height)
    layers = phase_layers(view, layout)
    totals = [sum(column) for column in zip(*layers.values(), strict=True)]
    top = top_limit(totals)
    signs = marked(view, layout)
    told = pointed_phases(view, look.cursor) if look.cursor is not None else None
    lines = 2 if height >= TALL else 1
    words = legend(look, layers, signs.values(), width - gutter, lines, told) if height >= 6 else []
    held = held_back(view, layout, width - gutter) if height >= 8 else []
    plot_height = height - 2 - len(words) - bool(held)
    bars = [Layer(look.phases[name], across(values, layout, apart=True)) for name, values in layers.items()]
    room = width - gutter
    picture = stacked(bars, room, max(1, plot_height), top)
    above = [*([held] if held else []), _marks(signs, layout, totals, top, room)]
    column = column_of(layout, look.cursor, room)
    labels = [*[""] * len(above), *seconds_scale(top, len(picture))]
    rows = framed(crossed([*above, *picture], column), labels, gutter)
    foot = None if column is None else gutter + column
    rows.append(footed(steps_axis(layout, gutter, room), foot))
    return [*rows, *([(" " * gutter, "text"), *row] for row in words)]


class Steps(Panel):
    number = 1

    def data(self, view: View, look: Look) -> object:
        slow = [slow.step for slow in view.report.slow_steps]
        beside = view.details.spans, view.details.held_back, look.cursor
        return view.step_seconds, view.phase_seconds, slow, beside, [] if view.step_seconds.x else view.report.findings

    def heading(self, view: View, look: Look) -> str:
        return of_rank("Step time by phase", view.report)

    def aside(self, view: View, look: Look) -> Row:
        curve = view.step_seconds
        moment = at(curve, look.cursor) if look.cursor is not None else None
        if moment is not None:
            return [(f"{moment.name} ", "accent"), (fmt.duration(moment.value), "text")]
        last = next((value for value in reversed(curve.mean) if math.isfinite(value)), None)
        return [("last ", "muted"), (fmt.duration(last), "text")] if last is not None and curve.width == 1 else []

    def body(self, view: View, look: Look, width: int, height: int) -> list[Row]:
        return chart(view, look, width, height)
