"""Readings of two streams that were found in one look: the numbers in them tell their order. Pure.

A program's two streams are two files, and what came to both since the last look has no order of its own. Where both
number the same thing ("Step 4/8" in one, "skipped step 3/8" in the other), a smaller number is no new round.
"""

from __future__ import annotations

import heapq

from monitor.console.counters import full_key
from monitor.console.reading import Reading

_Group = tuple[tuple[int, int], list[Reading]]


def number_the_same(streams: list[list[Reading]]) -> bool:
    """Whether more than one stream has numbered lines, and all of them number one thing."""
    keys = [{full_key(reading) for reading in readings if _numbered(reading)} for readings in streams]
    return len([each for each in keys if each]) > 1 and len(set.union(*keys)) == 1


def in_order(streams: list[list[Reading]]) -> list[Reading]:
    """All readings, by round and number; of equals those of the earlier stream first."""
    merged = heapq.merge(*map(_groups, streams), key=lambda group: group[0])
    return [reading for _, group in merged for reading in group]


def _groups(readings: list[Reading]) -> list[_Group]:
    """A numbered line with what follows it, by round and number; what stands before the first one comes first."""
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
