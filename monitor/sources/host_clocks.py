"""The clocks of the hosts of one run: what its parts' times are moved by, so that all are on one host's clock."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from trainhooks.protocol import rundir

CLOCKS = "clocks.json"  # in the directory of a run of several hosts: journal -> seconds to add to its times
MAX_SHIFT = 1e10  # seconds: clocks count from a boot, or from 1970


def shifts(run: Path) -> dict[str, float]:
    """Return the seconds to add to the times of each journal; empty for a run of one host."""
    known = rundir.read_json(run / CLOCKS) or {}
    return {name: float(value) for name, value in known.items() if _is_shift(value)}


def _is_shift(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) < MAX_SHIFT


def move(events: Iterable[Any], seconds: float) -> None:
    """Move the times of events by so many seconds."""
    for event in events:
        if hasattr(event, "t"):
            event.t += seconds
        start = getattr(event, "start", None)  # of steps, each or many, and of spans
        if isinstance(start, list):
            event.start = [each + seconds for each in start]
        elif start is not None:
            event.start = start + seconds
        for name in ("begin", "process_started"):
            if (moment := getattr(event, name, None)) is not None:
                setattr(event, name, moment + seconds)
