"""What the device's time in steps went to: busy by phase, copies, and idle by what the host did meanwhile. Pure.

Each part has a range. What is certain of the parts adds up to no more than all of the time, what they may be to no
less: a moment in which the device was not certainly busy counts in the most of its phase, and of an idle part as well.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model.activities import CHECKPOINT, COPIES, LOGGING, SYNCHRONIZES, activity
from monitor.model.device_copies import Copied
from monitor.model.device_lane import DeviceLane, DeviceSums
from monitor.model.report import AccountRow, IdlePlace

MAX_PLACES = 12
DATA = "data"
WAITING_FOR_DATA = "waiting for data"
# Phases in which the host launches no kernels: what the device does not have queued then, it does not have.
LAUNCHES_NOTHING = {DATA: WAITING_FOR_DATA, "checkpoint": "checkpoint", "logging": "logging"}
GARBAGE = "garbage collection"
LAUNCHING = "launching kernels and running Python"
NOT_SEEN = "what the host did is not known"
COPYING = "copies"
BUSY, COPY, IDLE = "busy", "copy", "idle"
_STATES = (BUSY, COPY, IDLE)

SIGMAS = 1.96  # a share that is counted lies in its range in 95 of 100 cases
MAX_ROWS = 3  # places of one kind that have a row of their own
_SYNCHRONIZING, _BLOCKING, _WAITING = "synchronizing", "copying", "waiting"
_WAITS = frozenset(("sleep", "wait", "join", "recv", "acquire", "result", "select", "poll", "barrier"))
_CALL = re.compile(r" \(([\w.]+)\)")


@dataclass(frozen=True, slots=True)
class _Unsure:
    """Shares of the device's time, in phases in which the host launches kernels."""

    whole: float  # not certainly busy
    work: float  # of that, with kernels or copies at most
    gc: float  # of that, in garbage collection

    def idle(self, share: float) -> float:
        """How much of a part of it is idle for certain: all other parts may be, too."""
        return max(0.0, share - self.work)


def device_account(
    sums: DeviceSums,
    looks: Mapping[str, Mapping[str, list[int]]],
    copied: Copied,
    kernels_most: float | None = None,
) -> list[AccountRow]:
    """Parts of the device's time, each with what is certain and what may be: busy ones first, the largest first.

    Args:
        looks: phase -> place -> looks at the program, those while the device was not certainly busy.
        copied: the share of time in which it copied and ran no kernel.
        kernels_most: the share of time in which any kernel ran, at most, by the driver.
    """
    rows = _phases(sums, copied)
    if sums.busy_parts:
        unsure = _unsure(sums, copied, kernels_most)
        rows += [*_garbage(sums, unsure), *_by_looks(looks, unsure)]
    rows.append(AccountRow(COPYING, COPY, copied.least, copied.most, by="driver"))
    return sorted(rows, key=lambda row: (_STATES.index(row.state), -(row.most or 0.0)))


def _phases(sums: DeviceSums, copied: Copied) -> list[AccountRow]:
    """What events tell: busy by phase, and idle where the host launches nothing."""
    rows = []
    queued = copied.queued or 0.0  # of what is certainly queued in a phase; where copies are unknown, they are in it
    for name, phase in sums.phases.items():
        whole, busy = phase.total / sums.seconds, phase.busy / sums.seconds
        if name in LAUNCHES_NOTHING and sums.busy_parts:
            idle = max(0.0, whole - busy - _collected(sums, name))
            rows.append(AccountRow(LAUNCHES_NOTHING[name], IDLE, idle, idle))
            if busy:
                rows.append(AccountRow(f"earlier work, during {name}", BUSY, max(0.0, busy - queued), busy))
            continue
        if name == DATA:  # how much of it the device was busy with earlier work was not told
            rows.append(AccountRow(WAITING_FOR_DATA, IDLE, None, whole))
            continue
        rows.append(AccountRow(name, BUSY, max(0.0, busy - queued) if sums.busy_parts else None, whole))
    return rows


def _collected(sums: DeviceSums, name: str) -> float:
    """Garbage collection in a phase while the device was not certainly busy."""
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
    return _Unsure(whole, work, sum(_collected(sums, name) for name in launching))


def _garbage(sums: DeviceSums, unsure: _Unsure) -> list[AccountRow]:
    """Garbage collection: at most what it took the host in all steps, and no more than the device was idle."""
    if not sums.gc_steps:
        return []
    quiet = sum(_collected(sums, name) for name in LAUNCHES_NOTHING)
    took = (sums.gc / sums.gc_steps) / (sums.seconds / sums.steps)
    most = min(took, unsure.whole + quiet)
    return [AccountRow(GARBAGE, IDLE, min(most, quiet + unsure.idle(unsure.gc)), most, by="host")]


def _by_looks(looks: Mapping[str, Mapping[str, list[int]]], unsure: _Unsure) -> list[AccountRow]:
    """What the host did while the device was not certainly busy, by where the program was seen then."""
    if unsure.whole <= 0.0:
        return []
    seen: Counter[str] = Counter()
    for phase, table in looks.items():
        if phase not in LAUNCHES_NOTHING:
            for place, (_, idle) in table.items():
                seen[_doing(place)] += idle
    seen = _fewer(+seen)
    of = seen.total()
    rest = max(0.0, unsure.whole - unsure.gc)  # nobody looks during a collection
    if not of:
        return [AccountRow(NOT_SEEN, IDLE, unsure.idle(rest), unsure.whole, by="looks", looks=0)]
    rows = []
    for what, times in seen.items():
        low, high = counted_range(times, of)
        rows.append(AccountRow(what, IDLE, unsure.idle(low * rest), high * unsure.whole, by="looks", looks=of))
    return rows


def _doing(place: str) -> str:
    """`synchronizing at train.py:107`: by the innermost call that the look names."""
    call = _CALL.search(place)
    name = call[1].rpartition(".")[2] if call is not None else ""
    at = place.split(" ", 1)[0]
    if name in SYNCHRONIZES and name != "print":
        return f"{_SYNCHRONIZING} at {at}"
    if name in COPIES:
        return f"{_BLOCKING} at {at}"
    if name in _WAITS:
        return f"{_WAITING} at {at}"
    doing = activity(place)
    return f"{doing}, in no phase" if doing in (LOGGING, CHECKPOINT) else LAUNCHING


def _fewer(seen: Counter[str]) -> Counter[str]:
    """Rows for the places of each kind that were seen most; one for all others of it."""
    rows: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    for what, times in seen.most_common():
        kind, at, _ = what.partition(" at ")
        kept[kind] += 1
        rows[what if not at or kept[kind] <= MAX_ROWS else f"{kind} elsewhere"] += times
    return rows


def counted_range(times: int, of: int) -> tuple[float, float]:
    """The range of a share of which so many of so many looks tell (Wilson's, at 95 %)."""
    share, spread = times / of, SIGMAS**2 / of
    middle = (share + spread / 2) / (1 + spread)
    half = SIGMAS * math.sqrt(share * (1 - share) / of + spread / (4 * of)) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)


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
