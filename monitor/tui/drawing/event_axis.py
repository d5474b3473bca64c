"""What happened, as marks on one line along the steps: the events of a run below its charts. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from monitor.model.view import View
from monitor.tui.drawing.curve_columns import Grid
from monitor.tui.drawing.rows import Row, Span, column, flow, merged
from monitor.tui.drawing.step_marks import BOTH, CHECKPOINT, EVAL, SLOW, marked

MIN_EVENTS_HEIGHT = 12  # rows of a chart from which it has this line and its legend
ALERT: Span = ("!", "bad bold")
THROTTLE: Span = ("━", "warning")
TRACE: Span = ("*", "accent bold")
# Where several fall into one column, the first of these is shown: what lasts comes last.
EVENT_WORDS = {
    ALERT: "alert", SLOW: "slow step", BOTH: "checkpoint and evaluation", CHECKPOINT: "checkpoint", EVAL: "evaluation",
    TRACE: "traced", THROTTLE: "GPU throttled",
}  # fmt: skip
_SHORT_WORDS = {SLOW: "slow", BOTH: "both", CHECKPOINT: "saved", EVAL: "eval", THROTTLE: "throttled"}


def events_on(view: View, layout: Grid) -> dict[int, Span]:
    """Return the sign of each bucket of the grid in which something happened."""
    lasting = [
        (THROTTLE, event.effect.first, event.effect.last) for event in view.details.throttle_events
    ] + [
        ({"alert": ALERT, "trace": TRACE}[event.kind], event.first, event.last) for event in view.details.occurrences
    ]  # fmt: skip
    signs: dict[int, Span] = dict(marked(view, layout))
    order = list(EVENT_WORDS)
    for sign, first, last in lasting:
        if first is None or last is None:
            continue
        for bucket in range(max(0, layout.bucket(first)), min(layout.count - 1, layout.bucket(last)) + 1):
            known = signs.get(bucket, sign)
            signs[bucket] = min(known, sign, key=order.index)
    return signs


def event_rows(view: View, layout: Grid, gutter: int, width: int, band: Sequence[Row] = ()) -> list[Row]:
    """Return the line of marks, below a chart with this grid, and what those that occur mean; empty without events.

    Args:
        band: wordings of what the band of the chart is, the shortest last; one of them begins the legend.
    """
    signs = events_on(view, layout)
    if not signs:
        return []
    cells: list[Span] = [("─", "rule")] * min(width, layout.columns)
    for bucket, sign in signs.items():
        at = layout.column(bucket)
        if sign == THROTTLE:
            for place in range(layout.edge(bucket), min(layout.edge(bucket + 1), len(cells))):
                cells[place] = sign
        elif at < len(cells):
            cells[at] = sign
    label: Row = [(column("events", gutter - 2, right=True), "muted"), (" ┤", "rule")]
    legend = _legend(set(signs.values()), width, band)
    return [merged([*label, *cells]), [(" " * gutter, "text"), *legend]]


def _legend(found: Collection[Span], width: int, band: Sequence[Row]) -> Row:
    """Return what the signs mean, in their order, in the longest wording that fits."""
    rows: list[Row] = []
    for words in (EVENT_WORDS, {**EVENT_WORDS, **_SHORT_WORDS}):
        parts: list[Row] = [[sign, (f" {words[sign]}", "muted")] for sign in EVENT_WORDS if sign in found]
        for before in band or [[]]:
            rows = flow([*([before] if before else []), *parts], width, limit=2)
            if len(rows) == 1:
                return rows[0]
    return rows[0]
