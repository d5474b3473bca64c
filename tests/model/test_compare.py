"""Two runs side by side: the ratio, the noise, the part of each phase, and what changed."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from monitor.model.comparison.compare import Comparison, Side, compare_runs
from monitor.model.comparison.loop_pace import loop_time
from monitor.model.summary import make_report
from monitor.reports import comparison
from trainhooks.protocol.events import Facts

from .conftest import Story, around, folded
from .device_stories import GPT2, ITEM_EACH_STEP, hf_trainer, looped, matmul

noise = random.Random(11)


def side(told: Story, **identity: Any) -> Side:
    state = folded(told)
    report = make_report(state, around(state, **identity))
    return Side(report, loop_time(state, report))


def steady(n: int = 200, data: float = 0.01, forward: float = 0.1, warm_up: float = 0.0, **fields: Any) -> Story:
    told = Story().span("load", 3)
    for i in range(n):
        wobble = 1 + 0.05 * noise.random()
        told.step_with(fields, data=data * wobble, forward=forward * wobble + (warm_up if i < 5 else 0.0))
    return told


def compared(one: Story, two: Story) -> Comparison:
    return compare_runs(side(one, id="one"), side(two, id="two"))


def test_a_slower_run_says_what_made_it_so() -> None:
    told = compared(steady(), steady(data=0.12))
    assert told.slower == pytest.approx(2.0, rel=0.03)
    assert told.more_than_noise is True
    assert told.phases[0].name == "data" and told.phases[0].explains == pytest.approx(1.0, abs=0.05)
    assert "x slower (" in comparison.text(told) and "; data explains" in comparison.text(told)


def test_the_same_run_is_within_the_noise() -> None:
    told = compared(steady(), steady())
    assert told.more_than_noise is False
    assert "slower" not in comparison.verdict(told) or "within the noise" in comparison.verdict(told)


def test_warm_up_does_not_count() -> None:
    told = compared(steady(), steady(warm_up=30.0))
    assert told.slower == pytest.approx(1.0, rel=0.03)


def test_few_steps_are_not_enough() -> None:
    told = compared(steady(4), steady(4, data=0.2))
    assert told.more_than_noise is None and "too few steps" in told.noise
    assert "unproven" in comparison.verdict(told)


def in_quarters(*forward: float) -> Story:
    """A run on a machine whose neighbors come and go."""
    told = Story()
    for seconds in forward:
        for _ in range(50):
            told.step(forward=seconds * (1 + 0.02 * noise.random()))
    return told


def test_a_machine_that_changes_its_speed_proves_little() -> None:
    told = compared(in_quarters(0.1, 0.16, 0.1, 0.16), in_quarters(0.1, 0.16, 0.16, 0.16))
    assert told.more_than_noise is False and "vary by" in told.noise


def test_what_every_eighth_step_takes_longer_counts_in_ratio_and_parts_alike() -> None:
    one, two = Story(), Story()
    for number in range(240):
        one.step(forward=0.1)
        two.step(forward=0.1, **({"reward": 0.4} if number % 8 == 7 else {}))
    told = compared(one, two)
    assert told.slower == pytest.approx(1.5, rel=0.03)
    assert (told.phases[0].name, told.phases[0].explains) == ("reward", pytest.approx(1.0))


def test_a_single_long_step_changes_neither_ratio_nor_parts() -> None:
    one, two = Story(), Story()
    for number in range(240):
        one.step(forward=0.1, data=0.001)
        two.step(forward=0.12, data=30.0 if number == 100 else 0.001)
    told = compared(one, two)
    assert told.slower == pytest.approx(1.2, rel=0.03)
    assert told.phases[0].name == "forward"


def test_other_work_is_compared_by_the_token() -> None:
    told = compared(steady(tokens=1000), steady(forward=0.21, data=0.02, tokens=2000))
    assert told.per == "token" and told.slower == pytest.approx(1.05, rel=0.05)
    assert any("tokens a step differ" in each for each in told.warnings)


def test_what_changed_is_named() -> None:
    one = steady().tell(Facts, facts={"config": {"workers": 4, "lr": 1e-4}, "versions": {"transformers": "4.43.3"}})
    two = steady().tell(Facts, facts={"config": {"workers": 0, "lr": 1e-4}, "versions": {"transformers": "4.41.2"}})
    told = compared(one, two)
    assert [(each.name, each.before, each.after) for each in told.changed] == [
        ("config.workers", 4, 0),
        ("versions.transformers", "4.43.3", "4.41.2"),
    ]
    assert "config.workers: 4 → 0" in comparison.text(told)
    assert "- config.workers: 4 → 0" in comparison.text(told, markdown=True)


def test_foreign_names_are_no_markdown() -> None:
    evil = "<img src=x>![a](http://e.example/p)`|*"
    told = compared(*(steady().tell(Facts, facts={"config": {evil: value}}) for value in (evil, "0")))
    told = replace(told, after=evil, warnings=[evil])
    written = comparison.text(told, markdown=True)
    assert written.count("&lt;img") >= 4, written
    assert "<img" not in written and "![" not in written
    assert "<img" in comparison.text(told)


def test_runs_without_steps_are_not_compared() -> None:
    told = compared(Story().span("load", 3), steady())
    assert told.slower is None and told.more_than_noise is None
    assert "no steps" in comparison.text(told)


def test_phases_are_not_compared_across_clocks() -> None:
    """What the host waited for is no measure of what a device took."""
    for one, two, clocks in (
        (hf_trainer(), hf_trainer(timed=False), "cuda and host clock only"),
        (hf_trainer(timed=False), hf_trainer(timed=False), "host clock only and host clock only"),
        (steady(), hf_trainer(), "host and cuda"),
    ):
        told = compared(one, two)
        assert told.phases == [] and told.slower is not None
        assert any(clocks in warning for warning in told.warnings)


def test_by_the_device_s_clock_they_are() -> None:
    slower = {**GPT2, "backward": 2 * GPT2["backward"]}
    told = compared(hf_trainer(), looped({**ITEM_EACH_STEP, "other": 0.198}, slower))
    assert told.more_than_noise is True and told.slower == pytest.approx(1.55, rel=0.05)
    assert told.phases[0].name == "backward" and not any("not compared" in each for each in told.warnings)


@pytest.mark.parametrize("every", [1, 20])
def test_a_host_that_runs_ahead_makes_no_run_faster(every: int) -> None:
    told = compared(hf_trainer(), matmul(every=every))
    assert told.step_seconds == (pytest.approx(0.154, rel=0.02), pytest.approx(0.037, rel=0.03))


def test_without_device_times_the_pace_is_compared_and_not_how_fast_the_host_queues() -> None:
    told = compared(matmul(timed=False), hf_trainer(timed=False))
    assert told.step_seconds[0] == pytest.approx(0.037, rel=0.1)
    assert told.step_seconds[1] == pytest.approx(0.154, rel=0.05)
    assert compared(matmul(timed=False), matmul(timed=False)).more_than_noise is False


@pytest.mark.parametrize(("every", "words"), [(0, "all steps skipped before, no step now"), (50, "slower")])
def test_steps_that_did_nothing_come_before_any_ratio(every: int, words: str) -> None:
    before = Story().span("load", 3)
    for at in range(200):
        works = every and at % every
        fields = {} if works else {"status": "skipped", "reason": "empty"}
        before.step_with(fields, forward=(0.1 if works else 0.05) * (1 + 0.05 * noise.random()))
    assert words in comparison.text(compared(before, steady(forward=0.5))).splitlines()[0]
