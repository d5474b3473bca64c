"""The file of what a trace recorded, event by event. Written where a trace is asked for with `events`.

Lines of JSON. The first is a mapping that says what the file holds. Then, in any order, a line `["aten::mm"]` for each
name, numbered from 0, and a line of six integers for each event: the number of its name (given before), 1 if it ran on
the device, else 0, when it began, how long it took (both in nanoseconds, the first from the trace's begin), its lane (a
stream, or a thread), and what joins a call with what it launched (0: nothing). The last line is a mapping again.
"""

from __future__ import annotations

from pathlib import Path

MAX_FILE = 20 * 1000 * 1000  # bytes


def events_path(run: Path, producer: str) -> Path:
    """Return the place of the newest one of a process."""
    return run / f"trace-{producer}.events"
