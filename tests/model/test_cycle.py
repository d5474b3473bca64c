"""The iteration of reinforcement learning: which parts it has, how long they take, whose they are."""

import pytest

from monitor.model.cycle import Cycle, steps_text
from monitor.model.summary import make_report

from .conftest import Story, around, folded


def on_policy(iterations: int = 6, updates: int = 4) -> Story:
    story = Story()
    for _ in range(iterations):
        story.step_with({}, rollout=0.6, forward=0.02, backward=0.05, other=0.03)
        for _ in range(updates - 1):
            story.step_with({}, forward=0.02, backward=0.05, other=0.03)
    return story


def cycle(story: Story) -> Cycle | None:
    state = folded(story)
    return make_report(state, around(state)).cycle


def parts(story: Story) -> dict[tuple[str | None, str], float]:
    found = cycle(story)
    assert found is not None
    return {(role.role, part.name): part.seconds for role in found.roles for part in role.parts}


def test_a_rollout_and_the_steps_that_learn_from_it_are_one_iteration() -> None:
    story = on_policy()
    found = cycle(story)
    assert found is not None
    assert found.steps == pytest.approx(4, rel=0.35)  # the first steps are no part of it
    assert found.seconds == pytest.approx(1.0, rel=0.2)
    shares = {part.name: part.share for part in found.roles[0].parts}
    assert shares["rollout"] == pytest.approx(0.6, abs=0.08)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_parts_by_role() -> None:
    story = Story()
    for _ in range(10):
        story.step_with({"role": "generator"}, generation=0.3, execution=0.1, training=0.1)
        story.step_with({"role": "judge"}, generation=0.1, training=0.1, weight_sync=0.2)
    found = parts(story)
    assert found["generator", "rollout"] == pytest.approx(0.3)
    assert found["generator", "reward"] == pytest.approx(0.1)
    assert found["judge", "sync"] == pytest.approx(0.2)
    assert ("judge", "reward") not in found


def test_generation_between_the_steps_comes_first() -> None:
    story = Story()
    for _ in range(12):
        story.span("generation", 0.3)
        story.step_with({}, forward=0.1, backward=0.2)
    found = cycle(story)
    assert found is not None
    assert [part.name for part in found.roles[0].parts] == ["rollout", "learn"]


def test_supervised_training_has_none() -> None:
    story = Story()
    for _ in range(20):
        story.step_with({}, data=0.1, forward=0.1, backward=0.2, optimizer=0.01)
    assert cycle(story) is None


def test_a_sample_now_and_then_is_no_rollout() -> None:
    story = Story()
    for number in range(40):
        story.step_with({}, generation=0.02 if number % 10 == 0 else 0.0, forward=0.3, backward=0.3)
    assert cycle(story) is None


@pytest.mark.parametrize(("steps", "words"), [(1.0, "1 step"), (16.02, "16 steps"), (2.5, "2.5 steps")])
def test_steps_of_an_iteration(steps: float, words: str) -> None:
    assert steps_text(steps) == words


@pytest.mark.parametrize("updates", [1, 2, 5])
def test_several_steps_learn_from_what_was_generated_before_them(updates: int) -> None:
    story = Story()
    for _ in range(30):
        story.span("generation", 0.3)
        story.span("generation", 0.1)  # in several calls
        for _ in range(updates):
            story.step_with({}, forward=0.1, backward=0.2)
    found = cycle(story)
    assert found is not None
    assert found.steps == pytest.approx(updates, rel=0.1)
    assert found.seconds == pytest.approx(0.4 + 0.3 * updates, rel=0.1)


# Beside the loop


def test_a_thread_that_generates_has_a_bar_of_its_own() -> None:
    story = Story()
    for _ in range(20):
        story.step_with({"background": [("generation", 0.3, "host", 1)]}, forward=0.1, backward=0.3)
    found = cycle(story)
    assert found is not None
    loop, beside = found.roles
    assert (loop.is_concurrent, beside.is_concurrent) == (False, True)
    shares = {part.name: part.share for part in beside.parts}
    assert shares["rollout"] == pytest.approx(0.75)
    assert shares["idle"] == pytest.approx(0.25)
    assert found.seconds == pytest.approx(0.4)  # the loop's
    assert found.staleness is None


def test_several_threads_share_the_time_that_they_fill() -> None:
    story = Story()
    for _ in range(20):
        rows = [("generation", 0.9, "host", 3), ("reward", 0.3, "host", 3)]
        story.step_with({"background": rows}, forward=0.1, backward=0.3)
    found = parts(story)
    assert found["other threads", "rollout"] == pytest.approx(0.3)
    assert found["other threads", "reward"] == pytest.approx(0.1)
    assert ("other threads", "idle") not in found


def test_threads_that_prepare_data_are_no_role() -> None:
    story = Story()
    for _ in range(20):
        story.step_with({"background": [("data", 0.3, "host", 1)]}, forward=0.1, backward=0.3)
    assert cycle(story) is None


def test_a_rank_with_another_role_works_beside_the_learner() -> None:
    learner, generator = Story("l"), Story("g", rank=1)
    for _ in range(30):
        learner.step_with({"role": "learner"}, training=0.4)
        generator.step_with({"role": "generator"}, generation=0.3)
        generator.wait(0.1)
    state = folded(learner, generator)
    found = make_report(state, around(state)).cycle
    assert found is not None
    shares = {(role.role, part.name): part.share for role in found.roles for part in role.parts}
    assert shares["learner", "learn"] == pytest.approx(1.0)
    assert shares["generator", "rollout"] == pytest.approx(0.75, abs=0.02)
    assert shares["generator", "idle"] == pytest.approx(0.25, abs=0.02)


def test_ranks_of_one_role_take_turns_in_no_picture() -> None:
    stories = [Story("a"), Story("b", rank=1)]
    for story in stories:
        for _ in range(20):
            story.step_with({"role": "policy"}, generation=0.3, training=0.1)
    state = folded(*stories)
    found = make_report(state, around(state)).cycle
    assert found is not None
    assert [role.role for role in found.roles] == ["policy"]


@pytest.mark.parametrize(
    "name", ["staleness", "async/staleness_mean", "off_policy_level/all/mean", "avg_trajectory_age", "train/policy_lag"]
)
def test_logged_staleness(name: str) -> None:
    story = Story()
    for number in range(20):
        story.step_with({"metrics": {name: float(number % 3)}}, generation=0.3, forward=0.1, backward=0.3)
    found = cycle(story)
    assert found is not None
    assert found.staleness == 1.0


@pytest.mark.parametrize("name", ["async/staleness_max", "staleness_seconds", "model_version"])
def test_no_staleness(name: str) -> None:
    story = Story()
    for _ in range(20):
        story.step_with({"metrics": {name: 2.0}}, generation=0.3, forward=0.1, backward=0.3)
    found = cycle(story)
    assert found is not None
    assert found.staleness is None
