"""The GPU is held back: heat, power, brakes, low clocks. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from monitor.model.episodes import MISSED
from monitor.model.held_back import SAME_CLOCK, HeldBack, held_back
from monitor.model.overlap import Timelines
from monitor.model.reasons import set_by_hand, unknown_bits
from monitor.model.report import Finding
from monitor.model.throttle import GpuWatch, Throttles
from monitor.units import duration, plural, share

GRAVE_FALL = 0.5  # of the clock: the GPU does half of its work
GRAVE_SLOWER = 0.5  # steps half as long again
WORTH = 0.01  # of the time; what took less and is over is worth knowing, and no longer worth an alarm
SHOWN = 4  # episodes told one by one
SHOWN_STEPS = 20


@dataclass(frozen=True, slots=True)
class GpuEvidence:
    """What the rules on GPUs look at."""

    throttles: Throttles
    episodes: list[HeldBack]
    wall: float | None  # elapsed seconds of the run
    ours: Collection[str] | None = None

    def watches(self) -> list[GpuWatch]:
        """The GPUs that count, in order of their numbers."""
        known = [each for each in self.throttles.gpus.values() if self.ours is None or each.uuid in self.ours]
        return sorted(known, key=lambda each: each.index)

    def of(self, code: str) -> list[HeldBack]:
        """The episodes that lead to this finding: those that go on first, then by what they took."""
        rows = [each for each in self.episodes if each.code == code]
        return sorted(rows, key=lambda each: (each.let_go is not None, -(lost_seconds(each) or 0.0), -each.seconds))

    def shown(self, row: HeldBack) -> bool:
        """Whether the newest readings of its GPU show the episode; an open one may have let go a moment ago."""
        episode = self.throttles.gpus[row.uuid].episodes.watched.get(row.reason)
        return episode is not None and episode.start == row.start and episode.missed < MISSED


def gpu_evidence(
    throttles: Throttles,
    timelines: Timelines,
    wall: float | None,
    over: bool = False,
    ours: Collection[str] | None = None,
) -> GpuEvidence:
    """The evidence as it stands.

    Args:
        wall: elapsed seconds of the run, where known.
        over: whether the run has ended.
        ours: UUIDs of the GPUs that the run uses; None where it is unknown: then all count.
    """
    return GpuEvidence(throttles, held_back(throttles, timelines, over, ours), wall, ours)


def thermal_throttle(evidence: GpuEvidence) -> Finding | None:
    """Heat lowers the clocks."""
    rows = evidence.of("thermal-throttle")
    if not rows:
        return None
    lines = [_heat(watch) for watch in evidence.watches() if any(row.uuid == watch.uuid for row in rows)]
    return _finding(
        evidence,
        rows,
        ("too hot and clocked down", "was too hot and clocked down", "were too hot and clocked down"),
        [line for line in lines if line],
        "Cool it: air flow, dust, fans, room, what runs next to it. A power limit a little lower (nvidia-smi -pl)"
        " often costs less than the heat does.",
    )


def power_brake(evidence: GpuEvidence) -> Finding | None:
    """The machine's power supply makes the GPU slow down."""
    return _finding(
        evidence,
        evidence.of("power-brake"),
        ("slowed down by the power brake", "was slowed down by the power brake", "were slowed down by the power brake"),
        [],
        "The machine's own supply asks for less power: have its power supplies, cables and the rack's power budget"
        " checked.",
    )


def hw_slowdown(evidence: GpuEvidence) -> Finding | None:
    """The board cuts the clock and does not say why."""
    return _finding(
        evidence,
        evidence.of("hw-slowdown"),
        ("slowed down by its hardware", "was slowed down by its hardware", "were slowed down by their hardware"),
        [],
        "The board protects itself, from heat, a power brake or too much current: look at temperatures and power"
        " cables, and at nvidia-smi -q -d PERFORMANCE while it lasts.",
    )


def power_capped(evidence: GpuEvidence) -> Finding | None:
    """The power limit costs clock beyond what is normal on a busy GPU. Information: it is what the limit is for."""
    rows = evidence.of("power-capped")
    named = {row.uuid for row in rows}
    lines = [line for watch in evidence.watches() if watch.uuid in named and (line := _limit(watch))]
    return _finding(
        evidence,
        rows,
        ("clocked down by its power limit", "was clocked down by its power limit", "were clocked down by the limit"),
        lines,
        "Normal for dense work; if the limit was lowered, whoever runs the machine can raise it (nvidia-smi -pl).",
        most="info",
    )


def low_clocks(evidence: GpuEvidence) -> Finding | None:
    """Full load, low clock, and no reason that would have to be: locked clocks, most often."""
    rows = evidence.of("low-clocks")
    said = (
        "at a low clock, and no reason is given",
        "ran at a low clock, and no reason was given",
        "ran at low clocks",
    )
    if all(set_by_hand(row.bits) for row in rows):
        set_so = "as its application clocks are set"
        said = (f"at a low clock, {set_so}", f"ran at a low clock, {set_so}", "ran at low clocks, as they are set")
    unknown = 0
    for row in rows:
        unknown |= unknown_bits(row.bits)
    return _finding(
        evidence,
        rows,
        said,
        [f"the driver gives a reason that is not known here: {hex(unknown)}"] if unknown else [],
        "See whether somebody locked the clocks: nvidia-smi -q -d CLOCK. nvidia-smi -rgc and -rac take locks and"
        " application clocks back.",
    )


