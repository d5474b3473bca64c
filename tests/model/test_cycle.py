"""The iteration of reinforcement learning: which parts it has, how long they take, whose they are."""

import random

import pytest

from monitor.model.cycle import Cycle, steps_text
from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.model.summary import make_report
from monitor.sources.decode import decode_numbered
from monitor.sources.step_lines import decode_lines, step_blocks
from trainhooks.protocol.events import Facts, Metrics

from .conftest import Story, around, folded, judged, judged_state, line_of, report_of


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


def acting(first: str, own: dict[str, float]) -> tuple[set[str | None], float | None, float | None]:
    """An actor beside a learner: the loop's roles, and the environment steps and the return that are told."""
    actor, learner = Story("a", source="actor"), Story("l")
    for _ in range(20):
        actor.pulse(step=3, step_open=9.0)  # it is nobody's open step
        actor.span("rollout", 0.4)
        actor.tell(Metrics, values={"env_steps": 50, "episodes": 5, "episode_return": 7.0})
        learner.step_with({"metrics": own}, forward=0.1, backward=0.3)
    state = folded(*((actor, learner) if first == "actor" else (learner, actor)))
    report = make_report(state, around(state))
    assert (report.run.ranks, report.progress.steps_done, state.main.pulse) == (1, 20, None)
    roles = set() if report.cycle is None else {role.role for role in report.cycle.roles}
    steps, returned = report.metrics["env_steps"], report.metrics.get("episode_return")
    return roles, (steps.mean or 0.0) * steps.count, None if returned is None else returned.mean


@pytest.mark.parametrize("first", ["actor", "learner"])
def test_an_actor_process_collects_unless_the_learner_does(first: str) -> None:
    assert acting(first, {}) == ({None, "actors"}, 1000.0, 7.0)
    assert acting(first, {"env_steps": 8.0}) == (set(), 160.0, None)


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


# Iterations, whatever lies between their steps


def ppo(story: Story, updates: int, rollout: float = 1.0, *, cached: bool = False) -> None:
    """One iteration: a rollout in its first step (none where it is cached), rewards between the steps."""
    if not cached:
        story.span("generation", rollout)
    story.span("execution", 0.5)
    for _ in range(updates):
        story.step_with({}, forward=0.01, backward=0.02, optimizer=0.01)


@pytest.mark.parametrize("updates", [1, 128, 320, 1000])
def test_any_number_of_steps_in_an_iteration(updates: int) -> None:
    story = Story()
    for _ in range(6):
        for at in range(updates):
            story.step_with({}, **({"rollout": 3.0} if at == 0 else {}), forward=0.004, backward=0.004, other=0.002)
    found = cycle(story)
    assert found is not None
    assert found.steps == updates
    assert found.typical_seconds == pytest.approx(3.0 + 0.01 * updates)
    assert {part.name: part.share for part in found.phases}["rollout"] == pytest.approx(3.0 / (3.0 + 0.01 * updates))
    assert sum(part.share for part in found.phases) == pytest.approx(1.0)
    assert sum(part.seconds for part in found.phases) == pytest.approx(found.seconds)


def test_what_lies_between_the_steps_belongs_to_the_iteration() -> None:
    story = Story()
    for _ in range(12):
        ppo(story, 4)
        story.wait(0.34)  # a subprocess that nothing names
    story.bye()
    found = cycle(story)
    assert found is not None
    assert found.steps == 4
    assert found.seconds == pytest.approx(2.0, rel=0.02)  # the last one ends with its last step
    shares = {part.name: part.share for part in found.phases}
    assert shares["generation"] == pytest.approx(0.5, abs=0.02)
    assert shares["execution"] == pytest.approx(0.25, abs=0.02)
    assert shares["between steps"] == pytest.approx(0.17, abs=0.02)


def test_a_stop_between_the_steps_is_a_slow_iteration() -> None:
    story = Story()
    for number in range(40):
        ppo(story, 2, rollout=56.0 if number == 30 else 1.0)
    ppo(story, 2)
    found = cycle(story)
    assert found is not None
    [slow] = found.slow
    assert slow.step == 61
    assert slow.steps == 2
    assert slow.culprit == "generation"
    assert slow.seconds == pytest.approx(56.58)
    assert slow.baseline == pytest.approx(1.58)


def test_cached_and_computed_answers_are_two_kinds() -> None:
    story = Story()
    for number in range(40):
        ppo(story, 1, cached=number % 4 > 0)
    found = cycle(story)
    assert found is not None
    assert found.slow == []
    kinds = {kind.name: (kind.share, kind.typical_seconds) for kind in found.kinds}
    assert kinds["rollout, reward"] == (pytest.approx(0.25, abs=0.01), pytest.approx(1.54))
    assert kinds["reward"] == (pytest.approx(0.75, abs=0.01), pytest.approx(0.54))


