"""What a run on a GPU did outside its steps: evaluations, checkpoints, and how busy the GPU was in them. Pure.

Their seconds are the host's, and exact. No step is timed in them, so of the device only the driver tells.
"""

from __future__ import annotations

from monitor.model.activity import Range
from monitor.model.devices import ours
from monitor.model.report import OutsideRow, Wall
from monitor.model.state import RunState

READING_SECONDS = 1.0  # that a reading tells of: it comes at their end
MIN_READINGS = 3  # before their mean is a figure
WORTH = 1e-3  # of the elapsed time: shorter ones are not told


def outside_steps(state: RunState, wall: Wall) -> list[OutsideRow]:
    """Spans outside the steps, the longest first."""
    if not wall.total:
        return []
    spans = sorted(wall.spans.items(), key=lambda row: -row[1])
    return [
        OutsideRow(name, seconds, seconds / wall.total, *_busy(state, name))
        for name, seconds in spans
        if seconds >= WORTH * wall.total
    ]


def _busy(state: RunState, name: str) -> tuple[float | None, float | None]:
    """The share of that time in which the GPU was busy: at least, and at most; means over the GPUs of the run."""
    used = ours(state)
    watched = [each for uuid, each in state.activity.items() if used is None or uuid in used]
    if not watched or (used is None and len(watched) > 1):
        return None, None
    stretches = [
        (mark.start + READING_SECONDS, mark.start + mark.duration)
        for mark in state.main.marks
        if mark.name == name and mark.own_seconds > 0.0
    ]
    told = [each.within(stretches) for each in watched]
    least, most = _mean(told, "sm_active"), _mean(told, "utilization")
    return least, most if most is None or least is None else max(least, most)


def _mean(told: list[dict[str, Range]], figure: str) -> float | None:
    rows = [each[figure] for each in told if figure in each and each[figure].readings >= MIN_READINGS]
    return sum(row.mean for row in rows) / len(rows) / 100.0 if len(rows) == len(told) else None
