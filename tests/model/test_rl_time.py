"""Where the time of reinforcement learning goes: each rule fires on its cause, and on no near innocent run."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from monitor.diagnosis.rules.scoring_time import waits_for_one
from monitor.model.report import Finding
from monitor.sources.decode import place_of
from trainhooks.auto.rl import decoding
from trainhooks.protocol.events import Facts, Frames, Host, Metrics
from trainhooks.protocol.vocabulary import DECODE_STEPS, OWN_LOOP, TAIL_STEPS

from .conftest import Story, assert_first_and_alone, judged
from .test_rules import jitter

STEPS = 60


def stepping(
    env: float = 0.6, acting: float = 0.1, learning: float = 0.2, each: float = 0.003, cores: float | None = None,
    cpus: int = 8, **environment: Any,
) -> Story:  # fmt: skip
    """Iterations with these seconds in `env.step`, of which one of one environment takes `each`."""
    told = Story().tell(Facts, facts={"cpus": cpus, "environment": {"on_host": True, "processes": 0, **environment}})
    for _ in range(STEPS):
        count = environment.get("count", 1)
        calls = max(1, round(env / each / count))
        metrics = {"env_steps": calls * count, "env_calls": calls, "env_seconds": env}
        told.step_with({"metrics": metrics}, rollout=env + acting, forward=jitter(learning), backward=jitter(learning))
        if cores is not None:
            told.tell(Host, cores=8, cpu=50.0, tree_cpu=cores * 100)
    return told


def answering(
    generation: float = 1.0, training: float = 0.5, logs: dict[str, float] | None = None, n: int = STEPS, **facts: Any
) -> Story:
    told = Story().tell(Facts, facts=facts)
    for _ in range(n):
        told.step_with({"metrics": logs or {}}, generation=jitter(generation), training=jitter(training))
    return told


def tail(*lengths: int, **seconds: float) -> Story:
    return answering(
        logs={"generate_calls": 1, **{k: float(v) for k, v in decoding.tail_steps(lengths).items()}}, **seconds
    )


def uncached(calls: int = 1, without: int = 1, new_tokens: int = 64, **seconds: float) -> Story:
    logs = {"generate_calls": calls, "uncached_calls": without, "completions": 8, "new_tokens": 8 * new_tokens}
    return answering(logs=logs, generate={"use_cache": False, "set_by": "an argument of generate()"}, **seconds)


def scoring(reward: float, *looks: tuple[str, str, int], phase: str = "reward") -> Story:
    """Steps with these seconds in a reward, and stack samples there: line, activity, how many."""
    told = Story()
    for _ in range(STEPS):
        told.step(**{"generation": jitter(0.5), phase: jitter(reward), "training": jitter(0.5)})
    rows = [(phase, line, count) for line, _, count in looks]
    return told.tell(Frames, rows=rows, activities=[activity for _, activity, _ in looks], begin=100.0)


def syncing(seconds: float, every: int = 1) -> Story:
    told = Story()
    for i in range(STEPS):
        more = {"weight_sync": jitter(seconds)} if i % every == 0 else {}
        told.step(generation=jitter(0.5), training=jitter(0.5), **more)
    return told


def limited(at_limit: int, limit: float = 10.0, others: float = 2.0, n: int = 60, spread: float = 0.2) -> Story:
    """Executions of some seconds, and `at_limit` of `n` that end at a limit."""
    told, noise = Story(), Random(1)
    for i in range(n):
        is_late = i % (n // at_limit) == 0 if at_limit else False
        seconds = limit * (1.002 + 0.01 * noise.random()) if is_late else others * (1 + spread * noise.random())
        told.step(generation=2.0, execution=seconds, training=2.0)
    return told


PROCESS = ("rl.py:41 (subprocess.run) in score", "subprocess", 40)
REQUEST = ("rl.py:52 (requests.post) in judge", "HTTP", 40)
PARSING = ("rl.py:60 (ast.parse) in score", "", 40)
LONG, SHORT = (400,), (40,) * 15  # one answer of sixteen goes on
LOGGED = {"completions/mean_length": 50.0, "completions/max_length": 500.0}

SICK: dict[str, Callable[[], Story]] = {
    "env-bound": stepping,
    "generation-tail": lambda: tail(*LONG, *SHORT),
    "no-kv-cache": uncached,
    "sequential-rewards": lambda: scoring(0.6, PROCESS, (*PARSING[:2], 5)),
    "weight-sync-heavy": lambda: syncing(0.4),
    "time-limit": lambda: limited(15),
}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "env-bound": [
        lambda: stepping(each=0.00005),  # CartPole
        lambda: stepping(env=0.3, acting=0.1),  # learning takes longer
        lambda: stepping(env=0.1, acting=0.6),  # calls of the model do
        lambda: stepping(count=8, processes=8),  # in processes already
        lambda: stepping(count=4096, each=0.00001, on_host=False),
        lambda: stepping(env=0.9, learning=0.02, cores=6.0),  # a simulator with threads of its own
    ],
    "generation-tail": [
        lambda: tail(*(200,) * 16),
        lambda: tail(*range(10, 170, 10)),  # spread evenly
        lambda: tail(*LONG, *SHORT, generation=0.1, training=0.6),
        lambda: tail(400, 40, 40, 40),  # few sequences
        lambda: answering(logs={**LOGGED, "completions/max_length": 150.0}),
        lambda: answering(logs=LOGGED, n=8, generation=2.0),  # of few batches
    ],
    "no-kv-cache": [
        lambda: uncached(without=0),
        lambda: uncached(new_tokens=1),  # a class or a score
        lambda: uncached(calls=8, without=1),
        lambda: uncached(generation=0.1, training=0.6),
    ],
    "sequential-rewards": [
        lambda: scoring(0.6, PARSING),  # it computes
        lambda: scoring(0.6, ("rl.py:70 (pool.map) in score", "lock", 40)),
        lambda: scoring(0.6, ("rl.py:71 (future.result) in score", "lock", 40), (*PARSING[:2], 3)),
        lambda: scoring(0.6, ("rl.py:72 (process.wait) in score", "subprocess", 40)),  # of those started before
        lambda: scoring(0.6, ("rl.py:73 (time.sleep) in wait_for_all", "sleep", 40)),
        lambda: scoring(0.02, PROCESS),
        lambda: scoring(0.6, (*PROCESS[:2], 6)),  # too few looks
    ],
    "weight-sync-heavy": [lambda: syncing(0.02), lambda: syncing(0.1, every=4)],
    "time-limit": [
        lambda: limited(0),
        lambda: limited(15, limit=9.0),  # no number that a person chooses
        lambda: limited(4),  # too few
        lambda: limited(60, limit=2.0),  # they all take as long
        lambda: limited(15, others=2.0, spread=3.9),  # some of them take nearly as long without a limit
        lambda: limited(12, limit=1.0, others=0.5),  # it costs little
    ],
}
NOT_IN_ZOO = {
    "time-limit": "ends of limits take long to collect",
    "weight-sync-heavy": "needs an inference server",
}


def found(story: Story) -> dict[str, Finding]:
    return {finding.code: finding for finding in judged(story, alive=False)[0]}


def test_environments_gain_at_most_what_the_cores_allow() -> None:
    part = 0.6 / (0.7 + 2 * 0.21)
    told = found(stepping(cpus=4))["env-bound"]
    assert told.lost_fraction == pytest.approx(part * 3 / 4, rel=0.03)
    assert "3.0 ms per step of one environment, 1 environment per call" in told.evidence[1]
    single = found(stepping(cpus=1))["env-bound"]
    assert (single.severity, single.lost_fraction) == ("info", None)
    assert "8 environments per call" in found(stepping(count=8))["env-bound"].evidence[1]


def test_a_busy_learner_is_no_parallel_environment() -> None:
    assert "env-bound" in found(stepping(cores=3.5))


def test_the_gain_of_a_tail_is_its_part_of_generation() -> None:
    told = found(SICK["generation-tail"]())["generation-tail"]
    assert "90% of decoding" in told.title
    assert told.lost_fraction == pytest.approx(0.9 * 1.0 / 1.5, rel=0.03)


def test_logged_lengths_give_a_lower_bound_without_a_gain() -> None:
    told = found(answering(logs=LOGGED))["generation-tail"]
    assert "at least 60%" in told.title
    assert told.lost_fraction is None


def test_a_limit_costs_what_it_is_longer_than_the_median() -> None:
    told = found(limited(15))["time-limit"]
    assert "execution ends at a limit of 10 s in 25% of the steps" in told.title
    assert told.lost_fraction == pytest.approx(15 * 7.8 / (60 * 4 + 15 * 10.07 + 45 * 2.2), rel=0.05)


def stopped(hits: int, own: int, seconds: float, activity: str) -> Story:
    table = {"hits": hits, "own": own, "seconds": seconds, "limit": 1.0}
    told = Story().tell(Facts, facts={"time_limit": table})
    for _ in range(STEPS):
        told.step_with({"metrics": {"reward": jitter(0.5)}}, forward=0.05, backward=0.1, other=jitter(0.5))
    rows = [("other", "rl.py:9 (list) in score", 40)]
    return told.tell(Frames, rows=rows, activities=[activity], begin=100.0)


def test_programs_that_reach_their_limit_are_found_in_few_steps() -> None:
    assert_first_and_alone(stopped(24, 24, 24.0, "subprocess"), "time-limit")
    assert_first_and_alone(stopped(24, 0, 24.0, "worker pool"), "time-limit")
    for story in (
        stopped(3, 3, 12.0, "subprocess"),  # too few
        stopped(12, 12, 0.5, "subprocess"),  # they cost little
        stopped(12, 0, 12.0, ""),  # in threads that the training does not wait for
    ):
        assert "time-limit" not in found(story)


def test_subprocesses_one_after_the_other_need_no_rollout_to_be_rewards() -> None:
    def waiting(metric: str, line: tuple[str, str, int]) -> Story:
        told = Story()
        for _ in range(STEPS):
            told.step_with({"metrics": {metric: jitter(0.5)}}, forward=0.05, backward=0.1, other=jitter(0.6))
        return told.tell(Frames, rows=[("other", line[0], line[2])], activities=[line[1]], begin=100.0)

    assert "sequential-rewards" in found(waiting("reward", PROCESS))
    assert "sequential-rewards" not in found(waiting("loss", PROCESS))
    assert "sequential-rewards" not in found(waiting("reward", REQUEST))  # it may be what generates


def test_what_scores_each_step_beside_its_environment_is_found_in_the_rollout() -> None:
    def acting(line: tuple[str, str, int], **seconds: float) -> Story:
        return stepping(**seconds).tell(Frames, rows=[("rollout", line[0], line[2])], activities=[line[1]], begin=100.0)

    told = found(acting(PROCESS, env=0.1, acting=0.6))["sequential-rewards"]
    assert told.culprit == "rollout" and told.lost_fraction == pytest.approx(0.7 / 1.1, rel=0.05)
    for story in (
        acting(PROCESS, env=0.6, acting=0.1),  # the environment's own
        acting(PARSING, env=0.1, acting=0.6),
        acting(REQUEST, env=0.1, acting=0.6),  # it may be what chooses the actions
        acting(("game.py:9 (time.sleep) in play", "sleep", 40), env=0.1, acting=0.6),
    ):
        assert "sequential-rewards" not in found(story)


def test_a_missing_cache_promises_no_number() -> None:
    told = found(uncached())["no-kv-cache"]
    assert told.lost_fraction is None
    assert "gain unknown" in told.evidence[1] and "an argument of generate()" in told.evidence[0]
    logs = {"generate_calls": 1, "uncached_calls": 1, "completions": 8, "new_tokens": 512}
    own = found(answering(logs=logs, generate={"set_by": OWN_LOOP}))["no-kv-cache"]
    assert (told.severity, own.severity) == ("warning", "info")
    assert OWN_LOOP in own.evidence[0] and "use_cache" not in own.advice


@pytest.mark.parametrize(("look", "phase"), [(PROCESS, "reward"), (REQUEST, "reward"), (PROCESS, "execution")])
def test_rewards_gain_at_most_their_waiting(look: tuple[str, str, int], phase: str) -> None:
    told = found(scoring(1.0, look, (*PARSING[:2], 10), phase=phase))["sequential-rewards"]
    assert told.lost_fraction == pytest.approx(0.5 * 0.8, rel=0.03)
    assert look[0] in told.evidence[1]


def test_of_rewards_for_all_answers_at_once_one_call_remains() -> None:
    story = scoring(1.0, PROCESS)
    alone = found(story)["sequential-rewards"].lost_fraction
    assert alone is not None
    story.tell(Metrics, values={"generate_calls": 1, "completions": 4})
    assert found(story)["sequential-rewards"].lost_fraction == pytest.approx(0.75 * alone, rel=0.01)


def test_calls_at_once_are_no_quicker_than_all_cores() -> None:
    def saved(cpu: float) -> float:
        story = scoring(1.0, PROCESS)
        for _ in range(40):
            story.tell(Host, cpu=cpu)
        return found(story)["sequential-rewards"].lost_fraction or 0.0

    # Half of the time is this wait; all else may keep every core busy, which is half of all readings.
    assert saved(50.0) == pytest.approx(saved(10.0), rel=0.05)
    assert saved(75.0) == pytest.approx(saved(10.0) / 2, rel=0.05)


@pytest.mark.parametrize(
    ("line", "activity", "waits"),
    [
        ("rl.py:4 (subprocess.check_output) in run", "subprocess", True),
        ("box/run.py:9 (subprocess.run) in execute, from rl.py:4 (box.execute) in score", "subprocess", True),
        ("rl.py:4 (os.system) in score", "subprocess", True),
        ("rl.py:4 (child.communicate) in score", "subprocess", False),
        ("rl.py:4 (time.sleep) in score", "sleep", True),
        ("rl.py:4 (time.sleep) in poll", "sleep", False),
        ("rl.py:4 (queue.get) in score", "queue", False),
        ("rl.py:4 (lock.acquire) in score", "lock", False),
        ("rl.py:4 (loss.item) in score", "tensor read", False),
    ],
)
def test_what_waits_for_a_single_thing(line: str, activity: str, waits: bool) -> None:
    assert waits_for_one(place_of(line, activity)) is waits


@pytest.mark.parametrize(
    ("lengths", "steps"),
    [
        ([], None),
        ([0] * 8, None),
        ([5], (5, 0)),
        ([9, 1, 1, 1], (9, 0)),  # one of four is a quarter
        ([10, 4, *[2] * 6], (10, 6)),  # two of eight are, one is not
        ([10, 10, *[2] * 6], (10, 0)),
        ([10, 9, 3, *[2] * 6], (10, 7)),  # of nine, three
    ],
)
def test_the_tail_begins_where_under_a_quarter_decode(lengths: list[int], steps: tuple[int, int] | None) -> None:
    assert decoding.tail_steps(lengths) == (
        {} if steps is None else dict(zip((DECODE_STEPS, TAIL_STEPS), steps, strict=True))
    )
    if steps is not None and len(lengths) >= decoding.MIN_SEQUENCES:
        at_work = [sum(length > step for length in lengths) for step in range(max(lengths))]
        assert sum(count < len(lengths) / 4 for count in at_work) == steps[1]


@pytest.mark.parametrize(
    ("cores", "held_up", "waits"), [(0.05, 0.0, True), (0.05, 0.8, True), (0.9, 0.0, False), (0.2, 0.8, False)]
)
def test_environments_that_wait_are_not_bounded_by_cores(cores: float, held_up: float, waits: bool) -> None:
    """A simulator in another process, a browser; not one that computes, be it between others that hold the cores."""
    told = stepping(env=2.0, acting=0.02, learning=0.02, each=0.0125, cpus=2, count=16)
    for _ in range(STEPS):
        told.tell(Host, cores=2, cpu=50.0, tree_cpu=cores * 100, tree_waiting=held_up)
    finding = found(told)["env-bound"]
    if waits:
        assert finding.gain is not None and finding.gain.likely is not None
        assert 7.0 < finding.gain.likely < finding.gain.most < 16.0
    else:
        assert finding.gain is not None and finding.gain.most == pytest.approx(1.97, rel=0.05)


def test_how_many_environments_could_wait_at_once_is_the_program_s() -> None:
    told = stepping(env=2.0, acting=0.02, learning=0.02, each=0.01)
    for _ in range(STEPS):
        told.tell(Host, cores=8, cpu=5.0, tree_cpu=3.0)
    assert found(told)["env-bound"].gain is None
