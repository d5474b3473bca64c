"""What keeps the memory of processes that run for days level."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from functools import _lru_cache_wrapper
from typing import Any

OFTEN = 2  # looks at middle-aged objects between two at all of them; Python's own 10 lets megabytes gather
LARGE = 1024  # entries; a cache that holds fewer is full soon
BLOCK = 128 * 1024  # bytes; glibc's own first threshold

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def settled() -> None:
    """Set apart what lives now. Called once, when a process that runs for days has done what is done once.

    Python looks for garbage among old objects only when a quarter of them are new. Beside a hundred thousand that were
    loaded at the start, megabytes gather until then. What is left to look at takes a few milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # what a quarter is taken of is counted here
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, OFTEN)
    _give_back()


def _give_back() -> None:
    """Large blocks go back to the system when they are freed.

    glibc takes a large block that was freed for the usual size from then on: the next one comes out of a heap, which
    seldom shrinks. One state of a run that was written down so leaves half a megabyte. A threshold that is set stays.
    """
    with contextlib.suppress(OSError, AttributeError):  # another library has no such thing
        mallopt = ctypes.CDLL(None).mallopt
        for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(name, BLOCK)


def large_caches() -> list[_lru_cache_wrapper[Any]]:
    """The caches of functions, ours and the libraries', that may fill for hours. To be asked before `settled`."""
    # By its type: to be asked for its class, an object of a library may run code of its own.
    found: list[_lru_cache_wrapper[Any]] = [each for each in gc.get_objects() if type(each) is _lru_cache_wrapper]
    return [each for each in found if (each.cache_info().maxsize or 0) >= LARGE]


def emptied(caches: list[_lru_cache_wrapper[Any]]) -> None:
    """Begin these caches anew.

    What is drawn is hardly ever the same for long: Rich keeps 16,384 halves of pieces of text that are never asked for
    again, at some 600 bytes each. What is asked for again is there after the next picture.
    """
    for each in caches:
        each.cache_clear()
