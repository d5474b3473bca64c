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


@dataclass(frozen=True)
class Layer:
    tone: str
    heights: Sequence[float]  # one a column; nan or nothing counts as 0


def _edges(layers: Sequence[Layer], column: int, top: float, levels: int) -> list[Edge]:
    """The upper edge of each layer of a column, in eighths of a cell from the bottom."""
    edges: list[Edge] = []
    total = 0.0
    below = 0
    for layer in layers:
        height = layer.heights[column]
        if height > 0:
            total += height
            edge = min(levels, round(total / top * levels))
            if edge > below:
                edges.append((edge, layer.tone))
                below = edge
    if total > 0 and not edges:
        edges.append((1, max(layers, key=lambda layer: layer.heights[column]).tone))
    return edges


def _parts(edges: Sequence[Edge], bottom: int) -> list[tuple[int, int, str]]:
    """The layers of the cell that spans the levels bottom..bottom+8: where each begins and ends in it, and its tone."""
    parts = []
    start = 0
    for edge, tone in edges:
        end = min(8, edge - bottom)
        if end > start:
            parts.append((start, end, tone))
            start = end
    return parts


def _cell(parts: Sequence[tuple[int, int, str]], ranks: dict[str, int], owed: dict[str, int]) -> tuple[str, str]:
    """The character and tone of a cell. It can hold two colours, and one where the top of the column lies in it.

    Where more layers meet, the largest parts are shown. What a layer loses is owed to it in the next cell: so no layer
    that is higher than half a cell is lost. Of equal ones that which is larger overall is shown: so neighbours agree.
    """
    if not parts:
        return " ", "text"
    top = parts[-1][1]
    by_size = sorted(parts, key=lambda part: (part[0] - part[1] - owed.get(part[2], 0), ranks[part[2]]))
    shown = sorted(by_size[: 1 if top < 8 else 2])
    owed.clear()
    owed.update({tone: end - start for start, end, tone in parts if (start, end, tone) not in shown})
    if len(shown) == 1:
        return _LEVELS[top], shown[0][2]
    return _LEVELS[shown[0][1]], f"{shown[0][2]}/{shown[1][2]}"


@lru_cache(maxsize=1024)  # from one picture to the next, all columns but the last are the same
def _column(edges: tuple[Edge, ...], height: int, order: tuple[tuple[str, int], ...]) -> list[tuple[str, str]]:
    """The cells of a column, the highest first."""
    ranks, owed = dict(order), dict[str, int]()
    return [_cell(_parts(edges, 8 * line), ranks, owed) for line in range(height)][::-1]


def stacked(layers: Sequence[Layer], width: int, height: int, top: float) -> list[Row]:
    """`height` rows of `width` cells, the highest first."""
    columns = min(width, min((len(layer.heights) for layer in layers), default=0))
    levels = 8 * height
    by_size = sorted(layers, key=lambda layer: -sum(layer.heights))
    ranks = {layer.tone: rank for rank, layer in reversed(list(enumerate(by_size)))}
    order = tuple(ranks.items())
    drawn = [_column(tuple(_edges(layers, column, top, levels)), height, order) for column in range(columns)]
    rows: list[Row] = []
    for line in range(height):
        cells = [column[line] for column in drawn]
        row: Row = [
            ("".join(character for character, _ in run), tone + FILL if tone != "text" else tone)
            for tone, run in ((tone, list(group)) for tone, group in groupby(cells, key=lambda cell: cell[1]))
        ]
        rows.append([*row, (" " * (width - columns), "text")])
    return rows
