"""What is marked on a timeline of steps: slow steps, checkpoints, evaluations, and GPUs that were held back. Pure."""

from __future__ import annotations

from monitor.model.report import View
from monitor.tui.columns import Grid, positions
from monitor.tui.rows import Row, Span, text_width

SELDOM = 4  # a phase is marked where it occurs in at most one step of so many: else it is part of every step

# Sign and tone of each kind, the most important first: where several meet in a column, the first is shown.
SLOW: Span = ("▲", "bad bold")
CHECKPOINT: Span = ("C", "accent bold")
EVAL: Span = ("E", "accent bold")
BOTH: Span = ("B", "accent bold")
WORDS = {SLOW: "slow step", BOTH: "checkpoint and evaluation", CHECKPOINT: "checkpoint", EVAL: "evaluation"}
_NAMES = {"checkpoint": CHECKPOINT, "save": CHECKPOINT, "eval": EVAL, "evaluation": EVAL, "test_generation": EVAL}


def _kind(name: str) -> Span | None:
    return _NAMES.get(name.lower().split("/")[-1])


def marked(view: View, layout: Grid) -> dict[int, Span]:
    """The sign above each bucket of the grid that has one."""
    places: dict[Span, set[int]] = {sign: set() for sign in WORDS}
    places[SLOW] = positions([step.step for step in view.report.slow_steps], layout)
    for span in view.details.spans:
        sign = _kind(span.name)
        if sign is not None and span.step is not None:
            places[sign] |= positions([max(span.step, layout.start)], layout)
    steps = view.report.progress.steps_done
    # The host's where a GPU is used, whichever lane is on screen: it saw each of them.
    curves = view.host_phase_seconds or view.phase_seconds
    for phase in view.report.host_phases or view.report.phases:
        sign = _kind(phase.name)
        curve = curves.get(phase.name)
        if sign is not None and curve is not None and phase.count * SELDOM <= steps:
            places[sign] |= positions([int(x) for x in curve.x], layout)
    places[BOTH] = places[CHECKPOINT] & places[EVAL]
    found: dict[int, Span] = {}
    for sign in reversed(list(WORDS)):
        found.update(dict.fromkeys(places[sign], sign))
    return found


def held_back(view: View, layout: Grid, width: int) -> Row:
    """A line over the steps during which a GPU was held back, with the reason; nothing where none was."""
    row: Row = []
    at = 0
    for each in sorted(view.details.held_back, key=lambda each: each.effect.first or 0):
        first, last = each.effect.first, each.effect.last
        if first is None or last is None:
            continue
        begin = max(at, layout.edge(max(0, layout.bucket(first))))
        end = min(width, layout.edge(layout.bucket(last) + 1))
        if end <= begin:
            continue
        words = f"GPU {each.index} {each.short}"
        line = "━" * (end - begin)
        if text_width(words) + 6 <= end - begin:  # with as much of the line as shows its end
            line = f"━ {words} ".ljust(end - begin, "━")
        elif end + text_width(words) + 1 < width:  # behind it, where it is short
            line += f" {words}"
        row += [(" " * (begin - at), "text"), (line, "bad bold")]
        at = begin + text_width(line)
    return row
