"""Stacked columns in block characters, marks above them, and the choice of the clock. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from monitor.model.report import PhaseRow, Report
from monitor.model.steps.series import Curve
from monitor.model.view import View
from monitor.tui.drawing.curve_columns import Grid, positions
from monitor.tui.drawing.rows import Row, Span, text_width
from monitor.tui.drawing.themes import FILL

Edge = tuple[int, str]  # where a layer ends, in eighths of a cell from the bottom, and its tone

_LEVELS = " ▁▂▃▄▅▆▇█"
_THIN = 8  # eighths: a layer thinner than this on average lies at the bottom
_MIN_VISIBLE = 0.5  # eighths on average from which a layer is shown in every column that has it
_MIN_SPIKE = 2  # eighths from which the other layers are shown, in single columns


@dataclass(frozen=True)
class Layer:
    tone: str
    heights: Sequence[float]  # one per column; nan counts as 0


@dataclass(frozen=True)
class _Part:
    """A layer's part of a cell, in eighths from its bottom."""

    start: int
    end: int
    tone: str
    thick: int  # eighths of the whole layer
    ends: bool  # whether the layer has no part in the cell below

    @property
    def size(self) -> int:
        return self.end - self.start


def _means(layers: Sequence[Layer], columns: int, scale: float) -> list[float]:
    """Return the mean thickness of each layer, in eighths of a cell, over the columns that have it."""
    means = []
    for layer in layers:
        known = [height for height in layer.heights[:columns] if height > 0]
        means.append(sum(known) * scale / len(known) if known else 0.0)
    return means


def _edges(layers: Sequence[Layer], visible: set[str], column: int, scale: float, levels: int) -> list[Edge]:
    """Return the upper edge of each layer of a column, in eighths of a cell from the bottom.

    A layer too thin to be visible becomes part of the layer above it; a visible one has at least an eighth.
    """
    ends: list[tuple[float, float, str]] = []  # each layer's end, height and tone
    total, largest = 0.0, (0.0, "")
    for layer in layers:
        height = layer.heights[column]
        if height > 0:
            total += height
            largest = max(largest, (height, layer.tone), key=lambda part: part[0])
            if layer.tone in visible or height * scale >= _MIN_SPIKE:
                ends.append((total, height, layer.tone))
    if total <= 0:
        return []
    top = max(1, min(levels, round(total * scale)))
    ends = ends or [(total, *largest)]
    if len(ends) > top:  # no room for an eighth each
        least = sorted((height for _, height, _ in ends), reverse=True)[top - 1]
        ends = [part for part in ends if part[1] >= least][:top]
    edges: list[Edge] = []
    below = 0
    for index, (end, _, tone) in enumerate(ends):
        above = len(ends) - 1 - index  # layers that also need an eighth
        below = max(below + 1, min(top - above, round(end * scale))) if above else top
        edges.append((below, tone))
    return edges


def _parts(edges: Sequence[Edge], bottom: int) -> list[_Part]:
    """Return the layers of the cell that spans the levels bottom..bottom+8, from bottom to top."""
    parts = []
    begin = 0
    for edge, tone in edges:
        start, end = max(0, begin - bottom), min(8, edge - bottom)
        if end > start:
            parts.append(_Part(start, end, tone, edge - begin, begin >= bottom))
        begin = edge
    return parts


