"""What ran in traced steps, for the report: by phase, by class of kernel, and the costliest. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from monitor.model.device.kernel_classes import class_of
from monitor.units import duration, number, plural, share
from trainhooks.protocol.calls import LAUNCHING, SYNCHRONIZING, cuda_call_activity
from trainhooks.protocol.events import Trace, TraceRow

MAX_KERNELS = 10  # that the report names


@dataclass(frozen=True, slots=True)
class TraceShare:
    """A part of what ran: seconds and calls a step, and its share of all that ran."""

    name: str
    seconds: float
    share: float
    count: float


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel, copy or operator in one phase: seconds and calls a step. `shapes` are of its longest call, if known."""

    name: str
    phase: str
    kind: str
    seconds: float
    share: float
    count: float
    shapes: str | None = None


@dataclass(frozen=True, slots=True)
class TraceReport:
    """Steps that were traced. Shares are of the time in which something ran, those of `idle` of the steps' time."""

    how: str  # traced
    device: str  # cuda: kernels; cpu: operators of the host
    first: int
    steps: int
    seconds: float  # a step
    pause: float  # seconds for which the training stood still
    phases: list[TraceShare] = field(default_factory=list)
    classes: list[TraceShare] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    busy: float | None = None  # share of the steps' time; None: not of a device
    overlap: float | None = None  # what ran beside something else, as a share of busy time
    idle: list[TraceShare] = field(default_factory=list)  # by what the host did
    launches: float | None = None  # a step
    waits: float | None = None  # calls a step in which the host waits for the device
    streams: int | None = None


def trace_report(trace: Trace) -> TraceReport:
    """Return what a trace shows."""
    steps, total = trace.steps, sum(row[3] for row in trace.rows)
    shapes = dict(trace.shapes)
    return TraceReport(
        how="traced",
        device=trace.device,
        first=trace.first,
        steps=trace.steps,
        seconds=trace.seconds / steps,
        pause=trace.pause,
        phases=_shares(((row[1], row) for row in trace.rows), steps, total),
        classes=_shares(((class_of(row[0], trace.device), row) for row in trace.rows), steps, total),
        kernels=[
            Kernel(
                name,
                phase,
                class_of(name, trace.device),
                seconds / steps,
                seconds / total if total else 0.0,
                count / steps,
                shapes.get(name),
            )
            for name, phase, count, seconds in trace.rows[:MAX_KERNELS]
        ],
        busy=None if trace.busy is None or not trace.seconds else min(1.0, trace.busy / trace.seconds),
        overlap=_overlap(trace),
        idle=_shares(((row[0], row) for row in trace.idle), steps, trace.seconds),
        launches=_calls(trace, LAUNCHING),
        waits=_calls(trace, SYNCHRONIZING),
        streams=trace.streams,
    )


def figures(trace: TraceReport) -> list[str]:
    """Return what a trace shows as a whole: its steps first."""
    parts = [f"{plural(trace.steps, 'step', 'steps')} from step {trace.first:,} on, of {duration(trace.seconds)}"]
    if trace.busy is not None:
        parts.append(f"GPU busy {share(trace.busy)}")
    if trace.launches is not None:
        parts.append(f"{number(trace.launches)} launches a step")
    if trace.waits is not None:
        parts.append(f"{number(trace.waits)} waits for the GPU a step")
    return [*parts, f"the trace took {duration(trace.pause)}"]


def _shares(rows: Iterable[tuple[str, TraceRow]], steps: int, total: float) -> list[TraceShare]:
    sums: dict[str, list[float]] = {}
    for name, (_, _, count, seconds) in rows:
        row = sums.setdefault(name, [0.0, 0.0])
        row[0] += seconds
        row[1] += count
    ordered = sorted(sums.items(), key=lambda item: -item[1][0])
    return [
        TraceShare(name, seconds / steps, seconds / total if total else 0.0, count / steps)
        for name, (seconds, count) in ordered
    ]


def _overlap(trace: Trace) -> float | None:
    if not trace.busy or trace.kernel_seconds is None:
        return None
    return max(0.0, trace.kernel_seconds / trace.busy - 1.0)


def _calls(trace: Trace, activity: str) -> float | None:
    if trace.device != "cuda":
        return None
    return sum(count for name, _, count, _ in trace.calls if cuda_call_activity(name) == activity) / trace.steps
