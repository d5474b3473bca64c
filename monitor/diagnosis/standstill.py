"""No step for far longer than a step takes: between two steps, or until somebody ended the run. Pure."""

from __future__ import annotations

from monitor.diagnosis import progress
from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.progress import STALL_LEAST, STALL_RATIO
from monitor.model.report import Finding
from monitor.units import age, duration

ENOUGH = 5  # steps
GIVEN_UP_LEAST = 15.0  # seconds; whoever ends a run that stood still for so long has most often ended it for that
LONGER = 2.0  # times all earlier pauses between steps together, while it runs: an evaluation nobody named may be one
STOPPED_BY_HAND = "KeyboardInterrupt"


def stalled(evidence: Evidence) -> Finding | None:
    """A step that does not end, or none that begins."""
    return progress.stalled(evidence) or _ceased(evidence)


def _ceased(evidence: Evidence) -> Finding | None:
    """No more steps, and the program has not ended by itself."""
    outcome, main = evidence.report.outcome, evidence.state.main
    runs = outcome.state == "running"
    ended = outcome.signal is not None or (outcome.error or "").startswith(STOPPED_BY_HAND)
    waited = _waited(evidence)
    if waited is None or not (runs or ended) or (runs and evidence.open.step_seconds is not None):
        return None
    usual = main.step_seconds.digested()
    if usual.count < ENOUGH:
        return None
    p50, p95 = usual.quantiles.at(0.5, 0.95)
    if waited < max(STALL_LEAST if runs else GIVEN_UP_LEAST, STALL_RATIO * p50, 2 * p95):
        return None
    if runs and waited < LONGER * (evidence.report.wall.between_steps - waited):
        return None
    lines = [f"a step usually takes {duration(p50)} (p95 {duration(p95)})"]
    if main.pulse is not None and main.pulse.frame:
        lines.append(f"it stood at {main.pulse.frame}")
    return Finding(
        "stalled",
        "critical",
        f"No step has ended for {age(waited)}"
        if runs
        else f"No step ended in the {age(waited)} before the run was stopped",
        lines,
        "See where it stands: py-spy dump --pid PID. A collective, a queue or a subprocess that waits is usual.",
        evidence.of_wall(waited),
    )


def _waited(evidence: Evidence) -> float | None:
    """Seconds from the end of the last step to the last sign of life; None where something else went on then."""
    main, done = evidence.state.main, evidence.report.progress
    pulse, last = main.pulse, main.wall.last_step
    if pulse is None or last is None or pulse.spans or main.begins_again:
        return None
    if done.steps_total is not None and done.steps_done >= done.steps_total:
        return None
    return max(0.0, pulse.t - last - main.wall.since_last_step)
