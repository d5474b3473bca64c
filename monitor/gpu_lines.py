"""A GPU's reading in a journal: what a line leaves out as unchanged, and what the driver's codes in it mean."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from trainhooks.protocol.events import Gpu

# A reading as its changes since the previous one. Pure.
#
# Eight GPUs write a line every second, for days, and half of a line repeats the previous one. So a line may be a
# `delta`: what it leaves out is unchanged, except what it lists as `unknown`. Every tenth line is complete, so that a
# reader that starts late or has lost a line soon has all values.

COMPLETE_SECONDS = 9.5  # seconds: at one reading a second every tenth is whole
# Seconds: a delta is not completed from an older reading, as lines between them are lost.
MAX_DELTA_SECONDS = 3 * COMPLETE_SECONDS
MAX_GPUS = 1024
AMD = "amdgpu-"  # how the UUID of a card begins that the amdgpu driver reports

# What a line may leave out. Not among them: identity, rare fields, and errors, which are momentary.
DELTA_FIELDS = (
    "name", "utilization", "memory_used", "memory_total", "temperature", "power", "power_limit", "sm_clock",
    "sm_clock_max", "memory_clock", "reasons", "memory_utilization", "memory_reserved", "memory_temperature",
    "temperature_margin", "power_average", "power_instant", "energy", "pstate", "thermal_violation",
    "power_violation", "brake_violation", "pcie_rx", "pcie_tx", "nvlink_rx", "nvlink_tx", "sm_active",
    "sm_occupancy", "tensor_active", "memory_active",
)  # fmt: skip
COUNTER_FIELDS = ("energy",)  # counters: every tenth value suffices


# Decimals that the sensors resolve: power to some watts, the counters' shares to less than a percent; traffic is an
# average over a second.
DIGITS = {
    "t": 3, "utilization": 0, "temperature": 0, "memory_utilization": 0, "memory_temperature": 0,
    "temperature_margin": 0, "power": 1, "power_average": 1, "power_instant": 1, "power_limit": 1, "energy": 0,
    "thermal_violation": 3, "power_violation": 3, "brake_violation": 3, "sm_active": 1, "sm_occupancy": 1,
    "tensor_active": 1, "memory_active": 1, "pcie_rx": -3, "pcie_tx": -3, "nvlink_rx": -3, "nvlink_tx": -3,
}  # fmt: skip


class DeltaEncoder:
    """Removes unchanged values from readings. Each producer has its own."""

    def __init__(self) -> None:
        self._written: dict[str, Gpu] = {}  # the values that a reader has by now, by uuid
        self._due: dict[str, float] = {}  # time of the next complete line, by uuid

    def encode(self, gpu: Gpu) -> Gpu:
        """Return the reading as it is to be written."""
        out = copy.copy(gpu)
        for name, digits in DIGITS.items():
            value = getattr(out, name)
            if value is not None:
                rounded = round(value, digits)
                setattr(out, name, int(rounded) if rounded == int(rounded) else rounded)  # `97`, not `97.0`
        known = self._written.get(gpu.uuid)
        if known is None or out.t >= self._due[gpu.uuid] or out.t < known.t:
            if len(self._written) < MAX_GPUS:
                self._written[gpu.uuid] = copy.copy(out)
                self._due[gpu.uuid] = out.t + COMPLETE_SECONDS
            return out
        out.delta, known.t = True, out.t
        for name in DELTA_FIELDS:
            value, before = getattr(out, name), getattr(known, name)
            if value == before or (name in COUNTER_FIELDS and value is not None and before is not None):
                setattr(out, name, None)
                continue
            if value is None:
                out.unknown = [*out.unknown, name]
            setattr(known, name, value)
        return out


def complete(gpu: Gpu, before: Gpu | None) -> Gpu:
    """Return a reading completed from the previous one, which has to be complete; unchanged if that is too old."""
    if not gpu.delta or before is None or not 0 <= gpu.t - before.t <= MAX_DELTA_SECONDS:
        return gpu
    out = copy.copy(gpu)
    for name in DELTA_FIELDS:
        if getattr(out, name) is None and name not in out.unknown:
            setattr(out, name, getattr(before, name))
    out.delta = False
    return out


# The driver's clock event reasons as text, and which of them matter. Pure.

POWER_CAP = "power cap"
HARDWARE_SLOWDOWN = "hardware slowdown"
SOFTWARE_THERMAL = "software thermal"
HARDWARE_THERMAL = "hardware thermal"
POWER_BRAKE = "power brake"

# Reasons without a bit: inferred from the driver's counters, the clock, the link or the processes.
THERMAL = "thermal"
LOW_CLOCKS = "low clocks"
PCIE_LINK = "PCIe link"
FOREIGN = "foreign processes"


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason for a GPU's clock."""

    name: str  # in reports
    short: str  # in narrow lines
    code: str | None  # of the finding it leads to; None if harmless
    meaning: str


