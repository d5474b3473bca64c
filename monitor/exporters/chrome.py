"""Steps, their phases and spans as a Chrome trace: for chrome://tracing, Perfetto, speedscope."""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from monitor.exporters.events import events
from trainhooks.events import Hello, Note, Span, Step

MICROSECONDS = 1e6


def write(run: Path, target: IO[bytes]) -> int:
    """Write the trace; returns its events.

    A step's event says how long each phase took in all, not when: the phases are laid one after the other in the order
    of their first entry, what is in no phase at the end.
    """
    count = 0
    target.write(b'{"displayTimeUnit":"ms","traceEvents":[')
    for hello, event in events(run):
        for row in _rows(hello, event):
            target.write((b",\n" if count else b"\n") + json.dumps(row).encode())
            count += 1
    target.write(b"\n]}\n")
    return count


def _rows(hello: Hello | None, event: object) -> list[dict[str, Any]]:
    rank = hello.rank if hello is not None else 0
    if isinstance(event, Hello):
        name = f"rank {event.rank}" if event.source != "recorder" else f"recorder on {event.host}"
        return [{"ph": "M", "name": "process_name", "pid": event.rank, "tid": 0, "args": {"name": name}}]
    if isinstance(event, Step):
        return _step(rank, event)
    if isinstance(event, Span):
        return [_slice(rank, event.thread or "spans", event.name, event.start, event.duration)]
    if isinstance(event, Note):
        return [{"ph": "i", "s": "p", "name": event.text, "pid": rank, "tid": "notes", "ts": event.t * MICROSECONDS}]
    return []


def _step(rank: int, step: Step) -> list[dict[str, Any]]:
    thread = step.thread or "steps"
    row = _slice(rank, thread, f"step {step.index}", step.start, step.duration)
    row["args"] = {"status": step.status, "tokens": step.tokens, **step.metrics}
    rows = [row]
    at = step.start
    for name, seconds, _, _ in step.phases:
        rows.append(_slice(rank, thread, name, at, seconds))
        at += seconds
    return rows


def _slice(rank: int, thread: str, name: str, start: float, seconds: float) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": rank,
        "tid": thread,
        "ts": start * MICROSECONDS,
        "dur": seconds * MICROSECONDS,
    }
