"""Copies between host and device as a part of the device's time: as far as the driver's traffic tells. Pure.

Nobody times a copy. What is known is how many bytes went over the PCIe link in a second, what the link can carry, and
what a batch weighs. A copy beside a running kernel costs the device nothing, so it is none here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor.model.devices import ours
from monitor.model.report import Device
from monitor.model.state import RunState

# Bytes a second. From pageable memory the driver carries a copy over piece by piece: 3 to 8 GB/s by machine. From
# pinned memory a link of the third generation with eight lanes reaches 6, and no card of today has less. Copies of a
# few bytes are slower than either, and too few bytes to be seen in the link's traffic.
PAGEABLE_LEAST, PINNED_LEAST = 3e9, 6e9
# What one lane's signal carries, by generation: no copy is faster.
LANE_MOST = {1: 0.25e9, 2: 0.5e9, 3: 1e9, 4: 2e9, 5: 4e9, 6: 8e9}
LINK_MOST = 16 * LANE_MOST[6]  # of an unknown one


@dataclass(frozen=True, slots=True)
class Copied:
    """The share of the time in steps in which the device copied and ran no kernel; None: not known.

    `queued` is the part of it, at most, in copies that the host did not wait for: those may lie in the device's queue.
    """

    least: float | None = None
    most: float | None = None
    queued: float | None = None


NOT_KNOWN = Copied()


def copied(state: RunState, driver: Device, step: float, in_steps: float, queued: float | None, idle: float) -> Copied:
    """That share, as a range.

    Args:
        driver: its readings, means over the steps.
        step: seconds of one.
        in_steps: the share of that time which lies in steps.
        queued: the share of time in steps in which the device certainly had work in its queue.
        idle: that in which it was idle for certain.
    """
    if driver.pcie_rx is None or driver.pcie_tx is None or in_steps <= 0.0:
        return NOT_KNOWN
    batch = state.facts.get("batch")
    batch = batch if isinstance(batch, Mapping) else {}
    slowest = PINNED_LEAST if batch.get("pinned") is True else PAGEABLE_LEAST
    moved, waited = (driver.pcie_rx + driver.pcie_tx) / in_steps, _waited_for(driver, step, batch)
    most = min(moved / slowest, 1.0 - idle)
    if driver.sm_active is not None:  # for so long, at least, a kernel ran
        most = min(most, (1.0 - driver.sm_active) / in_steps)
    most = max(0.0, most)
    behind = min(most, max(0.0, moved - waited) / PINNED_LEAST)
    if not _alone(state):
        return Copied(0.0, most, behind)
    least = waited / _link(state)
    if queued is not None and driver.utilization is not None:  # queued, and no kernel ran: what else was it
        least = max(least, queued - min(1.0, driver.utilization / in_steps))
    return Copied(min(least, most), most, behind)


def _waited_for(driver: Device, step: float, batch: Mapping[str, Any]) -> float:
    """Bytes a second that are copied while the host stands still: batches from pageable memory, and no more than was
    seen to go.
    """
    size = batch.get("bytes")
    if batch.get("pinned") is not False or not isinstance(size, int) or step <= 0.0:
        return 0.0
    return min(size / step, driver.pcie_rx or 0.0)


def _link(state: RunState) -> float:
    """Bytes a second that the fastest of the run's links carries."""
    used = ours(state)
    links = [watch.link for uuid, watch in state.throttles.gpus.items() if used is None or uuid in used]
    rates = [LANE_MOST[gen] * (link.lanes_max or 16) for link in links if (gen := link.generation_max) in LANE_MOST]
    return max(rates) if rates and len(rates) == len(links) else LINK_MOST


def _alone(state: RunState) -> bool:
    """Whether the traffic is this process's: no rank beside it, and no other program on its cards."""
    if len(state.ranks) > 1 or len(state.devices) > 1:
        return False
    used = ours(state)
    newest = [rows[-1] for uuid, rows in state.gpus.items() if used is None or uuid in used]
    return all(not any(owner is False for *_, owner in gpu.processes or ()) for gpu in newest)
