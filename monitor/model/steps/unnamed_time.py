"""Divide the time that no phase explains among the lines of the program, by stack samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.model.report import PhaseRow, Wall
from monitor.model.state import RankState
from monitor.model.steps.stack_samples import BETWEEN_STEPS, Growth, Place, SampledPart, UnnamedTime
from monitor.step_blocks import OTHER

# A loop without a loader has no step open between two steps, and its time counts as the next one's: stack samples and
# seconds meet only in the sum of both.
UNNAMED = (OTHER, BETWEEN_STEPS)
MIN_LOOKS = 12  # with a dozen, a place that takes 10% of the time is in half of them in only one of 2,000 runs
MIN_UNANIMOUS_LOOKS = 5  # all in one place: were it less than half of the time, that would happen once in 32 runs
MIN_PART_SHARE = 0.05  # of these samples, for a place to have a part of its own
MAX_PARTS = 8


def unnamed_time(main: RankState, phases: Sequence[PhaseRow], wall: Wall) -> UnnamedTime | None:
    """Return the seconds in no phase and between steps, by places; None where there are too few samples in them.

    Args:
        phases: by the host's clock.
    """
    inside = sum(row.mean * row.count for row in phases if row.name == OTHER)
    seconds, stepping = inside + wall.between_steps, wall.stepping
    places = {place: spent for place, spent in main.samples.seconds.items() if place.where in UNNAMED}
    looks = sum(main.samples.looks[place] for place in places)
    total = sum(places.values())
    enough = MIN_UNANIMOUS_LOOKS if len({place.users for place in places}) == 1 else MIN_LOOKS
    if looks < enough or total <= 0 or seconds <= 0 or not stepping:
        return None
    joined: dict[tuple[str, str], list[Place]] = {}
    calls = main.samples.training_calls()
    for place in places:
        line = place.line if place.users in calls else place.users
        joined.setdefault((line, place.activity), []).append(place)
    rows = sorted(joined.items(), key=lambda row: -sum(places[place] for place in row[1]))
    shown, parts = rows[:MAX_PARTS], []
    shown = [row for row in shown if sum(places[place] for place in row[1]) >= MIN_PART_SHARE * total]
    for (line, activity), of_line in shown:
        spent = seconds * sum(places[place] for place in of_line) / total
        seen = sum(main.samples.looks[place] for place in of_line)
        part = SampledPart(line, activity or None, spent, spent / stepping, seen)
        growth = place_growth(main, of_line)
        if growth is not None:
            part.grows, part.early, part.late = True, growth.early, growth.late
        parts.append(part)
    rest = seconds - sum(part.seconds for part in parts)
    left = looks - sum(part.looks for part in parts)
    if left > 0:
        parts.append(SampledPart(None, None, rest, rest / stepping, left))
    return UnnamedTime(seconds, looks, parts)


def place_growth(main: RankState, places: Sequence[Place]) -> Growth | None:
    """Return how the seconds per step in these places grew; None where they did not, or samples are few."""
    meant = frozenset(places)
    return main.samples.growth(main.pace.done, meant.__contains__)
