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
        lambda: trained(float64=1_000_000, seconds=0.001),
    ]
}


def found(story: Story) -> dict[str, Finding]:
    return {finding.code: finding for finding in judged(story, alive=False)[0]}


def test_a_cpu_gains_half_of_what_is_computed_at_most_and_a_gpu_an_unknown_part() -> None:
    told = found(trained(float64=1_000_000))["double-precision"]
    assert told.lost_fraction == pytest.approx(0.5 * 0.3 / 0.32, rel=0.06)  # the first step is start-up
    assert found(trained(float64=1_000_000, device="cuda"))["double-precision"].lost_fraction is None


def closures(steps: int, calls: int, dtype: str = "float64") -> Story:
    """An optimizer that calls the model several times in a step, in less than a second altogether."""
    story = Story()
    for _ in range(steps):
        story.step_with({"forwards": calls} if calls > 1 else {}, optimizer=0.01, forward=0.01, backward=0.02)
    return story.tell(Facts, facts={"optimizer": {"dtypes": {dtype: 1_000_000}, "device": "cpu"}})


@pytest.mark.parametrize(
    ("story", "words"),
    [
        (closures(15, 20), "Double precision"),
        (closures(15, 1), "too short to judge"),  # whatever there is to find
        (closures(15, 1, "float32"), "too short to judge"),
        (closures(15, 20, "float32"), "no bottleneck found"),
        (closures(4, 100), "Too few steps to judge"),
    ],
)
def test_a_few_steps_of_many_calls_are_judged_and_a_few_short_ones_are_too_short(story: Story, words: str) -> None:
    findings, verdict = judged(story, alive=False)
    assert words in verdict.title and bool(findings) == (words == "Double precision")


def test_the_bound_holds_for_long_first_steps_too() -> None:
    """A solver calls the model many times in its first steps: they are no start-up."""
    story = Story()
    for number in range(30):
        story.step_with({"forwards": 20 if number < 4 else 2}, forward=0.4 if number < 4 else 0.04, other=0.001)
    story.tell(Facts, facts={"optimizer": {"dtypes": {"float64": 1_000_000}, "device": "cpu"}})
    gain = found(story)["double-precision"].gain
    assert gain is not None and gain.likely is None and gain.most == pytest.approx(2.0, rel=0.1)


def test_where_it_is_meant_it_is_information() -> None:
    assert found(trained("torch.float64", float64=1_000))["double-precision"].severity == "info"
