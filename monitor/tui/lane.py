"""The two lanes of a run on a GPU: its steps and phases by the device's clock, or by the host's. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model.report import Curve, PhaseRow, Report, View

GPU_CLOCK, HOST_CLOCK = "GPU clock", "host clock"


@dataclass(frozen=True, slots=True)
class Lane:
    """Steps and phases by one clock. Without a GPU there is one lane, and nothing needs to say whose it is."""

    clock: str  # as it stands beside figures; empty where no GPU is used
    rows: list[PhaseRow]
    step_seconds: Curve
    phase_seconds: dict[str, Curve]
    distributions: dict[str, list[tuple[float, int]]]

    @property
    def is_device(self) -> bool:
        return self.clock == GPU_CLOCK


def two_lanes(report: Report) -> bool:
    """Whether there are two to choose from: enough steps were timed to tell the phases by the device's clock."""
    return report.device is not None and any(row.clock == "cuda" for row in report.phases)


def clock(report: Report, host: bool) -> str:
    """Whose clock tells of steps and phases; empty where no GPU is used.

    Args:
        host: the person asked for the host's.
    """
    if report.device is None:
        return ""
    return GPU_CLOCK if two_lanes(report) and not host else HOST_CLOCK


def shown_phases(report: Report, host: bool) -> list[PhaseRow]:
    return report.host_phases if host and two_lanes(report) else report.phases


def lane(view: View, host: bool) -> Lane:
    """The lane on screen: the device's leads where it is known."""
    report, details, told = view.report, view.details, clock(view.report, host)
    rows = shown_phases(report, host)
    timed = report.device is not None and report.device.clock is not None
    if told == HOST_CLOCK and timed:
        # Also where too few steps were timed to tell phases: parts and whole are then by one clock.
        curves = view.host_step_seconds, view.host_phase_seconds
        return Lane(told, rows, *curves, details.host_distributions or details.distributions)
    return Lane(told, rows, view.step_seconds, view.phase_seconds, details.distributions)


def with_clock(title: str, report: Report, host: bool) -> str:
    """A title that says by whose clock its figures are, where a GPU is used."""
    told = clock(report, host)
    return f"{title}, {told}" if told else title
