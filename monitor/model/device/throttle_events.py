"""What one reading of a GPU shows that may hold it back. Pure.

A reason counts only under load: an idle GPU lowers its clocks and says so, and that is no fault.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor import gpu_lines
from monitor.gpu_lines import FOREIGN, LIMITING_BITS, LOW_CLOCKS, PCIE_LINK, POWER_CAP
from trainhooks.protocol.events import Gpu

# Episodes: stretches in which a reason slows a GPU, first suspected, then held, then over.

MIN_SIGHTINGS = 3  # readings that must agree: two may be the same power spike
MIN_HOLD_SECONDS = 3.0  # seconds from the first to the last of them; bits come and go within a second on a healthy GPU
# A power limit moves the clock with every kernel, so it counts only after longer. So do reasons without a bit: clocks,
# links and process tables settle slowly after a change.
LONGER_HOLD_SECONDS = {POWER_CAP: 30.0, LOW_CLOCKS: 30.0, PCIE_LINK: 30.0, FOREIGN: 8.0}
# Of processes two readings, which lie ten seconds apart: what ends is gone from the driver's table a second later.
SIGHTINGS_BY_REASON = {FOREIGN: 2}
MAX_MISSED_READINGS = 2  # readings in a row without it end a suspicion; one may miss a bit that toggles
CLEAR_SECONDS = 10.0  # seconds without it end an episode: a GPU at its temperature limit comes and goes in seconds
MAX_GAP = 5.0  # seconds that one reading may cover; a longer gap is not counted
MAX_RARE_GAP = 25.0  # the same for what is read every ten seconds only
RARELY_READ = (PCIE_LINK, FOREIGN)
MAX_EPISODES = 50  # past ones kept a GPU


@dataclass(slots=True)
class Episode:
    """A period in which one reason slowed one GPU."""

    uuid: str
    index: int
    reason: str  # a name of `reasons.BY_NAME`
    start: float  # the first reading that shows it
    last: float  # the last one that does
    sightings: int = 1
    missed: int = 0  # readings in a row without it
    held: bool = False  # confirmed by enough readings
    open: bool = True
    seconds: float = 0.0  # in which it was seen: at most last - start
    clock_from: int | None = None  # MHz, what the GPU ran at before, or what others like it run at
    clock_sum: float = 0.0
    clock_count: int = 0
    lowest: int | None = None  # MHz
    others_sum: float = 0.0  # clocks of GPUs like it in the same run at the same time
    others_count: int = 0
    bits: int = 0  # every clock event reason seen meanwhile
    detail: str = ""  # further details, from the newest reading

    @property
    def end(self) -> float | None:
        """The last reading that shows it; None while it is open."""
        return None if self.open else self.last

    @property
    def clock_to(self) -> int | None:
        """The mean clock while it lasted, in MHz."""
        return round(self.clock_sum / self.clock_count) if self.clock_count else None

    @property
    def others(self) -> int | None:
        """The mean clock of the run's other GPUs of the same kind meanwhile, in MHz."""
        return round(self.others_sum / self.others_count) if self.others_count else None


@dataclass(slots=True)
class Sighting:
    """A reason shown by one reading, with its details."""

    reason: str
    clock: int | None = None
    clock_from: int | None = None
    others: int | None = None
    bits: int = 0
    detail: str = ""


