"""The breakdown of the device's time in steps: busy by phase, copies, and idle by what the host did meanwhile. Pure.

Each part has a range. The lower bounds add up to at most all of the time, the upper bounds to at least all of it: time
in which the device was not certainly busy counts in the upper bounds of its phase and of an idle part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model.device.device_report import AccountRow, Device, IdlePlace
from monitor.model.device.device_steps import DeviceLane, DeviceSums
from monitor.model.state import RunState, used_gpus
from monitor.model.steps.sampled_calls import CHECKPOINT, LOGGING, kind_of
from trainhooks.protocol.calls import COPIES, LOGS, SYNCHRONIZES, WAITS, effects_of
from trainhooks.protocol.facts import Batch
from trainhooks.protocol.places import Place

# Copies between host and device as a part of the device's time, by the traffic that the driver reports.
#
# Copies are not timed. Known are the bytes a second over the PCIe link, the rate of the link, and the bytes of a batch.
# A copy beside a running kernel costs the device nothing, so it does not count.

# Bytes a second. From pageable memory the driver copies piece by piece: 3 to 8 GB/s, depending on the machine. From
# pinned memory a PCIe 3 link with eight lanes reaches 6 GB/s, and no current card has less. Copies of a few bytes are
# slower, but too small to show in the link's traffic.
MIN_PAGEABLE_RATE, MIN_PINNED_RATE = 3e9, 6e9
# The signaling rate of one lane, by PCIe generation: no copy is faster.
MAX_LANE_RATE = {1: 0.25e9, 2: 0.5e9, 3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9}
MAX_LINK_RATE = 16 * MAX_LANE_RATE[6]  # of an unknown link


@dataclass(frozen=True, slots=True)
class Copied:
    """The share of the time in steps in which the device copied and ran no kernel; None: not known.

    `queued` is the upper bound of copies that the host did not wait for: those may be in the device's queue.
    """

    least: float | None = None
    most: float | None = None
    queued: float | None = None


UNKNOWN_COPIES = Copied()


def copies(state: RunState, driver: Device, step: float, in_steps: float, queued: float | None, idle: float) -> Copied:
    """Return the share of copies as a range.

    Args:
        driver: the driver's readings, means over the steps.
        step: seconds a step.
        in_steps: the share of the readings' time that is in steps.
        queued: the share of time in steps in which the device certainly had work in its queue.
        idle: the share in which it was certainly idle.
    """
    if driver.pcie_rx is None or driver.pcie_tx is None or in_steps <= 0.0:
        return UNKNOWN_COPIES
    batch = state.facts.batch
    slowest = MIN_PINNED_RATE if batch.pinned else MIN_PAGEABLE_RATE
    moved, waited = (driver.pcie_rx + driver.pcie_tx) / in_steps, _waited_for(driver, step, batch)
    most = min(moved / slowest, 1.0 - idle)
    if driver.sm_active is not None:  # a kernel ran for this share at least
        most = min(most, (1.0 - driver.sm_active) / in_steps)
    most = max(0.0, most)
    behind = min(most, max(0.0, moved - waited) / MIN_PINNED_RATE)
    if not _is_alone(state):
        return Copied(least=0.0, most=most, queued=behind)
    least = waited / _link_rate(state)
    if queued is not None and driver.utilization is not None:  # queued work that was no kernel was a copy
        least = max(least, queued - min(1.0, driver.utilization / in_steps))
    return Copied(least=min(least, most), most=most, queued=behind)


def _waited_for(driver: Device, step: float, batch: Batch) -> float:
    """Return the bytes a second copied while the host waits: batches from pageable memory, at most the traffic."""
    if batch.pinned is not False or batch.bytes is None or step <= 0.0:
        return 0.0
    return min(batch.bytes / step, driver.pcie_rx or 0.0)


def _link_rate(state: RunState) -> float:
    """Return the bytes a second that the fastest of the run's links carries."""
    used = used_gpus(state)
    links = [watch.link for uuid, watch in state.throttles.gpus.items() if used is None or uuid in used]
    rates = [
        MAX_LANE_RATE[gen] * (link.lanes_max or 16) for link in links if (gen := link.generation_max) in MAX_LANE_RATE
    ]
    return max(rates) if rates and len(rates) == len(links) else MAX_LINK_RATE


