"""Conditions on a run, of `wait` and `--stop-on`: read from text, and checked on one report after another. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass

from monitor.console.printed_values import seconds
from monitor.model.report import Finding, MetricRow, Report
from monitor.model.standing import STALLED

FORMS = "end, critical, step=5000, loss.below=2.0, loss.above=9.5 (or 'metric:loss<2.0'), eta.below=10m (or 'eta<10m')"
STOP_FORMS = (
    "a finding's code (nonfinite-loss, stalled=20m), critical, cost=50, ends-after=6h, step=5000, loss.above=9.5"
)

_FINDING = re.compile(r"([a-z-]+)(?:\s*=\s*(.*))?")
_COST = re.compile(r"cost\s*=\s*(.*)")
_AFTER = re.compile(r"ends-after\s*=\s*(.*)")
_STEP = re.compile(r"step\s*=\s*(.*)")
_ETA = re.compile(r"eta\s*(?:<|\.below\s*=)\s*(.*)")
_METRIC = re.compile(r"(?:metric:)?(.*?\S)\s*(<|>|\.below\s*=|\.above\s*=)\s*([^<>=]*)")  # a name may have any sign


class BadCondition(ValueError):
    """What was asked for is no condition. The message is one line."""


@dataclass(frozen=True, slots=True)
class Condition:
    text: str  # as it was asked for
    kind: str  # end | critical | step | metric | eta | finding | cost | elapsed
    limit: float = 0.0
    metric: str = ""  # its name, or the finding's code
    is_above: bool = False


@dataclass(frozen=True, slots=True)
class Met:
    """A condition that came true. `value` is the step, metric, dollars or seconds; `finding` the one that was meant."""

    condition: str
    kind: str
    value: float | None = None
    finding: Finding | None = None


def read_conditions(texts: tuple[str, ...]) -> list[Condition]:
    """Return the conditions of texts in which commas separate them.

    Raises:
        BadCondition: there is none, or one of them is none.
    """
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    if not words:
        raise BadCondition(f"nothing to wait for; it takes {FORMS}")
    return [_condition(word) for word in words]


def read_stop_conditions(text: str, codes: Collection[str]) -> list[Condition]:
    """Return the conditions under which a run is to be stopped.

    Args:
        codes: of all findings.

    Raises:
        BadCondition: there is none, or one of them is none.
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise BadCondition(f"nothing to stop on; it takes {STOP_FORMS}")
    return [_stop_condition(word, codes) for word in words]


def _stop_condition(word: str, codes: Collection[str]) -> Condition:
    if found := _COST.fullmatch(word):
        return Condition(word, "cost", _limit(word, found[1], "dollars"))
    if found := _AFTER.fullmatch(word):
        return Condition(word, "elapsed", _time(word, found[1]))
    if (found := _FINDING.fullmatch(word)) and found[1] in codes:
        return Condition(word, "finding", 0.0 if found[2] is None else _time(word, found[2]), found[1])
    try:
        known = _condition(word)
    except BadCondition:
        known = None
    if known is None or known.kind in ("end", "eta"):
        raise BadCondition(f"cannot stop on '{word}'; it takes {STOP_FORMS}")
    return known


def _time(word: str, text: str) -> float:
    length = duration(text)
    if length is None:
        raise BadCondition(f"{word}: '{text}' is no time; it takes 90s, 10m, 1h30m")
    return length


def _condition(word: str) -> Condition:
    if word in ("end", "critical"):
        return Condition(word, word)
    if found := _STEP.fullmatch(word):
        return Condition(word, "step", _limit(word, found[1] if found[1].isdecimal() else "", "a number of steps"))
    if found := _ETA.fullmatch(word):
        return Condition(word, "eta", _time(word, found[1]))
    if found := _METRIC.fullmatch(word):
        name, sign, limit = found.groups()
        return Condition(word, "metric", _limit(word, limit, "a number"), name, sign in ">" or "above" in sign)
    raise BadCondition(f"cannot wait for '{word}'; it takes {FORMS}")


def _limit(word: str, text: str, what: str) -> float:
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise BadCondition(f"{word}: it takes {what}")
    return limit


def duration(text: str) -> float | None:
    """Return a duration in seconds, as `90`, `90s`, `10m`, `1h30m`, `2 days`; None where it is none."""
    try:
        length = float(text)
    except ValueError:
        known = seconds(text)
        return known if known is None or math.isfinite(known) else None
    return length if math.isfinite(length) and length >= 0 else None


class Conditions:
    """Conditions on one run, which is looked at now and then: a metric that held between two looks counts as well."""

    def __init__(self, wanted: list[Condition]) -> None:
        self.wanted = wanted
        self._past: dict[str, tuple[float | None, float | None]] | None = None  # metric -> min, max at the first look
        self._since: dict[str, float] = {}  # code of a finding of weight -> elapsed seconds when it appeared

    def met(self, report: Report) -> list[Met]:
        """Return those that hold, or, of a metric's new extreme, that held at some time since the first look."""
        if self._past is None:
            self._past = {name: (row.min, row.max) for name, row in report.metrics.items()}
        now = report.progress.elapsed_seconds or 0.0
        grave = {finding.code: finding for finding in report.findings if finding.severity != "info"}
        self._since = {code: self._since.get(code, now) for code in grave}
        found = (
            self._found(condition, grave.get(condition.metric), report, now)
            if condition.kind == "finding"
            else _met(condition, report, self._past.get(condition.metric, (None, None)))
            for condition in self.wanted
        )
        return [met for met in found if met is not None]

    def _found(self, condition: Condition, finding: Finding | None, report: Report, now: float) -> Met | None:
        """Return whether a finding has stood for long enough; a stall does so since its last progress."""
        if finding is None:
            return None
        stood = now - self._since[finding.code]
        if finding.code == STALLED:
            stood = max(stood, report.wall.spans.get(STALLED, 0.0))
        return Met(condition.text, condition.kind, stood, finding) if stood >= condition.limit else None


def _met(condition: Condition, report: Report, past: tuple[float | None, float | None]) -> Met | None:
    limit = condition.limit
    if condition.kind == "end":
        return Met(condition.text, condition.kind) if report.outcome.state != "running" else None
    if condition.kind == "critical":
        worst = next((finding for finding in report.findings if finding.severity == "critical"), None)
        return None if worst is None else Met(condition.text, condition.kind, finding=worst)
    if condition.kind == "step":
        done = report.progress.steps_done
        return Met(condition.text, condition.kind, done) if done >= limit else None
    if condition.kind == "eta":
        left = report.progress.eta_seconds
        return Met(condition.text, condition.kind, left) if left is not None and left < limit else None
    if condition.kind in ("cost", "elapsed"):
        spent = report.progress.cost if condition.kind == "cost" else report.progress.elapsed_seconds
        return Met(condition.text, condition.kind, spent) if spent is not None and spent >= limit else None
    value = _crossed(condition, report.metrics.get(condition.metric, MetricRow()), past)
    return None if value is None else Met(condition.text, condition.kind, value)


def _crossed(condition: Condition, row: MetricRow, past: tuple[float | None, float | None]) -> float | None:
    """Return the value beyond the limit: the metric's last one, or an extreme that it had not reached before."""
    sign = 1.0 if condition.is_above else -1.0
    extreme, before = (row.max, past[1]) if condition.is_above else (row.min, past[0])
    values = [math.nan if row.last is None else float(row.last)]
    values += [] if extreme is None or extreme == before else [extreme]
    return next((value for value in values if sign * value > sign * condition.limit), None)