@dataclass(slots=True)
class Episodes:
    """The episodes of one GPU: for each reason at most one at a time."""

    uuid: str = ""
    index: int = 0
    watched: dict[str, Episode] = field(default_factory=dict)  # suspected or open, by reason
    past: list[Episode] = field(default_factory=list)
    past_seconds: dict[str, float] = field(default_factory=dict)  # by reason, over all past ones

    def add_reading(self, t: float, before: float | None, sightings: list[Sighting], silent: set[str]) -> list[Episode]:
        """Add the reading at `t`, after the one at `before`; return the episodes that were confirmed or ended.

        Args:
            silent: reasons on which this reading has no information.
        """
        news = [] if before is None or t - before <= CLEAR_SECONDS else self._end_all()
        passed_over = silent.union(sighting.reason for sighting in sightings)
        for reason in [reason for reason in self.watched if reason not in passed_over]:
            news += self._add_miss(self.watched[reason], t)
        for sighting in sightings:
            news += self._add_sighting(t, before, sighting)
        return news

    def all_episodes(self) -> list[Episode]:
        """Return every episode that is held, in order of their beginnings."""
        held = [episode for episode in self.watched.values() if episode.held]
        return sorted([*self.past, *held], key=lambda episode: episode.start)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each reason, over all episodes."""
        out = dict(self.past_seconds)
        for episode in self.watched.values():
            if episode.held:
                out[episode.reason] = out.get(episode.reason, 0.0) + episode.seconds
        return out

    def _add_sighting(self, t: float, before: float | None, sighting: Sighting) -> list[Episode]:
        episode = self.watched.get(sighting.reason)
        if episode is None:
            episode = self.watched[sighting.reason] = Episode(
                uuid=self.uuid, index=self.index, reason=sighting.reason, start=t, last=t
            )
        else:
            episode.sightings += 1
            since = before if before is not None and episode.missed else episode.last
            episode.seconds += min(t - since, MAX_RARE_GAP if episode.reason in RARELY_READ else MAX_GAP)
            episode.last, episode.missed = t, 0
        _describe(episode, sighting)
        hold = LONGER_HOLD_SECONDS.get(episode.reason, MIN_HOLD_SECONDS)
        min_sightings = SIGHTINGS_BY_REASON.get(episode.reason, MIN_SIGHTINGS)
        if episode.held or episode.sightings < min_sightings or t - episode.start < hold:
            return []
        episode.held = True
        return [episode]

    def _add_miss(self, episode: Episode, t: float) -> list[Episode]:
        episode.missed += 1
        if episode.missed < MAX_MISSED_READINGS:
            return []
        if not episode.held:
            del self.watched[episode.reason]
            return []
        return self._end(episode) if t - episode.last >= CLEAR_SECONDS else []

    def _end_all(self) -> list[Episode]:
        """End every episode after a long gap: whether it went on meanwhile is unknown."""
        return [ended for episode in list(self.watched.values()) for ended in self._end(episode)]

    def _end(self, episode: Episode) -> list[Episode]:
        del self.watched[episode.reason]
        if not episode.held:
            return []
        episode.open = False
        self.past_seconds[episode.reason] = self.past_seconds.get(episode.reason, 0.0) + episode.seconds
        self.past.append(episode)
        if len(self.past) > MAX_EPISODES:
            del self.past[0]
        return [episode]


def _describe(episode: Episode, sighting: Sighting) -> None:
    episode.bits |= sighting.bits
    episode.detail = sighting.detail or episode.detail
    if episode.clock_from is None:
        episode.clock_from = sighting.clock_from
    if sighting.clock is not None:
        episode.clock_sum += sighting.clock
        episode.clock_count += 1
        episode.lowest = sighting.clock if episode.lowest is None else min(episode.lowest, sighting.clock)
    if sighting.others is not None:
        episode.others_sum += sighting.others
        episode.others_count += 1


MIN_BUSY_PERCENT = 30.0  # percent utilization; a less busy GPU is limited by something else
MIN_FULL_LOAD = 80.0  # percent; from it on a clock can be low without a reason from the driver

# A power limit moves the clock by some percent with every kernel: less than a tenth is noise. An episode
# lasts until the clock is back within a twentieth.
CAPPED, UNCAPPED = 0.90, 0.95
# Of the card's highest clock, which dense matrix work under the normal limit does not reach (an H100 runs at 0.7 to
# 0.9 of it); LOWERED_LIMIT is of the default power limit.
CAPPED_OF_MAX, UNCAPPED_OF_MAX = 0.65, 0.70
LOWERED_LIMIT = 0.95
# Of the clock of others of its kind, which differ by up to 10%, where there is no reason. Some cards cannot reach the
# maximum that they report.
LOW, NO_LONGER_LOW = 0.80, 0.87
LOW_OF_MAX, NO_LONGER_LOW_OF_MAX = 0.65, 0.70
MIN_VIOLATION_SHARE = 0.10  # share of the time, by the driver's counters, that counts like a set bit

# Bytes, of a process that computes: a CUDA context alone takes 300 to 600 MB. A desktop's own programs draw, and are
# not among those that the driver tells as computing.
MIN_FOREIGN_MEMORY = 300 * 10**6


@dataclass(frozen=True, slots=True)
class Background:
    """What is known about a GPU before a reading."""

    reference: int | None = None  # MHz, its own clock under load
    others: int | None = None  # MHz, of the run's other GPUs of its kind at this time
    clock_max: int | None = None
    power_limit: float | None = None
    power_limit_default: float | None = None
    watched: frozenset[str] = frozenset()  # reasons that are suspected or held just now

    @property
    def expected_clock(self) -> int | None:
        return self.reference if self.reference is not None else self.others

    @property
    def lowered(self) -> bool:
        """Return whether the power limit is below the card's default."""
        limit, default = self.power_limit, self.power_limit_default
        return bool(limit and default and limit < LOWERED_LIMIT * default)


def under_load(gpu: Gpu) -> bool:
    """Return whether the GPU is busy: by its utilization, else by the driver's idle bit."""
    if (gpu.reasons or 0) & 0x1:
        return False
    if gpu.utilization is not None:
        return gpu.utilization >= MIN_BUSY_PERCENT
    return gpu.reasons is not None


def violated(*rates: float | None) -> bool:
    """Return whether one of the driver's time counters shows that the GPU was throttled."""
    return any(rate is not None and rate >= MIN_VIOLATION_SHARE for rate in rates)


