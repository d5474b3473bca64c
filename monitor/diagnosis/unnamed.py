"""Time that no phase explains, and what the program was seen to do in it. Pure; no rules of its own."""

from __future__ import annotations

from collections import Counter

from monitor.diagnosis.evidence import Evidence
from monitor.model.activities import activity
from monitor.model.fold import OTHER

BETWEEN = "between steps"  # the sampler's name for it
# A loop without a loader has no step open between two steps, and its time counts as the next one's: looks and seconds
# meet only in the sum of both.
NOWHERE = (OTHER, BETWEEN)
MOST = 0.5  # of the looks at the stack: a part that is seen less often does not name the whole
# Of the time since the first step. Looks come when the interpreter lets go, and writing lets go more often than
# computing does: what is seen is no exact share, and a small one proves little.
SEEN_WORTH = 0.20


def inside(evidence: Evidence) -> float:
    """Seconds in steps and in no phase, where phases are told."""
    row = evidence.phase(OTHER)
    return row.mean * row.count if row is not None and tells_phases(evidence) else 0.0


def outside(evidence: Evidence) -> float:
    return evidence.report.wall.between_steps


def tells_phases(evidence: Evidence) -> bool:
    """Whether time in no phase means anything: a program that names one small part has not named the rest.

    Where backward is told, torch's own calls are, however little they take.
    """
    return any(row.name == "backward" or (row.name != OTHER and row.share > 0.02) for row in evidence.report.phases)


def seen(evidence: Evidence, what: str) -> float:
    """Seconds that the program was seen to spend at this without having named it; 0 where that is not most of it.

    Where only the host's clock tells of a device nothing is: a host that prints a loss waits for the device there.
    """
    if evidence.host_only:
        return 0.0
    rows: list[tuple[float, tuple[str, ...]]] = [(inside(evidence) + outside(evidence), NOWHERE)]
    if tells_phases(evidence):  # forward is what lies between the data and backward, printing included
        rows.append((evidence.named("forward"), ("forward",)))
    seconds = sum(whole * _part(evidence.looks(*where), what) for whole, where in rows)
    return seconds if evidence.of_loop(seconds) >= SEEN_WORTH else 0.0


def seen_nowhere(evidence: Evidence) -> tuple[str, float] | None:
    """What most of the time in no phase was seen to be, and its seconds."""
    looks = {} if evidence.host_only else evidence.looks(*NOWHERE)
    whole = inside(evidence) + outside(evidence)
    for what in {each for place in looks if (each := activity(place)) is not None}:
        seconds = whole * _part(looks, what)
        if seconds and evidence.of_loop(seconds) >= SEEN_WORTH:
            return what, seconds
    return None


def places(evidence: Evidence, what: str) -> list[str]:
    """The lines at which the program was seen to be at this, in words."""
    where = [each for each in (NOWHERE, ("forward",)) if _part(evidence.looks(*each), what)]
    return [line for each in where for line in evidence.places(*each)]


def _part(looks: dict[str, int], what: str) -> float:
    counts: Counter[str | None] = Counter()
    for place, times in looks.items():
        counts[activity(place)] += times
    part = counts[what] / counts.total() if counts else 0.0
    return part if part >= MOST else 0.0
