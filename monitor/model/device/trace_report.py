"""What ran in traced steps, for the report: by phase, by class of kernel, and the costliest. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from monitor.model.device.kernel_classes import HOST_COPIES, class_of
from monitor.units import duration, number, plural, share
from trainhooks.protocol.calls import LAUNCHING, SYNCHRONIZING, cuda_call_activity
from trainhooks.protocol.events import Trace, TraceRow

MAX_KERNELS = 10  # that the report names
MIN_COPYING = 0.01  # of a step: less is not shown
PYTHON, RUNNING = "python", "running Python"  # what the host did where it called nothing of CUDA, by event and report


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
    """Steps that were traced. Shares are of the time in which something ran, those of `idle` of a usual step's time.

    A traced step is longer than a usual one, for the host: what ran on the device is compared with a usual step.
    """

    how: str  # traced | parts: by traces of parts of long steps, each weighed by the device's seconds in it
    device: str  # cuda: kernels; cpu: operators of the host
    first: int
    steps: int
    seconds: float  # a traced step, by the host; of parts, a usual step by the device
    pause: float  # seconds for which the training stood still
    phases: list[TraceShare] = field(default_factory=list)
    classes: list[TraceShare] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)
    busy: float | None = None  # share of a usual step in which a kernel ran; None: not of a device
    copying: float | None = None  # likewise, in which it only copied to or from the host
    overlap: float | None = None  # what ran beside something else, as a share of busy time
    exposed: float | None = None  # share of a usual step in which only collectives ran; None: none did, or unknown
    idle: list[TraceShare] = field(default_factory=list)  # by what the host did
    launches: float | None = None  # a step
    waits: float | None = None  # calls a step in which the host waits for the device
    streams: int | None = None
    left_out: str | None = None  # why kernels are missing: the shares are of what was recorded
    parts: list[TraceShare] = field(default_factory=list)  # by phase: the device's seconds a step by events, times seen

    @property
    def ran(self) -> float | None:
        """The share of a usual step in which something ran, of parts in the traced ones; None: not of a device."""
        if self.parts:
            return min(1.0, sum(row.seconds for row in self.phases) / self.seconds)
        return None if self.busy is None else min(1.0, self.busy + (self.copying or 0.0))

    def share(self, *kinds: str) -> float:
        """Return the share of these classes, and of their variants: `attention` has `attention, flash`."""
        return sum(row.share for row in self.classes if row.name.startswith(kinds))


def trace_report(trace: Trace, usual: float | None = None) -> TraceReport:
    """Return what a trace shows.

    Args:
        usual: seconds of a usual step by the device; None: not known, then those of the traced ones.
    """
    steps, total, rows = trace.steps, sum(row[3] for row in trace.rows), kernels_of(trace)
    ran = None if trace.busy is None else trace.busy / steps
    copying = _copying(trace, rows)
    usual = max(usual or trace.seconds / steps, ran or 0.0)
    return TraceReport(
        how="parts" if trace.parts else "traced",
        device=trace.device,
        first=trace.first,
        steps=trace.steps,
        seconds=trace.seconds / steps,
        pause=trace.pause,
        phases=_shares(((row[1], row) for row in trace.rows), steps, total),
        classes=_shares(((row.kind, each) for row, each in zip(rows, trace.rows, strict=True)), steps, total),
        kernels=rows[:MAX_KERNELS],
        busy=None if ran is None or not usual else (ran - copying) / usual,
        copying=None if ran is None or not usual else copying / usual,
        overlap=_overlap(trace),
        exposed=None if trace.exposed is None or not usual or trace.parts else trace.exposed / steps / usual,
        idle=_idle(trace, 0.0 if ran is None or not usual else max(0.0, 1.0 - ran / usual)),
        launches=_calls(trace, LAUNCHING),
        waits=_calls(trace, SYNCHRONIZING),
        streams=trace.streams,
        left_out=trace.left_out,
        parts=[TraceShare(name, part, part / trace.seconds, times) for name, times, part in trace.parts],
    )


def kernels_of(trace: Trace) -> list[Kernel]:
    """Return all that ran, the costliest first."""
    steps, total = trace.steps, sum(row[3] for row in trace.rows)
    shapes = dict(trace.shapes)
    return [
        Kernel(
            name,
            phase,
            class_of(name, trace.device),
            seconds / steps,
            seconds / total if total else 0.0,
            count / steps,
            shapes.get(name),
        )
        for name, phase, count, seconds in trace.rows
    ]


def _copying(trace: Trace, rows: list[Kernel]) -> float:
    """Return the seconds a step in which the device only copied: at least, where copies ran beside kernels."""
    copies = sum(row.seconds for row in rows if row.kind in HOST_COPIES)
    beside = max(0.0, (trace.kernel_seconds or 0.0) - (trace.busy or 0.0)) / trace.steps
    return max(0.0, copies - beside)


def _idle(trace: Trace, idle: float) -> list[TraceShare]:
    """Return the idle share of a usual step, divided as the gaps of the traced ones are."""
    gaps = sum(row[3] for row in trace.idle)
    rows = _shares(((RUNNING if row[0] == PYTHON else row[0], row) for row in trace.idle), trace.steps, gaps)
    return [TraceShare(row.name, row.seconds, row.share * idle, row.count) for row in rows]


def figures(trace: TraceReport) -> list[str]:
    """Return what a trace shows as a whole: its steps first."""
    parts = [f"{plural(trace.steps, 'step', 'steps')} from step {trace.first:,} on, of {duration(trace.seconds)}"]
    if trace.parts:
        names = ", ".join(f"{row.name} ({share(row.share)})" for row in trace.parts)
        parts = [f"parts of steps of {duration(trace.seconds)}, by the GPU's time in each: {names}"]
    if trace.busy is not None:
        copying = f" and copying {share(trace.copying)}" if (trace.copying or 0.0) >= MIN_COPYING else ""
        parts.append(f"GPU busy {share(trace.busy)}{copying}")
    if trace.launches is not None:
        parts.append(f"{number(trace.launches)} launches a step")
    if trace.waits is not None:
        parts.append(f"{number(trace.waits)} waits for the GPU a step")
    parts.append(f"the trace took {duration(trace.pause)}")
    if trace.parts and trace.left_out is not None:
        return [*parts, trace.left_out]
    return parts if trace.left_out is None else [*parts, f"not all kernels are in it: it {trace.left_out}"]


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
    if trace.device != "cuda" or (trace.parts and trace.left_out is not None):
        return None
    return sum(count for name, _, count, _ in trace.calls if cuda_call_activity(name) == activity) / trace.steps
