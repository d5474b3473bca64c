"""Long-lived processes exempt what they loaded from garbage collection, and so find new garbage soon."""

from __future__ import annotations

import subprocess
import sys

GARBAGE = """
import collections, gc
from monitor import memory_tuning
class Ring:
    def __init__(self): self.ring = self
kept = [{} for _ in range(200_000)]  # what a process has loaded
gc.collect()
if {apart}: memory_tuning.settled()
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