def test_an_evaluation_now_and_then_is_a_kind_and_not_slow() -> None:
    story = Story()
    for number in range(40):
        ppo(story, 2)
        if number % 5 == 4:
            story.span("eval", 20.0)
    ppo(story, 2)
    found = cycle(story)
    assert found is not None
    assert found.slow == []
    assert {kind.name for kind in found.kinds} == {"rollout, reward", "rollout, reward, eval"}


def test_a_stage_that_is_over_is_no_part_of_the_iteration() -> None:
    story = Story()
    for stage, seconds in (("1", 9.0), ("2", 0.2)):
        for _ in range(10):
            story.step_with({"stage": stage}, generation=seconds, forward=0.1, backward=0.1)
        story.span("eval", 5.0)
    found = cycle(story)
    assert found is not None
    assert found.seconds == pytest.approx(0.4)
    assert [role.stage for role in found.roles] == ["2"]


def test_iterations_do_not_depend_on_how_steps_share_lines() -> None:
    """Live, each step comes for itself; who reads later has them in blocks."""
    story = Story()
    for number in range(30):
        for at in range(7):
            story.step_with({}, **({"rollout": 0.3 + number / 100} if at == 0 else {}), forward=0.01, other=0.005)
    singly, together = folded(story), RunState()
    for event in step_blocks(decode_lines(list(map(line_of, story.events)), decode_numbered)):
        fold(together, event)
    found = make_report(together, around(together)).cycle
    assert found is not None and found.count == 30
    assert found == make_report(singly, around(singly)).cycle


def test_time_left_follows_the_iterations() -> None:
    """Within one, its rollout is long and its steps are short: neither is the pace of the run."""
    story = Story()
    story.tell(Facts, total_steps=3200)
    for number in range(6):
        for at in range(320 if number < 5 else 40):
            story.step_with({}, **({"rollout": 60.0} if at == 0 else {}), forward=0.05, backward=0.05)
    state = folded(story)
    left = make_report(state, around(state, alive=True)).progress.eta_seconds
    assert left == pytest.approx(5 * 92.0 - 64.0, rel=0.01)


def test_a_stop_between_the_steps_is_told() -> None:
    story = Story()
    for number in range(40):
        ppo(story, 2, rollout=56.0 if number in (20, 26, 33) else 1.0)
    ppo(story, 2)
    told = {finding.code: finding for finding in judged(story, alive=False)[0]}
    assert told["slow-steps"].steps == [41, 53, 67]
    assert told["slow-steps"].culprit == "generation"


def test_answers_that_differ_in_length_make_no_iteration_slow() -> None:
    """The twin."""
    noise, story = random.Random(1), Story()
    for _ in range(200):
        ppo(story, 2, rollout=noise.uniform(0.8, 1.6))
    assert "slow-steps" not in {finding.code for finding in judged(story, alive=False)[0]}


def test_actors_of_several_processes_are_roles_of_one_iteration() -> None:
    """As Ray's actors tell: the learner is idle between its calls, each call of the others is a step."""
    learner, critic = Story(role="Learner"), Story("c", rank=1, role="Critic")
    rollouts = [Story(name, source="actor", role="Rollout") for name in ("a", "b")]
    for _ in range(20):
        for rollout in rollouts:
            rollout.step_with({"role": "Rollout"}, rollout=6.0)
            rollout.wait(4.0)
        learner.span("idle", 8.0)
        learner.step(training=2.0)
        critic.span("idle", 9.0)
        critic.step(training=1.0)
    report = report_of(learner, critic, *rollouts)
    assert report.cycle is not None and report.cycle.seconds == pytest.approx(10.0)
    shares = {role.role: {part.name: round(part.share, 1) for part in role.parts} for role in report.cycle.roles}
    assert shares == {
        "Learner": {"learn": 0.2, "idle": 0.8},
        "Critic": {"learn": 0.1, "idle": 0.9},
        "Rollout": {"rollout": 0.6, "idle": 0.4},
    }
    assert [row.rank for row in report.ranks] == [0, 1] and report.straggler is None
    state = folded(learner, critic, *rollouts)
    _, told = judged_state(state)
    assert "idle" in told.title and "Rollout works 6" in told.title
    assert {role.role: round(role.steps) for role in report.cycle.roles} == {"Learner": 1, "Critic": 1, "Rollout": 2}
