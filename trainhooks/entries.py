"""The entries of a lane: small tuples, the first item says which.

Two kinds need no code: ``(name, t)`` enters a phase, ``(None, t)`` leaves the innermost open thing.
Times are nanoseconds of the host clock. This module is all that a training thread needs; what digests the entries
is imported by the background thread.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Deque, Optional, Tuple

# What a stalled writer may leave waiting, a thread: at about 200 bytes an entry, 26 MB. Older entries fall out first.
MAX_WAITING = 131_072

STEP = 1  # t, loop: a step begins
NEXT = 2  # t, loop, number: the loop's open step ends, another begins and waits for its item
END = 3  # t, loop: the step ends
QUIT = 4  # t, loop: the loop was left
CANCEL = 5  # t, loop: an exception ended the step
SPAN = 6  # t, name: a span begins
LOG = 7  # metrics
COUNT = 8  # tokens, padded tokens, samples; calls of the model, where they are known
SKIP = 9  # reason
NOTE = 10  # t, text
FACTS = 11  # what is known
LATE = 12  # deferred, value
TALLY = 13  # sums, means: metrics that are added up, and averaged, over the entries of one step
# A whole automatic step, told at its end. Times: it begins and waits for its batch; the batch has come; forward begins;
# backward begins, ends; the optimizer begins, ends; the step ends. Then its loss, and counts as in COUNT; or None.
USUAL = 14


class Loop:
    """What the steps of one loop have in common; its identity tells loops apart."""

    __slots__ = ("epoch", "labelled", "role", "stage")

    def __init__(self, role: Optional[str], stage: Optional[str], epoch: Optional[float]) -> None:
        self.role = role
        self.stage = stage
        self.epoch = epoch
        self.labelled = not (role is None and stage is None and epoch is None)


AUTOMATIC = Loop(None, None, None)  # the steps that `auto` makes out


class Ground:
    """``(ground, t)``: what an automatic step does from here on wherever no phase is open. By identity."""

    __slots__ = ("name",)

    def __init__(self, name: Optional[str]) -> None:
        self.name = name


DATA = Ground("data")
FORWARD = Ground("forward")
BACKWARD = Ground("backward")
OPTIMIZER = Ground("optimizer")
NOTHING = Ground(None)  # nothing that is known


class Lane:
    """What one thread did, in the order it did it."""

    __slots__ = ("follower", "live", "ops", "put", "thread")

    def __init__(self) -> None:
        self.follower: Optional[Any] = None  # whose own `put` is to be the lane's, whatever that is at the time
        self.live: Optional[Any] = None  # a step that is told at its end only: `open()` says how it stands
        self.thread = threading.current_thread()
        self.ops: Deque[Tuple[Any, ...]] = deque(maxlen=MAX_WAITING)
        self.put = self.ops.append
