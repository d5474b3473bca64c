"""What would remain without a finding, in one line. Pure."""

from __future__ import annotations

from monitor.model.report import Finding, Report
from monitor.model.what_if import without
from monitor.units import duration, pace

WORTH_A_LINE = 0.01  # of a step's time: less is no news


def without_it(report: Report, finding: Finding) -> str | None:
    """`without it: at most 3.1 it/s, done 41 s earlier`; None where there is nothing to tell."""
    told = without(report, finding)
    if told is None:
        return None
    parts = []
    if told.faster is not None and told.faster > 1 + WORTH_A_LINE and told.then.steps_per_second:
        parts.append(f"at most {pace(told.then.steps_per_second)}")
    now, then = told.now.eta_seconds, told.then.eta_seconds
    if now is not None and then is not None:
        if now - then >= 1.0:
            parts.append(f"done {duration(now - then)} earlier")
    elif told.saved_seconds is not None and told.saved_seconds >= 1.0:
        parts.append(f"it would have taken {duration(told.saved_seconds)} less")
    return f"without it: {', '.join(parts)}" if parts else None
