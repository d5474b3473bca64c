"""What would remain if a part of the time vanished, as text."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from monitor.model.remains import Remains, WhatIf
from monitor.model.report import Report
from monitor.model.what_if import UnknownPart, what_if
from monitor.units import UNKNOWN, duration, money, pace, rate, share
from trainhooks.events import clean

NAMES = 24  # shown of the parts that there are


class BadAssumption(Exception):
    """An assumption that cannot be made; the message is one line that says what to do."""


def assumptions(words: Sequence[str]) -> dict[str, float]:
    """`data=0`, `forward=0.5` as parts and what remains of them.

    Raises:
        BadAssumption: one is not of this form.
    """
    found = {}
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
        found[name] = value
    return found


def assumed(report: Report, words: Sequence[str]) -> WhatIf:
    """What would remain of this run.

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
            f"this run has no part '{clean(error.name, 40)}'; {hint}there are: {', '.join(known[:NAMES])}"
        ) from None


def lines(told: WhatIf) -> list[str]:
    """The figures before and after."""
    now, then = told.now, told.then
    parts = ", ".join(f"{clean(name, 40)} {_left(each)}" for name, each in told.assumed.items())
    head = "at most"
    if told.faster is not None:
        head = f"at most {told.faster:.2f}x as fast"
    rows = [f"{parts}: {head}"]
    for (label, before), (_, after) in zip(_figures(now), _figures(then), strict=True):
        if before != UNKNOWN:
            rows.append(f"    {label}: {before} → {after}")
    if told.then.step_seconds == 0.0:
        rows.append("    nothing of a step's time would be left: no speed can be told")
    return rows


def _figures(each: Remains) -> list[tuple[str, str]]:
    return [
        ("from step to step", duration(each.step_seconds)),
        ("speed", _speed(each)),
        ("time left", duration(each.eta_seconds)),
        ("elapsed", duration(each.wall_seconds)),
        ("cost", UNKNOWN if each.cost is None else money(each.cost)),
        ("cost in all", UNKNOWN if each.cost_total is None else money(each.cost_total)),
    ]


def _left(value: float) -> str:
    return "gone" if value == 0 else f"cut to {share(value)}"


def _speed(each: Remains) -> str:
    told = [
        rate(each.tokens_per_second, "tokens/s"),
        rate(each.samples_per_second, "samples/s"),
        pace(each.steps_per_second),
    ]
    return ", ".join(part for part in told if part != UNKNOWN) or UNKNOWN
