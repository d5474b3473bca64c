"""Long-lived processes set apart what they loaded, find garbage among what is new soon, and let go what is cached."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache

from monitor import lasting

GARBAGE = """
import collections, gc
from monitor import lasting
class Ring:
    def __init__(self): self.ring = self
kept = [{} for _ in range(200_000)]  # what a process has loaded
gc.collect()
if {apart}: lasting.settled()
most, before = 0, len(gc.get_objects())
lately = collections.deque(maxlen=3000)  # each lives until it counts as old
for turn in range(200_000):
    lately.append(Ring())
    if turn % 1000 == 0: most = max(most, len(gc.get_objects()) - before)
print(most)
"""


def test_garbage_among_what_is_new_is_found_soon() -> None:
    def most(apart: bool) -> int:
        """New objects that there are at once, at most, garbage and all."""
        done = subprocess.run(
            [sys.executable, "-c", GARBAGE.replace("{apart}", str(apart))], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert most(True) < most(False) / 2


def test_large_caches_of_any_library_are_found_and_emptied() -> None:
    @lru_cache(maxsize=lasting.LARGE)
    def large(number: int) -> int:
        return number

    @lru_cache(maxsize=16)
    def small(number: int) -> int:
        return number

    large(1), small(1)
    found = lasting.large_caches()
    assert large in found and small not in found
    lasting.emptied([each for each in found if each is large])
    assert (large.cache_info().currsize, small.cache_info().currsize) == (0, 1)
