"""The GPUs of a run: what throttles them, since when, and their clocks when nothing does. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from statistics import median

from monitor.gpu_lines import BY_NAME, FOREIGN, GRAVE_BITS, LOW_CLOCKS, PCIE_LINK
from monitor.model.device.throttle_events import (
    CLEAR_SECONDS,
    MAX_GAP,
    MAX_MISSED_READINGS,
    Background,
    Episode,
    Episodes,
    find_sightings,
    under_load,
    unknown_reasons,
    violated,
)
from monitor.model.steps.step_intervals import Effect, Timelines
from monitor.units import share
from trainhooks.protocol.events import Gpu

# The reference clock of a GPU, which it reaches under load without throttling: a small histogram of its readings.

CLOCK_BIN = 15  # MHz: the step of NVIDIA's SM clocks
MAX_CLOCK = 6000  # MHz; no GPU comes near, so a reading beyond is a fault and would only widen the table
MIN_CLOCK_READINGS = 8  # before the clock counts as known: fewer may all be from the ramp-up
CLOCK_RECHECK = 16  # readings between two computations of the clock, once there are more than this
CLOCK_QUANTILE = 0.95  # the 95th percentile: not the highest, which may be a short boost


@dataclass(slots=True)
class ClockBaseline:
    """How often each clock was seen; at most 400 bins."""

    bins: dict[int, int] = field(default_factory=dict)
    count: int = 0
    clock: int | None = None  # MHz that 95% of the readings do not exceed; None while too little was seen

    def add(self, clock: int) -> None:
        if not 0 < clock <= MAX_CLOCK:
            return
        self.bins[clock // CLOCK_BIN] = self.bins.get(clock // CLOCK_BIN, 0) + 1
        self.count += 1
        if self.count >= MIN_CLOCK_READINGS and (self.count <= CLOCK_RECHECK or self.count % CLOCK_RECHECK == 0):
            self.clock = self._clock()

    def _clock(self) -> int | None:
        rank = CLOCK_QUANTILE * (self.count - 1)
        seen = 0
        for bin_ in sorted(self.bins):
            seen += self.bins[bin_]
            if rank < seen:
                return bin_ * CLOCK_BIN
        return None


MAX_WATCHED_GPUS = 64  # more in one machine are an error of the writer
MAX_XIDS = 32  # different error codes kept a GPU
MAX_OTHERS_AGE = 3.0  # seconds: readings of two GPUs this close are of the same time
NO_THROTTLE = (PCIE_LINK, FOREIGN)  # these lower no clock


@dataclass(slots=True)
class Errors:
    """Faults that the driver reported of one GPU."""

    xids: dict[int, float] = field(default_factory=dict)  # error code -> when it was last reported
    ecc_before: int | None = None  # uncorrected memory errors when the watch began
    ecc_now: int | None = None
    remap_pending: bool = False
    remap_failed: bool = False

    def add_reading(self, gpu: Gpu) -> None:
        if gpu.xid and (gpu.xid in self.xids or len(self.xids) < MAX_XIDS):
            self.xids[gpu.xid] = gpu.t
        if gpu.ecc_errors is not None:
            if self.ecc_before is None or gpu.ecc_errors < self.ecc_before:  # the counter was reset
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
    """The readings of one GPU, folded."""

    uuid: str
    index: int
    first: float
    episodes: Episodes
    last: float | None = None
    name: str | None = None
    clock_max: int | None = None
    reference: ClockBaseline = field(default_factory=ClockBaseline)
    free_clock: int | None = None  # of the last reading, where it was under load and nothing grave held it back
    loaded: float = 0.0  # seconds under load
    hottest: float | None = None  # Celsius, under load
    slows_at: float | None = None  # Celsius, where the driver begins to lower the clock
    power_limit: float | None = None
    power_limit_default: float | None = None
    errors: Errors = field(default_factory=Errors)
    link: Link = field(default_factory=Link)

    def throttle_seconds(self) -> dict[str, float]:
        """Return the seconds in which each reason held this GPU back."""
        return {reason: seconds for reason, seconds in self.episodes.seconds().items() if reason not in NO_THROTTLE}

    def clock_before(self, episode: Episode) -> int | None:
        """Return the clock that this episode is compared with, in MHz; None: unknown."""
        return episode.clock_from if episode.clock_from is not None else self.reference.clock

    def clock_drop(self, episode: Episode) -> float | None:
        """Return the share of the clock that is gone in this episode, 0 to 1; None where it is unknown."""
        before, now = self.clock_before(episode), episode.clock_to
        return max(0.0, 1.0 - now / before) if before and now is not None else None


@dataclass(slots=True)
class Throttles:
    """The folded readings of all GPUs of a run."""

    gpus: dict[str, GpuWatch] = field(default_factory=dict)

    def add_reading(self, gpu: Gpu) -> list[Episode]:
        """Take a reading in; returns the episodes that it shows to have begun, or to have ended."""
        watch = self.gpus.get(gpu.uuid)
        if watch is None:
            if len(self.gpus) >= MAX_WATCHED_GPUS:
                return []
            watch = GpuWatch(uuid=gpu.uuid, index=gpu.index, first=gpu.t, episodes=Episodes(gpu.uuid, gpu.index))
            self.gpus[gpu.uuid] = watch
        before = watch.last
        if before is not None and gpu.t <= before:  # two recorders at once, or a broken clock
            return []
        watch.last = gpu.t
        unsaid = unknown_reasons(gpu)
        _remember(watch, gpu, PCIE_LINK not in unsaid)
        watched = watch.episodes.watched
        background = Background(
            reference=watch.reference.clock,
            others=self._others(watch, gpu.t),
            clock_max=watch.clock_max,
            power_limit=watch.power_limit,
            power_limit_default=watch.power_limit_default,
            watched=frozenset(watched),
        )
        shown = find_sightings(gpu, background)
        _measure(watch, gpu, before, any(sighting.reason == LOW_CLOCKS for sighting in shown))
        return watch.episodes.add_reading(gpu.t, before, shown, unsaid)

    def _others(self, watch: GpuWatch, t: float) -> int | None:
        """Return the median clock of the run's other GPUs of this kind now, in MHz; None: there are none."""
        clocks = [
            other.free_clock
            for other in self.gpus.values()
            if other is not watch and other.free_clock is not None and other.name == watch.name
            if other.last is not None and abs(t - other.last) <= MAX_OTHERS_AGE
        ]
        return round(median(clocks)) if clocks else None


