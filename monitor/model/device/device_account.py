"""The breakdown of the device's time in steps: busy by phase, copies, and idle by what the host did meanwhile. Pure.

By CUDA events each part has a range. The lower bounds add up to at most all of the time, the upper bounds to at least
all of it: time in which the device was not certainly busy counts in the upper bounds of its phase and of an idle part.
A trace measures the parts: they add up to all of the time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from monitor.model.device.device_report import AccountRow
from monitor.model.device.device_steps import DeviceSums
from monitor.model.device.kernel_classes import HOST_COPIES
from monitor.model.device.trace_report import RUNNING, TraceReport, kernels_of
from trainhooks.protocol import calls
from trainhooks.protocol.events import Trace

DATA = "data"
WAITING_FOR_DATA = "waiting for data"
# Phases in which the host launches no kernels: once its queue is empty, the device is idle.
LAUNCHES_NOTHING = {DATA: WAITING_FOR_DATA, "checkpoint": "checkpoint", "logging": "logging"}
GARBAGE = "garbage collection"
LAUNCHING = "launching kernels and running Python"
NOT_SEEN = "what the host did is not known"
# What the host did in the gaps of a trace, for people.
HOST_DID = {
    RUNNING: LAUNCHING,
    calls.LAUNCHING: LAUNCHING,
    "allocating": "allocating memory",
    "calling CUDA": "other CUDA calls",
}
UNTIMED = "slow steps that were not timed"
BUSY, COPY, IDLE = "busy", "copy", "idle"
_STATES = (BUSY, COPY, IDLE)
BY_TRACE = "trace"


def device_account(sums: DeviceSums) -> list[AccountRow]:
    """Return the parts of the device's time by CUDA events, copies in the busy ones."""
    rows = _phase_rows(sums)
    if sums.busy_parts:
        unsure = _unsure_share(sums)
        rows += _garbage_rows(sums, unsure)
        if unsure > 0.0:
            rows.append(AccountRow(what=NOT_SEEN, state=IDLE, least=0.0, most=unsure))
    return _in_order(rows)


def traced_account(trace: Trace, told: TraceReport, known: list[AccountRow]) -> list[AccountRow]:
    """Return the parts of the device's time by a trace of it. Their lower bounds add up to 1.

    The upper bounds do, too, but for garbage collection that may be in another idle part as well.

    Args:
        told: the report of the trace.
        known: the account by events. What it knows to be idle is of more steps than the traced ones, and stays.
    """
    kernels: dict[str, float] = {}
    copies: dict[str, float] = {}
    for row in kernels_of(trace):
        table, what = (copies, row.kind) if row.kind in HOST_COPIES else (kernels, row.phase)
        table[what] = table.get(what, 0.0) + row.seconds
    busy, copying = told.busy or 0.0, told.copying or 0.0
    rows = [*_divided(kernels, busy, BUSY), *_divided(copies, copying, COPY)]
    return _in_order([*rows, *_traced_idle(told, known, max(0.0, 1.0 - busy - copying))])


def _in_order(rows: list[AccountRow]) -> list[AccountRow]:
    """Return busy rows first, the largest first."""
    return sorted(rows, key=lambda row: (_STATES.index(row.state), -(row.most or 0.0)))


def with_untimed(rows: list[AccountRow], untimed: float) -> list[AccountRow]:
    """Return the parts of the timed steps as parts of all of the device's time, with the rest: busy or idle, unknown.

    Args:
        untimed: the share of the device's time that the timed steps do not stand for.
    """
    if untimed <= 0.0:
        return rows
    for row in rows:
        row.least = None if row.least is None else row.least * (1.0 - untimed)
        row.most = None if row.most is None else row.most * (1.0 - untimed) + (untimed if row.state == BUSY else 0.0)
    return [*rows, AccountRow(what=UNTIMED, state=IDLE, least=0.0, most=untimed)]


def _divided(parts: Mapping[str, float], whole: float, state: str) -> list[AccountRow]:
    """Return a share of the time, divided among its parts; empty where there is nothing to divide."""
    total = sum(parts.values())
    factor = whole / total if total else 0.0
    shares = {what: factor * part for what, part in parts.items()}
    return [AccountRow(what, state, share, share, by=BY_TRACE) for what, share in shares.items() if share > 0.0]


def _traced_idle(told: TraceReport, known: list[AccountRow], idle: float) -> list[AccountRow]:
    """Return the idle share of the time by what the host did.

    A trace sees a host that waits for a batch as running Python: what is known to be idle is taken from there.
    """
    certain = []
    for row in known:
        if row.state == IDLE and row.what != NOT_SEEN and row.least is not None and row.most is not None:
            least = max(row.least, row.most - (1.0 - idle))  # no more than the rest ran meanwhile
            certain.append(replace(row, least=least, most=max(least, min(row.most, idle))))
    whole = sum(row.least or 0.0 for row in certain)
    part = min(1.0, idle / whole) if whole else 1.0
    certain = [replace(row, least=part * (row.least or 0.0), most=part * (row.most or 0.0)) for row in certain]
    parts: dict[str, float] = {}
    for gap in told.idle:
        what = HOST_DID.get(gap.name, gap.name)
        parts[what] = parts.get(what, 0.0) + gap.share
    parts[LAUNCHING] = max(0.0, parts.get(LAUNCHING, 0.0) - part * whole)
    return certain + _divided(parts if any(parts.values()) else {NOT_SEEN: 1.0}, idle - part * whole, IDLE)


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


def _unsure_share(sums: DeviceSums) -> float:
    """Return the share of time that is not certainly busy, in phases in which the host launches kernels."""
    launching = [phase for name, phase in sums.phases.items() if name not in LAUNCHES_NOTHING]
    return sum(phase.total - phase.busy for phase in launching) / sums.seconds


def _garbage_rows(sums: DeviceSums, unsure: float) -> list[AccountRow]:
    """Return the row of garbage collection: at most its host time and the idle time."""
    if not sums.gc_steps:
        return []
    quiet = sum(_garbage_share(sums, name) for name in LAUNCHES_NOTHING)
    took = (sums.gc / sums.gc_steps) / (sums.seconds / sums.steps)
    most = min(took, unsure + quiet)
    return [AccountRow(what=GARBAGE, state=IDLE, least=min(most, quiet), most=most, by="host")]
