"""What ran inside a few steps: recorded by torch's profiler, within a budget."""

from __future__ import annotations

import os

VARIABLE = "TRAINMON_TRACE"  # 0: neither traces nor delays of the device


def is_wanted() -> bool:
    """Return whether a few steps may be measured at a cost to the training: by traces, or by delays of the device."""
    return os.environ.get(VARIABLE, "1").lower() not in ("0", "false", "no", "off")
