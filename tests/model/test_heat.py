"""Heat slows the steps: it comes before the drift that it makes, also where only the output tells of steps."""

from __future__ import annotations

import random
from typing import Any

import pytest

from trainhooks.protocol.events import Gpu

from .conftest import Story, judged

COOL: dict[str, Any] = {"sm_clock": 1980, "reasons": 0, "temperature": 75.0}
HOT: dict[str, Any] = {"sm_clock": 1290, "reasons": 0x40, "temperature": 87.0}


def laptop(source: str, ratio: float, hot: range = range(0)) -> list[tuple[str, float]]:
    """Return the findings on 300 steps, the last two thirds of which are longer by `ratio`, on a GPU hot in some."""
    told, noise, read = Story("c", source=source), random.Random(1), 0
    for step in range(300):
        seconds = noise.uniform(0.98, 1.02) * (ratio if step >= 100 else 1.0)
        told.step_with({"metrics": {"loss": 2 - step / 300}}, other=seconds)
        while read < told.now:
            read += 1
            clock = HOT if step in hot else COOL
            told.tell(Gpu, uuid="GPU-0", index=0, utilization=99.0, sm_clock_max=1980, **clock)
    return [(found.code, found.lost_fraction or 0.0) for found in judged(told, alive=False)[0]]


@pytest.mark.parametrize("source", ["console", "hooks"])
def test_heat_comes_alone_where_it_explains_the_drift(source: str) -> None:
    ((code, lost),) = laptop(source, 1.33, range(100, 300))
    assert (code, lost) == ("thermal-throttle", pytest.approx(200 * 0.33 / 366, abs=0.02))


@pytest.mark.parametrize("source", ["console", "hooks"])
def test_heat_that_costs_nothing_explains_no_drift(source: str) -> None:
    assert laptop(source, 1.33, range(50))[0][0] == "slow-drift"
    assert [code for code, _ in laptop(source, 1.33)] == ["slow-drift"]
    assert [(code, round(lost, 2)) for code, lost in laptop(source, 1.0, range(100, 300))] == [("thermal-throttle", 0)]
