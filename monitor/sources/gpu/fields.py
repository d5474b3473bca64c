"""Readings that the driver gives by number. The numbers changed between drivers, and each answer has its own type."""

from __future__ import annotations

import math
import re
from typing import Any

import pynvml

Field = int | tuple[int, int]  # a number, or a number and its scope

MEMORY_TEMPERATURE = 82
POWER_POLICY = 74  # nanoseconds in which the power limit held the clocks back
THERMAL_POLICY = 75  # the same for heat; older cards have only this one
POWER_AVERAGE = 185
POWER_INSTANT = 186
ALL_LINKS = 0xFFFFFFFF
NVLINK_TX: Field = (138, ALL_LINKS)  # KiB
NVLINK_RX: Field = (139, ALL_LINKS)

RENUMBERED = (580, 82)  # the first driver with the new numbers of the three slowdown counters
_OLD_SLOWDOWNS = (251, 252, 253)
_NEW_SLOWDOWNS = (269, 270, 271)

# The members of the union, by the type that comes with the value.
_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def slowdowns(version: str | None) -> tuple[int, int, int] | None:
    """The counters of software thermal, hardware thermal and power brake slowdowns, in nanoseconds.

    None where the driver does not tell its version: under the wrong numbers stand other things.
    """
    known = re.match(r"(\d+)\.(\d+)", version or "")
    if known is None:
        return None
    return _NEW_SLOWDOWNS if (int(known[1]), int(known[2])) >= RENUMBERED else _OLD_SLOWDOWNS


def value(answer: Any) -> float | int | None:
    """What one field of an answer holds; None where the driver did not fill it in."""
    member = _MEMBERS.get(answer.valueType)
    if answer.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    found: float | int = getattr(answer.value, member)
    return found if math.isfinite(found) else None
