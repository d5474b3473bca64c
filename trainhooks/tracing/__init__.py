"""What ran inside a few steps: recorded by torch's profiler, within a budget."""

from __future__ import annotations

import os

VARIABLE = "TRAINMON_TRACE"  # 0: no traces; 1: also of a CPU's operators


def is_wanted() -> bool:
    """Return whether a few steps may be traced, at a cost to the training."""
    return os.environ.get(VARIABLE, "1").lower() not in ("0", "false", "no", "off")


def wants_operators() -> bool:
    """Return whether operators of a CPU are to be traced by themselves.

    Nothing can end such a trace inside a step: where tens of thousands of small operators follow, it stops the training
    for seconds and takes gigabytes.
    """
    return VARIABLE in os.environ and is_wanted()
