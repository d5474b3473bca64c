"""Read what RSL-RL and Isaac Lab print below `Learning iteration 5/1500`: times of collecting and of learning.

    Computation: 93622 steps/s (collection: 0.832s, learning 0.214s)

Later versions have a line each: `Steps per second: 93622`, `Collection time: 0.832s`, `Learning time: 0.214s`.
"""

from __future__ import annotations

import re
from typing import ClassVar

from monitor.console.formats import Format, register
from monitor.console.printed_values import NUMBER, number
from monitor.console.reading import Reading

_TIMES = re.compile(
    rf"Computation:\s{{0,8}}(?P<rate>{NUMBER}) steps/s \(collection: (?P<collection>{NUMBER})s,"
    rf" learning:? (?P<learning>{NUMBER})s\)"
)
_LINE = re.compile(
    rf"\s{{0,80}}(?P<name>Steps per second|Collection time|Learning time):\s{{0,8}}(?P<value>{NUMBER})\s?s?\s{{0,8}}"
)
_ITERATION = re.compile(r"\bLearning iteration \d{1,12}/\d{1,12}\b")
_PHASES = {"Collection time": "rollout", "Learning time": "training"}
ENV_STEPS_RATE = "env_steps_per_second"


@register
class RslRl(Format):
    """The times of one iteration, which was named before."""

    order: ClassVar[int] = 65  # before named values, which take them for lines about something else

    def __init__(self) -> None:
        self._iterates = False  # an iteration was named: the times are its own

    def read(self, text: str) -> list[Reading] | None:
        self._iterates = self._iterates or ("Learning iter" in text and _ITERATION.search(text) is not None)
        if not self._iterates:
            return None
        times = _TIMES.search(text) if "collection" in text else None
        if times is not None:
            phases = {"rollout": float(times["collection"]), "training": float(times["learning"])}
            return [_rate(times["rate"]), Reading("phases", phases=phases)]
        line = _LINE.fullmatch(text)
        if line is None:
            return None
        phase = _PHASES.get(line["name"])
        return [_rate(line["value"]) if phase is None else Reading("phases", phases={phase: float(line["value"])})]


def _rate(text: str) -> Reading:
    value = number(text)
    return Reading("metrics", metrics={} if value is None else {ENV_STEPS_RATE: value})
