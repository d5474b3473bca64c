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


def _cell(edges: Sequence[Edge], bottom: int, ranks: dict[str, int]) -> tuple[str, str]:
    """The character and tone of the cell that spans the levels bottom..bottom+8. It can hold two colours.

    Where more layers meet in a cell, those that are largest overall are shown, so that neighbours agree.
    """
    inside = [(edge, tone) for edge, tone in edges if edge > bottom]
    if not inside:
        return " ", "text"
    edge, tone = inside[0]
    if edge >= bottom + 8:
        return "█", tone
    if len(inside) == 1:
        return _LEVELS[edge - bottom], tone
    spans = []
    start = bottom
    for edge, tone in inside:
        end = min(edge, bottom + 8)
        spans.append((start, end, tone))
        start = end
        if end == bottom + 8:
            break
    if start < bottom + 8:  # the top of the column lies in this cell: the free part above it stays free
        return _LEVELS[start - bottom], min(spans, key=lambda span: ranks[span[2]])[2]
    if len(spans) > 2:
        spans = sorted(sorted(spans, key=lambda span: (span[1] - span[0] < 2, ranks[span[2]]))[:2])
    return _LEVELS[max(1, min(7, spans[0][1] - bottom))], f"{spans[0][2]}/{spans[1][2]}"


@lru_cache(maxsize=1024)  # from one picture to the next, all columns but the last are the same
def _column(edges: tuple[Edge, ...], height: int, order: tuple[tuple[str, int], ...]) -> list[tuple[str, str]]:
    """The cells of a column, the highest first."""
    ranks = dict(order)
    return [_cell(edges, 8 * (height - 1 - line), ranks) for line in range(height)]


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
