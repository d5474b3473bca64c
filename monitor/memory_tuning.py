"""Keep the memory of long-lived processes constant."""

from __future__ import annotations

import contextlib
import ctypes
import gc
from collections.abc import Iterator

# Collections of the middle generation per full collection; Python's default of 10 lets megabytes of garbage build up.
FULL_COLLECTION_EVERY = 2
BLOCK = 128 * 1024  # bytes; glibc's own first threshold

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3


def settled() -> None:
    """Exempt the current objects from garbage collection. Call it once, when a long-lived process has started up.

    Python collects old objects only when a quarter of them are new. With a hundred thousand objects from the start-up,
    megabytes of garbage build up until then. Collecting only the later ones takes a few milliseconds.
    """
    gc.collect()
    gc.freeze()
    gc.collect()  # resets the count of old objects, to which the quarter refers
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, FULL_COLLECTION_EVERY)
    _give_back()


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """Pause garbage collection: for reading in bulk, which makes many objects and no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _give_back() -> None:
    """Make the C library return large blocks to the system when they are freed.

    By default glibc raises its threshold to the size of a freed large block; the next one then comes from the heap,
    which rarely shrinks. One saved state of a run would leave half a megabyte. Setting a threshold fixes it.
    """
    with contextlib.suppress(OSError, AttributeError):  # C libraries other than glibc lack this function
        mallopt = ctypes.CDLL(None).mallopt
        for name in (_MMAP_THRESHOLD, _TRIM_THRESHOLD):
            mallopt(name, BLOCK)
