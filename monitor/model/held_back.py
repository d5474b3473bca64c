"""Episodes as a person is told of them: which GPU, why, how far the clock fell, what the steps lost. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from monitor.model.episodes import MISSED, Episode
from monitor.model.overlap import Effect, Timelines
from monitor.model.reasons import BY_NAME
from monitor.model.throttle import NO_THROTTLE, GpuWatch, Throttles
from monitor.units import share

# Worth a line in a report, and no alert: a limit does what it is for, and a link rarely counts.
QUIET = ("power-capped", "pcie-downtrained")

SAME_CLOCK = 0.02  # of the clock: less is one step of it, and no fall


@dataclass(frozen=True, slots=True)
class HeldBack:
    """One episode, told. Times are on the run's monotonic clock; None is unknown."""

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
    fell: float | None = None  # share of the clock that is gone
    others: int | None = None  # MHz, of the run's other GPUs of this kind meanwhile
    bits: int = 0
    detail: str = ""
    effect: Effect = field(default_factory=Effect)
    let_go: float | None = None  # the last reading that shows it, where it is over, or open and the newest ones do not

    def line(self, since: str = "") -> str:
        """`GPU 3 hardware thermal since 14:02, 1,980 → 1,290 MHz, steps +18 %`; `since` tells the time."""
        head = f"GPU {self.index} {self.reason}" + (f" {since}" if since else "")
        parts = [head, self.clock_words(), self.steps_words(), self.detail]
        return ", ".join(part for part in parts if part)

    def clock_words(self) -> str:
        if self.clock_to is None:
            return ""
        if self.clock_from is not None and self.fell is not None and self.fell >= SAME_CLOCK:
            return f"{self.clock_from:,} → {self.clock_to:,} MHz"
        return f"at {self.clock_to:,} MHz" + (f" of {self.clock_max:,}" if self.clock_max else "")

    def steps_words(self) -> str:
        slower = self.effect.slower
        if slower is None:
            return ""
        return f"steps {'-' if slower < 0 else '+'}{share(abs(slower))}"


def held_back(
    throttles: Throttles, timelines: Timelines, over: bool = False, ours: Collection[str] | None = None
) -> list[HeldBack]:
    """Every episode of the run, in order of their beginnings.

    Args:
        over: whether the run has ended; then nothing goes on.
        ours: UUIDs of the GPUs that the run uses; None where it is unknown: then all count.
    """
    watches = [each for each in throttles.gpus.values() if ours is None or each.uuid in ours]
    found = [(watch, each) for watch in watches for each in watch.episodes.all()]
    found.sort(key=lambda row: row[1].start)
    slowing = [(each.start, each.last) for _, each in found if each.reason not in NO_THROTTLE]
    effects = iter(timelines.effects(slowing, _watched(watches)))
    return [told(watch, each, Effect() if each.reason in NO_THROTTLE else next(effects), over) for watch, each in found]


def _watched(watches: list[GpuWatch]) -> tuple[float, float]:
    first = min((each.first for each in watches), default=0.0)
    return first, max((each.last for each in watches if each.last is not None), default=first)


def told(watch: GpuWatch, episode: Episode, effect: Effect | None = None, over: bool = False) -> HeldBack:
    """One episode as it stands; without an effect where the steps are not asked."""
    reason = BY_NAME[episode.reason]
    return HeldBack(
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
        fell=watch.fell(episode),
        others=episode.others,
        bits=episode.bits,
        detail=episode.detail,
        effect=effect or Effect(),
        let_go=episode.last if over or not episode.open or episode.missed >= MISSED else None,
    )
