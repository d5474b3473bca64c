"""Traces of parts of long steps, as one of a usual step: each phase weighed by the device's time in it. Pure."""

from __future__ import annotations

from monitor.model.device.device_steps import DeviceSums
from monitor.model.state import RankState
from trainhooks.protocol.events import Trace, TraceRow

MIN_NAMED = 0.01  # of a step, by events: a shorter phase that was not traced is not named


def newest_trace(rank: RankState) -> Trace | None:
    """Return the newest trace of whole steps, or what is known by traces of parts; None: nothing."""
    if rank.traced_parts:
        lane = rank.device
        return joined(rank.traced_parts, lane.steady if lane.steady.timed else lane.whole)
    return rank.trace if rank.trace is not None and rank.trace.steps else None


def joined(traces: dict[str, Trace], sums: DeviceSums) -> Trace | None:
    """Return one step as traces of its parts show it, with `busy` and `idle` unknown; None where no part has a weight.

    Args:
        traces: by phase.
        sums: the device's seconds by phase, from its events. A phase that these do not know has no weight.
    """
    rows: list[TraceRow] = []
    calls: list[TraceRow] = []
    parts: list[tuple[str, int, float]] = []
    used: dict[tuple[str, int], Trace] = {}
    for phase, trace in traces.items():
        known = sums.phases.get(phase)
        times, seconds = next(((times, seconds) for name, times, seconds in trace.parts if name == phase), (0, 0.0))
        if known is None or not known.total or not sums.steps or not seconds or trace.device != "cuda":
            continue
        usual = known.total / sums.steps
        rows += _scaled(trace.rows, phase, usual / seconds)
        calls += _scaled(trace.calls, phase, usual / seconds)
        parts.append((phase, times, usual))
        used[trace.producer, trace.seq] = trace
    if not rows:
        return None
    newest = max(used.values(), key=lambda trace: trace.t)
    rows.sort(key=lambda row: -row[3])
    whole = Trace(producer=newest.producer, seq=newest.seq, t=newest.t, device="cuda", rows=rows, calls=calls)
    whole.first, whole.steps, whole.seconds = newest.first, 1, sums.seconds / sums.steps
    whole.streams = max(trace.streams or 0 for trace in used.values()) or None
    whole.pause = sum(trace.pause for trace in used.values())
    whole.parts = sorted(parts, key=lambda part: -part[2])
    known_parts = {name for name, _, _ in parts}
    long = [name for name, row in sums.phases.items() if row.total >= MIN_NAMED * sums.seconds]
    left_out = [name for name in long if name not in known_parts]
    whole.left_out = f"{', '.join(left_out)} not traced" if left_out else None
    return whole


def _scaled(rows: list[TraceRow], phase: str, weight: float) -> list[TraceRow]:
    own = [row for row in rows if row[1] == phase]
    return [(name, phase, round(count * weight), seconds * weight) for name, _, count, seconds in own]
