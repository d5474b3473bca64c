"""One-offs, episodes and the habit of a run are told apart before any rule speaks."""

from __future__ import annotations

import pytest

from monitor.model.comparison.what_if import what_if, without_finding
from monitor.model.report import Finding, PhaseRow, Report
from monitor.model.steps.time_split import is_rhythm
from trainhooks.protocol.events import Frames

from .conftest import Story, judged, report_of

STEP = {"forward": 0.008, "backward": 0.014, "other": 0.004}


def story(steps: int, unusual: dict[int, dict[str, float]], **usual: float) -> Story:
    """Steps alike, but for those whose numbers are given."""
    told = Story()
    for number in range(1, steps + 1):
        told.step(**{**(usual or STEP), **unusual.get(number, {})})
    return told.bye()


def row(report: Report, name: str) -> PhaseRow:
    return next(row for row in report.phases if row.name == name)


def codes(told: Story, alive: bool = False) -> list[str]:
    return [finding.code for finding in judged(told, alive=alive)[0]]


@pytest.mark.parametrize("unusual", [{1: 4.0}, {1: 2.0, 2: 1.5}, {150: 4.0}, {1: 4.0, 200: 3.0}])
def test_a_one_off_is_no_habit(unusual: dict[int, float]) -> None:
    told = story(300, {number: {"other": seconds} for number, seconds in unusual.items()})
    report = report_of(told)
    other = row(report, "other")
    assert other.once == pytest.approx(sum(unusual.values()), rel=0.05)
    assert other.habit == pytest.approx(300 * 0.004, rel=0.05)
    assert "unaccounted-time" not in codes(told)


def test_many_slow_first_steps_are_a_start() -> None:
    told = story(300, {number: {"forward": 0.9} for number in range(1, 9)})
    assert row(report_of(told), "forward").habit == pytest.approx(300 * 0.008, rel=0.05)


def test_a_slow_first_step_is_listed_and_costs_no_finding() -> None:
    told = story(300, {1: {"forward": 4.0}})
    (slow,) = report_of(told).slow_steps
    assert (slow.step, slow.culprit) == (1, "forward")
    assert codes(told) == []


def test_what_comes_from_the_third_time_on_is_kept() -> None:
    told = story(300, {number: {"data": 2.0} for number in (1, 100, 200, 290)}, **STEP, data=0.001)
    assert "input-bound" in codes(told)


def test_waiting_between_all_steps_is_a_habit_and_one_long_pause_is_none() -> None:
    waits, pauses = Story(), Story()
    for number in range(60):
        waits.step(**STEP).wait(0.05)
        pauses.step(**STEP).wait(4.0 if number == 30 else 0.0005)
    assert "unaccounted-time" in codes(waits.bye())
    assert "unaccounted-time" not in codes(pauses.bye())


@pytest.mark.parametrize("phase", ["other", "rollout"])
def test_a_regular_longer_step_is_the_rhythm_of_the_run(phase: str) -> None:
    told = story(400, {number: {phase: 0.2} for number in range(16, 400, 32)})
    assert report_of(told).slow_steps == []
    assert "slow-steps" not in codes(told)


def test_the_same_work_that_takes_longer_is_slow_however_regularly() -> None:
    told = story(400, {number: {"forward": 0.5} for number in range(16, 400, 32)})
    assert len(report_of(told).slow_steps) > 4
    assert "slow-steps" in codes(told)


def test_slow_steps_at_no_distance_are_episodes() -> None:
    numbers = (40, 47, 101, 160, 166, 240, 311, 390)
    told = story(400, {number: {"other": 0.5} for number in numbers})
    other = row(report_of(told), "other")
    assert other.once == 0.0
    assert other.episodes == pytest.approx(len(numbers) * 0.5, rel=0.05)
    assert codes(told) == ["slow-steps"]


@pytest.mark.parametrize(
    ("numbers", "regular"),
    [
        (range(10, 200, 20), True),
        ([50, 101, 151, 202, 252], True),
        ([50, 70, 150, 155, 300], False),
        ([10, 20, 30], True),
        ([10, 20, 35], False),
        ([10, 20], False),
        ([10, 11, 12, 13, 14], False),
    ],
)
def test_a_rhythm_needs_even_distances(numbers: list[int], regular: bool) -> None:
    assert is_rhythm(numbers) is regular


@pytest.mark.parametrize(("longest", "found"), [(0.30, []), (0.90, ["slow-steps"])])
def test_the_longest_steps_of_a_rhythm_are_slow_only_if_the_others_take_half(longest: float, found: list[str]) -> None:
    usual = {number: {"other": 0.2} for number in range(1, 41, 4)}
    told = story(40, usual | {13: {"other": longest}, 29: {"other": longest}}, forward=0.005, backward=0.005)
    assert [code for code in codes(told) if code == "slow-steps"] == found


def rollouts(*places: str) -> Story:
    told = story(
        320, {number: {"other": 0.6} for number in range(1, 320, 16)}, forward=0.01, backward=0.01, other=0.001
    )
    return told.tell(Frames, rows=[("other", place, 20) for place in places])