# 0x1, 0x2, 0x10 and 0x100 only name what sets the clock; they are also set on GPUs at full speed.
BITS: dict[int, Reason] = {
    0x1: Reason("idle", "idle", None, "nothing runs, so the clocks rest"),
    0x2: Reason("application clocks", "app clocks", None, "the clock follows a setting (nvidia-smi -ac)"),
    0x4: Reason(POWER_CAP, "power cap", "power-capped", "the power limit sets the clock; normal on a busy GPU"),
    0x8: Reason(HARDWARE_SLOWDOWN, "HW slowdown", "hw-slowdown", "the board itself cut the clock, by half or more"),
    0x10: Reason("sync boost", "sync boost", None, "the clock follows the other GPUs of a sync boost group"),
    0x20: Reason(SOFTWARE_THERMAL, "SW thermal", "thermal-throttle", "too hot: the driver lowers the clock"),
    0x40: Reason(HARDWARE_THERMAL, "HW thermal", "thermal-throttle", "far too hot: the hardware cuts the clock"),
    0x80: Reason(POWER_BRAKE, "power brake", "power-brake", "the power supply asked for less, from outside the GPU"),
    0x100: Reason("display clocks", "display clocks", None, "the clock follows what the display needs"),
}

_INFERRED = (
    Reason(THERMAL, "thermal", "thermal-throttle", "too hot, by the driver's own count of time"),
    Reason(LOW_CLOCKS, "low clocks", "low-clocks", "the clock is low under load and no reason is given"),
    Reason(PCIE_LINK, "PCIe link", "pcie-downtrained", "the link to the host is slower than it could be"),
    Reason(FOREIGN, "shared", "gpu-shared", "processes of others use this GPU"),
)

BY_NAME: dict[str, Reason] = {reason.name: reason for reason in (*BITS.values(), *_INFERRED)}

KNOWN_BITS = sum(BITS)
GRAVE_BITS = 0x8 | 0x20 | 0x40 | 0x80  # throttling beyond the normal power limit
LIMITING_BITS = GRAVE_BITS | 0x4


def set_by_hand(mask: int) -> bool:
    """Return whether the clock follows the application clocks setting."""
    return bool(mask & 0x2)


def unknown_bits(mask: int | None) -> int:
    """Return the bits that are not in `BITS`."""
    return (mask or 0) & ~KNOWN_BITS


def reasons_in_words(mask: int | None) -> list[str]:
    """Return the reasons whose bits are set; unknown bits as one hexadecimal number."""
    if not mask:
        return []
    words = [reason.name for bit, reason in BITS.items() if mask & bit]
    unknown = unknown_bits(mask)
    return [*words, hex(unknown)] if unknown else words


def grave_reasons(mask: int) -> list[str]:
    """Return the reasons in GRAVE_BITS that are set; the general slowdown only without a specific hardware cause."""
    if mask & (0x40 | 0x80):
        mask &= ~0x8
    return [reason.name for bit, reason in BITS.items() if mask & bit & GRAVE_BITS]


# The common ones of NVIDIA's error codes (XIDs), likewise.

WORDS = {
    13: "a kernel failed: an illegal instruction or address in the program",
    31: "a kernel touched memory that is not mapped: most often a fault of the program",
    43: "the GPU stopped a faulty program",
    45: "the driver cleaned up after a program that was ended",
    48: "an uncorrectable memory error (double bit ECC)",
    61: "the GPU's own micro-controller failed",
    62: "the GPU's own micro-controller halted",
    63: "a row of memory is to be replaced by a spare one at the next reset",
    64: "a bad row of memory could not be replaced: the card needs service",
    74: "an NVLink error",
    79: "the GPU has fallen off the bus: hardware, power or heat; the machine needs a reboot",
    92: "a high rate of memory errors",
    94: "an uncorrectable memory error that hit one program",
    95: "an uncorrectable memory error that may have hit all programs: the GPU needs a reset",
    119: "the GPU's system processor does not answer: the GPU needs a reset",
    120: "the GPU's system processor failed: the GPU needs a reset",
}

OF_THE_PROGRAM = frozenset((13, 31, 43, 45))  # usually a bug in the program, not a hardware fault
GRAVE = frozenset((48, 61, 62, 64, 74, 79, 95, 119, 120))  # later results may be wrong, or the GPU has stopped


def in_words(xid: int) -> str:
    """Return an error code with its meaning, if that is known."""
    return f"XID {xid}: {WORDS[xid]}" if xid in WORDS else f"XID {xid}"
