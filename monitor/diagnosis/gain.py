"""What would remain without a finding, in one line. Pure."""

from __future__ import annotations

from monitor.model.pace import SINCE
from monitor.model.report import Finding, Report
from monitor.model.what_if import is_past, without
from monitor.units import duration, pace, rough, times

LEAST_GAIN = 1.01  # times as fast: less is no news


def gain(recoverable: float | None) -> str:
    """How much faster the steps could be if this share of the time since the first one were won: `at most 1.92x`."""
    if recoverable is None or not 0.0 < recoverable < 1.0:
        return ""
    faster = 1.0 / (1.0 - recoverable)
    return f"at most {times(faster)}" if faster >= LEAST_GAIN else ""


def without_it(report: Report, finding: Finding) -> str | None:
    """`without it: at most 1.48x faster, 3.11 it/s instead of 2.10 it/s since the first step; done about 41 s earlier`.

    None where there is nothing to tell.
    """
    told = without(report, finding)
    if told is None:
        return None
    if is_past(report, finding):
        return f"it is over: it has cost {duration(told.saved_seconds)} at most, and the steps to come gain nothing"
    parts = []
    most = gain(finding.recoverable)
    if most:
        now, then = pace(told.now.steps_per_second), pace(told.then.steps_per_second)
        parts.append(f"{most} faster, {then} instead of {now} {SINCE}")
    now_left, then_left = told.now.eta_seconds, told.then.eta_seconds
    if now_left is not None and then_left is not None:
        if now_left - then_left >= 1.0:
            parts.append(f"done about {rough(now_left - then_left)} earlier")
    elif told.saved_seconds is not None and told.saved_seconds >= 1.0:
        parts.append(f"it would have taken about {rough(told.saved_seconds)} less")
    return f"without it: {'; '.join(parts)}" if parts else None
