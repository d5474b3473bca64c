"""The GPUs of a run under watch: what holds them back, since when, and what they do when nothing does. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from monitor.model.episodes import CLEAR, LONGEST_GAP, Episode, Episodes
from monitor.model.reasons import FOREIGN, GRAVE_BITS, LOW_CLOCKS, PCIE_LINK
from monitor.model.reference import ClockReference
from monitor.model.sightings import Background, sightings, silent, under_load, violated
from trainhooks.events import Gpu

MAX_GPUS = 64  # more in one machine is a fault of the writer
MAX_XIDS = 32  # different error codes kept a GPU
OTHERS_AGE = 3.0  # seconds: readings of two GPUs this close are of the same time
NO_THROTTLE = (PCIE_LINK, FOREIGN)  # these lower no clock


@dataclass(slots=True)
class Errors:
    """What the driver told of faults in one GPU."""

    xids: dict[int, float] = field(default_factory=dict)  # error code -> when it was last told
    ecc_before: int | None = None  # uncorrected memory errors when the watch began
    ecc_now: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False

    def take(self, gpu: Gpu) -> None:
        if gpu.xid and (gpu.xid in self.xids or len(self.xids) < MAX_XIDS):
            self.xids[gpu.xid] = gpu.t
        if gpu.ecc_errors is not None:
            if self.ecc_before is None or gpu.ecc_errors < self.ecc_before:  # the counter began anew
                self.ecc_before = gpu.ecc_errors
            self.ecc_now = gpu.ecc_errors
        if gpu.remap_pending is not None:
            self.remap_pending = gpu.remap_pending
        if gpu.remap_failed is not None:
            self.remap_failed = gpu.remap_failed


@dataclass(slots=True)
class Link:
    """The PCIe link as it was under load."""

    generation: int | None = None
    generation_max: int | None = None
    lanes: int | None = None
    lanes_max: int | None = None


@dataclass(slots=True)
class GpuWatch:
    """One GPU under watch."""

    uuid: str
    index: int
    first: float
    episodes: Episodes
    last: float | None = None
    name: str | None = None
    clock_max: int | None = None
    reference: ClockReference = field(default_factory=ClockReference)
    free_clock: int | None = None  # of the last reading, where it was under load and nothing grave held it back
    loaded: float = 0.0  # seconds under load
    hottest: float | None = None  # Celsius, under load
    slows_at: float | None = None  # Celsius, where the driver begins to lower the clock
    power_limit: float | None = None
    power_limit_default: float | None = None
    errors: Errors = field(default_factory=Errors)
    link: Link = field(default_factory=Link)

    def throttle(self) -> dict[str, float]:
        """Seconds in which each reason held this GPU back."""
        return {reason: each for reason, each in self.episodes.seconds().items() if reason not in NO_THROTTLE}

    def clock_before(self, episode: Episode) -> int | None:
        """The clock that this episode is measured against; for one from the first moment on, what came after it."""
        return episode.clock_from if episode.clock_from is not None else self.reference.clock

    def fell(self, episode: Episode) -> float | None:
        """The share of the clock that is gone in this episode, 0 to 1; None where it is unknown."""
        before, now = self.clock_before(episode), episode.clock_to
        return max(0.0, 1.0 - now / before) if before and now is not None else None


@dataclass(slots=True)
class Throttles:
    """All GPUs of a run under watch."""

    gpus: dict[str, GpuWatch] = field(default_factory=dict)

    def take(self, gpu: Gpu) -> list[Episode]:
        """Take a reading in; returns the episodes that it shows to have begun, or to have ended."""
        watch = self.gpus.get(gpu.uuid)
        if watch is None:
            if len(self.gpus) >= MAX_GPUS:
                return []
            watch = GpuWatch(gpu.uuid, gpu.index, gpu.t, Episodes(gpu.uuid, gpu.index))
            self.gpus[gpu.uuid] = watch
        before = watch.last
        if before is not None and gpu.t <= before:  # two recorders at once, or a clock that is none
            return []
        watch.last = gpu.t
        unsaid = silent(gpu)
        _remember(watch, gpu, PCIE_LINK not in unsaid)
        watched = watch.episodes.watched
        behind = Background(
            watch.reference.clock,
            self._others(watch, gpu.t),
            watch.clock_max,
            watch.power_limit,
            watch.power_limit_default,
            frozenset(watched),
        )
        shown = sightings(gpu, behind)
        _measure(watch, gpu, before, any(each.reason == LOW_CLOCKS for each in shown))
        return watch.episodes.take(gpu.t, before, shown, unsaid)

    def _others(self, watch: GpuWatch, t: float) -> int | None:
        """The clock at which the other GPUs of this kind run just now; None where there are none to compare with."""
        clocks = [
            each.free_clock
            for each in self.gpus.values()
            if each is not watch and each.free_clock is not None and each.name == watch.name
            if each.last is not None and abs(t - each.last) <= OTHERS_AGE
        ]
        return round(median(clocks)) if clocks else None


def _remember(watch: GpuWatch, gpu: Gpu, link: bool) -> None:
    """What of a reading stays true until another says otherwise."""
    watch.name = gpu.name or watch.name
    watch.clock_max = gpu.sm_clock_max or watch.clock_max
    watch.power_limit = gpu.power_limit or watch.power_limit
    watch.power_limit_default = gpu.power_limit_default or watch.power_limit_default
    watch.slows_at = gpu.slows_at or watch.slows_at
    watch.errors.take(gpu)
    if link:
        watch.link = Link(gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max)


def _measure(watch: GpuWatch, gpu: Gpu, before: float | None, low: bool) -> None:
    """What the GPU does when it works: the measure for its worse times, and so without the low clocks themselves."""
    watch.free_clock = None
    if not under_load(gpu):
        return
    if before is not None and gpu.t - before <= CLEAR:
        watch.loaded += min(gpu.t - before, LONGEST_GAP)
    if gpu.temperature is not None:
        watch.hottest = gpu.temperature if watch.hottest is None else max(watch.hottest, gpu.temperature)
    held = (gpu.reasons or 0) & GRAVE_BITS or violated(gpu.thermal_violation, gpu.brake_violation)
    if not held and gpu.sm_clock is not None:
        watch.free_clock = gpu.sm_clock
        if not low:
            watch.reference.add(gpu.sm_clock)
