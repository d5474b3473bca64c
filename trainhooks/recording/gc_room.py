"""Leave garbage collection, and with it the program's finalizers, to the program's own threads.

Python collects in the thread that makes one container more than its threshold. What the background thread makes is soon
gone, but without this it would be the one that reaches the threshold: it comes on top of what the program has made by
then. So it keeps containers of its own, lets go of as many before it works, and makes them again afterwards.
"""

from __future__ import annotations

import contextlib
import gc
from typing import Any, Iterator, List

from trainhooks.own_thread import sleep

ROOM = 400  # containers: to close a block of steps takes 180, to read a source 350
FIRST = 8  # let go of before anything else, as to ask for the count makes some


class _Container(set):  # type: ignore[type-arg]
    """One of ours, by its name. A set, as Python keeps no spare ones."""

    __slots__ = ()


class CollectorRoom:
    """Made before a thread's work and taken back after it: no difference to what the program's threads see counted.

    No context manager: `with` makes containers, the methods that it binds, before there is room for them.
    """

    def __init__(self) -> None:
        self._held: List[Any] = [_Container() for _ in range(ROOM)]

    def make(self) -> None:
        """Let go of containers before the thread works."""
        for _ in range(min(FIRST, len(self._held))):
            self._held.pop()
        self.renew()

    def renew(self) -> None:
        """Make room once more, after another thread may have had a turn."""
        count = gc.get_count()[0]
        short = ROOM - (gc.get_threshold()[0] - count)
        if short > 0:
            del self._held[-min(short, count) :]

    def take_back(self) -> None:
        """Make as many again after it."""
        for _ in range(min(ROOM - len(self._held), gc.get_threshold()[0] - gc.get_count()[0])):
            self._held.append(_Container())


_is_paused = False  # by us


def forget_pause() -> None:
    """In a forked child: turn on the collector that the parent's thread keeps off for a moment."""
    global _is_paused
    if _is_paused:
        _is_paused = False
        gc.enable()


TURN_SECONDS, MAX_TURNS = 0.002, 25  # left to the program's threads, each and at most


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keep the collector off for what makes more containers than there is room for, at most some tenths of a second.

    What the program has made meanwhile is then over the threshold. So its threads have a turn first, as the next one
    that makes a container collects.
    """
    global _is_paused
    was_on = gc.isenabled()  # else there is nothing to do: it is the program's, or one around this one
    if was_on:
        _is_paused = True
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            _is_paused = False
            gc.enable()
            for _ in range(MAX_TURNS):
                if gc.get_count()[0] < gc.get_threshold()[0] - ROOM:  # their small tuples come from a store
                    break
                sleep(TURN_SECONDS)
