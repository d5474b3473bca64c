"""What one reading of a GPU shows that may hold it back. Pure.

A reason counts only under load: an idle GPU lowers its clocks and says so, and that is no fault.
"""

from __future__ import annotations

from dataclasses import dataclass

from monitor.model import reasons
from monitor.model.episodes import Sighting
from monitor.model.reasons import LIMITING_BITS
from trainhooks.events import Gpu

LOAD = 30.0  # percent utilisation; a GPU that rests two thirds of the time is limited by something else
FULL_LOAD = 80.0  # percent, from which on a clock can be called low without a word from the driver

# A power limit moves the clock by some percent with every kernel: less than a tenth is not worth a word. An episode
# lasts until the clock is back within a twentieth.
CAPPED, UNCAPPED = 0.90, 0.95
# Against the card's highest clock, which dense matrix work under the normal limit does not reach (an H100 runs at 0.7
# to 0.9 of it), and against the limit that the card comes with.
CAPPED_OF_MAX, UNCAPPED_OF_MAX = 0.65, 0.70
LOWERED_LIMIT = 0.95
# Against others of its kind, which differ by up to a tenth by themselves; and without a reason. Some cards cannot reach
# the maximum that they name.
LOW, NO_LONGER_LOW = 0.80, 0.87
LOW_OF_MAX, NO_LONGER_LOW_OF_MAX = 0.65, 0.70
VIOLATION = 0.10  # share of the time, by the driver's counters, that weighs as much as a bit that is set

# Bytes, of a process that computes: a CUDA context alone takes 300 to 600 MB. A desktop's own programs draw, and are
# not among those that the driver tells as computing.
FOREIGN_MEMORY = 300 * 10**6


@dataclass(frozen=True, slots=True)
class Background:
    """What is known of a GPU when a reading comes."""

    reference: int | None = None  # MHz, its own clock under load
    others: int | None = None  # MHz, of the run's other GPUs of its kind at this time
    clock_max: int | None = None
    power_limit: float | None = None
    power_limit_default: float | None = None
    watched: frozenset[str] = frozenset()  # reasons that are suspected or held just now

    @property
    def usual(self) -> int | None:
        return self.reference if self.reference is not None else self.others

    @property
    def lowered(self) -> bool:
        """Whether somebody set the power limit below the one that the card comes with."""
        limit, default = self.power_limit, self.power_limit_default
        return bool(limit and default and limit < LOWERED_LIMIT * default)


def under_load(gpu: Gpu) -> bool:
    """Whether the GPU works. Where it does not tell how much, the driver's idle bit decides."""
    if (gpu.reasons or 0) & 0x1:
        return False
    if gpu.utilization is not None:
        return gpu.utilization >= LOAD
    return gpu.reasons is not None


def violated(*rates: float | None) -> bool:
    """Whether one of the driver's counters of time says that the GPU was held back."""
    return any(rate is not None and rate >= VIOLATION for rate in rates)


def silent(gpu: Gpu) -> set[str]:
    """What this reading says nothing of: some figures come rarely, and a link rests while the GPU does."""
    out = set()
    if gpu.processes is None:
        out.add(reasons.FOREIGN)
    if not under_load(gpu) or (gpu.pcie_gen is None and gpu.pcie_width is None):
        out.add(reasons.PCIE_LINK)
    return out


def sightings(gpu: Gpu, behind: Background) -> list[Sighting]:
    """Every reason that this reading shows."""
    if not under_load(gpu):
        return _foreign(gpu)
    found, usual = _grave(gpu, behind), behind.usual
    if not found and _capped(gpu, behind):
        found = [reasons.POWER_CAP]
        usual = behind.reference if _below(gpu.sm_clock, behind.reference, UNCAPPED) else _best(behind)
    if not found and _low(gpu, behind):
        found = [reasons.LOW_CLOCKS]
        best = _best(behind)
        usual = best if _below(gpu.sm_clock, best, NO_LONGER_LOW) else behind.clock_max
    out = [Sighting(reason, gpu.sm_clock, usual, behind.others, gpu.reasons or 0) for reason in found]
    return out + _link(gpu) + _foreign(gpu)


def _grave(gpu: Gpu, behind: Background) -> list[str]:
    """The reasons that a GPU in good order does not show: by their bits, else by the driver's counters."""
    found = reasons.grave_reasons(gpu.reasons or 0)
    if violated(gpu.thermal_violation) and not {reasons.SOFTWARE_THERMAL, reasons.HARDWARE_THERMAL} & set(found):
        # The counter goes on where a reading just missed the bit.
        named = [name for name in (reasons.HARDWARE_THERMAL, reasons.SOFTWARE_THERMAL) if name in behind.watched]
        found.append(named[0] if named else reasons.THERMAL)
    if violated(gpu.brake_violation) and reasons.POWER_BRAKE not in found:
        found.append(reasons.POWER_BRAKE)
    return found


def _capped(gpu: Gpu, behind: Background) -> bool:
    """Whether the power limit costs more than it does on every busy GPU."""
    if not ((gpu.reasons or 0) & 0x4 or violated(gpu.power_violation)):
        return False
    already = reasons.POWER_CAP in behind.watched
    return (
        behind.lowered
        or _below(gpu.sm_clock, behind.reference, UNCAPPED if already else CAPPED)
        or _below(gpu.sm_clock, behind.others, NO_LONGER_LOW if already else LOW)
        or _below(gpu.sm_clock, behind.clock_max, UNCAPPED_OF_MAX if already else CAPPED_OF_MAX)
    )


def _low(gpu: Gpu, behind: Background) -> bool:
    """Whether the clock is low at full load, and the driver gives no reason that would explain it."""
    if (gpu.reasons or 0) & LIMITING_BITS or violated(gpu.power_violation):
        return False
    if gpu.utilization is None or gpu.utilization < FULL_LOAD:
        return False
    already = reasons.LOW_CLOCKS in behind.watched
    return _below(gpu.sm_clock, _best(behind), NO_LONGER_LOW if already else LOW) or _below(
        gpu.sm_clock, behind.clock_max, NO_LONGER_LOW_OF_MAX if already else LOW_OF_MAX
    )


def _best(behind: Background) -> int | None:
    return max((each for each in (behind.reference, behind.others) if each is not None), default=None)


def _below(clock: int | None, reference: int | None, share: float) -> bool:
    return clock is not None and reference is not None and clock < share * reference


def _link(gpu: Gpu) -> list[Sighting]:
    """A link below what this card and this slot can do."""
    parts = []
    if gpu.pcie_gen and gpu.pcie_gen_max and gpu.pcie_gen < gpu.pcie_gen_max:
        parts.append(f"generation {gpu.pcie_gen} of {gpu.pcie_gen_max}")
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        parts.append(f"{gpu.pcie_width} of {gpu.pcie_width_max} lanes")
    return [Sighting(reasons.PCIE_LINK, detail=", ".join(parts))] if parts else []


def _foreign(gpu: Gpu) -> list[Sighting]:
    """Processes of others that hold much of this GPU's memory, or do not tell how much."""
    foreign = [(name, size) for _, name, size, ours in gpu.processes or () if ours is False]
    large = [(name, size) for name, size in foreign if size is None or size >= FOREIGN_MEMORY]
    if not large:
        return []
    large.sort(key=lambda each: -(each[1] or 0))
    words = [f"{name} ({'memory unknown' if size is None else f'{size / 2**30:.1f} GiB'})" for name, size in large[:3]]
    more = f" and {len(large) - 3} more" if len(large) > 3 else ""
    return [Sighting(reasons.FOREIGN, detail=", ".join(words) + more)]
