"""Order of readings of two streams within one poll, by the numbers in them.

A program's two streams are two files, and what both received since the last poll has no order. Where both count the
same thing ("Step 4/8" in one, "skipped step 3/8" in the other), a smaller number does not start a new round.
"""

from __future__ import annotations

import heapq

from monitor.console.reading import Reading

_Group = tuple[tuple[int, int], list[Reading]]


def one_counter(streams: list[list[Reading]]) -> bool:
    """Return whether more than one stream has numbered lines and all of these share one counter."""
    keys = [{reading.counter for reading in readings if _numbered(reading)} for readings in streams]
    return len([stream for stream in keys if stream]) > 1 and len(set.union(*keys)) == 1


def in_order(streams: list[list[Reading]]) -> list[Reading]:
    """Return all readings by round and number; for equal numbers the earlier stream's first."""
    merged = heapq.merge(*map(_groups, streams), key=lambda group: group[0])
    return [reading for _, group in merged for reading in group]


def _groups(readings: list[Reading]) -> list[_Group]:
    """Group each numbered line with what follows it, by round and number; what precedes the first comes first."""
    rounds, last, out = 0, 0, [((0, 0), list[Reading]())]
    for reading in readings:
        if not _numbered(reading):
            out[-1][1].append(reading)
            continue
        assert reading.step is not None
        rounds += reading.step < last
        last = reading.step
        out.append(((rounds, last), [reading]))
    return out


def _numbered(reading: Reading) -> bool:
    return reading.family in ("step", "skip") and reading.step is not None and not reading.mention
