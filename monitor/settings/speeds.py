"""The bounds of fast and slow steps, from the configuration.

[speed]
fast = 0.5  # seconds a step: up to this one a step is fast
slow = 2.0  # and from this one on it is slow
"""

from __future__ import annotations

from monitor.errors import UserError
from monitor.model.speed_classes import Bounds
from monitor.settings import config


def bounds() -> Bounds | None:
    """What the person has set; None where there is nothing.

    Raises:
        UserError: it cannot be read, or makes no sense.
    """
    known = config.table("speed")
    if not known:
        return None
    fast, slow = known.get("fast"), known.get("slow")
    if not isinstance(fast, int | float) or not isinstance(slow, int | float) or not 0 < fast < slow:
        raise UserError(f"{config.path()}: [speed] wants two numbers of seconds a step, fast = 0.5 and slow = 2.0")
    return Bounds(float(fast), float(slow))
