"""Stretches in which a GPU is held back: suspected, held, over. A single odd reading is none. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.model.reasons import FOREIGN, LOW_CLOCKS, PCIE_LINK, POWER_CAP

SIGHTINGS = 3  # readings that must agree: one is a flicker, two may be the same power spike seen twice
HOLD = 3.0  # seconds from the first to the last of them; bits come and go within a second on a healthy GPU
# A power limit is news only as a lasting state, for its clock moves with every kernel. And what no bit tells is read
# off clocks, links and tables that settle slowly after a change.
LONGER_HOLD = {POWER_CAP: 30.0, LOW_CLOCKS: 30.0, PCIE_LINK: 30.0, FOREIGN: 8.0}
# Of processes two readings, which lie ten seconds apart: what ends is gone from the driver's table a second later.
SIGHTINGS_OF = {FOREIGN: 2}
MISSED = 2  # readings in a row without it end a suspicion; one may miss a bit that toggles
CLEAR = 10.0  # seconds without it end an episode: a GPU at its temperature limit comes and goes in seconds
LONGEST_GAP = 5.0  # seconds that one reading may speak for; what was not watched is not counted
RARE_GAP = 25.0  # the same for what is read every ten seconds only
RARE = (PCIE_LINK, FOREIGN)
MAX_EPISODES = 50  # past ones kept a GPU


@dataclass(slots=True)
class Episode:
    """One reason that held one GPU back for a while."""

    uuid: str
    index: int
    reason: str  # a name of `reasons.BY_NAME`
    start: float  # the first reading that shows it
    last: float  # the last one that does
    sightings: int = 1
    missed: int = 0  # readings in a row without it
    held: bool = False  # beyond a flicker
    open: bool = True
    seconds: float = 0.0  # in which it was seen: at most last - start
    clock_from: int | None = None  # MHz, what the GPU ran at before, or what others like it run at
    clock_sum: float = 0.0
    clock_count: int = 0
    lowest: int | None = None  # MHz
    others_sum: float = 0.0  # clocks of GPUs like it in the same run at the same time
    others_count: int = 0
    bits: int = 0  # every clock event reason seen meanwhile
    detail: str = ""  # what else there is to say of it, as last seen

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

    def fell(self) -> float | None:
        """The share of the clock that is gone, 0 to 1; None where the clock before is unknown."""
        to = self.clock_to
        return None if to is None or not self.clock_from else max(0.0, 1.0 - to / self.clock_from)


@dataclass(slots=True)
class Sighting:
    """One reading that shows a reason, and what it says beside."""

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
    forgotten: int = 0  # past ones that no longer fit
    past_seconds: dict[str, float] = field(default_factory=dict)  # by reason, over all past ones

    def take(self, t: float, before: float | None, sightings: list[Sighting], silent: set[str]) -> list[Episode]:
        """What a reading at `t` shows, after one at `before`. Returns the episodes that began to hold, or ended.

        Args:
            silent: reasons of which this reading says neither that they are there nor that they are not.
        """
        news = [] if before is None or t - before <= CLEAR else self._end_all()
        passed_over = silent.union(sighting.reason for sighting in sightings)
        for reason in [each for each in self.watched if each not in passed_over]:
            news += self._missed(self.watched[reason], t)
        for sighting in sightings:
            news += self._seen(t, before, sighting)
        return news

    def all(self) -> list[Episode]:
        """Every episode that is held, in order of their beginnings."""
        held = [each for each in self.watched.values() if each.held]
        return sorted([*self.past, *held], key=lambda each: each.start)

    def seconds(self) -> dict[str, float]:
        """Seconds of each reason, over all episodes."""
        out = dict(self.past_seconds)
        for each in self.watched.values():
            if each.held:
                out[each.reason] = out.get(each.reason, 0.0) + each.seconds
        return out

    def _seen(self, t: float, before: float | None, sighting: Sighting) -> list[Episode]:
        episode = self.watched.get(sighting.reason)
        if episode is None:
            episode = self.watched[sighting.reason] = Episode(self.uuid, self.index, sighting.reason, t, t)
        else:
            episode.sightings += 1
            since = before if before is not None and episode.missed else episode.last
            episode.seconds += min(t - since, RARE_GAP if episode.reason in RARE else LONGEST_GAP)
            episode.last, episode.missed = t, 0
        _describe(episode, sighting)
        hold = LONGER_HOLD.get(episode.reason, HOLD)
        enough = SIGHTINGS_OF.get(episode.reason, SIGHTINGS)
        if episode.held or episode.sightings < enough or t - episode.start < hold:
            return []
        episode.held = True
        return [episode]

    def _missed(self, episode: Episode, t: float) -> list[Episode]:
        episode.missed += 1
        if episode.missed < MISSED:
            return []
        if not episode.held:
            del self.watched[episode.reason]
            return []
        return self._end(episode) if t - episode.last >= CLEAR else []

    def _end_all(self) -> list[Episode]:
        """Nobody looked for long: whether it went on meanwhile is unknown, so it is not said."""
        return [ended for each in list(self.watched.values()) for ended in self._end(each)]

    def _end(self, episode: Episode) -> list[Episode]:
        del self.watched[episode.reason]
        if not episode.held:
            return []
        episode.open = False
        self.past_seconds[episode.reason] = self.past_seconds.get(episode.reason, 0.0) + episode.seconds
        self.past.append(episode)
        if len(self.past) > MAX_EPISODES:
            del self.past[0]
            self.forgotten += 1
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