def test_a_rollout_of_many_parts_is_no_warning_and_one_line_that_takes_all_is() -> None:
    many, one = (judged(rollouts(*places), alive=False)[0] for places in (("a:1", "a:2", "b:3"), ("plot:1",)))
    assert [(row.code, row.severity) for row in many] == [("unaccounted-time", "info")]
    assert [(row.code, row.severity) for row in one] == [("unaccounted-time", "warning")]


# The loop and what lies around it.


def cycles(count: int, generation: float = 3.0, steps: int = 1, name: str = "generation") -> Story:
    told = Story().span("load model", 5.0)
    for _ in range(count):
        told.span(name, generation)
        for _ in range(steps):
            told.step(forward=0.1, backward=0.2)
    return told.bye()


def test_the_first_pass_of_a_loop_is_no_start_up() -> None:
    report = report_of(cycles(10))
    assert report.wall.startup == pytest.approx(6.0)
    assert [row.name for row in report.startup] == ["load model", "other"]
    assert report.wall.spans == {"generation": pytest.approx(30.0)}
    assert report.throughput.steps_per_second == pytest.approx(1 / 3.3)
    assert sum(seconds for _, seconds in report.wall.parts) == pytest.approx(report.wall.total)


def test_the_first_rollout_is_no_start_up_however_many_steps_learn_from_each() -> None:
    report = report_of(cycles(6, steps=16))
    assert report.wall.startup == pytest.approx(6.0)
    assert report.wall.spans == {"generation": pytest.approx(18.0)}


@pytest.mark.parametrize(
    ("told", "startup"),
    [(cycles(2, steps=16), 9.0), (cycles(6, 0.01, steps=16), 6.01), (cycles(6, steps=16, name="eval"), 9.0)],
)
def test_what_comes_seldom_or_shortly_begins_no_loop(told: Story, startup: float) -> None:
    assert report_of(told).wall.startup == pytest.approx(startup)


def test_what_comes_before_the_first_step_only_is_start_up() -> None:
    told = Story().span("generation", 5.0)
    for _ in range(10):
        told.step(forward=0.1)
    assert report_of(told.bye()).wall.startup == pytest.approx(6.0)


def test_one_step_is_no_rate() -> None:
    assert report_of(Story().step(forward=1.0), alive=True).throughput.steps_per_second is None
    assert report_of(Story().step(forward=1.0).step(forward=1.0), alive=True).throughput.steps_per_second == 1.0


def slow_data(after: float) -> Report:
    told = story(100, {}, data=0.1, forward=0.05)
    told.events.pop()
    return report_of(told.span("eval", after).bye() if after else told.bye())


def test_a_promise_is_the_same_whatever_follows_the_training() -> None:
    gains = [what_if(slow_data(after), {"data": 0.0}).faster for after in (0.0, 7.0, 70.0)]
    assert gains == [pytest.approx(3.0)] * 3


def test_an_evaluation_after_each_epoch_belongs_to_the_loop_the_last_one_too() -> None:
    told = Story()
    for _ in range(4):
        for _ in range(25):
            told.step(forward=0.1)
        told.span("eval", 5.0)
    assert report_of(told.bye()).wall.afterwards == {}


def test_what_follows_the_last_step_makes_no_step_faster() -> None:
    told = story(40, {}, forward=0.3)
    told.events.pop()
    report = report_of(told.span("eval", 12.0).bye())
    total = report.wall.total or 0.0
    found = Finding(code="eval-heavy", severity="warning", title="", lost_fraction=12 / total, once_fraction=12 / total)
    projected = without_finding(report, found, found.lost_fraction)
    assert projected is not None
    assert (projected.faster, projected.saved_seconds) == (1.0, pytest.approx(12.0))


# A few long steps show as much as many short ones; the verdict is about the whole loop.


def long_steps(fields: dict[str, float], **usual: float) -> Story:
    told = Story()
    for _ in range(10):
        told.step_with({"metrics": fields}, **(usual or {"forward": 20.0, "backward": 40.0}))
    return told.bye()


def test_a_run_of_ten_minutes_in_ten_steps_gets_findings() -> None:
    assert codes(long_steps({"reward": 0.25, "loss": 0.0})) == ["reward-flat"]
    assert codes(long_steps({"loss": 2.3})) == ["loss-flat"]
    assert codes(long_steps({}, data=30.0, forward=30.0)) == ["input-bound"]


def rewarded(loss: float, **more: float) -> Story:
    told = Story()
    for number in range(33):
        told.step_with({"metrics": {"reward": number % 5, "loss": loss, **more}}, forward=0.1, backward=0.2)
    return told.bye()


def test_a_loss_of_exactly_zero_is_a_finding_beside_any_reward() -> None:
    assert codes(rewarded(0.0)) == ["loss-flat"]
    assert codes(rewarded(0.1)) == []


def test_a_loss_that_is_rounded_to_zero_is_none_where_gradients_flow() -> None:
    assert codes(rewarded(0.0, grad_norm=0.3)) == []


def test_the_verdict_is_about_the_loop_where_much_of_it_lies_outside_the_steps() -> None:
    told = Story().span("load model", 5.0)
    for _ in range(30):
        told.span("generation", 3.0).step(forward=0.1, backward=0.15, other=0.05).wait(0.7)
    _, verdict = judged(told.bye(), alive=False)
    assert verdict.title.startswith("75% of the time since the first step is generation; steps take 7.5%")
