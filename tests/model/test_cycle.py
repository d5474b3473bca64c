"""The iteration of reinforcement learning: which parts it has, how long they take, whose they are."""

import pytest

from monitor.model.cycle import Cycle, steps_of
from monitor.model.summary import report

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
    return report(state, around(state)).cycle


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
    assert steps_of(steps) == words


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
