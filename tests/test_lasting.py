"""Long-lived processes set apart what they loaded, so that garbage among what is new is found soon."""

from __future__ import annotations

import subprocess
import sys

GARBAGE = """
import gc, json
from monitor import lasting
kept = [{} for _ in range(200_000)]  # what a process has loaded
gc.collect()
if {apart}: lasting.settled()
most = 0
for _ in range(60_000):
    ring = []; ring.append(ring)
    del ring
    if _ % 1000 == 0: most = max(most, len(gc.get_objects()))
print(most)
"""


def test_garbage_among_what_is_new_is_found_soon() -> None:
    def most(apart: bool) -> int:
        """Objects that the collector has to look at, at most."""
        done = subprocess.run(
            [sys.executable, "-c", GARBAGE.replace("{apart}", str(apart))], capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    assert most(True) < most(False) / 10
