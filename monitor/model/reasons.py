"""The driver's clock event reasons in words, and which of them hold a GPU back. Pure."""

from __future__ import annotations

from dataclasses import dataclass

POWER_CAP = "power cap"
HARDWARE_SLOWDOWN = "hardware slowdown"
SOFTWARE_THERMAL = "software thermal"
HARDWARE_THERMAL = "hardware thermal"
POWER_BRAKE = "power brake"

# Told by the driver's counters, by the clock or by the link, without a bit that says so.
THERMAL = "thermal"
LOW_CLOCKS = "low clocks"
PCIE_LINK = "PCIe link"
FOREIGN = "foreign processes"


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason: its name in reports, its name in a narrow line, the finding it leads to, and what it means."""

    name: str
    short: str
    code: str | None  # None: harmless
    meaning: str


# 0x1, 0x2, 0x10 and 0x100 say who chose the clock; a GPU that is fast enough shows them, too.
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

_UNTOLD = (
    Reason(THERMAL, "thermal", "thermal-throttle", "too hot, by the driver's own count of time"),
    Reason(LOW_CLOCKS, "low clocks", "low-clocks", "the clock is low under load and no reason is given"),
    Reason(PCIE_LINK, "PCIe link", "pcie-downtrained", "the link to the host is slower than it could be"),
    Reason(FOREIGN, "shared", "gpu-shared", "processes of others use this GPU"),
)

BY_NAME: dict[str, Reason] = {reason.name: reason for reason in (*BITS.values(), *_UNTOLD)}

KNOWN_BITS = sum(BITS)
GRAVE_BITS = 0x8 | 0x20 | 0x40 | 0x80  # the GPU is held back by more than its normal power limit
LIMITING_BITS = GRAVE_BITS | 0x4


def set_by_hand(mask: int) -> bool:
    """Whether the clock follows a setting."""
    return bool(mask & 0x2)


def unknown_bits(mask: int | None) -> int:
    """The bits that this version has no word for."""
    return (mask or 0) & ~KNOWN_BITS


def reasons_in_words(mask: int | None) -> list[str]:
    """The reasons whose bits are set; unknown bits as one hexadecimal number."""
    if not mask:
        return []
    words = [reason.name for bit, reason in BITS.items() if mask & bit]
    unknown = unknown_bits(mask)
    return [*words, hex(unknown)] if unknown else words


def grave_reasons(mask: int) -> list[str]:
    """The reasons in the mask that hold a GPU back; the general slowdown only where no cause of it is told."""
    if mask & (0x40 | 0x80):
        mask &= ~0x8
    return [reason.name for bit, reason in BITS.items() if mask & bit & GRAVE_BITS]
