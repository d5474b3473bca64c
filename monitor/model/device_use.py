"""How a run uses its GPUs, from the device lane and the driver's readings: busy and idle, and what bounds it. Pure."""

from __future__ import annotations

from monitor.model.activity import Range
from monitor.model.delayed_steps import narrowed
from monitor.model.device_account import LAUNCHES_NOTHING, WAITING_FOR_DATA, device_account, idle_places
from monitor.model.device_copies import copied
from monitor.model.device_lane import DeviceLane, DeviceSums
from monitor.model.devices import ours
from monitor.model.parts import OTHER
from monitor.model.report import AccountRow, Device, PhaseRow
from monitor.model.state import RunState
from monitor.units import share

READING_SECONDS = 1.0  # that a reading tells of: it comes at their end
STOP_SECONDS = 0.25  # an evaluation or a checkpoint this long makes the readings around it none of the steps'
MIN_READINGS = 3  # of one a second, before their mean is a figure of the steps
MIN_TIMED = 5  # steps beyond the first ones, before anything is said of what bounds the run
# Removing idle time from a device that is busy this much gains a quarter at most, and rarely all of that.
BUSY = 0.80
# The host never ahead of the device in this share of step time: it is the host that sets the pace.
DRAINED = 0.80
WAITING = 0.15  # of step time: a wait that is worth going after
IDLE = 0.40  # of the time, for certain: what keeps the device waiting is not the device
MOST_SPREAD = 0.30  # of the time: a range that is wider decides nothing
# Of the time that readings tell of, in steps. Where it is less, what they say depends on when they were taken.
IN_STEPS = 0.90
ENOUGH_TIMED = 3  # steps by the device's clock, before the phases are told by it
BOUNDS = {"device": "GPU-bound", "host": "host-bound", "data": "waiting for data"}


def uses_device(state: RunState) -> bool:
    """Whether the training's processes compute on a GPU, as far as they have told."""
    optimizer = state.facts.get("optimizer")
    place = optimizer.get("device") if isinstance(optimizer, dict) else None
    return bool(state.devices) or state.main.device.is_known or (isinstance(place, str) and place.startswith("cuda"))


def over_steps(state: RunState, uuid: str) -> dict[str, Range]:
    """A GPU's readings while steps were done, first ones left out."""
    wall, activity = state.main.wall, state.activity.get(uuid)
    if activity is None or wall.warm is None or wall.last_step is None:
        return {}
    return activity.over(wall.warm + READING_SECONDS, wall.last_step, _stops(state))


def _stops(state: RunState) -> list[tuple[float, float]]:
    return [
        (mark.start, mark.start + mark.duration + READING_SECONDS)
        for mark in state.main.marks
        if mark.duration >= STOP_SECONDS and mark.own_seconds > 0.0
    ]


def device_use(state: RunState) -> Device | None:
    """The account of the device; None where the run uses none."""
    if not uses_device(state):
        return None
    lane = state.main.device
    found = Device(dropped=lane.dropped)
    _readings(found, state)
    if lane.is_known:
        found.clock = "cuda"
        found.timed_steps = lane.whole.timed
        paces = lane.paces.digested()  # of all steps; its marks make a timed one of half a millisecond longer
        found.seconds = paces.sum / paces.count if paces.count else lane.whole.seconds / lane.whole.steps
    sums = lane.steady if lane.steady.timed >= MIN_TIMED else None
    if sums is not None:
        found.queue_empty = sums.drained_share()
        found.account = _account(found, state, sums)
        found.idle_at = idle_places(lane, sums)
        found.estimate = lane.estimate
    delays = state.facts.get("device_delay")
    found.delays = delays if isinstance(delays, str) else None
    _busy(found, sums)
    found.bound = _bound(found, sums)
    return found


def _readings(found: Device, state: RunState) -> None:
    """Means over the GPUs that the run uses; of one of which nothing is told, nothing is."""
    used = ours(state)
    uuids = [uuid for uuid in state.gpus if used is None or uuid in used]
    if not uuids or (used is None and len(uuids) > 1):
        return
    rows = [over_steps(state, uuid) for uuid in uuids]
    for name, scale in (
        ("sm_active", 100.0),
        ("sm_occupancy", 100.0),
        ("tensor_active", 100.0),
        ("memory_active", 100.0),
        ("utilization", 100.0),
        ("pcie_rx", 1.0),
        ("pcie_tx", 1.0),
    ):
        told = [row[name] for row in rows if name in row and row[name].readings >= MIN_READINGS]
        if len(told) == len(rows):
            setattr(found, name, sum(each.mean for each in told) / len(told) / scale)
            found.readings = max(found.readings, min(each.readings for each in told))


