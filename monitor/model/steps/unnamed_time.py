"""Divide the time that no phase explains among the lines of the program, by stack samples. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.model.report import PhaseRow, Wall
from monitor.model.state import RankState
from monitor.model.steps.stack_samples import BETWEEN_STEPS, MIN_PLACE_LOOKS, Growth, Sample, SampledPart, UnnamedTime
from monitor.step_blocks import OTHER
from trainhooks.protocol.places import Place

# A loop without a loader has no step open between two steps, and its time counts as the next one's: stack samples and
# seconds meet only in the sum of both.
UNNAMED = (OTHER, BETWEEN_STEPS)
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
    samples = {sample: spent for sample, spent in main.samples.seconds.items() if sample.phase in UNNAMED}
    looks = sum(main.samples.looks[sample] for sample in samples)
    total = sum(samples.values())
    enough = MIN_UNANIMOUS_LOOKS if len({sample.place.users for sample in samples}) == 1 else MIN_PLACE_LOOKS
    if looks < enough or total <= 0 or seconds <= 0 or not stepping:
        return None
    joined: dict[Place, list[Sample]] = {}
    calls = main.samples.training_calls()
    for sample in samples:
        place = sample.place
        joined.setdefault(place if place.users in calls else place._replace(library=None), []).append(sample)
    rows = sorted(joined.items(), key=lambda row: -sum(samples[sample] for sample in row[1]))
    shown, parts = rows[:MAX_PARTS], []
    shown = [row for row in shown if sum(samples[sample] for sample in row[1]) >= MIN_PART_SHARE * total]
    for place, of_line in shown:
        spent = seconds * sum(samples[sample] for sample in of_line) / total
        seen = sum(main.samples.looks[sample] for sample in of_line)
        part = SampledPart(str(place), place.activity or None, spent, spent / stepping, seen)
        growth = sampled_growth(main, of_line)
        if growth is not None:
            part.grows, part.early, part.late = True, growth.early, growth.late
        parts.append(part)
    rest = seconds - sum(part.seconds for part in parts)
    left = looks - sum(part.looks for part in parts)
    if left > 0:
        parts.append(SampledPart(None, None, rest, rest / stepping, left))
    return UnnamedTime(seconds, looks, parts)


def sampled_growth(main: RankState, samples: Sequence[Sample]) -> Growth | None:
    """Return how the seconds per step in these samples grew; None where they did not, or samples are few."""
    meant = frozenset(samples)
    return main.samples.growth(main.pace.done, meant.__contains__)
