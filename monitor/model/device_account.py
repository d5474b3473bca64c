"""What the device's time in steps went to: busy and idle parts that add up. Pure."""

from __future__ import annotations

from monitor.model.device_lane import DeviceLane, DeviceSums
from monitor.model.report import AccountRow, IdlePlace

MAX_PLACES = 12
DATA = "data"
WAITING_FOR_DATA = "waiting for data"
# Phases in which the host launches no kernels: what the device does not have queued then, it does not have.
LAUNCHES_NOTHING = {DATA: WAITING_FOR_DATA, "checkpoint": "checkpoint", "logging": "logging"}


def device_account(sums: DeviceSums) -> list[AccountRow]:
    """Parts of the device's time that add up to all of it, each with what is certain and what may be."""
    rows = []
    for name, phase in sums.phases.items():
        whole, busy = phase.total / sums.seconds, phase.busy / sums.seconds
        if name in LAUNCHES_NOTHING and sums.busy_parts:
            rows.append(AccountRow(LAUNCHES_NOTHING[name], "idle", whole - busy, whole - busy))
            if busy:
                rows.append(AccountRow(f"earlier work, during {name}", "busy", busy, busy))
            continue
        if name == DATA:  # how much of it the device was busy with earlier work was not told
            rows.append(AccountRow(WAITING_FOR_DATA, "idle", None, whole))
            continue
        rows.append(AccountRow(name, "busy", busy if sums.busy_parts else None, whole))
    return sorted(rows, key=lambda row: -row.most)


def idle_places(lane: DeviceLane, sums: DeviceSums) -> list[IdlePlace]:
    """Where the program was seen while the device was not certainly busy, most first."""
    whole = sum(row[0] for table in lane.looks.values() for row in table.values())
    if not whole or not sums.steps:
        return []
    seconds = sums.seconds / sums.steps
    rows = [
        IdlePlace(place, phase, idle / whole, whole, seconds * idle / whole)
        for phase, table in lane.looks.items()
        for place, (_, idle) in table.items()
        if idle
    ]
    return sorted(rows, key=lambda row: -row.share)[:MAX_PLACES]