def _finding(
    evidence: GpuEvidence,
    rows: list[HeldBack],
    said: tuple[str, str, str],
    lines: list[str],
    advice: str,
    most: str = "critical",
) -> Finding | None:
    """One finding of all these episodes.

    Args:
        rows: the worst first.
        said: what is to be said of a GPU now, of one in the past, of several in the past.
        most: the gravest that it may be called.
    """
    if not rows:
        return None
    worst = rows[0]
    open_gpus = {row.uuid for row in rows if row.let_go is None}
    gpus = open_gpus or {row.uuid for row in rows}
    if len(gpus) == 1:
        title = f"GPU {worst.index} " + (f"is {said[0]}" if open_gpus else said[1])
    else:
        title = f"{len(gpus)} GPUs " + (f"are {said[0].replace(' its ', ' their ')}" if open_gpus else said[2])
    words = ", ".join(part for part in (worst.clock_words(), worst.steps_words()) if part)
    told = [_told(evidence, row) for row in rows[:SHOWN]]
    if len(rows) > SHOWN:
        told.append(f"{plural(len(rows) - SHOWN, 'episode', 'episodes')} more")
    first, last = worst.effect.first, worst.effect.last
    steps = [] if first is None or last is None else list(range(first, last + 1)[:SHOWN_STEPS])
    return Finding(
        worst.code,
        most if most == "info" else severity(evidence, rows),
        title + (f": {words}" if words else ""),
        [*told, *lines],
        advice,
        lost_fraction(evidence, rows),
        steps,
        over=not open_gpus,  # it may come back: until then the steps to come gain nothing
    )


def severity(evidence: GpuEvidence, rows: list[HeldBack]) -> str:
    """Critical where half of the speed is gone; information where it was short and is over."""
    seconds: dict[str, float] = {}
    for row in rows:
        seconds[row.uuid] = seconds.get(row.uuid, 0.0) + row.seconds
    goes_on = any(row.end is None for row in rows)
    if not goes_on and evidence.wall and max(seconds.values()) < WORTH * evidence.wall:
        return "info"
    grave = any((row.fell or 0.0) > GRAVE_FALL or (row.effect.slower or 0.0) >= GRAVE_SLOWER for row in rows)
    return "critical" if grave else "warning"


def lost_seconds(row: HeldBack) -> float | None:
    """The seconds that this episode cost at most: by the steps where they can be compared, else by the clock."""
    if row.effect.slower is not None:
        slower = max(0.0, row.effect.slower)
        return row.effect.seconds * slower / (1.0 + slower)
    # No fall is no measure: it was like this whenever the GPU worked.
    return None if row.fell is None or row.fell < SAME_CLOCK else row.seconds * row.fell


def lost_fraction(evidence: GpuEvidence, rows: list[HeldBack]) -> float | None:
    """The share of the run that mending it gains at most. GPUs wait for each other, so the worst one counts."""
    lost: dict[str, float] = {}
    for row in rows:
        each = lost_seconds(row)
        if each is not None:
            lost[row.uuid] = lost.get(row.uuid, 0.0) + each
    return min(1.0, max(lost.values()) / evidence.wall) if lost and evidence.wall else None


def _told(evidence: GpuEvidence, row: HeldBack) -> str:
    """`GPU 3 hardware thermal for 20.0 s, 1,980 → 1,290 MHz (lowest 1,200), steps 120 to 150, 18 % longer`."""
    parts = [f"GPU {row.index} {row.reason} for {duration(row.seconds)}"]
    if clock := row.clock_words():
        lowest = row.clock_lowest
        parts.append(clock + (f" (lowest {lowest:,})" if lowest is not None and lowest != row.clock_to else ""))
    effect = row.effect
    if effect.steps:
        where = (
            f"step {effect.first:,}" if effect.first == effect.last else f"steps {effect.first:,} to {effect.last:,}"
        )
        slower = effect.slower
        compared = "" if slower is None else f", {share(abs(slower))} {'longer' if slower >= 0 else 'shorter'}"
        parts.append(where + compared)
    if row.others is not None:
        parts.append(f"others like it at {row.others:,} MHz meanwhile")
    return ", ".join(parts) + _until(evidence, row)


def _until(evidence: GpuEvidence, row: HeldBack) -> str:
    """Whether it goes on, has let go just now, or went on until the run was over."""
    if evidence.shown(row):
        return "; it goes on" if row.end is None else "; until the end"
    return "; it let go a moment ago" if row.end is None else ""


def _heat(watch: GpuWatch) -> str:
    if watch.hottest is None:
        return ""
    limit = f"; it slows down from {watch.slows_at:.0f} °C on" if watch.slows_at is not None else ""
    return f"GPU {watch.index} reached {watch.hottest:.0f} °C under load{limit}"


def _limit(watch: GpuWatch) -> str:
    if watch.power_limit is None:
        return ""
    default = watch.power_limit_default
    own = f"; the card comes with {default:.0f} W" if default is not None and default != watch.power_limit else ""
    return f"GPU {watch.index} has a limit of {watch.power_limit:.0f} W{own}"
