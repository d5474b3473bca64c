"""How a run uses its GPUs, from the device lane and the driver's readings: busy and idle, and what bounds it. Pure."""

from __future__ import annotations

from monitor.model.device.account_table import busy_range
from monitor.model.device.device_account import WAITING_FOR_DATA, device_account, traced_account, with_untimed
from monitor.model.device.device_report import AccountRow, Device, MemoryOwners
from monitor.model.device.device_steps import DeviceLane, DeviceSums
from monitor.model.device.gpu_activity import Range
from monitor.model.device.trace_report import trace_report
from monitor.model.device.traced_parts import newest_trace
from monitor.model.report import PhaseRow
from monitor.model.state import RunState, used_gpus
from monitor.step_blocks import OTHER
from trainhooks.protocol.facts import RunFacts

READING_SECONDS = 1.0  # covered by a reading, which comes at their end
MIN_STOP_SECONDS = 0.25  # readings around an evaluation or checkpoint this long do not count for the steps
MIN_MEASURED = 3  # one a second, before their mean is used
MIN_STEADY_TIMED = 5  # timed steps after the first ones, before a bottleneck is named
# Removing all idle time of a device that is busy this much gains at most 25%.
MIN_BOUND_SHARE = 0.80
# Share of step time in which the host is never ahead of the device: from it on the host sets the pace.
MIN_DRAINED_SHARE = 0.80
MIN_DATA_WAIT = 0.15  # of step time: a shorter wait does not set the pace
MIN_CERTAIN_IDLE = 0.40  # of the time, certainly idle: the device then does not set the pace
MAX_SPREAD = 0.30  # of the time: a wider range is not conclusive
# Of a step: by how much a trace may show less work than is certain. Steps differ, and the driver's are means.
MAX_TRACE_ERROR = 0.10
MIN_TIMED = 3  # timed steps, before phases are measured by the device's clock
# The driver's figures of a Device: percent, and bytes a second.
TRAFFIC = ("pcie_rx", "pcie_tx")
MEAN_FIGURES = ("sm_active", "sm_occupancy", "tensor_active", "memory_active", "utilization", *TRAFFIC)
BOUNDS = {"device": "GPU-bound", "host": "host-bound", "data": "waiting for data"}


def uses_device(state: RunState) -> bool:
    """Return whether the training is known to compute on a GPU."""
    place = state.facts.optimizer.device or ""
    return bool(state.devices) or state.main.device.is_known or place.startswith("cuda")


def ranges_in_steps(state: RunState, uuid: str) -> dict[str, Range]:
    """Return the ranges of a GPU's readings during steps, the first steps left out; empty: no readings."""
    wall, activity = state.main.wall, state.activity.get(uuid)
    if activity is None or wall.warm is None or wall.last_step is None:
        return {}
    return activity.ranges_between(wall.warm + READING_SECONDS, wall.last_step, _stops(state))


def _stops(state: RunState) -> list[tuple[float, float]]:
    return [
        (mark.start, mark.start + mark.duration + READING_SECONDS)
        for mark in state.main.marks
        if mark.duration >= MIN_STOP_SECONDS and mark.own_seconds > 0.0
    ]


def device_use(state: RunState) -> Device | None:
    """Return how the run uses its GPUs; None where it uses none."""
    if not uses_device(state):
        return None
    lane = state.main.device
    device = Device(dropped=lane.dropped)
    _set_readings(device, state)
    if lane.is_known:
        device.clock = "cuda"
        device.timed_steps = lane.whole.timed
        paces = lane.paces.settled()  # of all steps: the marks make very short timed steps longer
        device.seconds = paces.sum / paces.count if paces.count else lane.whole.seconds / lane.whole.steps
    sums = lane.steady if lane.steady.timed >= MIN_STEADY_TIMED else None
    rows = []
    if sums is not None:
        untimed = lane.untimed_share
        device.queued = _queued(sums, untimed)
        device.queue_empty = None if untimed else sums.drained_share()
        rows = with_untimed(device_account(sums), untimed)
    trace = newest_trace(state.main)
    if trace is not None and trace.device == "cuda":
        device.trace = trace_report(trace, _usual_step(lane, sums) or device.seconds)
    _set_busy(device, rows)
    device.bound = _limiting_part(device, rows)
    device.account = rows
    if trace is not None and device.trace is not None and _measured_busy(device):
        device.account = traced_account(trace, device.trace, rows)
    device.memory = _memory_owners(state.facts)
    return device


def _memory_owners(facts: RunFacts) -> MemoryOwners | None:
    """Return what holds the GPU's memory at the peak: what is kept from step to step, and the rest."""
    peak, reserved, held = facts.torch.gpu_memory.peak_allocated, facts.torch.gpu_memory.peak_reserved, facts.held
    if peak is None or reserved is None:
        return None
    kept = (held.weights, held.gradients, held.optimizer)
    known = [size for size in kept if size is not None]
    others = max(0, peak - sum(known)) if len(known) == len(kept) else None
    return MemoryOwners(*kept, others=others, cached=max(0, reserved - peak))


