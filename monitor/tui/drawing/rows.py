"""Rows of text, which every panel draws, and the pure functions that fit text into cells.

A span is text and a tone: the name of a color in the theme's palette, optionally `/name` for a background and `bold`
(`"bad bold"`, `"phase3/phase1"`). Tones become styles only when a row becomes a strip, so a layout needs no theme.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from rich.cells import cell_len, set_cell_size

Span = tuple[str, str]
Row = list[Span]

ELLIPSIS = "…"


def printable(text: str) -> str:
    """Return `text` without control, bidirectional and zero-width characters, which names of the program may hold."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def text_width(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def row_width(row: Iterable[Span]) -> int:
    return sum(text_width(text) for text, _ in row)


def fit(text: str, width: int) -> str:
    """Return `text`, made printable and cut to `width` cells, with an ellipsis if anything is missing."""
    if width <= 0:
        return ""
    text = printable(text[: 4 * width + 4])
    if text_width(text) <= width:
        return text
    if text_width(text.rstrip()) <= width:  # nothing is missing but spaces
        return set_cell_size(text, width)
    return set_cell_size(text, width - 1).rstrip() + ELLIPSIS


def column(text: str, width: int, right: bool = False) -> str:
    """Return `text` in exactly `width` cells."""
    text = fit(text, width)
    padding = " " * (width - text_width(text))
    return padding + text if right else text + padding


def measured(row: Sequence[Span], width: int) -> tuple[Row, int]:
    """Return `row`, made printable, in at most `width` cells, and how many cells are left over."""
    result: Row = []
    left = width
    for text, tone in row:
        if left <= 0:
            break
        text = printable(text[: 4 * left + 4])
        if (needed := text_width(text)) > left:
            text = fit(text, left)
            needed = text_width(text)
        result.append((text, tone))
        left -= needed
    return result, max(0, left)


def cut(row: Sequence[Span], width: int) -> Row:
    """Return `row` in at most `width` cells."""
    return measured(row, width)[0]


def spread(left: Sequence[Span], right: Sequence[Span], width: int, fill: Span = (" ", "text")) -> Row:
    """Return `left` and `right` at the two ends of `width` cells; the left one is cut if needed."""
    right = cut(right, width)
    room = width - row_width(right)
    start = cut(left, max(0, room - 1 if right else room))
    gap = room - row_width(start)
    return [*start, (fill[0] * gap, fill[1]), *right]


def separated(parts: Iterable[Row], width: int, separator: Span = ("  ·  ", "faint")) -> Row:
    """Return those of `parts`, in order of importance, that fit into `width` as a whole."""
    result: Row = []
    used = 0
    for part in parts:
        needed = row_width(part) + (text_width(separator[0]) if result else 0)
        if used + needed > width:
            continue
        result += [separator, *part] if result else part
        used += needed
    return result or cut(next(iter(parts), []), width)


def flow(parts: Iterable[Row], width: int, separator: Span = ("  ", "text"), limit: int = 2) -> list[Row]:
    """Return `parts`, none of them broken, in as many rows as they need, up to `limit`."""
    rows: list[Row] = []
    used = width + 1
    for part in parts:
        needed = row_width(part)
        if rows and used + text_width(separator[0]) + needed <= width:
            rows[-1] += [separator, *part]
            used += text_width(separator[0]) + needed
        elif len(rows) < limit:
            rows.append(cut(part, width))
            used = needed
        else:
            break
    return rows


def side_by_side(columns: Sequence[Sequence[Row]], width: int, gap: int, height: int | None = None) -> list[Row]:
    """Return `columns` beside each other, cut to `width` cells, with `gap` cells between; `height` rows if given."""
    rows: list[Row] = []
    for cells in zip_longest(*columns, fillvalue=[]):
        row: Row = []
        for index, cell in enumerate(cells):
            if cell:
                row += [(" " * (index * (width + gap) - row_width(row)), "text"), *cut(cell, width)]
        rows.append(row)
    return rows if height is None else [*rows[:height], *([[]] * (height - len(rows)))]


