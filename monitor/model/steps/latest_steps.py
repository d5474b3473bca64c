"""The newest steps of a rank, one by one: made of their blocks only when somebody asks for them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.step_blocks import StepBlock
from trainhooks.protocol.events import Step

MAX_LATEST = 512  # newest steps, which screens show one by one
MAX_WAITING_BLOCKS = 64
MAX_LATE = 8  # steps back to which a metric may still belong that was logged after its step's end


@dataclass(slots=True)
class LatestSteps:
    """At least the newest MAX_LATEST steps, and up to twice as many."""

    known: list[Step] = field(default_factory=list)
    waiting: list[StepBlock] = field(default_factory=list)
    count: int = 0  # of both together

    def add(self, block: StepBlock) -> None:
        if len(block) > 2 * MAX_LATEST:
            block = block.last(2 * MAX_LATEST)
        self.waiting.append(block)
        self.count += len(block)
        if self.count > 2 * MAX_LATEST:
            self.count -= -((2 * MAX_LATEST - self.count) // MAX_LATEST) * MAX_LATEST
            surplus = sum(map(len, self.waiting)) - self.count
            while surplus >= len(self.waiting[0]):  # none of them is kept
                surplus -= len(self.waiting.pop(0))
        if block.odd is not None and len(self.waiting) >= MAX_WAITING_BLOCKS:  # arrays of one step take more memory
            self.steps()

    def steps(self) -> list[Step]:
        """Return these steps, the oldest first."""
        if self.waiting:
            new = sum(map(len, self.waiting))
            surplus = max(0, new - self.count)
            for block in self.waiting:
                self.known += block.steps(min(surplus, len(block)))
                surplus = max(0, surplus - len(block))
            self.waiting = []
            del self.known[: len(self.known) - self.count]
        return self.known

    def add_metrics(self, values: Mapping[str, Any], step: int) -> None:
        """Add metrics that were logged after their step's end, so that they are shown on its page, too."""
        steps = self.steps()
        for place in range(len(steps) - 1, max(-1, len(steps) - 1 - MAX_LATE), -1):
            if steps[place].index == step:
                own = steps[place].metrics or {}  # an evaluation may log other values by the same names
                steps[place] = replace(steps[place], metrics={**values, **own})
                break
