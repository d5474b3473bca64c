"""What a process has loaded when it has started stays to its end; the garbage collector need not look at it again."""

from __future__ import annotations

import gc

OFTEN = 2  # looks at middle-aged objects between two at all of them; Python's own 10 lets megabytes gather


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