def _is_alone(state: RunState) -> bool:
    """Return whether the traffic is this process's: no rank beside it, and no other program on its cards."""
    if len(state.ranks) > 1 or len(state.devices) > 1:
        return False
    used = used_gpus(state)
    newest = [rows[-1] for uuid, rows in state.gpus.items() if used is None or uuid in used]
    return all(not any(owner is False for *_, owner in gpu.processes or ()) for gpu in newest)


MAX_IDLE_PLACES = 12
DATA = "data"
WAITING_FOR_DATA = "waiting for data"
# Phases in which the host launches no kernels: once its queue is empty, the device is idle.
LAUNCHES_NOTHING = {DATA: WAITING_FOR_DATA, "checkpoint": "checkpoint", "logging": "logging"}
GARBAGE = "garbage collection"
LAUNCHING = "launching kernels and running Python"
NOT_SEEN = "what the host did is not known"
COPYING = "copies"
BUSY, COPY, IDLE = "busy", "copy", "idle"
_STATES = (BUSY, COPY, IDLE)

RANGE_SIGMAS = 1.96  # of the 95% range of a share
MAX_PLACE_ROWS = 3  # places of one kind that have a row of their own
_SYNCHRONIZING, _BLOCKING, _WAITING = "synchronizing", "copying", "waiting"


@dataclass(frozen=True, slots=True)
class _Unsure:
    """Shares of the device's time that are not certainly busy, in phases in which the host launches kernels."""

    whole: float  # not certainly busy
    work: float  # of that, with kernels or copies at most
    gc: float  # of that, in garbage collection

    def idle(self, share: float) -> float:
        """Return how much of a part is certainly idle, with all the work in that part."""
        return max(0.0, share - self.work)


def device_account(
    sums: DeviceSums,
    samples: Mapping[str, Mapping[Place, list[int]]],
    copied: Copied,
    kernels_most: float | None = None,
) -> list[AccountRow]:
    """Return the parts of the device's time, each with its lower and upper bound: busy ones first, the largest first.

    Args:
        samples: phase -> place -> stack samples: all, and those while the device was not certainly busy.
        copied: the share of time in which it copied and ran no kernel.
        kernels_most: the upper bound of the share of time in which any kernel ran, by the driver; None: unknown.
    """
    rows = _phase_rows(sums, copied)
    if sums.busy_parts:
        unsure = _unsure(sums, copied, kernels_most)
        rows += [*_garbage_rows(sums, unsure), *_sample_rows(samples, unsure)]
    rows.append(AccountRow(what=COPYING, state=COPY, least=copied.least, most=copied.most, by="driver"))
    return sorted(rows, key=lambda row: (_STATES.index(row.state), -(row.most or 0.0)))


def _phase_rows(sums: DeviceSums, copied: Copied) -> list[AccountRow]:
    """Return the rows known from CUDA events: busy by phase, and idle where the host launches nothing."""
    rows = []
    queued = copied.queued or 0.0  # part of the certainly queued work; 0 where copies are unknown
    for name, phase in sums.phases.items():
        whole, busy = phase.total / sums.seconds, phase.busy / sums.seconds
        if name in LAUNCHES_NOTHING and sums.busy_parts:
            idle = max(0.0, whole - busy - _garbage_share(sums, name))
            rows.append(AccountRow(what=LAUNCHES_NOTHING[name], state=IDLE, least=idle, most=idle))
            if busy:
                rows.append(
                    AccountRow(
                        what=f"earlier work, during {name}", state=BUSY, least=max(0.0, busy - queued), most=busy
                    )
                )
            continue
        if name == DATA:  # how long earlier work kept the device busy is unknown
            rows.append(AccountRow(what=WAITING_FOR_DATA, state=IDLE, least=None, most=whole))
            continue
        rows.append(
            AccountRow(what=name, state=BUSY, least=max(0.0, busy - queued) if sums.busy_parts else None, most=whole)
        )
    return rows


def _garbage_share(sums: DeviceSums, name: str) -> float:
    """Return the share of garbage collection in a phase while the device was not certainly busy."""
    phase = sums.phases.get(name)
    return min(sums.gc_phases.get(name, 0.0), phase.total - phase.busy) / sums.seconds if phase is not None else 0.0


