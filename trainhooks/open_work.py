"""What the assembler keeps while it digests: the open step, what is open around it, and what lanes share."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Set, Tuple

from trainhooks.deferred import Deferred
from trainhooks.entries import Loop
from trainhooks.events import MAX_METRICS, MAX_NAME, OVERFLOW, clean


class Open:
    """Something entered and not yet left. `since` is where its own time outside steps begins to count."""

    __slots__ = ("accounted", "is_span", "name", "since", "start")

    def __init__(self, name: str, start: int, is_span: bool, accounted: int) -> None:
        self.name = name
        self.start = start
        self.since = start
        self.is_span = is_span
        self.accounted = accounted


class Row:
    """One phase of the open step: its own time so far, how often it was entered, and when last."""

    __slots__ = ("entered", "is_span", "name", "ns", "times")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ns = 0
        self.times = 0
        self.entered = 0
        self.is_span = False


class OpenStep:
    """The step that is being done."""

    item: Optional[int] = None  # when the item came that it waited for
    counts: Optional[Dict[str, int]] = None
    late: Tuple[Deferred, ...] = ()
    tallies = 0  # how many with means have been taken
    ground: Optional[Row] = None  # whose time it is while no phase is open
    skipped: Optional[str] = None

    def __init__(self, loop: Loop, began: int, number: int) -> None:
        self.loop = loop
        self.number = number  # its place in its own loop
        self.began = began
        self.mark = began  # up to where its time is given to phases
        self.phases: Dict[str, Row] = {}  # by the name as given
        self.opened: List[Row] = []  # entered and not yet left, innermost last
        self.metrics: Dict[str, Any] = {}


class Shared:
    """What the lanes of one process share: the step count, the primary lane, names, work done beside it."""

    def __init__(self) -> None:
        self.steps = 0
        self.primary: Optional[Any] = None  # the lane whose time is the run's time: the first that steps
        self.background: Dict[str, List[int]] = {}  # phases of other threads since the primary's last step
        self.counts: Optional[Dict[str, int]] = None  # work counted by other threads, likewise
        self.lost = 0  # entries that fell out of a full deque, as far as they can be told
        self.metric_names: Dict[str, str] = {}
        self.plain_names: Set[Tuple[str, ...]] = set()  # names that came together, each sent as it is
        self.phase_names: Dict[str, str] = {}

    def metric_name(self, name: str) -> str:
        return self.metric_names.get(name) or _known(self.metric_names, name)

    def phase_name(self, name: str) -> str:
        return self.phase_names.get(name) or _known(self.phase_names, name)


def _known(names: Dict[Any, str], name: Any) -> str:
    """`name` as it is sent: cleaned, and past the limit of names one shared bucket."""
    if len(names) >= MAX_METRICS:
        return OVERFLOW
    sent = clean(name, MAX_NAME) or "unnamed"
    names[name] = sent
    return sent
