"""What a report says of a script, judged: the cause first, no false alarm, and a gain that holds. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.gpu_check.expected import Case

GRAVE = ("critical", "warning")
# A gain is promised as "at most": mending that gained more than that, beyond what two runs of the same script differ
# by, has broken the promise.
BROKEN = 1.15
LOOSE = 2.0  # times the real gain: a bound that is kept, and says little
MILD = 1.08  # a gain below which this card hardly feels what was planted: then nothing has to be said of it


@dataclass(frozen=True)
class Said:
    """A finding, of what is judged."""

    code: str
    severity: str
    recoverable: float | None = None  # share of the time since the first step, at most

    @property
    def promised(self) -> float | None:
        """Times as fast, at most."""
        if self.recoverable is None:
            return None
        return 1.0 / (1.0 - self.recoverable) if self.recoverable < 1.0 else math.inf


def said(report: Mapping[str, Any]) -> tuple[Said, ...]:
    """The findings in the report's order."""
    return tuple(Said(each["code"], each["severity"], each.get("recoverable")) for each in report["findings"])


@dataclass(frozen=True)
class Outcome:
    """What became of one script.

    Attributes:
        rate, mended: samples a second of the script, and of its twin.
        trouble: why there is nothing to judge.
        skipped: why it was not run; nobody's fault.
    """

    case: Case
    findings: tuple[Said, ...] = ()
    rate: float | None = None
    mended: float | None = None
    trouble: str | None = None
    skipped: str | None = None

    @property
    def real(self) -> float | None:
        """Times as fast as it is after mending; None where samples a second do not tell."""
        if not self.case.gain or not self.rate or not self.mended:
            return None
        return self.mended / self.rate

    @property
    def cause(self) -> Said | None:
        """The first finding that names what was planted."""
        return next((each for each in self.findings if each.code in self.case.accepted), None)

    @property
    def named(self) -> bool:
        return bool(self.findings) and self.findings[0].code in self.case.accepted

    @property
    def mild(self) -> bool:
        return self.real is not None and self.real < MILD

    @property
    def false(self) -> list[str]:
        """Findings of weight that nobody planted."""
        fine = {*self.case.accepted, *self.case.allowed}
        return [each.code for each in self.findings if each.severity in GRAVE and each.code not in fine]

    @property
    def promised(self) -> float | None:
        """The gain of the cause, or of a healthy script the largest of all."""
        if self.case.sick:
            return self.cause.promised if self.cause is not None else None
        return max((each.promised for each in self.findings if each.promised is not None), default=None)

    @property
    def broken(self) -> bool:
        """Mending gained more than was called the most."""
        return self.promised is not None and self.real is not None and self.real > BROKEN * self.promised

    @property
    def good(self) -> bool:
        if self.skipped:
            return True
        if self.trouble or self.false or self.broken:
            return False
        return not self.case.sick or self.named or self.mild

    @property
    def verdict(self) -> str:
        if self.skipped:
            return f"not run: {self.skipped}"
        if self.trouble:
            return f"BROKEN: {self.trouble}"
        words = []
        if self.case.sick and not self.named:
            missed = "NOT FIRST" if self.cause is not None else "MISSED"
            words.append("too mild on this card to be said" if self.mild else missed)
        if self.false:
            words.append("FALSE: " + ", ".join(self.false))
        if self.broken:
            words.append("gained MORE than was promised")
        elif self.promised is not None and self.real is not None and self.promised > LOOSE * max(1.0, self.real):
            words.append("loose bound")
        return "; ".join(words) or "ok"


HEAD = ("script", "expected", "found", "promised", "real gain", "verdict")
WIDTHS = (28, 22, 52, 9, 9, 20)
MARKS = {"critical": "!", "warning": "", "info": "~"}


def cells(outcome: Outcome) -> tuple[str, ...]:
    found = ", ".join(f"{MARKS.get(each.severity, '?')}{each.code}" for each in outcome.findings) or "nothing"
    if outcome.skipped or outcome.trouble:
        found = "-"
    expected = " or ".join(outcome.case.accepted) or "(healthy)"
    return outcome.case.name, expected, found, times(outcome.promised), times(outcome.real), outcome.verdict


def times(factor: float | None) -> str:
    return "-" if factor is None else f"{factor:.2f}x" if math.isfinite(factor) else "no bound"


def summary(outcomes: Sequence[Outcome]) -> list[str]:
    """Recall, precision, and how the promised gains stand to the real ones."""
    judged = [each for each in outcomes if not each.skipped and not each.trouble]
    sick = [each for each in judged if each.case.sick and (each.named or not each.mild)]
    healthy = [each for each in judged if not each.case.sick]
    grave = sum(each.severity in GRAVE for outcome in judged for each in outcome.findings)
    false = sum(len(each.false) for each in judged)
    bounds = [each for each in judged if each.case.sick and each.promised is not None and each.real is not None]
    lines = [
        "~ information, ! critical; findings in the report's order. Promised is the most that mending the cause can "
        "gain by the report, or for a healthy script the largest promise of all; real is the mended twin's speed.",
        f"Cause named first: {sum(each.named for each in sick)} of {len(sick)}.",
        f"Healthy scripts without a false alarm: {sum(not each.false for each in healthy)} of {len(healthy)}.",
        f"Findings of weight that are true: {grave - false} of {grave}.",
        f"Promised gains that hold: {sum(not each.broken for each in bounds)} of {len(bounds)}.",
    ]
    mild = [each.case.name for each in judged if each.case.sick and each.mild and not each.named]
    if mild:
        lines.append(f"Too mild on this card to be counted: {', '.join(mild)}.")
    left = [each.case.name for each in outcomes if each.skipped]
    if left:
        lines.append(f"Not run: {', '.join(left)}.")
    return lines
