"""Which step was open at a moment, and when a step began."""

from __future__ import annotations

import numpy as np

from monitor.model.steps.baseline import StepKind
from monitor.model.steps.step_clock import StepClock, step_clock
from monitor.model.steps.step_intervals import Timelines
from trainhooks.protocol.events import Step


def test_a_moment_has_the_step_that_was_open_then() -> None:
    timelines = Timelines()
    index = np.arange(1, 20_001)
    begins = index.astype(float)  # a step of 0.8 s each second
    timelines.extend(StepKind(), begins, begins + 0.8, index)
    latest = [Step("r0", n, n + 0.8, n, float(n), 0.8, []) for n in range(19_900, 20_001)]
    clock = step_clock(timelines, latest)
    assert clock.step_at(0.5) is None
    assert clock.step_at(19_950.5) == 19_950 and clock.is_exact(19_950.5), "one of the newest"
    assert clock.step_at(19_950.9) == 19_950, "between two: the one before"
    for moment in (700.3, 9_000.9, 19_000.5):
        step = clock.step_at(moment)
        assert step is not None and abs(step - moment) <= 16 and not clock.is_exact(moment), "of a block of some"
    assert clock.step_at(1e9) == 20_000
    for step in (1, 5_000, 19_999):
        begin = clock.begin_of(step)
        assert begin is not None and abs(begin - step) <= 16
    assert clock.begin_of(20_001) is None and StepClock().step_at(1.0) is None
