"""The section of a report on traced steps: what ran, by class and by kernel, and what the device waited for."""

from __future__ import annotations

from monitor.model.device.kernel_classes import label_of
from monitor.model.device.trace_report import TraceReport, TraceShare, figures
from monitor.model.report import Report
from monitor.reports.listings import Section
from monitor.units import duration, number, share
from trainhooks.protocol.limits import clean

MAX_CLASSES = 6


def traced(report: Report) -> Section | None:
    """Return what ran in the traced steps: kernels where a GPU was traced, else operators of the host."""
    trace = report.traced
    return section(trace) if trace is not None and trace.kernels else None


def section(trace: TraceReport) -> Section:
    """Return what ran in a trace."""
    what = "kernel" if trace.device == "cuda" else "operator"
    rows = [[what, "phase", "class", "share", "a step", "calls"]]
    for row in trace.kernels:
        name = clean(label_of(row.name), 60) + (f" {clean(row.shapes, 40)}" if row.shapes else "")
        rows.append([name, clean(row.phase, 20), row.kind, share(row.share), duration(row.seconds), number(row.count)])
    return Section(f"Traced {what}s", _lines(trace), rows, left=3)


def _lines(trace: TraceReport) -> list[str]:
    lines = [", ".join(figures(trace))]
    lines.append("by class: " + _listed(trace.classes))
    if trace.idle:
        lines.append("GPU idle while the host was " + _listed(trace.idle))
    return lines


def _listed(rows: list[TraceShare]) -> str:
    return ", ".join(f"{row.name} {share(row.share)}" for row in rows[:MAX_CLASSES])