def _account(found: Device, state: RunState, sums: DeviceSums) -> list[AccountRow]:
    part = _in_steps(state)
    quiet = [phase for name, phase in sums.phases.items() if name in LAUNCHES_NOTHING] if sums.busy_parts else []
    idle = sum(phase.total - phase.busy for phase in quiet) / sums.seconds
    copies = copied(state, found, sums.seconds / sums.steps, part, sums.busy_share(), idle)
    kernels = min(1.0, found.utilization / part) if found.utilization is not None and part > 0.0 else None
    return device_account(sums, state.main.device.looks, copies, kernels)


def _in_steps(state: RunState) -> float:
    """The share of the time that the driver's readings of the steps tell of which lies in steps; 0: not clear."""
    wall = state.main.wall
    if wall.first_step is None or wall.last_step is None or wall.warm is None:
        return 0.0
    begin, stops = wall.warm + READING_SECONDS, _stops(state)
    if not all(each.tells_apart(begin, wall.last_step, stops) for each in state.activity.values()):
        return 0.0  # evaluations and checkpoints are in the means, too
    whole = wall.last_step - wall.first_step - (sum(wall.spans.values()) - wall.since_last_step)
    part = min(1.0, wall.steps / whole) if whole > 0.0 else 0.0
    return part if part >= IN_STEPS else 0.0


def _busy(found: Device, sums: DeviceSums | None) -> None:
    found.queued = sums.busy_share() if sums is not None else None
    least = [each for each in (found.sm_active, found.queued) if each is not None]
    if least:
        found.busy_least = min(1.0, max(least))
    if sums is not None:
        idle = sum(row.least or 0.0 for row in found.account if row.state == "idle" and row.by != "looks")
        found.busy_most = 1.0 - idle
    if found.utilization is not None:  # time in which any kernel ran, rounded up: never less than the truth
        found.busy_most = min(found.utilization, 1.0 if found.busy_most is None else found.busy_most)
    if found.busy_most is not None:
        found.busy_most = max(found.busy_most, found.busy_least or 0.0)
    found.busy_least, found.busy_most = narrowed(found.busy_least, found.busy_most, found.estimate)
    if found.busy_least and (found.sm_active is not None or _decides(found.busy_least, found.busy_most)):
        found.gain_limit = 1.0 / found.busy_least


def _decides(least: float, most: float | None) -> bool:
    """Whether a range from the queue alone says anything: an empty queue is no proof of an idle device."""
    return (1.0 if most is None else most) - least <= MOST_SPREAD


def _bound(found: Device, sums: DeviceSums | None) -> str | None:
    """What sets the pace, where what is known decides it."""
    if sums is not None:
        waits = sum(row.least or 0.0 for row in found.account if row.what == WAITING_FOR_DATA)
        if waits >= WAITING and waits >= 1.0 - (found.busy_most or 1.0) - waits:
            return "data"
    if found.busy_least is not None and found.busy_least >= BUSY:
        return "device"
    if found.queue_empty is not None and found.queue_empty >= DRAINED:
        return "host"
    return "host" if found.busy_most is not None and found.busy_most <= 1.0 - IDLE else None


def tells_phases(lane: DeviceLane) -> bool:
    """Whether enough steps were timed to tell the phases by the device's clock."""
    return lane.whole.timed >= ENOUGH_TIMED


def bound_in_words(device: Device) -> str:
    """`GPU-bound`, `host-bound`...; that it is not known, where what was measured does not decide it."""
    return BOUNDS.get(device.bound or "", "what bounds the run is not known")


def busy_in_words(device: Device) -> str:
    """`busy 68 % to 97 %`: at least and at most; that it is not known, where nothing tells."""
    least, most = device.busy_least, device.busy_most
    if least is None:
        return "busy for an unknown share" if most is None else f"busy at most {share(most)}"
    if most is None:
        return f"busy at least {share(least)}"
    return f"busy {share(least)}" if share(least) == share(most) else f"busy {share(least)} to {share(most)}"


def phase_rows(lane: DeviceLane) -> list[PhaseRow]:
    """The phases by the device's clock in the order they first occurred, `other` last; shares add up to 1."""
    rows = []
    for name, phase in lane.whole.phases.items():
        column = lane.phases[name].digested()
        p50, p95 = (min(each, column.most) for each in column.quantiles.at(0.5, 0.95))
        share = phase.total / lane.whole.seconds
        busy = phase.busy / phase.total if phase.total and lane.whole.busy_parts else None
        mean = phase.total / phase.steps if phase.steps else 0.0
        most = max(0.0, column.most)
        rows.append(PhaseRow(name, share, mean, p50, p95, most, "cuda", phase.steps, busy, mean))
    return sorted(rows, key=lambda row: row.name == OTHER)
