"""What a soak says of memory: each process by itself, once it is warm."""

from __future__ import annotations

import math

from tests.soak.__main__ import memory
from tests.soak.measures import ENOUGH, WARM_UP, Life, slope


def life(seconds: float, size: float = 60.0, an_hour: float = 0.0) -> Life:
    """One that grows by 20 MiB while it is cold, then by so much an hour."""
    out = Life()
    for at in range(int(seconds) + 1):
        out.add(100.0 + at, size + 20 * min(1.0, at / WARM_UP) + an_hour * max(0.0, at - WARM_UP) / 3600)
    return out


def test_what_a_process_takes_while_it_is_cold_is_no_slope() -> None:
    assert slope(life(WARM_UP + ENOUGH).warm()) == 0.0
    assert math.isclose(slope(life(WARM_UP + ENOUGH, an_hour=3.0).warm()), 3.0)


def test_one_that_did_not_live_long_enough_is_told_and_not_judged() -> None:
    brief = life(WARM_UP + ENOUGH - 1)
    assert brief.warm() == [] and math.isnan(slope(brief.warm()))
    assert memory(brief, math.nan) == "60.0 to 80.0 MiB in 9.0 minutes; judged from 9 minutes on"


def test_a_soak_tells_both_stretches() -> None:
    told = memory(life(600, an_hour=12.0), 12.0)
    assert told == "60.0 to 81.0 MiB in 10.0 minutes; after 5 of them 80.0 to 81.0, +12.00 MiB an hour"
