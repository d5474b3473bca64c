"""A run with a part of its time reduced or removed: seconds a step, rates, time left, cost. Pure.

An upper bound. Work beside the steps (other threads) is no part of their time and stays; what the training would wait
for instead is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.model.report import Finding, Gain, Projection, Report, WhatIf

STARTUP_PART, BETWEEN_PART, TEARDOWN_PART = "startup", "between_steps", "teardown"
ONCE = (STARTUP_PART, TEARDOWN_PART)  # parts that occur once a run, outside the steps
# Findings that cost time once, before the first step or while no step is done: the steps stay the same.
_ONCE = frozenset(("slow-startup", "compile-warmup", "stalled"))


class UnknownPart(Exception):
    """There is no part of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.known = known


def part_seconds(report: Report) -> dict[str, float]:
    """Return the seconds of each part that may be asked about: phases, spans, and the rest of the wall time."""
    seconds_of = {row.name: row.mean * row.count for row in report.phases}
    for name, seconds in report.wall.in_loop.items():
        seconds_of[name] = seconds_of.get(name, 0.0) + seconds
    for name, known in ((STARTUP_PART, report.wall.startup), (BETWEEN_PART, report.wall.between_steps)):
        seconds_of[name] = known or 0.0
    seconds_of[TEARDOWN_PART] = report.wall.teardown
    return seconds_of


def what_if(report: Report, assumed: Mapping[str, float]) -> WhatIf:
    """Return the run with only a share left of some of its parts.

    Args:
        assumed: part -> the share of it that remains: 0 is without it, 0.5 half of it.

    Raises:
        UnknownPart: this run has no such part.
    """
    known = part_seconds(report)
    for name in assumed:
        if name not in known:
            raise UnknownPart(name, list(known))
    gone = {name: (1.0 - share) * known[name] for name, share in assumed.items()}
    of_steps = sum(seconds for name, seconds in gone.items() if name not in ONCE)
    return _with_less_time(report, of_steps, sum(gone.values()) - of_steps, dict(assumed))


def without_finding(report: Report, finding: Finding, lost: float | None) -> WhatIf | None:
    """Return the run without this share of its wall time, which a finding costs; None where that is not known."""
    total = report.wall.total
    if not lost or not total or lost >= 1.0:
        return None
    seconds = lost * total
    once = seconds if finding.code in _ONCE else min(seconds, finding.once_fraction * total)
    return _with_less_time(report, seconds - once, once, {})


def gain_of(report: Report, finding: Finding) -> Gain | None:
    """Return how much faster steps are once this finding is fixed.

    None: the cause is over while the run goes on, the finding costs no step time, or its cost is unknown.
    """
    if is_past(report, finding):
        return None
    least, likely, most = (
        _faster(report, finding, lost)
        for lost in (finding.least_fraction, finding.likely_fraction, finding.lost_fraction)
    )
    return None if most is None else Gain(least or (None if likely is None else 1.0), likely, most)


def _faster(report: Report, finding: Finding, lost: float | None) -> float | None:
    projected = without_finding(report, finding, lost)
    faster = None if projected is None else projected.faster
    return faster if faster is not None and faster > 1.0 else None


def is_past(report: Report, finding: Finding) -> bool:
    """Return whether fixing it does not change the remaining steps."""
    return finding.over and report.outcome.state == "running"


def _with_less_time(report: Report, of_steps: float, once: float, assumed: dict[str, float]) -> WhatIf:
    """Return the run with so many seconds less: of its steps and what lies between them, and of what comes once."""
    wall, rates = report.wall, report.throughput
    stepping = wall.stepping
    left = max(0.0, 1.0 - of_steps / stepping) if stepping > 0 else 1.0
    price = _price(report)
    now = _projection(report, 1.0, 0.0, price)
    saved = min(of_steps, stepping) + once
    then = _projection(report, left, saved, price)
    known = rates.steps_per_second is not None and left > 0
    return WhatIf(
        assumed=assumed,
        now=now,
        then=then,
        faster=1.0 / left if known else None,
        saved_seconds=saved if wall.total is not None else None,
    )


def _projection(report: Report, left: float, saved: float, price: float | None) -> Projection:
    """Return the run's figures with `left` of the time of each step, and `saved` seconds less in all."""
    rates, progress, total = report.throughput, report.progress, report.wall.total
    per_second = rates.steps_per_second
    eta = None if progress.eta_seconds is None else left * progress.eta_seconds
    elapsed = None if total is None else max(0.0, total - saved)
    cost = None if price is None or elapsed is None else price * elapsed
    whole = cost
    if report.outcome.state == "running":
        whole = None if price is None or elapsed is None or eta is None else price * (elapsed + eta)

    def raised(rate: float | None) -> float | None:
        return rate / left if rate and left > 0 else None

    return Projection(
        step_seconds=left / per_second if per_second else None,
        steps_per_second=raised(per_second),
        tokens_per_second=raised(rates.tokens_per_second),
        samples_per_second=raised(rates.samples_per_second),
        eta_seconds=eta,
        wall_seconds=elapsed,
        cost=cost,
        cost_total=whole,
    )


def _price(report: Report) -> float | None:
    """Return the price in dollars a second; None: unknown."""
    cost, total = report.progress.cost, report.wall.total
    return cost / total if cost is not None and total else None
