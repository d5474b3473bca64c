"""What traced kernels tell the rules: shares of a usual step, and lines of evidence. Pure."""

from __future__ import annotations

from monitor.diagnosis.rule import Evidence
from monitor.model.device.kernel_classes import OTHER, label_of
from monitor.model.device.trace_report import Kernel, TraceReport
from monitor.units import duration, number, plural
from trainhooks.protocol.limits import clean

MAX_NAMED = 3  # kernels in a finding


def kernel_trace(evidence: Evidence) -> TraceReport | None:
    """Return the trace of kernels in steps whose work is known."""
    trace = evidence.device.trace if evidence.device is not None else None
    return trace if trace is not None and trace.kernels and trace.ran is not None and evidence.has_steps() else None


def step_share(evidence: Evidence, trace: TraceReport, *kinds: str) -> float:
    """Return the share of a usual step in which kernels of these classes run; of all where none is given."""
    device = evidence.device
    ran = trace.ran or 0.0
    # Where whole steps were traced that worked less than is certain.
    if device is not None and device.busy_least is not None and not trace.parts:
        ran = max(ran, device.busy_least)
    return (trace.share(*kinds) if kinds else 1.0) * ran


def kernels(evidence: Evidence, *kinds: str) -> list[Kernel]:
    """Return the kernels of these classes, of all where none is given, the costliest first."""
    return [row for row in evidence.kernels if not kinds or row.kind.startswith(kinds)]


def kernel_lines(rows: list[Kernel]) -> list[str]:
    """Return the costliest of these kernels, a line each."""
    return [
        f"{clean(row.phase, 20)}: {clean(label_of(row.name), 60)},"
        f" {number(row.count)} x a step, {duration(row.seconds)}"
        for row in rows[:MAX_NAMED]
    ]


def how(trace: TraceReport) -> str:
    """Return how it is known."""
    if trace.parts:
        is_whole = trace.left_out is None
        return "measured in traced parts of steps" if is_whole else f"an estimate by parts of steps: {trace.left_out}"
    return f"measured in {plural(trace.steps, 'traced step', 'traced steps')}"


def main_phase(rows: list[Kernel]) -> str:
    """Return the phase with most of these kernels' time, as ` in backward`; empty where there is no such phase."""
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row.phase] = seconds.get(row.phase, 0.0) + row.seconds
    name, most = max(seconds.items(), key=lambda row: row[1], default=("", 0.0))
    return f" in {clean(name, 20)}" if name and name != OTHER and most > 0.5 * sum(seconds.values()) else ""
