"""Slow steps: found with the right culprit, and no alarm where there is nothing to say."""

from __future__ import annotations

import random
import re

import pytest

from monitor.model.steps.baseline import OTHER_KINDS

from .conftest import Story, folded, judged


def steady(n: int = 60, **more: float) -> Story:
    noise = random.Random(3)
    told = Story()
    for _ in range(n):
        told.step(generation=12 + noise.random(), training=5 + 0.2 * noise.random(), other=0.5, **more)
    return told


def test_a_spike_is_told_with_its_culprit_and_in_the_usual_words() -> None:
    told = steady(213).step(generation=45.2, training=5.1, other=15.0)
    (slow,) = folded(told).main.slow_steps
    assert (slow.step, slow.rank, slow.culprit) == (214, 0, "generation")
    assert slow.baseline == pytest.approx(18, abs=0.5)
    words = str(slow)
    assert words.startswith("Slow step 214 (65.3 s): generation 45.2 s, training 5.1 s, other 15.0 s; typical 18.")
    state = folded(told)
    assert [(row.code, row.text) for row in state.main.alerts] == [("slow-steps", words)]


@pytest.mark.parametrize("culprit", ["generation", "training", "other"])
def test_the_culprit_is_what_grew_most(culprit: str) -> None:
    usual = {"generation": 12.0, "training": 5.0, "other": 0.5}
    told = steady().step(**{**usual, culprit: usual[culprit] + 30})
    assert folded(told).main.slow_steps[0].culprit == culprit


def test_a_phase_never_seen_before_can_be_the_culprit() -> None:
    assert folded(steady().step(generation=12, training=5, checkpoint=40)).main.slow_steps[0].culprit == "checkpoint"


def quiet(told: Story) -> None:
    assert folded(told).main.slow_steps == []


def test_no_alarm_in_the_warm_up() -> None:
    told = Story().step(forward=90).step(forward=30).step(forward=5)
    for _ in range(30):
        told.step(forward=1)
    quiet(told)


def test_no_alarm_on_few_steps() -> None:
    told = Story()
    for _ in range(10):
        told.step(forward=1)
    quiet(told.step(forward=50))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.15, 0.25, 0.5, 0.85])
def test_no_alarm_for_steps_of_two_speeds(seed: int, share: float) -> None:
    """A cache that hits or not makes steps bimodal; neither speed is news."""
    noise = random.Random(seed)
    told = Story()
    for _ in range(20):  # both speeds are seen before anything could be judged
        told.step(generation=0.05 + 0.001 * noise.random()).step(generation=3 + 0.05 * noise.random())
    for _ in range(400):
        told.step(generation=(3 if noise.random() < share else 0.05) * (1 + 0.02 * noise.random()))
    state = folded(told)
    assert state.main.slow_count <= 0.02 * state.main.steps_ok


@pytest.mark.parametrize("seed", range(5))
def test_no_alarm_for_jitter(seed: int) -> None:
    noise = random.Random(seed)
    told = Story()
    for _ in range(1000):
        told.step(forward=noise.gauss(0.5, 0.05))
    quiet(told)


def test_no_alarm_for_milliseconds() -> None:
    """On a shared box the scheduler takes as much."""
    told = Story()
    for i in range(300):
        told.step(forward=0.001 if i % 50 else 0.015)
    quiet(told)


def test_no_alarm_for_a_drift() -> None:
    told = Story()
    for i in range(600):
        told.step(forward=1 + i / 100)
    quiet(told)


def test_roles_and_stages_have_baselines_of_their_own() -> None:
    told = Story()
    for _ in range(60):
        told.step_with({"role": "generator"}, generation=30)
        told.step_with({"role": "trainer"}, training=1)
        told.step_with({"role": "trainer", "stage": "2"}, training=9)
    quiet(told)
    slow = folded(told.step_with({"role": "trainer"}, training=5)).main.slow_steps
    assert [(each.role, each.stage) for each in slow] == [("trainer", None)]


