"""Where everything lies on a screen of any size: a pure function from a size to rectangles."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

MARGIN = 1
GUTTER = 2
LEAST_ROW = 5  # a title and four lines: less shows nothing worth its place


class Rect(NamedTuple):
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True)
class Band:
    """Panels side by side. On a low screen the last bands of a shape have no place."""

    panels: tuple[str, ...]
    weights: tuple[int, ...]
    weight: int = 1


WIDE = (
    Band(("steps", "phases"), (3, 2), 9),
    Band(("metric", "tokens", "machine"), (3, 3, 4), 7),  # at 160x45 eight GPUs and their host, a row each
    Band(("alerts", "console", "ranks"), (3, 2, 3), 3),
)
MIDDLE = (
    Band(("steps", "phases"), (1, 1), 4),
    Band(("metric", "machine"), (1, 1), 1),
    Band(("alerts",), (1,), 1),
    Band(("tokens", "console"), (1, 1), 1),
    Band(("ranks",), (1,), 1),
)
NARROW = tuple(
    Band((name,), (1,), 1) for name in ("phases", "steps", "alerts", "metric", "machine", "console", "tokens", "ranks")
)


def shape(width: int) -> tuple[Band, ...]:
    return WIDE if width >= 110 else MIDDLE if width >= 72 else NARROW


def header_height(height: int) -> int:
    for least, rows in ((36, 8), (28, 6), (22, 5), (14, 4), (11, 3), (6, 2)):
        if height >= least:
            return rows
    return 1


def share_out(total: int, weights: Sequence[int], least: int = 0) -> list[int]:
    """`total` cells shared out by weight, each part at least `least`; the parts add up to `total`."""
    spare = max(0, total - least * len(weights))
    whole = sum(weights) or 1
    ends = [-(-spare * sum(weights[: index + 1]) // whole) for index in range(len(weights))]
    return [least + end - start for start, end in zip([0, *ends], ends, strict=False)]


def _bands(width: int, rows: int, hidden: Collection[str], guest: str | None) -> list[Band]:
    """The bands there is room for, without hidden panels. A guest, asked for by name, takes the last one's place."""
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
    """Every visible part's rectangle: `header`, the panels and `footer`. `alone` is a panel that fills the screen."""
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
        widths = share_out(inner - GUTTER * (len(band.panels) - 1), band.weights)
        x = margin
        for name, wide in zip(band.panels, widths, strict=True):
            placed[name] = Rect(x, y, wide, tall)
            x += wide + GUTTER
        y += tall
    return placed
