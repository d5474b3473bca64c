"""Where the tasks of asyncio wait: a thread that runs an event loop only shows the loop."""

from __future__ import annotations

import sys
from typing import Any, Dict, Iterator, List, Tuple

from trainhooks.protocol import calls
from trainhooks.protocol.limits import MAX_NAME, MAX_OTHER_THREADS, clean
from trainhooks.recording.frames import Position, Sampler

MAX_TASKS, MAX_AWAITED = 256, 64  # looked at, and coroutines that await each other


def waiting_tasks(sampler: Sampler) -> List[Tuple[str, str, str]]:
    """Return name, place and activity of the tasks, one for each place, the innermost coroutine's."""
    module = sys.modules.get("asyncio.tasks")
    known: Any = getattr(module, "_all_tasks", None) or getattr(module, "_scheduled_tasks", ())  # until 3.11, from 3.12
    try:
        tasks = list(known)[:MAX_TASKS]
    except RuntimeError:  # one was made or ended meanwhile
        return []
    places: Dict[str, List[str]] = {}
    for task in tasks:
        if not task.done():
            place = sampler.place_of(reversed(list(_awaits(task.get_coro()))))
            if place is not None:
                places.setdefault(str(place.fitted()), []).append(str(task.get_name()))
    told = sorted(places.items(), key=lambda each: len(each[1]))[:MAX_OTHER_THREADS]  # the odd one first
    return [(_named(names), place, calls.EVENT_LOOP) for place, names in told]


def _named(names: List[str]) -> str:
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return f"task {clean(names[0], MAX_NAME - 20)}{more}"


def _awaits(coroutine: Any) -> Iterator[Position]:
    """Yield where a coroutine is, and what it awaits, the outermost first."""
    for _ in range(MAX_AWAITED):
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is None:
            return
        yield Position.of(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
