"""Steps and phases of a run on a GPU by the GPU's clock or by the host's. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from monitor.model.report import PhaseRow, Report
from monitor.model.steps.series import Curve
from monitor.model.view import View

GPU_CLOCK, HOST_CLOCK = "GPU clock", "host clock"


@dataclass(frozen=True, slots=True)
class Lane:
    """Steps and phases by one clock."""

    clock: str  # GPU_CLOCK or HOST_CLOCK; empty where no GPU is used
    rows: list[PhaseRow]
    step_seconds: Curve
    phase_seconds: dict[str, Curve]
    distributions: dict[str, list[tuple[float, int]]]

    @property
    def is_device(self) -> bool:
        return self.clock == GPU_CLOCK


def two_lanes(report: Report) -> bool:
    """Return whether both clocks are available: enough steps were timed on the GPU to know its phases."""
    return report.device is not None and any(row.clock == "cuda" for row in report.phases)


def clock(report: Report, host: bool) -> str:
    """Return the clock of the displayed steps and phases; empty where no GPU is used.

    Args:
        host: whether the user chose the host clock.
    """
    if report.device is None:
        return ""
    return GPU_CLOCK if two_lanes(report) and not host else HOST_CLOCK


def shown_phases(report: Report, host: bool) -> list[PhaseRow]:
    """Return the phases by the displayed clock."""
    return report.host_phases if host and two_lanes(report) else report.phases


def largest(rows: Sequence[PhaseRow], most: int) -> list[PhaseRow]:
    """Return the phases with the largest shares, in the order of the step."""
    least = sorted((row.share for row in rows), reverse=True)[:most][-1:]
    return [row for row in rows if row.share >= least[0]][:most] if least else []


def lane(view: View, host: bool) -> Lane:
    """Return the displayed lane: the GPU's where it is known, unless the user chose the host clock."""
    report, details, shown_clock = view.report, view.details, clock(view.report, host)
    rows = shown_phases(report, host)
    timed = report.device is not None and report.device.clock is not None
    if shown_clock == HOST_CLOCK and timed:
        # Also if too few steps were timed on the GPU for phases: steps and phases have to be by the same clock.
        curves = view.host_step_seconds, view.host_phase_seconds
        return Lane(shown_clock, rows, *curves, details.host_distributions or details.distributions)
    return Lane(shown_clock, rows, view.step_seconds, view.phase_seconds, details.distributions)


def with_clock(title: str, report: Report, host: bool) -> str:
    """Return the title with the clock of its figures, where a GPU is used."""
    shown_clock = clock(report, host)
    return f"{title}, {shown_clock}" if shown_clock else title
