"""The host waits for the device again and again, and leaves it idle each time. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import ENOUGH_LOOKS, Evidence
from monitor.model import activities
from monitor.model.parts import OTHER
from monitor.model.report import Finding
from monitor.units import duration, plural, share

ENOUGH = 20  # steps
MANY = 2  # inside one forward pass; a single one, at the end of a step, is how a loss is read
# Of the looks at the stack in forward and backward: there a training has no reason to wait for the device.
SEEN = 0.20
# Of the time that the device may be idle. Below it, waiting costs nothing: the device has its queue full again in time.
IDLE = 0.20
INSIDE = ("forward", "backward", "optimizer", "training", "generation", "rollout")
SHOWN = 3
# To one value taken to the host, at most: a launch takes some ten microseconds, and a value not much longer by itself.
LAUNCHES_A_VALUE = 30
MOSTLY = 0.5  # of the looks at the time in no phase: it is what that time is


def synchronizing(evidence: Evidence) -> Finding | None:
    """Values are taken to the host in the midst of a step."""
    device, idle = evidence.device, evidence.idle_most
    if device is None or idle is None or idle < IDLE or not evidence.enough(ENOUGH) or device.bound == "data":
        return None
    counted, after = _counted(evidence), _after_the_step(evidence)
    looks = activities.calls_seen(evidence.state.main.frames, activities.SYNCHRONIZES, INSIDE)
    often = counted >= MANY and _often(evidence, counted)
    if often and looks.whole and not looks.places and not _in_forward(evidence):
        often = False  # they are so quick that nobody ever saw one
    if not often and looks.share < SEEN and after < SEEN:
        return None
    lines = [f"the GPU may be idle {share(idle)} of the time, at most"]
    if counted:
        lines.append(f"{plural(counted, 'value', 'values')} taken to the host in one forward pass: {_rows(evidence)}")
    if looks.places:
        lines.append(f"{share(looks.share)} of the looks inside the step found it waiting, most at {looks.places[0]}")
    if after >= SEEN:
        lines.append(f"{share(after)} of the GPU's time is after the optimizer's, where values are taken to the host")
        lines += evidence.places(OTHER)
    lines += [f"{row.place}: up to {duration(row.seconds)} of idle GPU a step" for row in device.idle_at[:1]]
    return Finding(
        "synchronizing",
        "warning",
        "The host waits for the GPU in the midst of each step, which leaves the GPU without work",
        lines,
        "Keep values on the GPU (.item(), .cpu(), bool(), nonzero() and printing wait for all that is queued): add them"
        " up there, and read them once in many steps.",
        idle * evidence.of_wall(evidence.report.wall.stepping),
    )


def _syncs(evidence: Evidence) -> list[dict[str, object]]:
    rows = hardware.table(evidence, "ops").get("syncs")
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _counted(evidence: Evidence) -> int:
    return sum(count for row in _syncs(evidence) if isinstance(count := row.get("count"), int) and count > 0)


def _often(evidence: Evidence, counted: int) -> bool:
    """Whether values are taken so often that this, and not launching, is what the host is at."""
    launches = hardware.table(evidence, "ops").get("launches")
    return not isinstance(launches, int) or counted * LAUNCHES_A_VALUE >= launches


def _after_the_step(evidence: Evidence) -> float:
    """The share of the time that the device spends in no phase while the host takes values from it: metrics, norms.

    By the device's clock: a host that reads its loss there waits for what the device does in the other phases.
    """
    row, looks = evidence.phase(OTHER), evidence.looks(OTHER)
    if row is None or evidence.host_only or not looks:
        return 0.0
    seen = activities.calls_seen({OTHER: looks}, activities.SYNCHRONIZES, at_least=ENOUGH_LOOKS)
    return row.share * seen.share if seen.share >= MOSTLY else 0.0


def _rows(evidence: Evidence) -> str:
    return ", ".join(f"{row.get('count')} at {row.get('place')}" for row in _syncs(evidence)[:SHOWN])


def _in_forward(evidence: Evidence) -> bool:
    """Whether the forward pass is a part of the step that counts."""
    row = evidence.phase("forward")
    return row is not None and row.share >= IDLE
