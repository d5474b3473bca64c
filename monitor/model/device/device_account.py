"""The breakdown of the device's time in steps: busy by phase, and idle by what the host did meanwhile. Pure.

Each part has a range. The lower bounds add up to at most all of the time, the upper bounds to at least all of it: time
in which the device was not certainly busy counts in the upper bounds of its phase and of an idle part.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from monitor.model.device.device_report import AccountRow, IdlePlace
from monitor.model.device.device_steps import DeviceLane, DeviceSums
from monitor.model.steps.sampled_calls import CHECKPOINT, LOGGING, kind_of
from trainhooks.protocol.calls import COPIES, LOGS, SYNCHRONIZES, WAITS, effects_of
from trainhooks.protocol.places import Place

MAX_IDLE_PLACES = 12
DATA = "data"
WAITING_FOR_DATA = "waiting for data"
# Phases in which the host launches no kernels: once its queue is empty, the device is idle.
LAUNCHES_NOTHING = {DATA: WAITING_FOR_DATA, "checkpoint": "checkpoint", "logging": "logging"}
GARBAGE = "garbage collection"
LAUNCHING = "launching kernels and running Python"
NOT_SEEN = "what the host did is not known"
BUSY, IDLE = "busy", "idle"
_STATES = (BUSY, IDLE)

RANGE_SIGMAS = 1.96  # of the 95% range of a share
MAX_PLACE_ROWS = 3  # places of one kind that have a row of their own
_SYNCHRONIZING, _BLOCKING, _WAITING = "synchronizing", "copying", "waiting"


@dataclass(frozen=True, slots=True)
class _Unsure:
    """Shares of the device's time that are not certainly busy, in phases in which the host launches kernels."""

    whole: float  # not certainly busy
    gc: float  # of that, in garbage collection


def device_account(sums: DeviceSums, samples: Mapping[str, Mapping[Place, list[int]]]) -> list[AccountRow]:
    """Return the parts of the device's time, each with its lower and upper bound: busy ones first, the largest first.

    Copies are in the busy parts.

    Args:
        samples: phase -> place -> stack samples: all, and those while the device was not certainly busy.
    """
    rows = _phase_rows(sums)
    if sums.busy_parts:
        unsure = _unsure(sums)
        rows += [*_garbage_rows(sums, unsure), *_sample_rows(samples, unsure)]
    return sorted(rows, key=lambda row: (_STATES.index(row.state), -(row.most or 0.0)))


def _phase_rows(sums: DeviceSums) -> list[AccountRow]:
    """Return the rows known from CUDA events: busy by phase, and idle where the host launches nothing."""
    rows = []
    for name, phase in sums.phases.items():
        whole, busy = phase.total / sums.seconds, phase.busy / sums.seconds
        if name in LAUNCHES_NOTHING and sums.busy_parts:
            idle = max(0.0, whole - busy - _garbage_share(sums, name))
            rows.append(AccountRow(what=LAUNCHES_NOTHING[name], state=IDLE, least=idle, most=idle))
            if busy:
                rows.append(AccountRow(what=f"earlier work, during {name}", state=BUSY, least=busy, most=busy))
            continue
        if name == DATA:  # how long earlier work kept the device busy is unknown
            rows.append(AccountRow(what=WAITING_FOR_DATA, state=IDLE, least=None, most=whole))
            continue
        rows.append(AccountRow(what=name, state=BUSY, least=busy if sums.busy_parts else None, most=whole))
    return rows


def _garbage_share(sums: DeviceSums, name: str) -> float:
    """Return the share of garbage collection in a phase while the device was not certainly busy."""
    phase = sums.phases.get(name)
    return min(sums.gc_phases.get(name, 0.0), phase.total - phase.busy) / sums.seconds if phase is not None else 0.0


def _unsure(sums: DeviceSums) -> _Unsure:
    launching = {name: phase for name, phase in sums.phases.items() if name not in LAUNCHES_NOTHING}
    whole = sum(phase.total - phase.busy for phase in launching.values()) / sums.seconds
    return _Unsure(whole=whole, gc=sum(_garbage_share(sums, name) for name in launching))


def _garbage_rows(sums: DeviceSums, unsure: _Unsure) -> list[AccountRow]:
    """Return the row of garbage collection: at most its host time and the idle time."""
    if not sums.gc_steps:
        return []
    quiet = sum(_garbage_share(sums, name) for name in LAUNCHES_NOTHING)
    took = (sums.gc / sums.gc_steps) / (sums.seconds / sums.steps)
    most = min(took, unsure.whole + quiet)
    return [AccountRow(what=GARBAGE, state=IDLE, least=min(most, quiet), most=most, by="host")]


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
    if not of:
        return [AccountRow(what=NOT_SEEN, state=IDLE, least=0.0, most=unsure.whole, by="looks", looks=0)]
    rows = []
    for what, times in counts.items():
        _, high = sampled_range(times, of)
        rows.append(AccountRow(what=what, state=IDLE, least=0.0, most=high * unsure.whole, by="looks", looks=of))
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
