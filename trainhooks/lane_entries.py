"""The entries of a lane: small tuples whose first item says what happened.

Two kinds need no code: ``(name, t)`` enters a phase, ``(None, t)`` leaves the innermost open phase or span. Times are
nanoseconds of the host clock. A training thread needs this module alone; the background thread imports the rest.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from typing import Any, Deque, List, NamedTuple, Optional, Tuple

# The host clock: monotonic, and the same in every process of the machine.
host_clock = time.monotonic_ns
monotonic_seconds = time.monotonic

NANOSECOND = 1_000_000_000  # nanoseconds in a second

# Entries that a stalled writer may leave in a lane: 26 MB at about 200 bytes each. The oldest are dropped first.
MAX_LANE_ENTRIES = 131_072

STEP = 1  # t, loop: a step begins
NEXT = 2  # t, loop, number: the loop's open step ends, another begins and waits for its item
END = 3  # t, loop: the step ends
QUIT = 4  # t, loop: the loop was left
CANCEL = 5  # t, loop: an exception ended the step
SPAN = 6  # t, name: a span begins
LOG = 7  # metrics
COUNT = 8  # tokens, padded tokens, samples; calls of the model, where they are known
SKIP = 9  # reason
NOTE = 10  # t, text; of a warning also its code
FACTS = 11  # what is known
LATE = 12  # deferred, value
AGGREGATE = 13  # sums, means: metrics that are added up and averaged over the entries of one step
STANDARD = 14  # a whole step of an unmodified loop, put at its end: the fields of a StandardStep
RENAME = 15  # name: that of the innermost open span, which is known by now


class Loop:
    """What the steps of one loop have in common. Loops are compared by identity."""

    __slots__ = ("epoch", "labeled", "role", "stage")

    def __init__(self, role: Optional[str], stage: Optional[str], epoch: Optional[float]) -> None:
        self.role = role
        self.stage = stage
        self.epoch = epoch
        self.labeled = not (role is None and stage is None and epoch is None)


AUTOMATIC = Loop(None, None, None)  # the steps that `auto` recognizes


class PhaseMarker:
    """``(marker, t)``: the phase of an automatic step's time outside of open phases, from `t` on; None: no phase."""

    __slots__ = ("name",)

    def __init__(self, name: Optional[str]) -> None:
        self.name = name


DATA = PhaseMarker("data")
FORWARD = PhaseMarker("forward")
BACKWARD = PhaseMarker("backward")
OPTIMIZER = PhaseMarker("optimizer")
NO_PHASE = PhaseMarker(None)


class StandardStep(NamedTuple):
    """The layout of a STANDARD entry, which is put as a plain tuple. Times are nanoseconds of the host clock."""

    kind: int
    began: int  # the step began, and waited for its batch
    fetched: int  # the batch had come
    forward: int
    forward_ended: int
    backward: int
    backward_ended: int
    optimizer: int
    optimizer_ended: int
    ended: int
    loss: Optional[float]
    amounts: Optional[Tuple[Any, ...]]  # as in COUNT

    def entries(self) -> "List[Tuple[Any, ...]]":
        """Return the entries that this step would have been one by one."""
        entries: List[Tuple[Any, ...]] = [(STEP, self.began, AUTOMATIC), (DATA, self.began), (NO_PHASE, self.fetched)]
        entries.append((FORWARD, self.forward))
        if self.amounts is not None:
            entries.append((COUNT, *self.amounts))
        entries += [
            (NO_PHASE, self.forward_ended),
            (BACKWARD, self.backward),
            (NO_PHASE, self.backward_ended),
            (OPTIMIZER, self.optimizer),
            (NO_PHASE, self.optimizer_ended),
        ]
        if self.loss is not None:
            entries.append((LOG, {"loss": self.loss}))
        entries.append((END, self.ended, AUTOMATIC))
        return entries


class UnlistedThread:
    """A thread that was started below `threading`; `current_thread` would add it to the program's list of threads."""

    native_id = None

    def __init__(self, ident: int) -> None:
        self.ident = ident
        self.name = f"thread {ident}"


def this_thread() -> Any:
    """Return the calling thread, as `threading` lists it, else as an `UnlistedThread`."""
    ident = threading.get_ident()
    return threading._active.get(ident) or UnlistedThread(ident)  # type: ignore[attr-defined]


def is_alive(thread: Any) -> bool:
    """Return whether a thread runs. `Thread.is_alive` asks a lock: gevent's then lets the program's greenlets run."""
    listed = threading._active.get(thread.ident) is thread  # type: ignore[attr-defined]
    return listed or thread.ident in sys._current_frames()


class Lane:
    """The entries of one thread, in order.

    Attributes:
        put: appends an entry.
        follower: an object whose own `put` is kept the same as the lane's.
        live: a step under way that is put only at its end; `open()` returns its state, `stop()` drops it.
    """

    __slots__ = ("entries", "follower", "live", "put", "thread")

    def __init__(self) -> None:
        self.follower: Optional[Any] = None
        self.live: Optional[Any] = None
        self.thread = this_thread()
        self.entries: Deque[Tuple[Any, ...]] = deque(maxlen=MAX_LANE_ENTRIES)
        self.put = self.entries.append