def _unsure(sums: DeviceSums, copied: Copied, kernels_most: float | None) -> _Unsure:
    launching = {name: phase for name, phase in sums.phases.items() if name not in LAUNCHES_NOTHING}
    whole = sum(phase.total - phase.busy for phase in launching.values()) / sums.seconds
    work = whole
    if kernels_most is not None and copied.most is not None:
        certain = sum(phase.busy for phase in sums.phases.values()) / sums.seconds
        certain = max(0.0, certain - (copied.queued or 0.0))
        work = min(whole, max(0.0, kernels_most - certain) + copied.most)
    return _Unsure(whole=whole, work=work, gc=sum(_garbage_share(sums, name) for name in launching))


def _garbage_rows(sums: DeviceSums, unsure: _Unsure) -> list[AccountRow]:
    """Return the row of garbage collection: at most its host time and the idle time."""
    if not sums.gc_steps:
        return []
    quiet = sum(_garbage_share(sums, name) for name in LAUNCHES_NOTHING)
    took = (sums.gc / sums.gc_steps) / (sums.seconds / sums.steps)
    most = min(took, unsure.whole + quiet)
    return [AccountRow(what=GARBAGE, state=IDLE, least=min(most, quiet + unsure.idle(unsure.gc)), most=most, by="host")]


def _sample_rows(samples: Mapping[str, Mapping[Place, list[int]]], unsure: _Unsure) -> list[AccountRow]:
    """Return what the host did while the device was not certainly busy, by the stack samples of that time."""
    if unsure.whole <= 0.0:
        return []
    counts: Counter[str] = Counter()
    for phase, table in samples.items():
        if phase not in LAUNCHES_NOTHING:
            for place, (_, idle) in table.items():
                counts[_activity(place)] += idle
    counts = _merge_rare(+counts)
    of = counts.total()
    rest = max(0.0, unsure.whole - unsure.gc)  # no stack samples are taken during a collection
    if not of:
        return [AccountRow(what=NOT_SEEN, state=IDLE, least=unsure.idle(rest), most=unsure.whole, by="looks", looks=0)]
    rows = []
    for what, times in counts.items():
        low, high = sampled_range(times, of)
        rows.append(
            AccountRow(
                what=what, state=IDLE, least=unsure.idle(low * rest), most=high * unsure.whole, by="looks", looks=of
            )
        )
    return rows


def _activity(place: Place) -> str:
    """Return `synchronizing at train.py:107`: by the innermost call of the stack sample."""
    done = effects_of(place.innermost_call)
    at = (place.library or place.users)._replace(function="", call="")
    if done & SYNCHRONIZES and not done & LOGS:
        return f"{_SYNCHRONIZING} at {at}"
    if done & COPIES:
        return f"{_BLOCKING} at {at}"
    if done & WAITS:
        return f"{_WAITING} at {at}"
    doing = kind_of(place)
    return f"{doing}, in no phase" if doing in (LOGGING, CHECKPOINT) else LAUNCHING


def _merge_rare(counts: Counter[str]) -> Counter[str]:
    """Return a row for each of the most frequent places of a kind, and one for the other places of the kind."""
    rows: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for what, times in counts.most_common():
        kind, at, _ = what.partition(" at ")
        kept[kind] += 1
        rows[what if not at or kept[kind] <= MAX_PLACE_ROWS else f"{kind} elsewhere"] += times
    return rows


def sampled_range(times: int, of: int) -> tuple[float, float]:
    """Return the 95% range (Wilson's) of a share, counted in `times` of `of` stack samples."""
    share, spread = times / of, RANGE_SIGMAS**2 / of
    middle = (share + spread / 2) / (1 + spread)
    half = RANGE_SIGMAS * math.sqrt(share * (1 - share) / of + spread / (4 * of)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


def idle_places(lane: DeviceLane, sums: DeviceSums) -> list[IdlePlace]:
    """Return the places of the stack samples while the device was not certainly busy, the most frequent first."""
    whole = sum(row[0] for table in lane.looks.values() for row in table.values())
    if not whole or not sums.steps:
        return []
    seconds = sums.seconds / sums.steps
    rows = [
        IdlePlace(place=str(place), phase=phase, share=idle / whole, looks=whole, seconds=seconds * idle / whole)
        for phase, table in lane.looks.items()
        for place, (_, idle) in table.items()
        if idle
    ]
    return sorted(rows, key=lambda row: -row.share)[:MAX_IDLE_PLACES]