def test_skipped_steps_are_no_measure() -> None:
    told = Story()
    for _ in range(30):
        told.step_with({"status": "skipped", "reason": "x"}, data=0.001).step(forward=1.0)
    quiet(told)


def test_a_new_regime_stops_being_news() -> None:
    told = steady(100)
    for _ in range(300):
        told.step(generation=60, training=5, other=0.5)
    assert folded(told).main.slow_count < 64


def test_roles_without_end_stay_bounded() -> None:
    told = Story()
    for i in range(1000):
        told.step_with({"role": f"r{i}"}, forward=1.0)
    state = folded(told)
    assert len(state.main.baselines) <= 201 and state.main.baselines[OTHER_KINDS].seen == 800


# The rules that speak of it


def test_slow_steps_are_a_finding_once_they_cost_something() -> None:
    told = steady(40)
    for _ in range(3):
        told.step(generation=60, training=5, other=0.5)
    findings, verdict = judged(told)
    assert [each.code for each in findings] == ["slow-steps"]
    assert verdict is findings[0]
    assert "generation" in verdict.title and verdict.steps == [41, 42, 43]
    assert verdict.lost_fraction is not None and 0 < verdict.lost_fraction < 1
    assert verdict.evidence[0].startswith("Slow step ") and verdict.advice


def test_a_single_spike_in_a_long_run_is_an_alert_and_no_finding() -> None:
    told = steady(1000).step(generation=60, training=5, other=0.5)
    assert judged(told)[0] == []
    assert len(folded(told).main.alerts) == 1


def test_skipped_steps_are_a_finding_with_their_reason() -> None:
    told = Story()
    for i in range(40):
        told.step_with({"status": "skipped", "reason": "empty code"} if i % 4 else {}, forward=1)
    findings, _ = judged(told)
    assert [(each.code, each.severity) for each in findings] == [("steps-skipped", "warning")]
    assert findings[0].code == "steps-skipped" and all(part in findings[0].title for part in ("30", "40", "empty code"))


@pytest.mark.parametrize(("steps", "skipped"), [(2, 2), (500, 5), (10, 0)])
def test_a_few_skipped_steps_are_normal(steps: int, skipped: int) -> None:
    told = Story()
    for i in range(steps):
        told.step_with({"status": "skipped", "reason": "x"} if i < skipped else {}, forward=1)
    assert judged(told)[0] == []


def stalling(open_for: float, steps: int = 30, **more: float) -> Story:
    told = Story()
    for _ in range(steps):
        told.step(forward=1.0, **more)
    told.wait(open_for)
    return told.pulse(step=steps + 1, step_open=open_for, phase="all_reduce", phase_open=open_for - 1)


def test_a_stall_is_told_with_where_it_stands() -> None:
    findings, verdict = judged(stalling(120))
    assert [(each.code, each.severity) for each in findings] == [("stalled", "critical")]
    assert (
        verdict.code == "stalled" and "31" in verdict.title and "all_reduce" in verdict.title and verdict.steps == [31]
    )


@pytest.mark.parametrize(
    "told", [stalling(40), stalling(120, 4), stalling(120, generation=20)], ids=["short", "few", "slow"]
)
def test_what_is_short_or_little_known_is_no_stall(told: Story) -> None:
    assert judged(told)[0] == []


def test_silence_is_a_stall_only_while_it_lives() -> None:
    told = stalling(2)
    silent = judged(told, now=told.now + 45)
    assert silent[1].code == "stalled" and "45 s" in silent[1].title
    assert judged(told, now=told.now + 10)[0] == []
    assert judged(told, alive=False, now=told.now + 45)[0] == []


def test_a_verdict_does_not_judge_few_steps() -> None:
    told = Story()
    for alive in (True, False):
        assert "step" in judged(told, alive=alive)[1].title
    for _ in range(4):
        told.step(data=0.9, forward=0.1)
        assert judged(told)[1].title == "Too few steps to judge"
        assert judged(told)[1].code == "none"
    assert re.match("90 ?% of step time is data", judged(told.step(data=0.9, forward=0.1))[1].title)