def _cell(parts: Sequence[_Part], ranks: dict[str, int], seen: set[str]) -> tuple[str, str]:
    """Return the character and tone of a cell. It can show two layers, or one if the column's top lies in it.

    Cells are drawn from the top. Where more layers meet, one that no other cell shows has priority and keeps its
    thickness; an edge between two others moves by a part of a cell instead, so that no layer flickers from column to
    column. Among equals the layer that is larger overall is shown, so that neighboring columns agree.
    """
    if not parts:
        return " ", "text"
    by_size = sorted(parts, key=lambda part: (-part.size, ranks[part.tone]))
    top = parts[-1].end
    last = [part for part in by_size if part.ends and part.tone not in seen]  # shown in this cell or not at all
    last.sort(key=lambda part: (part.thick <= 4, ranks[part.tone]))
    if top < 8:
        about = [part for part in by_size if 2 * part.size >= by_size[0].size]  # of similar size
        alike = sorted(about, key=lambda part: ranks[part.tone])
        shown = [part for part in last if part.thick > 4][:1] or alike[:1]
    else:
        sure = [part for index, part in enumerate(last) if not index or part.thick > 4]
        shown = [*sure, *(part for part in by_size if part not in sure)][:2]
    seen.update(part.tone for part in shown)
    if len(shown) == 1:
        return _LEVELS[top], shown[0].tone
    low, high = sorted(shown, key=lambda part: part.start)
    edge = low.size if low in last else 8 - high.size if high in last else low.end
    return _LEVELS[edge], f"{low.tone}/{high.tone}"


@lru_cache(maxsize=1024)  # from one redraw to the next, mostly the last column changes
def _column(edges: tuple[Edge, ...], height: int, order: tuple[tuple[str, int], ...]) -> list[tuple[str, str]]:
    """Return the cells of a column, from top to bottom."""
    ranks, seen = dict(order), set[str]()
    return [_cell(_parts(edges, 8 * line), ranks, seen) for line in reversed(range(height))]


def stacked(layers: Sequence[Layer], width: int, height: int, top: float) -> list[Row]:
    """Return `height` rows of `width` cells, from top to bottom, with `top` as the value at the upper edge.

    Thin layers lie at the bottom: the top cell of a column shows only one color, so a thin layer on top would be
    visible only in columns that end at a suitable height.
    """
    columns = min(width, min((len(layer.heights) for layer in layers), default=0))
    levels = 8 * height
    scale = levels / top
    means = _means(layers, columns, scale)
    visible = {layer.tone for layer, mean in zip(layers, means, strict=True) if mean >= _MIN_VISIBLE}
    thin = {layer.tone for layer, mean in zip(layers, means, strict=True) if mean < _THIN}
    by_size = sorted(layers, key=lambda layer: -sum(layer.heights))
    thin -= {layer.tone for layer in by_size[:1]}  # if all are thin, the largest lies on top
    layers = sorted(layers, key=lambda layer: layer.tone not in thin)
    ranks = {layer.tone: rank for rank, layer in reversed(list(enumerate(by_size)))}
    order = tuple(ranks.items())
    drawn = [_column(tuple(_edges(layers, visible, column, scale, levels)), height, order) for column in range(columns)]
    rows: list[Row] = []
    for line in range(height):
        cells = [column[line] for column in drawn]
        row: Row = [
            ("".join(character for character, _ in run), tone + FILL if tone != "text" else tone)
            for tone, run in ((tone, list(group)) for tone, group in groupby(cells, key=lambda cell: cell[1]))
        ]
        rows.append([*row, (" " * (width - columns), "text")])
    return rows


# Marks on a timeline of steps: slow steps, checkpoints, evaluations, GPU throttle events. Pure.

MAX_MARKED_RATIO = 4  # a phase is marked if it occurs in at most one of this many steps

# Sign and tone of each kind of mark. Where several fall into one column, the first of these is shown.
SLOW: Span = ("▲", "bad bold")
CHECKPOINT: Span = ("C", "accent bold")
EVAL: Span = ("E", "accent bold")
BOTH: Span = ("B", "accent bold")
MARK_WORDS = {SLOW: "slow step", BOTH: "checkpoint and evaluation", CHECKPOINT: "checkpoint", EVAL: "evaluation"}
_NAMES = {"checkpoint": CHECKPOINT, "save": CHECKPOINT, "eval": EVAL, "evaluation": EVAL, "test_generation": EVAL}


def _kind(name: str) -> Span | None:
    return _NAMES.get(name.lower().split("/")[-1])


