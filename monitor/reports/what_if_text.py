"""Projections of `report --assume` as text."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from monitor.model.comparison.what_if import UnknownPart, what_if
from monitor.model.report import Projection, Report, WhatIf
from monitor.units import UNKNOWN, duration, money, pace, rate, share
from trainhooks.protocol.limits import clean

MAX_NAMES = 24  # shown of the parts that there are


class BadAssumption(Exception):
    """An invalid assumption; the message is one line that says what to do."""


def assumptions(words: Sequence[str]) -> dict[str, float]:
    """Return `data=0`, `forward=0.5` as a mapping from part to what remains of it.

    Raises:
        BadAssumption: one is not of this form.
    """
    remaining = {}
    for word in words:
        name, equals, text = word.rpartition("=")
        try:
            value = float(text) if equals else -1.0
        except ValueError:
            value = -1.0
        if not name or not 0.0 <= value <= 1.0:
            raise BadAssumption(
                f"--what-if {clean(word, 60)}: write PART=SHARE with what remains of it, 0 to 1: data=0, forward=0.5"
            )
        remaining[name] = value
    return remaining


def assumed(report: Report, words: Sequence[str]) -> WhatIf:
    """Return the what-if figures of this run.

    Raises:
        BadAssumption: the run has no such part.
    """
    try:
        return what_if(report, assumptions(words))
    except UnknownPart as error:
        known = [clean(name, 40) for name in error.known]
        near = get_close_matches(error.name, error.known, 1)
        hint = f"did you mean {clean(near[0], 40)}? " if near else ""
        raise BadAssumption(
            f"this run has no part '{clean(error.name, 40)}'; {hint}there are: {', '.join(known[:MAX_NAMES])}"
        ) from None


def lines(projection: WhatIf) -> list[str]:
    """Return the figures before and after as text."""
    now, then = projection.now, projection.then
    parts = ", ".join(f"{clean(name, 40)} {_left(value)}" for name, value in projection.assumed.items())
    head = "at most"
    if projection.faster is not None:
        head = f"at most {projection.faster:.2f}x as fast"
    rows = [f"{parts}: {head}"]
    for (label, before), (_, after) in zip(_figures(now), _figures(then), strict=True):
        if before != UNKNOWN:
            rows.append(f"    {label}: {before} → {after}")
    if projection.then.step_seconds == 0.0:
        rows.append("    no step time left; speed undefined")
    return rows


def _figures(projection: Projection) -> list[tuple[str, str]]:
    return [
        ("step to step", duration(projection.step_seconds)),
        ("speed", _speed(projection)),
        ("time left", duration(projection.eta_seconds)),
        ("elapsed", duration(projection.wall_seconds)),
        ("cost", UNKNOWN if projection.cost is None else money(projection.cost)),
        ("total cost", UNKNOWN if projection.cost_total is None else money(projection.cost_total)),
    ]


def _left(value: float) -> str:
    return "gone" if value == 0 else f"cut to {share(value)}"


def _speed(projection: Projection) -> str:
    rates = [
        rate(projection.tokens_per_second, "tokens/s"),
        rate(projection.samples_per_second, "samples/s"),
        pace(projection.steps_per_second),
    ]
    return ", ".join(part for part in rates if part != UNKNOWN) or UNKNOWN
