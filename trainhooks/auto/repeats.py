"""The model called again on the input that it has just been given: the second result could have been the first one.

Two views, two batches or two networks are no repetition, and neither is a second pass with gradients of its own.
"""

from __future__ import annotations

import weakref
from typing import Any, Optional

from trainhooks import session
from trainhooks.entries import FACTS

LOOKS = 256  # calls that are looked at: what a loop does it does from the start, and after that nothing is paid for it
TOLD_AT = 32  # calls, and at twice as many, up to LOOKS


class Repeats:
    """Counts them for one model, over its first calls in training mode."""

    __slots__ = ("_backwards", "_input", "_pending", "_step", "_told_at", "calls", "times")

    def __init__(self) -> None:
        self.calls = 0
        self.times = 0
        self._told_at = TOLD_AT
        self._input: Optional["weakref.ReferenceType[Any]"] = None  # of the last call
        self._step = 0  # the step in which that was, and how many backward passes this one had had
        self._backwards = 0
        self._pending = False  # the last call's input had had its backward pass, and there was none since

    def called(self, given: Any, step: int, backwards: int) -> None:
        """One call.

        Args:
            given: the tensor that it is called on.
            step: tells steps apart.
            backwards: backward passes of this step so far.
        """
        self.calls += 1
        learnt = step != self._step or backwards > self._backwards  # an ended step has had its backward pass
        again = self._input is not None and self._input() is given
        if (again or self._pending) and not learnt:
            self.times += 1
        self._pending = again and learnt
        self._input = weakref.ref(given)
        self._step, self._backwards = step, backwards
        if self.calls < self._told_at:
            return
        while self.calls >= self._told_at:
            self._told_at *= 2
        if self.times:
            told = {"repeated": self.times, "calls": self.calls}
            session.quiet_put()((FACTS, {"facts": {"forwards": told}}))