def marked(view: View, layout: Grid) -> dict[int, Span]:
    """Return the sign above each bucket of the grid that has one."""
    places: dict[Span, set[int]] = {sign: set() for sign in MARK_WORDS}
    places[SLOW] = positions([step.step for step in view.report.slow_steps], layout)
    for span in view.details.spans:
        sign = _kind(span.name)
        if sign is not None and span.step is not None:
            places[sign] |= positions([max(span.step, layout.start)], layout)
    steps = view.report.progress.steps_done
    # The host's phases, whichever clock is on screen: only a sample of the steps is timed on the GPU.
    curves = view.host_phase_seconds or view.phase_seconds
    for phase in view.report.host_phases or view.report.phases:
        sign = _kind(phase.name)
        curve = curves.get(phase.name)
        if sign is not None and curve is not None and phase.count * MAX_MARKED_RATIO <= steps:
            places[sign] |= positions([int(x) for x in curve.x], layout)
    places[BOTH] = places[CHECKPOINT] & places[EVAL]
    signs: dict[int, Span] = {}
    for sign in reversed(list(MARK_WORDS)):
        signs.update(dict.fromkeys(places[sign], sign))
    return signs


def slow_by_throttle(view: View, layout: Grid, width: int) -> Row:
    """Return a line over the steps of each throttle event, with GPU and reason; empty if there is none."""
    row: Row = []
    at = 0
    for event in sorted(view.details.throttle_events, key=lambda event: event.effect.first or 0):
        first, last = event.effect.first, event.effect.last
        if first is None or last is None:
            continue
        begin = max(at, layout.edge(max(0, layout.bucket(first))))
        end = min(width, layout.edge(layout.bucket(last) + 1))
        if end <= begin:
            continue
        words = f"GPU {event.index} {event.short}"
        line = "━" * (end - begin)
        if text_width(words) + 6 <= end - begin:  # within the line, whose end stays visible
            line = f"━ {words} ".ljust(end - begin, "━")
        elif end + text_width(words) + 1 < width:  # after a short line
            line += f" {words}"
        row += [(" " * (begin - at), "text"), (line, "bad bold")]
        at = begin + text_width(line)
    return row


# Steps and phases of a run on a GPU by the GPU's clock or by the host's. Pure.

GPU_CLOCK, HOST_CLOCK = "GPU clock", "host clock"


@dataclass(frozen=True, slots=True)
class Lane:
    """Steps and phases by one clock."""

    clock: str  # GPU_CLOCK or HOST_CLOCK; empty where no GPU is used
    rows: list[PhaseRow]
    step_seconds: Curve
    phase_seconds: dict[str, Curve]
    distributions: dict[str, list[tuple[float, int]]]

    @property
    def is_device(self) -> bool:
        return self.clock == GPU_CLOCK


def two_lanes(report: Report) -> bool:
    """Return whether both clocks are available: enough steps were timed on the GPU to know its phases."""
    return report.device is not None and any(row.clock == "cuda" for row in report.phases)


def clock(report: Report, host: bool) -> str:
    """Return the clock of the displayed steps and phases; empty where no GPU is used.

    Args:
        host: whether the user chose the host clock.
    """
    if report.device is None:
        return ""
    return GPU_CLOCK if two_lanes(report) and not host else HOST_CLOCK


def shown_phases(report: Report, host: bool) -> list[PhaseRow]:
    """Return the phases by the displayed clock."""
    return report.host_phases if host and two_lanes(report) else report.phases


def lane(view: View, host: bool) -> Lane:
    """Return the displayed lane: the GPU's where it is known, unless the user chose the host clock."""
    report, details, shown_clock = view.report, view.details, clock(view.report, host)
    rows = shown_phases(report, host)
    timed = report.device is not None and report.device.clock is not None
    if shown_clock == HOST_CLOCK and timed:
        # Also if too few steps were timed on the GPU for phases: steps and phases have to be by the same clock.
        curves = view.host_step_seconds, view.host_phase_seconds
        return Lane(shown_clock, rows, *curves, details.host_distributions or details.distributions)
    return Lane(shown_clock, rows, view.step_seconds, view.phase_seconds, details.distributions)


def with_clock(title: str, report: Report, host: bool) -> str:
    """Return the title with the clock of its figures, where a GPU is used."""
    shown_clock = clock(report, host)
    return f"{title}, {shown_clock}" if shown_clock else title
