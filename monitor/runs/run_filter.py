"""Which runs of the list match what somebody typed: words, and conditions as `lr>=1e-3` or `state:running`. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from monitor.runs.fleet import Row

HINT = "words, state:failed, lr>=1e-3, loss<2, steps>1000, command:train.py, any tag or setting"
_CONDITION = re.compile(r"(?P<name>[^\s<>=!:]+)(?P<sign>>=|<=|!=|[<>=:])(?P<value>\S+)")
MAX_SETTING_DEPTH = 4


def _steps_per_second(row: Row) -> float | None:
    return row.entry.steps_per_second if row.report is None else row.report.throughput.steps_per_second


_FIGURES: dict[str, Callable[[Row], object]] = {
    "name": lambda row: row.entry.name,
    "state": lambda row: row.entry.state,
    "command": lambda row: " ".join(row.entry.command),
    "host": lambda row: row.entry.host,
    "steps": lambda row: row.report.progress.steps_done if row.report is not None else row.entry.step,
    "speed": _steps_per_second,
    "left": lambda row: row.eta,
    "elapsed": lambda row: row.report.progress.elapsed_seconds if row.report is not None else None,
    "cost": lambda row: row.cost,
    "best": lambda row: row.best.value if row.best is not None else None,
}


@dataclass(frozen=True, slots=True)
class Condition:
    name: str
    sign: str
    value: str

    def holds(self, row: Row) -> bool:
        """Return whether any value of this name meets it; what a run does not have meets nothing but `!=`."""
        known = list(_values(row, self.name))
        if self.sign == "!=":
            return not any(_equal(value, self.value) for value in known)
        return any(self._met(value) for value in known)

    def _met(self, value: object) -> bool:
        if self.sign == ":":
            return self.value.lower() in str(value).lower()
        if self.sign == "=":
            return _equal(value, self.value)
        one, other = _number(value), _number(self.value)
        if one is None or other is None:
            return False
        return {">": one > other, "<": one < other, ">=": one >= other, "<=": one <= other}[self.sign]


def matches(row: Row, text: str) -> bool:
    """Return whether a run has every word and meets every condition of a text."""
    for word in text.split():
        condition = _CONDITION.fullmatch(word)
        if condition is not None:
            if not Condition(condition["name"].lower(), condition["sign"], condition["value"]).holds(row):
                return False
        elif not any(word.lower() in text.lower() for text in _texts(row)):
            return False
    return True


def _texts(row: Row) -> Iterator[str]:
    """Yield what a word is looked for in."""
    entry = row.entry
    yield from (entry.name, entry.id, entry.state, " ".join(entry.command))
    yield from (f"{key}={value}" for key, value in entry.tags.items())


def _values(row: Row, name: str) -> Iterator[object]:
    """Yield the values that a run has under a name: figures, tags, settings, the last value of a metric."""
    if name in _FIGURES:
        value = _FIGURES[name](row)
        if value is not None:
            yield value
        return
    yield from (value for key, value in row.entry.tags.items() if key.lower() == name)
    if row.report is None:
        return
    yield from _settings(row.report.run.facts.table, name)
    yield from (metric.last for key, metric in row.report.metrics.items() if key.lower() == name)


def _settings(table: Mapping[str, Any], name: str, depth: int = 0) -> Iterator[object]:
    for key, value in table.items():
        if isinstance(value, Mapping) and depth < MAX_SETTING_DEPTH:
            yield from _settings(value, name, depth + 1)
        elif str(key).lower() == name and isinstance(value, str | int | float):
            yield value


def _equal(value: object, text: str) -> bool:
    one, other = _number(value), _number(text)
    return str(value).lower() == text.lower() if one is None or other is None else one == other


def _number(value: object) -> float | None:
    try:
        return float(value) if isinstance(value, str | int | float) else None
    except (ValueError, OverflowError):
        return None