def _set_readings(device: Device, state: RunState) -> None:
    """Set the means over the GPUs that the run uses; a figure that one of them lacks stays None."""
    used = used_gpus(state)
    uuids = [uuid for uuid in state.gpus if used is None or uuid in used]
    if not uuids or (used is None and len(uuids) > 1):
        return
    rows = [ranges_in_steps(state, uuid) for uuid in uuids]
    for name in MEAN_FIGURES:
        ranges = [row[name] for row in rows if name in row and row[name].readings >= MIN_MEASURED]
        if len(ranges) == len(rows):
            setattr(
                device, name, sum(figure.mean for figure in ranges) / len(ranges) / (1.0 if name in TRAFFIC else 100.0)
            )
            device.readings = max(device.readings, min(figure.readings for figure in ranges))


def _queued(sums: DeviceSums, untimed: float) -> float | None:
    """Return the share of all time in steps in which the device certainly had work queued; None: unknown."""
    share = sums.busy_share()
    return None if share is None else (1.0 - untimed) * share


def _set_busy(device: Device, rows: list[AccountRow]) -> None:
    """Set how busy the device was.

    Args:
        rows: the account by events.
    """
    least = [share for share in (device.sm_active, device.queued) if share is not None]
    if least:
        device.busy_least = min(1.0, max(least))
    if rows:
        device.busy_most = 1.0 - sum(row.least or 0.0 for row in rows if row.state == "idle")
    if device.utilization is not None:  # time in which any kernel ran, rounded up: never less than the truth
        device.busy_most = min(device.utilization, 1.0 if device.busy_most is None else device.busy_most)
    if device.busy_most is not None:
        device.busy_most = max(device.busy_most, device.busy_least or 0.0)
    measured = _measured_busy(device)
    if measured:
        device.busy_least = device.busy_most = measured
        device.gain_limit = 1.0 / measured
    elif device.busy_least and (device.sm_active is not None or _is_conclusive(device.busy_least, device.busy_most)):
        device.gain_limit = 1.0 / device.busy_least


def _usual_step(lane: DeviceLane, sums: DeviceSums | None) -> float | None:
    """Return the seconds of a step by the device, the first ones left out: the mean, slow steps included."""
    if sums is None or not sums.steps:
        return None
    return sums.seconds / sums.steps / (1.0 - lane.untimed_share)


def _measured_busy(device: Device) -> float | None:
    """Return the share of a usual step in which kernels ran, by the trace.

    None where there is none, or where it saw less than is certain: then its steps were not usual ones.
    """
    trace = device.trace
    if trace is None or trace.busy is None or trace.copying is None:
        return None
    certain = device.sm_active if device.sm_active is not None else device.queued or 0.0
    if trace.busy + trace.copying < MIN_BOUND_SHARE and device.seconds and trace.seconds < device.seconds / 2:
        return None  # shorter steps than most, and the host is not ahead: steps of another kind
    return trace.busy if trace.busy + trace.copying >= certain - MAX_TRACE_ERROR else None


def _is_conclusive(least: float, most: float | None) -> bool:
    """Return whether a range from the queue alone is conclusive: an empty queue does not prove an idle device."""
    return (1.0 if most is None else most) - least <= MAX_SPREAD


def _limiting_part(device: Device, rows: list[AccountRow]) -> str | None:
    """Return what sets the pace, `device`, `host` or `data`; None: unknown."""
    waits = sum(row.least or 0.0 for row in rows if row.what == WAITING_FOR_DATA)
    if waits >= MIN_DATA_WAIT and waits >= 1.0 - (device.busy_most or 1.0) - waits:
        return "data"
    if device.busy_least is not None and device.busy_least >= MIN_BOUND_SHARE:
        return "device"
    if device.queue_empty is not None and device.queue_empty >= MIN_DRAINED_SHARE:
        return "host"
    return "host" if device.busy_most is not None and device.busy_most <= 1.0 - MIN_CERTAIN_IDLE else None


def has_phases(lane: DeviceLane) -> bool:
    """Return whether enough steps were timed to measure the phases by the device's clock."""
    return lane.whole.timed >= MIN_TIMED


def bound_text(device: Device) -> str:
    """Return `GPU-bound`, `host-bound`..., or that the bottleneck is unknown."""
    return BOUNDS.get(device.bound or "", "bottleneck unknown")


def busy_text(device: Device) -> str:
    """Return `busy 68%-97%`, the lower and upper bound, or that the busy share is unknown."""
    return busy_range(device.busy_least, device.busy_most) or "busy share unknown"


# Timed steps stand for others, so single values cannot be told apart as on the host: but one that is most of a phase's
# time is not typical of the steps, however large its share of a short run. Workers start, a first shard is opened.
MIN_ONE_VALUE_SHARE = 0.6


def phase_rows(lane: DeviceLane) -> list[PhaseRow]:
    """Return the phases by the device's clock in the order they first occurred, `other` last; shares add up to 1."""
    rows = []
    for name, phase in lane.whole.phases.items():
        column = lane.phases[name].settled()
        p50, p95, longest = column.spread()
        share = phase.total / lane.whole.seconds
        busy = phase.busy / phase.total if phase.total and lane.whole.busy_parts else None
        mean = phase.total / phase.steps if phase.steps else 0.0
        is_one = 0.0 < MIN_ONE_VALUE_SHARE * phase.total <= longest <= phase.total
        rows.append(
            PhaseRow(
                name=name,
                share=share,
                mean=mean,
                p50=p50,
                p95=p95,
                max=longest,
                clock="cuda",
                count=phase.steps,
                busy_least=busy,
                gpu_seconds=mean,
                once=longest - p50 if is_one else 0.0,
            )
        )
    return sorted(rows, key=lambda row: row.name == OTHER)