def _remember(watch: GpuWatch, gpu: Gpu, link: bool) -> None:
    """Keep the parts of a reading that hold until a newer one changes them."""
    watch.name = gpu.name or watch.name
    watch.clock_max = gpu.sm_clock_max or watch.clock_max
    watch.power_limit = gpu.power_limit or watch.power_limit
    watch.power_limit_default = gpu.power_limit_default or watch.power_limit_default
    watch.slows_at = gpu.slows_at or watch.slows_at
    watch.errors.add_reading(gpu)
    if link:
        watch.link = Link(
            generation=gpu.pcie_gen, generation_max=gpu.pcie_gen_max, lanes=gpu.pcie_width, lanes_max=gpu.pcie_width_max
        )


def _measure(watch: GpuWatch, gpu: Gpu, before: float | None, low: bool) -> None:
    """Update the figures under load: seconds, temperature and clock; throttled readings are no reference."""
    watch.free_clock = None
    if not under_load(gpu):
        return
    if before is not None and gpu.t - before <= CLEAR_SECONDS:
        watch.loaded += min(gpu.t - before, MAX_GAP)
    if gpu.temperature is not None:
        watch.hottest = gpu.temperature if watch.hottest is None else max(watch.hottest, gpu.temperature)
    held = (gpu.reasons or 0) & GRAVE_BITS or violated(gpu.thermal_violation, gpu.brake_violation)
    if not held and gpu.sm_clock is not None:
        watch.free_clock = gpu.sm_clock
        if not low:
            watch.reference.add(gpu.sm_clock)


# Throttle events for people: the GPU, the reason, the loss of clock, the effect on steps.

# Reported without an alert: a limit does what it is for, and a slow link rarely matters.
QUIET = ("power-capped", "pcie-downtrained")

