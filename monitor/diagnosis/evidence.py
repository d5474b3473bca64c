"""What a rule may look at: the state, the report read off it, and what is open now. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from monitor.model.compare import Side
from monitor.model.report import Device, OpenWork, PhaseRow, Report
from monitor.model.state import RunState
from monitor.units import share

# At the stack. What takes a tenth of the time is seen in half of a dozen looks in one run of two thousand.
ENOUGH_LOOKS = 12
# How many steps a rule asks for is meant for short ones. Of steps that take seconds a few show as much: the first three
# apart, the others have to fill so many seconds.
FEW_STEPS, LONG_SECONDS = 5, 5.0


@dataclass(frozen=True, slots=True)
class Evidence:
    state: RunState
    report: Report
    open: OpenWork
    before: Side | None = None  # the last comparable run of the same command, where one is at hand

    @property
    def steps(self) -> int:
        """Steps of the lead that were seen."""
        return self.state.main.step_seconds.digested().count

    def enough(self, steps: int) -> bool:
        """Whether so many steps were seen, or few that are long."""
        if self.steps >= steps:
            return True
        wall = self.state.main.wall
        if self.steps < FEW_STEPS or wall.warm is None or wall.last_step is None:
            return False
        return wall.last_step - wall.warm >= LONG_SECONDS

    @property
    def step_seconds(self) -> float | None:
        """Seconds of a usual step, as far as they are known: by the device's clock, else since the first step."""
        device, a_second = self.device, self.report.throughput.steps_per_second
        if device is not None and device.seconds:
            return device.seconds
        return 1.0 / a_second if a_second else None

    @property
    def device(self) -> Device | None:
        """How the run uses its GPUs; None where it uses none, as far as it is known."""
        return self.report.device

    @property
    def host_only(self) -> bool:
        """Whether a device is used and only the host's clock tells of the steps.

        Then its phases say where Python was, and nothing of what the device did: no finding may rest on them alone.
        """
        return self.device is not None and (not self.report.phases or self.report.phases[0].clock != "cuda")

    @property
    def idle_most(self) -> float | None:
        """The share of step time in which the device was idle, at most; None where that is not known.

        Without a device it is all of it: the host computes, and what it waits for is not computed.
        """
        if self.device is None:
            return 1.0
        return None if self.device.gain_limit is None else 1.0 - 1.0 / self.device.gain_limit

    @property
    def idle_least(self) -> float:
        """The share of step time in which the device was idle for certain; 0 where that is not known."""
        most = self.device.busy_most if self.device is not None else None
        return 0.0 if most is None else 1.0 - most

    def phase(self, name: str) -> PhaseRow | None:
        return next((row for row in self.report.phases if row.name == name), None)

    def of_wall(self, seconds: float) -> float:
        """`seconds` as a share of the elapsed time; 0 where that is unknown."""
        return seconds / self.report.wall.total if self.report.wall.total else 0.0

    def of_loop(self, seconds: float) -> float:
        """The same of the time since the first step: what comes once, before it, makes a habit no smaller."""
        return seconds / self.report.wall.stepping if self.report.wall.stepping else 0.0

    def named(self, *names: str) -> float:
        """Seconds in phases and spans of these names, in steps and outside of them."""
        in_steps = sum(row.mean * row.count for row in self.report.phases if row.name in names)
        return in_steps + sum(seconds for name, seconds in self.report.wall.spans.items() if name in names)

    def setting(self, *names: str) -> tuple[str, Any] | None:
        """The first of these settings that the facts hold, at whatever depth: its name and its value."""
        for name in names:
            found = _search(self.state.facts, name)
            if found is not None:
                return name, found
        return None

    def looks(self, *where: str) -> dict[str, int]:
        """How often the program was seen at each place while one of these was open; empty on few looks."""
        found: Counter[str] = Counter()
        for name in where:
            found.update(self.state.main.frames.get(name, {}))
        return dict(found) if found.total() >= ENOUGH_LOOKS else {}

    def places(self, *where: str) -> list[str]:
        """Where the program stood most often while one of these was open, in words; none on few looks."""
        looks = self.looks(*where)
        whole = sum(looks.values())
        most = sorted(looks.items(), key=lambda row: -row[1])[:3]
        return [f"{share(times / whole)} of it at {place}" for place, times in most if times >= 0.1 * whole]


def _search(facts: dict[str, Any], name: str, depth: int = 3) -> Any:
    if name in facts:
        return facts[name]
    if depth > 0:
        for value in facts.values():
            if isinstance(value, dict) and (found := _search(value, name, depth - 1)) is not None:
                return found
    return None
