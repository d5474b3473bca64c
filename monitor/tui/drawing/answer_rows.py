"""The answer in a header: the verdict, its fix and the gain, in as many rows as there are."""

from __future__ import annotations

from monitor.diagnosis.answer import Answer, answer
from monitor.diagnosis.explain import gain_text, shorten_advice
from monitor.model.view import View
from monitor.tui.drawing.rows import Row, cut, fit, printable, row_width, spread, text_width, wrap

SEVERITY = {"info": "accent", "warning": "warning", "critical": "bad"}
MIN_ADVICE_WIDTH = 24  # cells; shorter advice is not understood
WIDE = 110  # cells from which on the verdict and the fix have headings
HEADING = 10  # cells of such a heading
DO_THIS = "DO THIS"
MAX_CHARACTERS = 600  # of a text


def verdict(view: View, width: int, whole: bool = False) -> Row:
    """Return the verdict in one row.

    Args:
        whole: add the fix to the row, as far as there is room.
    """
    said, tone = answer(view.report, view.verdict), _tone(view)
    right: Row = [(f"{most} faster ", f"{tone} bold")] if (most := gain_text(view.verdict.gain)) and width >= 50 else []
    left: Row = [("▌", tone), (fit(said.title, width), f"{tone} bold")]
    room = width - row_width(left) - row_width(right) - 5
    if whole and room >= MIN_ADVICE_WIDTH and (advice := shorten_advice(printable(said.fix), room, text_width)):
        left += [("  → ", "accent"), (advice, "text")]
    return spread(left, right, width)


def _tone(view: View) -> str:
    return SEVERITY.get(view.verdict.severity, "accent")


def answered(view: View, width: int, height: int) -> list[Row]:
    """Return the verdict and its fix in at most `height` rows, of at least two: the title is cut before the fix."""
    return [cut(row, width) for row in _answered(view, width, height)]


def _answered(view: View, width: int, height: int) -> list[Row]:
    said, tone = answer(view.report, view.verdict), _tone(view)
    most = gain_text(view.verdict.gain)
    gains: list[Row] = [[(f"  {gain} faster ", f"{tone} bold")] for gain in (most, most.replace("about ", "~")) if most]
    title = printable(said.title[:MAX_CHARACTERS])
    head = _lead(tone, said.heading, width)
    room = width - row_width(head)
    gain = next((gain for gain in gains if text_width(title) + row_width(gain) <= room), None)
    if gain is None and not said.fix:
        gain = gains[-1] if gains else None
    rows = _led(head, _wrapped(title, room, height - bool(said.fix)), f"{tone} bold")
    rows[-1] = spread(rows[-1], gain or [], width)
    if not said.fix:
        return rows
    return [*rows, *_fix(said, tone, gains if gain is None else [], width, height - len(rows))]


def _fix(said: Answer, tone: str, gains: list[Row], width: int, height: int) -> list[Row]:
    """Return what to do, with the gain where it had no room beside the title, and the evidence where there is room."""
    fix = printable(said.fix[:MAX_CHARACTERS])
    lead: Row = [*_lead(tone, DO_THIS, width), ("→ ", "accent")]
    rooms = [width - row_width(lead) - row_width(gain) for gain in (gains or [[]])]
    place = next((at for at, room in enumerate(rooms) if text_width(fix) <= room), None)
    if place is None and height > 1:
        place = len(rooms) - 1
        rows = _led(lead, _wrapped(fix, rooms[place] - 1, height), "text")
    else:
        clauses = [shorten_advice(fix, room, text_width) for room in rooms]
        place = next((at for at, clause in enumerate(clauses) if clause), len(rooms) - 1) if place is None else place
        rows = [[*lead, (clauses[place] or fit(fix, rooms[place]), "text")]]
    rest = printable((said.because or "; ".join(said.evidence[:2]))[:MAX_CHARACTERS])
    gain: Row = gains[place] if gains else []
    if rest and height > len(rows):
        indent = row_width(lead) - 1
        evidence: Row = [("▌", tone), (" " * indent, "text"), (fit(rest, width - indent - 1), "muted")]
        rows.append(evidence)
        rows[-2] = spread(rows[-2], gain, width)
        return rows
    if rest and row_width(rows[-1]) + 3 + text_width(rest) + row_width(gain) <= width:
        rows[-1] = [*rows[-1], ("   ", "text"), (rest, "muted")]
    return [*rows[:-1], spread(rows[-1], gain, width)]


def _lead(tone: str, heading: str, width: int) -> Row:
    """Return what a row begins with: an edge, and on a wide screen its heading."""
    return [("▌", tone), *([(f"{heading:<{HEADING}}", "muted")] if width >= WIDE else [])]


def _led(lead: Row, lines: list[str], tone: str) -> list[Row]:
    """Return lines of text below each other behind `lead`."""
    indent: Row = [lead[0], (" " * (row_width(lead) - 1), "text")]
    return [[*(indent if at else lead), (line, tone)] for at, line in enumerate(lines)]


def _wrapped(words: str, width: int, height: int) -> list[str]:
    """Return the words in at most so many lines, cut at the end if they need more."""
    if height == 1 or width < 1:
        return [fit(words, width)]
    return ["".join(part for part, _ in row) for row in wrap([(words, "text")], width, 0, height)]