MIN_CLOCK_DROP = 0.02  # of the clock: less is a single step of the clock


@dataclass(frozen=True, slots=True)
class ThrottleEvent:
    """One episode for people. Times are on the run's monotonic clock; None is unknown."""

    uuid: str
    index: int
    reason: str
    short: str  # the reason for a narrow line
    code: str  # of the finding that it leads to
    start: float
    end: float | None  # None: it goes on
    seconds: float  # in which it was seen
    clock_from: int | None = None  # MHz
    clock_to: int | None = None
    clock_lowest: int | None = None
    clock_max: int | None = None
    clock_drop: float | None = None  # share of the clock that is gone
    others: int | None = None  # MHz, of the run's other GPUs of this kind meanwhile
    bits: int = 0
    detail: str = ""
    effect: Effect = field(default_factory=Effect)
    last_seen: float | None = (
        None  # the last reading that shows it, where it is over, or open and the newest ones do not
    )

    def line(self, since: str = "") -> str:
        """Return `GPU 3 hardware thermal since 14:02, 1,980 → 1,290 MHz, steps +18%`; `since` tells the time."""
        head = f"GPU {self.index} {self.reason}" + (f" {since}" if since else "")
        parts = [head, self.clock_words(), self.steps_words(), self.detail]
        return ", ".join(part for part in parts if part)

    def clock_words(self) -> str:
        if self.clock_to is None:
            return ""
        if self.clock_from is not None and self.clock_drop is not None and self.clock_drop >= MIN_CLOCK_DROP:
            return f"{self.clock_from:,} → {self.clock_to:,} MHz"
        return f"at {self.clock_to:,} MHz" + (f" of {self.clock_max:,}" if self.clock_max else "")

    def steps_words(self) -> str:
        slower = self.effect.slower
        if slower is None:
            return ""
        return f"steps {'-' if slower < 0 else '+'}{share(abs(slower))}"


def throttle_events(
    throttles: Throttles, timelines: Timelines, over: bool = False, used_gpus: Collection[str] | None = None
) -> list[ThrottleEvent]:
    """Return every episode of the run, in order of their beginnings.

    Args:
        over: whether the run has ended: no event is open then.
        used_gpus: UUIDs of the GPUs that the run uses; None: unknown, all count.
    """
    watches = [watch for watch in throttles.gpus.values() if used_gpus is None or watch.uuid in used_gpus]
    episodes = [(watch, episode) for watch in watches for episode in watch.episodes.all_episodes()]
    episodes.sort(key=lambda row: row[1].start)
    slowing = [(episode.start, episode.last) for _, episode in episodes if episode.reason not in NO_THROTTLE]
    effects = iter(timelines.effects(slowing, _watched(watches)))
    return [
        throttle_event(watch, episode, Effect() if episode.reason in NO_THROTTLE else next(effects), over)
        for watch, episode in episodes
    ]


def _watched(watches: list[GpuWatch]) -> tuple[float, float]:
    first = min((watch.first for watch in watches), default=0.0)
    return first, max((watch.last for watch in watches if watch.last is not None), default=first)


def throttle_event(
    watch: GpuWatch, episode: Episode, effect: Effect | None = None, over: bool = False
) -> ThrottleEvent:
    """Return one episode as a ThrottleEvent; without `effect` the effect on steps is unknown."""
    reason = BY_NAME[episode.reason]
    return ThrottleEvent(
        uuid=episode.uuid,
        index=episode.index,
        reason=episode.reason,
        short=reason.short,
        code=reason.code or "",
        start=episode.start,
        end=episode.last if over else episode.end,
        seconds=episode.seconds,
        clock_from=watch.clock_before(episode),
        clock_to=episode.clock_to,
        clock_lowest=episode.lowest,
        clock_max=watch.clock_max,
        clock_drop=watch.clock_drop(episode),
        others=episode.others,
        bits=episode.bits,
        detail=episode.detail,
        effect=effect or Effect(),
        last_seen=episode.last if over or not episode.open or episode.missed >= MAX_MISSED_READINGS else None,
    )