def unknown_reasons(gpu: Gpu) -> set[str]:
    """Return the reasons on which this reading has no information: rare figures, and the link of an idle GPU."""
    reasons = set()
    if gpu.processes is None:
        reasons.add(gpu_lines.FOREIGN)
    if not under_load(gpu) or (gpu.pcie_gen is None and gpu.pcie_width is None):
        reasons.add(gpu_lines.PCIE_LINK)
    return reasons


def find_sightings(gpu: Gpu, background: Background) -> list[Sighting]:
    """Return every reason that this reading shows."""
    if not under_load(gpu):
        return _foreign_sightings(gpu)
    shown, expected = _grave_reasons(gpu, background), background.expected_clock
    if not shown and _is_capped(gpu, background):
        shown = [gpu_lines.POWER_CAP]
        expected = background.reference if _below(gpu.sm_clock, background.reference, UNCAPPED) else _best(background)
    if not shown and _is_clock_low(gpu, background):
        shown = [gpu_lines.LOW_CLOCKS]
        best = _best(background)
        expected = best if _below(gpu.sm_clock, best, NO_LONGER_LOW) else background.clock_max
    out = [
        Sighting(
            reason=reason, clock=gpu.sm_clock, clock_from=expected, others=background.others, bits=gpu.reasons or 0
        )
        for reason in shown
    ]
    return out + _link_sightings(gpu) + _foreign_sightings(gpu)


def _grave_reasons(gpu: Gpu, background: Background) -> list[str]:
    """Return the reasons that a GPU in good order does not show: by their bits, else by the driver's counters."""
    shown = gpu_lines.grave_reasons(gpu.reasons or 0)
    if violated(gpu.thermal_violation) and not {gpu_lines.SOFTWARE_THERMAL, gpu_lines.HARDWARE_THERMAL} & set(shown):
        # The counter also shows a reason whose bit the reading missed.
        named = [
            name for name in (gpu_lines.HARDWARE_THERMAL, gpu_lines.SOFTWARE_THERMAL) if name in background.watched
        ]
        shown.append(named[0] if named else gpu_lines.THERMAL)
    if violated(gpu.brake_violation) and gpu_lines.POWER_BRAKE not in shown:
        shown.append(gpu_lines.POWER_BRAKE)
    return shown


def _is_capped(gpu: Gpu, background: Background) -> bool:
    """Return whether the power limit costs more than it does on every busy GPU."""
    if not ((gpu.reasons or 0) & 0x4 or violated(gpu.power_violation)):
        return False
    already = gpu_lines.POWER_CAP in background.watched
    return (
        background.lowered
        or _below(gpu.sm_clock, background.reference, UNCAPPED if already else CAPPED)
        or _below(gpu.sm_clock, background.others, NO_LONGER_LOW if already else LOW)
        or _below(gpu.sm_clock, background.clock_max, UNCAPPED_OF_MAX if already else CAPPED_OF_MAX)
    )


def _is_clock_low(gpu: Gpu, background: Background) -> bool:
    """Return whether the clock is low at full load, and the driver gives no reason that would explain it."""
    if (gpu.reasons or 0) & LIMITING_BITS or violated(gpu.power_violation):
        return False
    if gpu.utilization is None or gpu.utilization < MIN_FULL_LOAD:
        return False
    already = gpu_lines.LOW_CLOCKS in background.watched
    return _below(gpu.sm_clock, _best(background), NO_LONGER_LOW if already else LOW) or _below(
        gpu.sm_clock, background.clock_max, NO_LONGER_LOW_OF_MAX if already else LOW_OF_MAX
    )


def _best(background: Background) -> int | None:
    return max((clock for clock in (background.reference, background.others) if clock is not None), default=None)


def _below(clock: int | None, reference: int | None, share: float) -> bool:
    return clock is not None and reference is not None and clock < share * reference


def _link_sightings(gpu: Gpu) -> list[Sighting]:
    """Return a link below what this card and this slot can do."""
    parts = []
    if gpu.pcie_gen and gpu.pcie_gen_max and gpu.pcie_gen < gpu.pcie_gen_max:
        parts.append(f"generation {gpu.pcie_gen} of {gpu.pcie_gen_max}")
    if gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max:
        parts.append(f"{gpu.pcie_width} of {gpu.pcie_width_max} lanes")
    return [Sighting(gpu_lines.PCIE_LINK, detail=", ".join(parts))] if parts else []


def _foreign_sightings(gpu: Gpu) -> list[Sighting]:
    """Return a sighting of other users' processes that hold much of this GPU's memory, or an unknown amount."""
    foreign = [(name, size) for _, name, size, ours in gpu.processes or () if ours is False]
    large = [(name, size) for name, size in foreign if size is None or size >= MIN_FOREIGN_MEMORY]
    if not large:
        return []
    large.sort(key=lambda process: -(process[1] or 0))
    words = [f"{name} ({'memory unknown' if size is None else f'{size / 2**30:.1f} GiB'})" for name, size in large[:3]]
    more = f" and {len(large) - 3} more" if len(large) > 3 else ""
    return [Sighting(gpu_lines.FOREIGN, detail=", ".join(words) + more)]