def _word_end(text: str, start: int) -> int:
    end = text.find(" ", start)
    return len(text) if end < 0 else end + 1


def _unit(text: str, start: int) -> int:
    """Return the length of a word at `start` up to which it stays with the one before: `MHz, ` after a number."""
    return 5 if text[start - 2].isdigit() else 3


def _words(row: Sequence[Span]) -> Iterable[Row]:
    """Yield the parts that are not broken: a word with its unit and whatever follows without a space."""
    word: Row = []
    for text, tone in row:
        start = 0
        while start < len(text):
            end = _word_end(text, start)
            while end < len(text) and _word_end(text, end) - end <= _unit(text, end):
                end = _word_end(text, end)
            if word and word[-1][0].endswith(" "):
                yield word
                word = []
            word.append((text[start:end], tone))
            start = end
    if word:
        yield word


def wrap(row: Sequence[Span], width: int, indent: int = 2, limit: int = 6) -> list[Row]:
    """Return `row` broken at spaces into at most `limit` rows of `width` cells; all but the first are indented."""
    width = max(1, width)
    indent = min(indent, width // 2)
    rows: list[Row] = [[]]
    used = 0
    for word in _words(row):
        needed = row_width(word)
        if needed > width - indent:
            word = cut(word, width - indent)
            needed = row_width(word)
        if used + needed - word[-1][0].endswith(" ") > width:
            if len(rows) == limit:
                last = _without_end(cut(merged(rows[-1]), width - text_width(ELLIPSIS)))
                return [*rows[:-1], cut([*last, (ELLIPSIS, "muted")], width)]
            rows.append([(" " * indent, "text")])
            used = indent
        rows[-1] += word
        used += needed
    return [cut(_without_end(merged(row)), width) for row in rows]


def _without_end(row: Row) -> Row:
    """Return `row` without the trailing space of its last word, which may be beyond the edge."""
    return [*row[:-1], (row[-1][0].rstrip(), row[-1][1])] if row else row


def merged(row: Sequence[Span]) -> Row:
    """Return `row` with neighbors of the same tone joined, for fewer segments and bytes."""
    result: Row = []
    for text, tone in row:
        if result and result[-1][1] == tone:
            result[-1] = (result[-1][0] + text, tone)
        elif text:
            result.append((text, tone))
    return result


_LEVELS = " ▁▂▃▄▅▆▇█"


def meter(fraction: float | None, width: int) -> Row:
    """Return a thin line filled to `fraction`; dots if that is unknown (None or nan)."""
    if fraction is None or fraction != fraction:
        return [("·" * width, "faint")]
    filled = round(max(0.0, min(1.0, fraction)) * width)
    return [("━" * filled, "accent"), ("─" * (width - filled), "rule")]


def sparkline(values: Sequence[float], width: int, top: float) -> str:
    """Return the last `width` readings as blocks up to `top`; an unknown one (nan) is a dot."""
    recent = list(values[-width:]) if width > 0 else []
    cells = []
    for value in recent:
        if value != value:
            cells.append("·")
        else:
            level = round(max(0.0, min(1.0, value / top if top > 0 else 0.0)) * 8)
            cells.append(_LEVELS[max(1, level)])
    return "".join(cells).rjust(max(0, width))


def skyline(values: Sequence[float], height: int, top: float) -> list[str]:
    """Return a column per value up to `top`, as `height` rows from the top; values above zero are always visible."""
    above = 8 * (height - 1)
    ramp = " " * above + _LEVELS + "█" * above  # what a cell shows, by how far the column reaches beyond its foot
    levels = [max(1, min(8 * height, round(value / top * 8 * height))) if value > 0 else 0 for value in values]
    return ["".join([ramp[level + shift] for level in levels]) for shift in range(0, above + 1, 8)]
