"""Marks on a timeline of steps: slow steps, checkpoints, evaluations, GPU throttle events. Pure."""

from __future__ import annotations

from monitor.model.view import View
from monitor.tui.drawing.curve_columns import Grid, positions
from monitor.tui.drawing.rows import Row, Span, text_width

MAX_MARKED_RATIO = 4  # a phase is marked if it occurs in at most one of this many steps

# Sign and tone of each kind of mark. Where several fall into one column, the first of these is shown.
SLOW: Span = ("▲", "bad bold")
CHECKPOINT: Span = ("C", "accent bold")
EVAL: Span = ("E", "accent bold")
BOTH: Span = ("B", "accent bold")
MARK_WORDS = {SLOW: "slow step", BOTH: "checkpoint and evaluation", CHECKPOINT: "checkpoint", EVAL: "evaluation"}
_NAMES = {"checkpoint": CHECKPOINT, "save": CHECKPOINT, "eval": EVAL, "evaluation": EVAL}


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
