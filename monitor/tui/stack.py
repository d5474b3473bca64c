"""Stacked columns in block characters: one colour a layer, eight levels a cell. Pure; plotext is not needed for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from monitor.tui.ink import FILL
from monitor.tui.rows import Row

Edge = tuple[int, str]  # where a layer ends, in eighths of a cell from the bottom, and its tone

_LEVELS = " ▁▂▃▄▅▆▇█"
_THIN = 8  # eighths: a layer of less on average lies at the bottom
_TOLD = 0.5  # eighths on average from which on a layer is shown in every column that has it
_SPIKE = 2  # eighths: of the others, what is shown where it is seldom


@dataclass(frozen=True)
class Layer:
    tone: str
    heights: Sequence[float]  # one a column; nan or nothing counts as 0


@dataclass(frozen=True)
class _Part:
    """A layer's part of a cell."""

    start: int
    end: int
    tone: str
    thick: int  # the whole layer, eighths
    ends: bool  # it does not go on in the cell below

    @property
    def size(self) -> int:
        return self.end - self.start


def _means(layers: Sequence[Layer], columns: int, scale: float) -> list[float]:
    """The mean thickness of each layer, in eighths of a cell, over the columns that have it."""
    found = []
    for layer in layers:
        known = [height for height in layer.heights[:columns] if height > 0]
        found.append(sum(known) * scale / len(known) if known else 0.0)
    return found


def _edges(layers: Sequence[Layer], told: set[str], column: int, scale: float, levels: int) -> list[Edge]:
    """The upper edge of each layer of a column, in eighths of a cell from the bottom.

    What is too thin to be told goes to the layer above it, in every column; what is told has an eighth at least.
    """
    found: list[tuple[float, float, str]] = []  # where it ends, its height, its tone
    total, largest = 0.0, (0.0, "")
    for layer in layers:
        height = layer.heights[column]
        if height > 0:
            total += height
            largest = max(largest, (height, layer.tone), key=lambda each: each[0])
            if layer.tone in told or height * scale >= _SPIKE:
                found.append((total, height, layer.tone))
    if total <= 0:
        return []
    top = max(1, min(levels, round(total * scale)))
    found = found or [(total, *largest)]
    if len(found) > top:  # no room for an eighth each
        least = sorted((height for _, height, _ in found), reverse=True)[top - 1]
        found = [each for each in found if each[1] >= least][:top]
    edges: list[Edge] = []
    below = 0
    for index, (end, _, tone) in enumerate(found):
        above = len(found) - 1 - index  # layers that need an eighth, too
        below = max(below + 1, min(top - above, round(end * scale))) if above else top
        edges.append((below, tone))
    return edges


def _parts(edges: Sequence[Edge], bottom: int) -> list[_Part]:
    """The layers of the cell that spans the levels bottom..bottom+8, the lowest first."""
    parts = []
    begin = 0
    for edge, tone in edges:
        start, end = max(0, begin - bottom), min(8, edge - bottom)
        if end > start:
            parts.append(_Part(start, end, tone, edge - begin, begin >= bottom))
        begin = edge
    return parts


def _cell(parts: Sequence[_Part], ranks: dict[str, int], seen: set[str]) -> tuple[str, str]:
    """The character and tone of a cell. It can hold two colours, and one where the top of the column lies in it.

    Cells are drawn from the top. Where more layers meet, one that no other cell shows comes first, and keeps its
    thickness: an edge between two others moves by a part of a cell, so that none comes and goes from column to column.
    Of equal ones that which is larger overall is shown: so neighbours agree.
    """
    if not parts:
        return " ", "text"
    by_size = sorted(parts, key=lambda part: (-part.size, ranks[part.tone]))
    top = parts[-1].end
    last = [part for part in by_size if part.ends and part.tone not in seen]  # it is shown here or nowhere
    last.sort(key=lambda part: (part.thick <= 4, ranks[part.tone]))
    if top < 8:
        about = [part for part in by_size if 2 * part.size >= by_size[0].size]  # neighbours differ by no more
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


@lru_cache(maxsize=1024)  # from one picture to the next, all columns but the last are the same
def _column(edges: tuple[Edge, ...], height: int, order: tuple[tuple[str, int], ...]) -> list[tuple[str, str]]:
    """The cells of a column, the highest first."""
    ranks, seen = dict(order), set[str]()
    return [_cell(_parts(edges, 8 * line), ranks, seen) for line in reversed(range(height))]


def stacked(layers: Sequence[Layer], width: int, height: int, top: float) -> list[Row]:
    """`height` rows of `width` cells, the highest first.

    Thin layers lie at the bottom: the highest cell of a column can show one colour only, so on top of the others a
    thin one would be seen in those columns alone that end at a suitable height.
    """
    columns = min(width, min((len(layer.heights) for layer in layers), default=0))
    levels = 8 * height
    scale = levels / top
    means = _means(layers, columns, scale)
    told = {layer.tone for layer, mean in zip(layers, means, strict=True) if mean >= _TOLD}
    thin = {layer.tone for layer, mean in zip(layers, means, strict=True) if mean < _THIN}
    by_size = sorted(layers, key=lambda layer: -sum(layer.heights))
    thin -= {layer.tone for layer in by_size[:1]}  # where all are thin, the largest lies on top of them
    layers = sorted(layers, key=lambda layer: layer.tone not in thin)
    ranks = {layer.tone: rank for rank, layer in reversed(list(enumerate(by_size)))}
    order = tuple(ranks.items())
    drawn = [_column(tuple(_edges(layers, told, column, scale, levels)), height, order) for column in range(columns)]
    rows: list[Row] = []
    for line in range(height):
        cells = [column[line] for column in drawn]
        row: Row = [
            ("".join(character for character, _ in run), tone + FILL if tone != "text" else tone)
            for tone, run in ((tone, list(group)) for tone, group in groupby(cells, key=lambda cell: cell[1]))
        ]
        rows.append([*row, (" " * (width - columns), "text")])
    return rows
