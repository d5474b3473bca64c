"""The host clock: monotonic, and the same in every process of the machine."""

import time

host_clock = time.monotonic_ns
monotonic_seconds = time.monotonic

NANOSECOND = 1_000_000_000  # of them a second
