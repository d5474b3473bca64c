"""What would remain if a part of the time vanished or shrank: seconds a step, rates, time left, cost. Pure.

An upper bound. What ran beside the steps (other threads) is no part of their time and is not taken off; what the
training would then wait for instead, nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping

from monitor.model.remains import Remains, WhatIf
from monitor.model.report import Finding, Report

STARTUP, BETWEEN, TEARDOWN = "startup", "between_steps", "teardown"
ONCE = (STARTUP, TEARDOWN)  # parts that come once a run, and are none of a step's time
# Findings that cost time once, before the first step or while none is done: they change no step.
_ONCE = frozenset(("slow-startup", "compile-warmup", "stalled"))


class UnknownPart(Exception):
    """There is no part of this name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(name)
        self.name = name
        self.known = known


def parts(report: Report) -> dict[str, float]:
    """Seconds of each part that may be asked about: phases, spans, and the rest of the wall time."""
    found = {row.name: row.mean * row.count for row in report.phases}
    for name, seconds in report.wall.spans.items():
        found[name] = found.get(name, 0.0) + seconds
    for name, known in ((STARTUP, report.wall.startup), (BETWEEN, report.wall.between_steps)):
        found[name] = known or 0.0
    found[TEARDOWN] = report.wall.teardown
    return found


def what_if(report: Report, assumed: Mapping[str, float]) -> WhatIf:
    """The run with only a share left of some of its parts.

    Args:
        assumed: part -> the share of it that remains: 0 is without it, 0.5 half of it.

    Raises:
        UnknownPart: this run has no such part.
    """
    known = parts(report)
    for name in assumed:
        if name not in known:
            raise UnknownPart(name, list(known))
    gone = {name: (1.0 - share) * known[name] for name, share in assumed.items()}
    of_steps = sum(seconds for name, seconds in gone.items() if name not in ONCE)
    return _without(report, of_steps, sum(gone.values()) - of_steps, dict(assumed))


def without(report: Report, finding: Finding) -> WhatIf | None:
    """The run without what this finding costs, at most; None where it says nothing of time."""
    lost, total = finding.lost_fraction, report.wall.total
    if not lost or not total or lost >= 1.0:
        return None
    seconds = lost * total
    once = seconds if finding.code in _ONCE else 0.0
    return _without(report, seconds - once, once, {})


def recoverable(report: Report, finding: Finding) -> float | None:
    """The share of the time since the first step that steps gain at most without what this finding tells of.

    None where its cause is over while the run goes on, where it costs no step anything, and where that is not known.
    """
    told = without(report, finding)
    if told is None or told.faster is None or told.faster <= 1.0 or is_past(report, finding):
        return None
    return 1.0 - 1.0 / told.faster


def is_past(report: Report, finding: Finding) -> bool:
    """Whether there are steps to come for which mending it changes nothing."""
    return finding.over and report.outcome.state == "running"


def _without(report: Report, of_steps: float, once: float, assumed: dict[str, float]) -> WhatIf:
    """The run with so many seconds less: of its steps and what lies between them, and of what comes once."""
    wall, rates = report.wall, report.throughput
    stepping = wall.stepping
    left = max(0.0, 1.0 - of_steps / stepping) if stepping > 0 else 1.0
    price = _price(report)
    now = _figures(report, 1.0, 0.0, price)
    saved = min(of_steps, stepping) + once
    then = _figures(report, left, saved, price)
    known = rates.steps_per_second is not None and left > 0
    return WhatIf(assumed, now, then, 1.0 / left if known else None, saved if wall.total is not None else None)


def _figures(report: Report, left: float, saved: float, price: float | None) -> Remains:
    """The run's figures with `left` of the time of each step, and `saved` seconds less in all."""
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

    return Remains(
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
    """Dollars a second."""
    cost, total = report.progress.cost, report.wall.total
    return cost / total if cost is not None and total else None
