"""The answer to "why is it slow, and what do I do": one for every place that shows it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.diagnosis.explain import FAMILIES, gain_line
from monitor.diagnosis.rule import MIN_STEPS, Family
from monitor.diagnosis.verdict import NO_FINDING
from monitor.model.report import Finding, Report
from trainhooks.protocol.limits import clean

WHY_SLOW, PROBLEM, VERDICT = "WHY SLOW", "PROBLEM", "VERDICT"  # headings
MAX_TO_TRY = 2  # settings beside the advice
_NOT_SPEED = (Family.PROGRESS, Family.LEARNING, Family.MEMORY)


@dataclass(frozen=True, slots=True)
class Answer:
    """Why, and what to do. All of it is cleaned."""

    heading: str  # WHY SLOW | PROBLEM | VERDICT
    title: str
    code: str  # empty where it is no finding
    evidence: list[str]
    fix: str  # what to do first; empty before the first step, when the verdict says what the run waits for
    because: str  # what makes that the first thing to do, where it is not the verdict
    to_do: list[str]  # the same with its reason, and what else to try
    gain: str  # empty where it is no finding about time
    others: list[Finding]  # the findings that it does not speak of


def answer(report: Report, verdict: Finding) -> Answer:
    """Return the verdict with its evidence, what to do and the gain: never without these two, if only as unknown."""
    is_finding = verdict.code != NO_FINDING
    is_speed = verdict.cost is not None or not any(verdict.code in FAMILIES[family.value] for family in _NOT_SPEED)
    small = None if is_finding or verdict.advice or report.to_try else _first_advised(report)
    fix, because = _fix(report, verdict, small)
    tries = report.to_try[:MAX_TO_TRY] if verdict.advice else report.to_try[1:MAX_TO_TRY]
    to_do = [_with_reason(fix, because)] if fix else []
    measure = f"measure it: trainmon compare {clean(report.run.id or 'BEFORE')} AFTER"
    return Answer(
        heading=VERDICT if not is_finding else WHY_SLOW if is_speed else PROBLEM,
        title=clean(verdict.title),
        code=clean(verdict.code) if is_finding else "",
        evidence=[clean(line) for line in verdict.evidence],
        fix=fix,
        because=because,
        to_do=to_do + [_with_reason(clean(each.text), clean(each.because)) for each in tries],
        gain=f"{gain_line(report, verdict) or 'gain not known'}; {measure}" if is_finding and is_speed else "",
        others=[finding for finding in report.findings if finding.code != verdict.code and finding is not small],
    )


def _with_reason(fix: str, because: str) -> str:
    return f"{fix} ({because})" if because else fix


def _first_advised(report: Report) -> Finding | None:
    """Return what costs little, where nothing costs much: it is still what to do first."""
    return next((finding for finding in report.findings if finding.advice), None)


def _fix(report: Report, verdict: Finding, small: Finding | None) -> tuple[str, str]:
    """Return what to do first, and why that where the verdict does not say it."""
    if verdict.advice:
        return clean(verdict.advice), ""
    if small is not None:
        return clean(small.advice), clean(small.title)
    if report.to_try:
        return clean(report.to_try[0].text), clean(report.to_try[0].because)
    if verdict.code == NO_FINDING and not report.progress.steps_done:
        return "", ""
    return _what_would_tell(report), ""


def _what_would_tell(report: Report) -> str:
    """Return what to try where there is neither a finding nor a setting to try."""
    if report.progress.steps_done < MIN_STEPS:
        return f"let it run longer: most findings need {MIN_STEPS} steps"
    if report.run.source == "console":
        if report.run.imported or report.run.attached or not report.run.command:
            return "`trainmon run` on its Python process measures phases; the program prints little"
        return 'time parts with `with th.phase("name"):`; the program prints little, and no framework shows its steps'
    if report.traced is None and report.device is not None:
        if report.outcome.state != "running":
            return "run it again with `trace = true`; the kernels of traced steps show more, nothing else is known"
        return "trainmon trace shows the kernels of three steps; nothing else is known to help"
    return "no setting is known to help; trainmon compare BEFORE AFTER measures one"
