"""What came of a wait, as a line of text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from monitor.model.conditions import Condition, Met
from monitor.model.report import Report
from monitor.reports import run_text
from monitor.units import number, rough
from trainhooks.protocol.limits import clean

EXIT_CODES = {"met": 0, "timeout": 3, "ended": 4}


@dataclass(frozen=True, slots=True)
class Waited:
    """What came of a wait; its fields are the keys of the line of JSON. Times are seconds."""

    result: Literal["met", "timeout", "ended"]  # ended: the run ended or was lost before any came true
    text: str  # the line for people
    run: str | None
    waited_for: list[str]
    met: list[Met]  # those that came true
    waited_seconds: float
    state: str  # running | finished | failed | killed | lost
    exit_code: int | None
    signal: int | None
    steps_done: int
    steps_total: int | None
    eta_seconds: float | None
    verdict: str
    unknown_metrics: list[str]  # that were waited for, and of which there is no value


def make_waited(report: Report, wanted: list[Condition], met: list[Met], seconds: float) -> Waited:
    """Return what came of waiting for `wanted` for some seconds, by the last report."""
    is_over = report.outcome.state != "running"
    unknown = [each.metric for each in wanted if each.metric and each.metric not in report.metrics]
    return Waited(
        result="met" if met else "ended" if is_over else "timeout",
        text=_line(report, wanted, met, unknown, seconds),
        run=report.run.id,
        waited_for=[condition.text for condition in wanted],
        met=met,
        waited_seconds=seconds,
        state=report.outcome.state,
        exit_code=report.outcome.exit_code,
        signal=report.outcome.signal,
        steps_done=report.progress.steps_done,
        steps_total=report.progress.steps_total,
        eta_seconds=report.progress.eta_seconds,
        verdict=report.verdict,
        unknown_metrics=unknown,
    )


def _line(report: Report, wanted: list[Condition], met: list[Met], unknown: list[str], seconds: float) -> str:
    """Return `sft-1a2b: loss.below=2.0 (1.98); running for 3 min 2 s, 1,200 of 5,000 steps (24%)`."""
    asked = " or ".join(condition.text for condition in wanted)
    if met:
        what = ", ".join(map(told, met))
    elif report.outcome.state != "running":
        what = f"ended before {asked}"
    else:
        what = f"no {asked} within {rough(seconds)}"
    facts = [run_text.outcome(report), run_text.progress(report) if report.progress.steps_done else "no step"]
    lacking = f"; no metric {', '.join(unknown)} was logged" if unknown else ""
    return clean(f"{report.run.id or 'the run'}: {what}; {', '.join(facts)}{lacking}")


def told(met: Met) -> str:
    """Return what came true: `loss.below=2.0 (1.98)`."""
    if met.finding is not None:
        return f"{met.condition}: {met.finding.title} [{met.finding.code}]"
    if met.value is None:
        return met.condition
    return f"{met.condition} ({rough(met.value) if met.kind in ('eta', 'elapsed') else number(met.value)})"
