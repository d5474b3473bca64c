"""What ran inside a few steps: recorded by torch's profiler, within a budget."""

from __future__ import annotations

import os

VARIABLE = "TRAINMON_TRACE"  # 0: no traces


def is_wanted() -> bool:
    """Return whether a few steps may be traced, at a cost to the training."""
    return os.environ.get(VARIABLE, "1").lower() not in ("0", "false", "no", "off")
