"""Stacked columns in block characters. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from monitor.tui.drawing.rows import Row
from monitor.tui.drawing.themes import FILL

Edge = tuple[int, str]  # where a layer ends, in eighths of a cell from the bottom, and its tone

_LEVELS = " ▁▂▃▄▅▆▇█"
MIN_VISIBLE_SHARE = 0.05  # of a bar: such a part of it is always seen
_MIN_STEADY = 2  # eighths on average from which a layer is seen in every column that has it, however few cells it has
_MIN_SPIKE = 4  # eighths from which the other layers are shown, in single columns


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


def _edges(layers: Sequence[Layer], due: Collection[str], column: int, scale: float, levels: int) -> list[Edge]:
    """Return the upper edge of each layer of a column, in eighths of a cell from the bottom.

    A layer too thin to be seen becomes part of the layer above it; one that is `due` has at least an eighth.
    """
    ends: list[tuple[float, float, str]] = []  # each layer's end, height and tone
    total, largest = 0.0, (0.0, "")
    for layer in layers:
        height = layer.heights[column]
        if height > 0:
            total += height
            largest = max(largest, (height, layer.tone), key=lambda part: part[0])
            if layer.tone in due or height * scale >= _MIN_SPIKE:
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


def _in_halves(edges: Sequence[Edge], due: Sequence[str]) -> list[tuple[str, str]]:
    """Return the cells of a column, from the bottom, in which each layer that is due has half a cell at least.

    The edges between layers move by up to half a cell. If there are too few halves, the first of `due` have them.
    """
    levels = edges[-1][0]
    full, rest = divmod(levels, 8)
    halves = 2 * full + bool(rest)  # the cell in which the column ends has one color
    begins = [0, *(edge for edge, _ in edges)]
    sizes = {tone: edge - begin for begin, (edge, tone) in zip(begins, edges, strict=False) if tone in due[:halves]}
    exact = {tone: size * halves / sum(sizes.values()) for tone, size in sizes.items()}
    counts = {tone: max(1, int(share)) for tone, share in exact.items()}
    while (left := halves - sum(counts.values())) != 0:
        by_need = sorted(counts, key=lambda tone: exact[tone] - counts[tone])
        tone = by_need[-1] if left > 0 else next(tone for tone in by_need if counts[tone] > 1)
        counts[tone] += 1 if left > 0 else -1
    run = [tone for tone, count in counts.items() for _ in range(count)]
    cells = [
        (_LEVELS[8], low) if low == high else (_LEVELS[4], f"{low}/{high}")
        for low, high in zip(run[::2], run[1::2], strict=False)
    ]
    return [*cells, (_LEVELS[rest], run[-1])] if rest else cells


@lru_cache(maxsize=1024)  # from one redraw to the next, mostly the last column changes
def _column(
    edges: tuple[Edge, ...], height: int, order: tuple[tuple[str, int], ...], due: tuple[str, ...]
) -> list[tuple[str, str]]:
    """Return the cells of a column, from top to bottom."""
    ranks, seen = dict(order), set[str]()
    cells = [_cell(_parts(edges, 8 * line), ranks, seen) for line in reversed(range(height))]
    drawable = {tone for _, tone in edges}  # a column of few eighths has no room for some
    due = tuple(tone for tone in due if tone in drawable)
    if seen.issuperset(due):
        return cells
    drawn = _in_halves(edges, due)
    return [*[(" ", "text")] * (height - len(drawn)), *drawn[::-1]]


def stacked(layers: Sequence[Layer], width: int, height: int, top: float) -> list[Row]:
    """Return `height` rows of `width` cells, from top to bottom, with `top` as the value at the upper edge.

    The first layer lies at the bottom. A layer of `MIN_VISIBLE_SHARE` of a column is seen in it, if there are enough
    cells, although a cell has two colors at most, and that in which the column ends only one.
    """
    columns = min(width, min((len(layer.heights) for layer in layers), default=0))
    levels = 8 * height
    scale = levels / top
    means = _means(layers, columns, scale)
    by_size = sorted(layers, key=lambda layer: -sum(layer.heights))
    ranks = {layer.tone: rank for rank, layer in reversed(list(enumerate(by_size)))}
    order = tuple(ranks.items())
    steady = {layer.tone for layer, mean in zip(layers, means, strict=True) if mean >= _MIN_STEADY}
    drawn = []
    for column in range(columns):
        sizes = {layer.tone: layer.heights[column] for layer in layers if layer.heights[column] > 0}
        least, half = MIN_VISIBLE_SHARE * sum(sizes.values()), max(sizes.values(), default=0.0) / 2
        seen = [tone for tone, size in sizes.items() if tone in steady or size >= least]
        # First those of similar size, the larger ones overall before the others, so that neighboring columns agree.
        due = tuple(sorted(seen, key=lambda tone: (sizes[tone] < half, ranks[tone])))
        drawn.append(_column(tuple(_edges(layers, due, column, scale, levels)), height, order, due))
    rows: list[Row] = []
    for line in range(height):
        cells = [column[line] for column in drawn]
        row: Row = [
            ("".join(character for character, _ in run), tone + FILL if tone != "text" else tone)
            for tone, run in ((tone, list(group)) for tone, group in groupby(cells, key=lambda cell: cell[1]))
        ]
        rows.append([*row, (" " * (width - columns), "text")])
    return rows
