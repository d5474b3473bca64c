"""A creeping or lasting loss of speed. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Curve, Finding
from monitor.units import brief, share

ENOUGH = 100  # steps
SLOWER = 1.20  # the last third against the first: past the ups and downs of a shared box's quarter hours
AGREE = 0.8  # of the buckets of the last third lie above the usual of the first: it lasts, and is no spike
LEAST_SECONDS = 0.005  # a step; less is the scheduler's


def slow_drift(evidence: Evidence) -> Finding | None:
    """Steps got slower over the run and stayed so, beyond what their tokens explain."""
    if evidence.steps < ENOUGH:
        return None
    early, late, agree = _ends(evidence.state.main.step_seconds.digested().series.curve())
    if late < SLOWER * early or late - early < LEAST_SECONDS or agree < AGREE:
        return None
    tokens = evidence.state.main.tokens.digested()
    if tokens.count > ENOUGH // 2:
        fewer, more, _ = _ends(tokens.series.curve())
        if fewer > 0 and late / early < SLOWER * more / fewer:
            return None  # the steps have more work
    grown = {name: late_ - early_ for name, (early_, late_, _) in _phases(evidence).items()}
    culprit = max(grown, key=lambda name: grown[name], default=None)
    lines = [f"first third {brief(early)} a step, last third {brief(late)}"]
    if culprit is not None and grown[culprit] > 0:
        lines.append(f"{culprit} grew most: by {brief(grown[culprit])} a step")
    return Finding(
        "slow-drift",
        "warning",
        f"Steps have become {share(late / early - 1)} slower" + (f", in {culprit}" if culprit else ""),
        lines,
        "Look for what grows with the run: a list that is kept, sequence lengths, a cache, a filling disk; and for"
        " clocks that fell (heat, power) or new neighbours on the box.",
        min(1.0, (late - early) / late / 3),
        culprit=culprit,
    )


def _phases(evidence: Evidence) -> dict[str, tuple[float, float, float]]:
    table = evidence.state.main.phases.items()
    return {name: _ends(stats.seconds.digested().series.curve()) for name, stats in table}


def _ends(curve: Curve) -> tuple[float, float, float]:
    """The usual value of the first third (its first tenth, the warm-up, left out) and of the last, and how much of the
    last lies above the first.
    """
    values = [each for each in curve.mean if each == each]
    third = len(values) // 3
    if third < 3:
        return 0.0, 0.0, 0.0
    first, last = values[len(values) // 10 : third + len(values) // 10], values[-third:]
    early = median(first)
    return early, median(last), sum(each > early for each in last) / len(last)
