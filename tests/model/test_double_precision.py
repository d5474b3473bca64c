"""Training in float64: when it is told, and what it can gain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.model.report import Finding
from trainhooks.protocol.events import Facts

from .conftest import Story, judged


def trained(default: str = "torch.float32", device: str = "cpu", seconds: float = 0.3, **dtypes: Any) -> Story:
    story = Story()
    for _ in range(60):
        story.step(data=0.02, forward=seconds / 3, backward=seconds / 2, optimizer=seconds / 6)
    facts = {"optimizer": {"dtypes": dtypes, "device": device}, "torch": {"default_dtype": default}}
    return story.tell(Facts, facts=facts)


SICK: dict[str, Callable[[], Story]] = {"double-precision": lambda: trained(float64=1_000_000, float32=100)}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "double-precision": [
        lambda: trained(float32=1_000_000),
        lambda: trained(float32=500_000, float64=500_000),
        lambda: trained(float64="many"),
        lambda: trained(),
        lambda: trained(float64=1_000_000, seconds=0.003),
    ]
}


def found(story: Story) -> dict[str, Finding]:
    return {finding.code: finding for finding in judged(story, alive=False)[0]}


def test_a_cpu_gains_half_of_what_is_computed_at_most_and_a_gpu_an_unknown_part() -> None:
    told = found(trained(float64=1_000_000))["double-precision"]
    assert told.lost_fraction == pytest.approx(0.5 * 0.3 / 0.32, rel=0.06)  # the first step is start-up
    assert found(trained(float64=1_000_000, device="cuda"))["double-precision"].lost_fraction is None


def test_where_it_is_meant_it_is_information() -> None:
    assert found(trained("torch.float64", float64=1_000))["double-precision"].severity == "info"
