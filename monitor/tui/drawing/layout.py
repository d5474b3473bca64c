"""The layout of the overview: a pure function from the screen's size to rectangles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from monitor.tui.panels.base import board_panels

MARGIN = 1
PANEL_GUTTER = 2
MIDDLE_WIDTH, WIDE_WIDTH = 72, 110  # cells: minimum widths for two and for three panels side by side
LEAST_ROW = 5  # minimum height of a panel: a title and four lines


class Rect(NamedTuple):
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Band:
    """Panels side by side. A low screen leaves out the last bands of a shape."""

    panels: tuple[str, ...]
    weights: tuple[int, ...]
    weight: int = 1


# Relative heights of the first bands; all others 1. At 160x45 the middle band of a wide board holds a row for each of
# eight GPUs and one for their host.
_WIDE_HEIGHTS, _MIDDLE_HEIGHTS = (9, 7, 3), (4,)


@cache
def shape(width: int) -> tuple[Band, ...]:
    """Return the bands of a board of `width` cells, from top to bottom."""
    if width < MIDDLE_WIDTH:
        places = [(panel.place.narrow, 1, panel.place) for panel in board_panels()]
        heights: tuple[int, ...] = ()
    elif width < WIDE_WIDTH:
        places, heights = [(*panel.place.middle, panel.place) for panel in board_panels()], _MIDDLE_HEIGHTS
    else:
        places, heights = [(*panel.place.wide, panel.place) for panel in board_panels()], _WIDE_HEIGHTS
    bands = []
    for band in sorted({band for band, _, _ in places}):
        names, weights = zip(*((place.name, weight) for at, weight, place in places if at == band), strict=True)
        bands.append(Band(names, weights, heights[band] if band < len(heights) else 1))
    return tuple(bands)


def header_height(height: int) -> int:
    """Return the rows of the header on a screen of `height` rows."""
    for least, rows in ((36, 8), (28, 7), (22, 6), (14, 4), (11, 3), (6, 2)):
        if height >= least:
            return rows
    return 1


def share_out(total: int, weights: Sequence[int], least: int = 0) -> list[int]:
    """Return `total` cells divided by weight, each part at least `least` where there is room for that."""
    spare = max(0, total - least * len(weights))
    whole = sum(weights) or 1
    ends = [-(-spare * sum(weights[: index + 1]) // whole) for index in range(len(weights))]
    return [least + end - start for start, end in zip([0, *ends], ends, strict=False)]


def _bands(width: int, rows: int, hidden: Collection[str], guest: str | None) -> list[Band]:
    """Return the bands there is room for, without hidden panels. A `guest` panel replaces the last one."""
    bands = []
    for band in shape(width):
        kept = [(name, weight) for name, weight in zip(band.panels, band.weights, strict=True) if name not in hidden]
        if kept:
            bands.append(Band(tuple(name for name, _ in kept), tuple(weight for _, weight in kept), band.weight))
    room = max(1, rows // LEAST_ROW)
    chosen = bands[:room]
    if guest is not None and guest not in hidden and not any(guest in band.panels for band in chosen):
        chosen = [*chosen[:-1], *(band for band in bands if guest in band.panels)]
    return chosen


def place(
    width: int, height: int, hidden: Collection[str] = (), guest: str | None = None, alone: str | None = None
) -> dict[str, Rect]:
    """Return the rectangle of each visible part by its name: `header`, the panels, `footer`.

    Args:
        guest: a panel to show in place of the last band where there is no room for it.
        alone: a panel that fills the screen.
    """
    if width <= 0 or height <= 0:
        return {}
    top = header_height(height)
    bottom = 1 if height >= 4 else 0
    margin = MARGIN if width >= 40 else 0
    placed = {"header": Rect(0, 0, width, top)}
    if bottom:
        placed["footer"] = Rect(0, height - 1, width, 1)
    rows, inner = height - top - bottom, width - 2 * margin
    if rows < 1 or inner < 1:
        return placed
    if alone is not None:
        placed[alone] = Rect(margin, top, inner, rows)
        return placed
    bands = _bands(width, rows, hidden, guest)
    y = top
    heights = share_out(rows, [band.weight for band in bands], min(LEAST_ROW, rows // max(1, len(bands))))
    for band, tall in zip(bands, heights, strict=True):
        widths = share_out(inner - PANEL_GUTTER * (len(band.panels) - 1), band.weights)
        x = margin
        for name, wide in zip(band.panels, widths, strict=True):
            placed[name] = Rect(x, y, wide, tall)
            x += wide + PANEL_GUTTER
        y += tall
    return placed
