"""What would remain of a run's time if a part of it vanished: the rows of `report --json`, key `what_if`."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Remains:
    """Figures of a run; None is unknown."""

    step_seconds: float | None = None  # from step to step, pauses between steps included
    steps_per_second: float | None = None
    tokens_per_second: float | None = None
    samples_per_second: float | None = None
    eta_seconds: float | None = None
    wall_seconds: float | None = None  # so far, or of the whole run where it has ended
    cost: float | None = None  # the same
    cost_total: float | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`now` as it is, `then` as it would be at best."""

    assumed: dict[str, float] = field(default_factory=dict)  # part -> what remains of it, as a share
    now: Remains = Remains()
    then: Remains = Remains()
    faster: float | None = None  # times, at most
    saved_seconds: float | None = None  # of the elapsed time
