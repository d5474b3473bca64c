"""A GPU's reading told by what changed since the one before, and made whole again. Pure.

Eight GPUs write a line each every second, for days, and half of a line is what the one before had said. So a line may
say `delta`: what it leaves out is as it was, except what it lists as `unknown`. Every ten seconds a line tells all, so
that a reader who comes late, or has lost a line, soon knows everything.
"""

from __future__ import annotations

import copy

from trainhooks.events import Gpu

WHOLE_EVERY = 9.5  # seconds: at one reading a second every tenth is whole
TOO_OLD = 3 * WHOLE_EVERY  # seconds, after which a reading is made whole with nothing: the lines between are lost
MAX_GPUS = 1024

# What a line may leave out. Not in it: who speaks, what comes rarely anyway, and errors, which are of one moment.
KEPT = (
    "name", "utilization", "memory_used", "memory_total", "temperature", "power", "power_limit", "sm_clock",
    "sm_clock_max", "memory_clock", "reasons", "memory_utilization", "memory_reserved", "memory_temperature",
    "temperature_margin", "power_average", "power_instant", "energy", "pstate", "thermal_violation",
    "power_violation", "brake_violation", "pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx", "sm_active",
    "sm_occupancy", "tensor_active", "memory_active",
)  # fmt: skip
SUMMED = ("energy",)  # a counter: every tenth reading of it tells as much


# Digits after the point, to what the sensors resolve: power is measured to some watts, the counters' shares to less
# than a percent, traffic is an average over a second.
DIGITS = {
    "t": 3, "utilization": 0, "temperature": 0, "memory_utilization": 0, "memory_temperature": 0,
    "temperature_margin": 0, "power": 1, "power_average": 1, "power_instant": 1, "power_limit": 1, "energy": 0,
    "thermal_violation": 3, "power_violation": 3, "brake_violation": 3, "sm_active": 1, "sm_occupancy": 1,
    "tensor_active": 1, "memory_active": 1, "pcie_rx": -3, "pcie_tx": -3, "nvlink_rx": -3, "nvlink_tx": -3,
}  # fmt: skip


class Thinner:
    """Takes out of readings what their reader knows already. One for each producer."""

    def __init__(self) -> None:
        self._told: dict[str, Gpu] = {}  # as the reader knows it by now
        self._due: dict[str, float] = {}  # when the next whole line is

    def thin(self, gpu: Gpu) -> Gpu:
        """The reading as it is to be written."""
        out = copy.copy(gpu)
        for name, digits in DIGITS.items():
            value = getattr(out, name)
            if value is not None:
                rounded = round(value, digits)
                setattr(out, name, int(rounded) if rounded == int(rounded) else rounded)  # `97`, not `97.0`
        told = self._told.get(gpu.uuid)
        if told is None or out.t >= self._due[gpu.uuid] or out.t < told.t:
            if len(self._told) < MAX_GPUS:
                self._told[gpu.uuid] = copy.copy(out)
                self._due[gpu.uuid] = out.t + WHOLE_EVERY
            return out
        out.delta, told.t = True, out.t
        for name in KEPT:
            value, before = getattr(out, name), getattr(told, name)
            if value == before or (name in SUMMED and value is not None and before is not None):
                setattr(out, name, None)
                continue
            if value is None:
                out.unknown = [*out.unknown, name]
            setattr(told, name, value)
        return out


def whole(gpu: Gpu, before: Gpu | None) -> Gpu:
    """A reading with what it leaves out because it is as in the one before; that is whole itself."""
    if not gpu.delta or before is None or not 0 <= gpu.t - before.t <= TOO_OLD:
        return gpu
    out = copy.copy(gpu)
    for name in KEPT:
        if getattr(out, name) is None and name not in out.unknown:
            setattr(out, name, getattr(before, name))
    out.delta = False
    return out
