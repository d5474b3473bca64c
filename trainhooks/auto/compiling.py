"""torch.compile watched: its time as spans, and what it made of the program as facts. Never imports torch._dynamo."""

from __future__ import annotations

import sys
import time
from threading import get_ident
from typing import Any, Callable, Dict, List, Optional

from trainhooks import session
from trainhooks.auto import boundaries
from trainhooks.clocks import NANOSECOND, host_clock
from trainhooks.entries import FACTS, SPAN
from trainhooks.events import clean

EVERY = 3.0  # seconds between two looks at what dynamo counted
MAX_REASONS = 10
MAX_REASON = 300  # characters
LIMIT_HIT = "limit exceeded"  # in what dynamo says when it stops recompiling a function and runs it as it is


def install(callback: Any) -> None:
    """Called after `torch._dynamo.callback` has been imported: the program is going to compile something."""
    watched = boundaries.current
    if watched is None:
        return
    watch = Watch(lambda: watched.thread)
    watch.listen(callback.callback_handler)
    watched.news = watch.tell


class Watch:
    """Listens to dynamo's callbacks, and reads its counters now and then.

    Args:
        thread: the thread that trains; others' compilations are not its time.
    """

    def __init__(self, thread: Callable[[], int]) -> None:
        self._thread = thread
        self._put: Optional[session.Put] = None  # while something is being compiled
        self._since = 0
        self._nanoseconds = 0
        self._due = 0.0
        self._told: Dict[str, Any] = {}
        self._recompiled: Dict[str, str] = {}  # reasons, by the id of the compilation

    def listen(self, handler: Any) -> None:
        handler.register_start_callback(self._begins)
        handler.register_end_callback(self._ends)
        forget = handler.clear

        def clear() -> None:  # torch._dynamo.reset() calls it
            forget()
            handler.register_start_callback(self._begins)
            handler.register_end_callback(self._ends)

        handler.clear = clear

    def _begins(self, _: Any) -> None:
        if get_ident() == self._thread() and not session.explicit():
            self._put = session.quiet_put()
            self._since = host_clock()
            self._put((SPAN, self._since, "compile"))

    def _ends(self, _: Any) -> None:
        put, self._put = self._put, None
        if put is not None:
            now = host_clock()
            self._nanoseconds += now - self._since
            put((None, now))

    def tell(self, put: session.Put, last: bool) -> None:
        """At a step's end: say what has changed, if it is time to look."""
        now = time.monotonic()
        if now < self._due and not last:
            return
        self._due = now + EVERY
        try:
            found = self._read()
        except Exception:  # dynamo's counters are its own, and change with its versions
            return
        if found is not None and found != self._told:
            self._told = found
            put((FACTS, {"facts": {"compile": found}}))

    def _read(self) -> Optional[Dict[str, Any]]:
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return None
        counters = utils.counters
        graphs = counters["stats"].get("unique_graphs", 0) if "stats" in counters else 0
        if not graphs and not self._nanoseconds:
            return None  # imported, and not used
        broken = dict(counters["graph_break"]) if "graph_break" in counters else {}
        unsupported = list(counters["unimplemented"]) if "unimplemented" in counters else []
        for metrics in utils.get_compilation_metrics():
            reason = getattr(metrics, "recompile_reason", None)
            if reason and metrics.compile_id and not getattr(metrics, "fail_type", None):
                self._recompiled[str(metrics.compile_id)] = _first_line(reason)
        return {
            "graphs": graphs,
            "seconds": round(self._nanoseconds / NANOSECOND, 3),
            "graph_breaks": sum(broken.values()),
            "recompiles": len(self._recompiled),
            "reasons": _reasons([*self._recompiled.values(), *map(_first_line, broken)]),
            "fallback": any(LIMIT_HIT in text for text in unsupported),
        }


def _first_line(text: Any) -> str:
    return clean(str(text).split("\n", 1)[0], MAX_REASON)


def _reasons(texts: List[str]) -> List[str]:
    return list(dict.fromkeys(texts))[:MAX_REASONS]
