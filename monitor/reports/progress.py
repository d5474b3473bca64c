"""How a run stands, in one line of plain text."""

from __future__ import annotations

from monitor.diagnosis.gain import gain
from monitor.model.report import View
from monitor.reports import sections
from monitor.units import UNKNOWN, duration, share
from trainhooks.events import clean


def line(view: View) -> str:
    """`12 min 4 s  214 of 600 steps (36 %), about 20 min left  5.1k tokens/s  generation 61 %`."""
    report = view.report
    head = report.outcome.state if report.outcome.state != "running" else duration(report.progress.elapsed_seconds)
    parts = [f"[{view.label}]" if view.label else "", head if head != UNKNOWN else "", sections.progress(report)]
    if report.outcome.state == "running":
        parts.append(sections.speed(report.throughput.recent) or sections.speed(report.throughput))
    largest = max(report.phases, key=lambda row: row.share, default=None)
    parts.append(f"{clean(largest.name, 40)} {share(largest.share)}" if largest is not None else "")
    return "  ".join(part for part in parts if part)


def verdict(view: View) -> str:
    """The verdict, and what fixing it can gain at most."""
    found = view.verdict
    most = gain(found.recoverable)
    return f"  {found.severity}: {clean(found.title)}" + (f" ({most} faster)" if most else "")
