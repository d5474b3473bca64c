"""What reinforcement learning logs of itself, as findings: rewards without differences, lengths, entropy, KL."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest

from monitor.diagnosis.policy_metrics import Quantity, metric_meaning
from trainhooks.protocol.events import Facts, Metrics

from .conftest import Story, folded, judged, judged_state

Told = Callable[[], Story]
Curve = Callable[[float], float]
NOISE = random.Random(5)
SHARED = [NOISE.gauss(0.0, 1.0) for _ in range(1000)]  # of the batches, which all metrics of a step may share


def flat(value: float, noise: float = 0.0) -> Curve:
    return lambda t: value + noise * NOISE.uniform(-1.0, 1.0)


def line(start: float, end: float, noise: float = 0.0) -> Curve:
    return lambda t: start + (end - start) * t + noise * NOISE.uniform(-1.0, 1.0)


def falling(start: float, rate: float) -> Curve:
    return lambda t: start * math.exp(-rate * t)


def solving(end: float = 1.0) -> Curve:
    """A reward that rises all along and ends near its bound."""
    return lambda t: end * (1.0 - math.exp(-3.0 * t)) + 0.01 * NOISE.uniform(-1.0, 1.0)


def logged(
    curves: dict[str, Curve], count: int = 120, seconds: float = 0.2, role: str | None = None, **config: Any
) -> Told:
    """A run of `count` steps that logs these curves, each a function of the run from 0 to 1."""

    def told() -> Story:
        NOISE.seed(7)
        story = Story()
        if config:
            story.tell(Facts, facts={"config": config})
        for i in range(count):
            fields = {"metrics": {name: curve(i / count) for name, curve in curves.items()}, "role": role}
            story.step_with(fields, generation=0.6 * seconds, training=0.4 * seconds)
        return story

    return told


LONG = {"count": 12, "seconds": 60.0}  # a plan of few long steps


def by_length(pays: float, own: float, grown: float = 3.0, **more: Any) -> Told:
    """Length and reward both rise; `pays` of the length's noise reaches the reward, `own` is the reward's own."""
    count = more.get("count", 120)

    def length(t: float) -> float:
        return 200.0 * (1.0 + (grown - 1.0) * t) + 40.0 * SHARED[round(t * count)]

    def reward(t: float) -> float:
        return 0.2 + 0.5 * t + 0.06 * pays * SHARED[round(t * count)] + own * NOISE.gauss(0.0, 1.0)

    return logged({"reward": reward, "completions/mean_length": length}, **more)


REWARD = {"reward": line(0.35, 0.25, 0.1)}  # flat, but no chance of a rise
RISING = {"reward": line(0.1, 0.6, 0.1)}
TRL_ONE_ITERATION = {"clip_ratio/region_mean": flat(0.0), "approx_kl": flat(0.0)}
SB3 = {"rollout/ep_rew_mean": flat(20.0, 3.0), "train/clip_fraction": flat(0.0), "train/approx_kl": flat(1e-9)}


def passes(*rates: Curve) -> dict[str, Curve]:
    return {f"pass/test_{i}": rate for i, rate in enumerate(rates)}


SICK: dict[str, list[Told]] = {
    "zero-advantage": [
        logged({**REWARD, "frac_reward_zero_std": flat(0.8, 0.1)}),
        logged({**REWARD, "zero_advantage": flat(0.8, 0.1)}, role="generator"),
        logged({**REWARD, "frac_reward_zero_std": line(0.2, 0.9)}, **LONG),
        logged({**REWARD, "reward_std": lambda t: 0.3 if t < 0.2 else 0.0}),
        logged({**REWARD, "frac_reward_zero_std": flat(0.8), "loss": flat(0.0)}),
    ],
    "reward-saturated": [
        logged({"reward": lambda t: min(1.0, 0.2 + 2.0 * t), "frac_reward_zero_std": line(0.1, 1.0)}),
        logged({"reward": lambda t: min(3.0, 0.2 + 6.0 * t), "reward_std": lambda t: max(0.02, 0.4 - t)}),
        logged({"reward": lambda t: min(1.0, 0.2 + 2.0 * t)}, **LONG),
        logged({"reward": lambda t: min(1.5, 0.3 + 3 * t), "frac_reward_zero_std": lambda t: min(1.0, 0.1 + 3 * t)}),
    ],
    "completions-truncated": [
        logged({**RISING, "completions/clipped_ratio": flat(0.4, 0.1)}, max_completion_length=256),
        logged({**REWARD, "response_length/clip_ratio": flat(1.0)}),
        logged({**RISING, "truncated": line(0.1, 0.6)}, role="generator", **LONG),
    ],
    "length-growth": [
        logged({**REWARD, "completions/mean_length": line(100.0, 400.0, 20.0)}),
        logged({**REWARD, "response_length/mean": line(100.0, 400.0, 20.0)}, **LONG),
    ],
    "reward-by-length": [by_length(1.0, 0.0), by_length(1.0, 0.002, **LONG)],
    "entropy-collapse": [
        logged({**REWARD, "entropy": falling(0.8, 10.0)}),
        logged({"rollout/ep_rew_mean": line(21.0, 19.0, 3.0), "train/entropy_loss": falling(-0.69, 10.0)}),
        logged({"critic/score/mean": lambda t: 0.6 - 0.4 * abs(t - 0.3), "actor/entropy": falling(0.8, 10.0)}),
        logged({**REWARD, "entropy": falling(0.8, 10.0)}, **LONG),
    ],
    "kl-blowup": [
        logged({**REWARD, "kl": lambda t: 0.02 if t < 0.4 else 4.0}),
        logged({**REWARD, "kl": lambda t: 0.02 if t < 0.3 else 4.0}, **LONG),
        logged({"objective/scores": flat(2.0, 0.5), "objective/kl": lambda t: 300.0 * t}, response_length=53),
        logged({**REWARD, "kl": lambda t: 31.0 if t > 0.0 else 0.0}),  # by one update
    ],
    "clipping-heavy": [
        logged({**REWARD, "clip_ratio/region_mean": flat(0.6, 0.05)}),
        logged({"train/clip_fraction": flat(0.6, 0.05), "train/approx_kl": flat(0.2)}),
        logged({"actor/pg_clipfrac": flat(0.6, 0.05)}, **LONG),
    ],
    "policy-frozen": [
        logged({**SB3, "train/n_updates": lambda t: 10.0 * (1 + round(120 * t))}),
        logged({"losses/clipfrac": flat(0.0), "losses/approx_kl": flat(0.0)}, update_epochs=4),
    ],
    "off-policy": [
        logged({"sampling/sampling_logp_difference/mean": line(0.01, 0.3, 0.005)}),
        logged({"sampling/sampling_logp_difference/mean": line(0.01, 0.3, 0.005)}, **LONG),
        logged({"sampling/sampling_logp_difference/mean": flat(0.9, 0.1)}),
        logged({"sampling/importance_sampling_ratio/mean": flat(0.1, 0.05)}),
        logged({**REWARD, "ratio": flat(11.0, 3.0)}),
        logged({**REWARD, "ratio": lambda t: 5.0 if t > 0.6 else 1.0}),  # of late
        logged({**REWARD, "async/staleness_mean": line(1.0, 30.0, 1.0)}),
        logged({**REWARD, "policy_lag": line(0.0, 14.0)}, **LONG),
    ],
    "unparsable-outputs": [
        logged({**RISING, "parse_fail": flat(0.7, 0.1), "empty": flat(0.1)}),
        logged({**REWARD, "unparsable_share": flat(0.7, 0.1)}, role="generator", **LONG),
        logged({**REWARD, "invalid/compile": flat(0.7, 0.1)}),
        logged({**REWARD, "parse_rate": flat(0.1, 0.05)}),
        logged({**REWARD, "valid_json_rate": flat(0.1, 0.05)}, role="generator"),
    ],
    "easy-tests-only": [
        logged({**REWARD, **passes(line(0.6, 1.0), flat(0.97, 0.02), flat(0.0), flat(0.01))}),
        logged({**REWARD, **passes(flat(1.0), flat(1.0), flat(0.0))}, **LONG),
    ],
}
INNOCENT: dict[str, list[Told]] = {
    "zero-advantage": [
        logged({**REWARD, "frac_reward_zero_std": flat(0.35, 0.1)}),
        logged({**REWARD, "frac_reward_zero_std": line(0.9, 0.1)}),  # a hard start
        logged({**REWARD, "zero_std_groups": flat(12.0)}),  # a count
        logged({**REWARD, "frac_reward_zero_std": flat(0.8)}, count=12),  # a few short steps
        logged({**REWARD, "eval_frac_reward_zero_std": flat(0.8)}),
        logged({**REWARD, "reward_std": flat(0.01)}),
        logged({**REWARD, "reward_std": flat(0.0), "frac_reward_zero_std": flat(0.1)}),
        logged({"reward": lambda t: min(1.0, 0.2 + 2.0 * t), "frac_reward_zero_std": line(0.1, 1.0)}),  # solved
    ],
    "reward-saturated": [
        logged({"reward": solving(0.9)}),
        logged({"reward": lambda t: min(20.0, 60.0 * t), "reward_std": flat(4.0)}),  # its groups differ
        logged({"rollout/ep_rew_mean": lambda t: min(500.0, 1500.0 * t)}),  # of unknown bound
        logged({"reward": lambda t: 1.0 if 0.3 < t < 0.5 else 0.4}),
    ],
    "completions-truncated": [
        logged({**RISING, "completions/clipped_ratio": flat(0.1, 0.05)}),
        logged({**RISING, "completions/clipped_ratio": lambda t: 0.9 - 1.2 * min(t, 0.6)}),  # it learns to end
        logged({"rollout/ep_rew_mean": flat(200.0, 9.0), "rollout/ep_len_mean": flat(200.0), "truncated": flat(1.0)}),
        logged({**RISING, "prompt_length/clip_ratio": flat(0.5)}),
    ],
    "length-growth": [
        logged({**RISING, "completions/mean_length": line(100.0, 400.0, 20.0)}),
        logged({**REWARD, "completions/mean_length": line(100.0, 170.0, 20.0)}),
        logged({**REWARD, "completions/mean_length": lambda t: 100.0 if t < 0.5 else 100.0 + 900.0 * (t > 0.97)}),
        logged({"rollout/ep_rew_mean": flat(9.0, 1.0), "rollout/ep_len_mean": line(100.0, 400.0)}),
    ],
    "reward-by-length": [
        by_length(0.0, 0.06),  # both rise, each by itself
        by_length(-1.0, 0.01),  # long answers earn less
        by_length(1.0, 0.08),  # a part of it
        by_length(1.0, 0.0, grown=1.2),
        by_length(0.0, 0.06, **LONG),
    ],
    "entropy-collapse": [
        logged({"reward": solving(), "entropy": falling(0.8, 10.0)}),  # a task that is being solved
        logged({"reward": lambda t: min(0.97, 3.0 * t), "entropy": falling(0.8, 10.0)}),  # solved
        logged({"rollout/ep_rew_mean": lambda t: min(500.0, 1500.0 * t), "train/entropy_loss": falling(-0.69, 10.0)}),
        logged({**REWARD, "entropy": line(0.8, 0.1)}),
        logged({**REWARD, "entropy": lambda t: 0.8 if t < 0.8 else 0.01}),  # late
        logged({"rollout/ep_rew_mean": flat(9.0, 1.0), "train/entropy_loss": line(-3.0, 4.0)}),  # of a density
    ],
    "kl-blowup": [
        logged({**REWARD, "kl": line(0.0, 0.4)}),
        logged({**REWARD, "kl": lambda t: 900.0 if 0.6 < t < 0.65 else 0.05}),  # a spike
        logged({**REWARD, "kl": flat(2.0)}),  # another reference
        logged({"objective/scores": flat(2.0, 0.5), "objective/kl": line(0.0, 30.0)}, response_length=53),
        logged({**REWARD, "objective/kl": line(0.0, 300.0)}),  # of unknown length
        logged({**REWARD, "kl_loss": line(0.0, 9.0)}),  # of a world model
    ],
    "clipping-heavy": [
        logged({"train/clip_fraction": flat(0.2, 0.1)}),
        logged({"clip_ratio/region_mean": flat(0.6)}, importance_sampling_level="sequence"),
        logged({"clip_fraction": lambda t: 0.6 if t < 0.3 else 0.1}),
        logged({"val/clipfrac_avg": flat(0.6), "response_length/clip_ratio": flat(0.6)}),
    ],
    "policy-frozen": [
        logged(TRL_ONE_ITERATION, num_generations=8, num_iterations=1),
        logged(TRL_ONE_ITERATION),
        logged({"clip_ratio/region_mean": flat(0.0)}, num_generations=8, num_iterations=4),  # no KL
        logged({"losses/clipfrac": flat(0.0), "losses/approx_kl": flat(2e-4)}, update_epochs=4),  # small steps
        logged({**SB3, "train/n_updates": lambda t: 1.0 + round(120 * t)}),
        logged({"losses/clipfrac": flat(0.0), "losses/approx_kl": flat(0.0)}, num_iterations=500, update_epochs=1),
    ],
    "off-policy": [
        logged({"sampling/sampling_logp_difference/mean": flat(0.02, 0.005)}),
        logged({"sampling/sampling_logp_difference/mean": line(0.005, 0.03)}),
        logged({"sampling/sampling_logp_difference/mean": lambda t: 0.5 if t > 0.95 else 0.02}),
        logged({"sampling/importance_sampling_ratio/mean": flat(0.95, 0.1), "val/ratio": flat(3.0)}),
        logged({"sampling/importance_sampling_ratio/max": flat(3.0), "training/rollout_probs_diff_mean": flat(0.01)}),
        logged({**RISING, "async/staleness_mean": flat(8.0, 2.0)}),  # bounded
        logged({**RISING, "async/staleness_mean": lambda t: min(4.0, 40.0 * t)}),  # the queue fills
        logged({**RISING, "train/policy_lag": line(1.0, 3.0)}),
        logged({"loss": falling(2.0, 1.0), "staleness": line(1.0, 30.0)}),  # of gradients
    ],
    "unparsable-outputs": [
        logged({**RISING, "parse_fail": flat(0.1, 0.05)}),
        logged({**RISING, "parse_fail": line(0.7, 0.2)}),  # it learns the form
        logged({**RISING, "empty": flat(3.0)}),  # a count
        logged({"loss": line(2.0, 1.0), "empty": flat(0.8)}),  # no reinforcement learning
    ],
    "easy-tests-only": [
        logged({**REWARD, **passes(flat(1.0), flat(1.0), lambda t: max(0.0, t - 0.6))}),  # the hard one begins to pass
        logged({**REWARD, **passes(flat(0.3), flat(0.4), flat(0.0))}),
        logged({**REWARD, **passes(flat(1.0), flat(0.0))}),
        logged({**REWARD, **passes(*[flat(1.0)] * 7, flat(0.0))}),  # one of many, which may be wrong
    ],
}
IN_ZOO = {
    "zero-advantage", "off-policy", "completions-truncated", "kl-blowup", "unparsable-outputs", "policy-frozen",
    "entropy-collapse",
}  # fmt: skip
NOT_IN_ZOO = dict.fromkeys(SICK.keys() - IN_ZOO, "needs a trainer that logs it")
CASES = [(code, i) for code, cases in SICK.items() for i in range(len(cases))]


@pytest.mark.parametrize(("code", "case"), CASES)
def test_it_fires_first_and_alone(code: str, case: int) -> None:
    findings, _ = judged(SICK[code][case](), alive=False)
    assert [finding.code for finding in findings] == [code]
    assert findings[0].evidence and findings[0].advice
    assert findings[0].lost_fraction is None


@pytest.mark.parametrize(
    ("story", "severity"),
    [
        (SICK["zero-advantage"][0], "warning"),
        (logged({**REWARD, "reward_std": flat(0.0)}), "info"),  # there may be no groups
        (SICK["reward-saturated"][0], "info"),
        (SICK["completions-truncated"][1], "warning"),
        (logged({**RISING, "completions/clipped_ratio": flat(1.0)}), "info"),  # a fixed length, and it learns
        (logged({**RISING, "completions/clipped_ratio": line(0.9, 0.3)}), "info"),
        (SICK["length-growth"][0], "warning"),
        (SICK["length-growth"][1], "info"),  # few values
        (SICK["reward-by-length"][0], "warning"),
        (by_length(1.0, 0.02, grown=1.8), "info"),
        (by_length(1.0, 0.0, grown=1.8), "warning"),  # the length under another name
        (SICK["entropy-collapse"][0], "warning"),
        (logged({"reward": lambda t: 0.3 - 0.1 * (round(12 * t) % 2), "entropy": falling(0.8, 10.0)}, **LONG), "info"),
        (logged({"reward": lambda t: min(0.5, 2.0 * t), "entropy": falling(0.8, 10.0)}), "info"),
        (SICK["kl-blowup"][0], "warning"),
        (logged({**RISING, "kl": lambda t: 0.02 if t < 0.4 else 4.0}), "info"),
        (SICK["clipping-heavy"][0], "warning"),
        (logged({"clip_fraction": flat(0.4, 0.05)}), "info"),
        (SICK["unparsable-outputs"][0], "warning"),
        (logged({**RISING, "parse_fail": flat(0.35, 0.05)}), "info"),
        (SICK["easy-tests-only"][0], "info"),
    ],
)
def test_what_may_be_meant_is_information(story: Told, severity: str) -> None:
    findings, _ = judged(story(), alive=False)
    assert [finding.severity for finding in findings] == [severity]


def test_a_role_is_judged_by_its_own_reward() -> None:
    story, healthy = Story(), solving()
    NOISE.seed(7)
    for i in range(240):
        sick = {"reward": 0.3 + 0.1 * NOISE.random(), "zero_advantage": 0.9}
        metrics = {"reward": healthy(i / 240), "zero_advantage": 0.1} if i % 2 else sick
        fields = {"metrics": metrics, "role": "tester" if i % 2 else "generator"}
        story.step_with(fields, generation=0.2, training=0.1)
    (finding,) = judged(story, alive=False)[0]
    assert finding.code == "zero-advantage"
    assert all("tester" not in text for text in finding.evidence)


def test_truncated_answers_are_said_to_be_worth_nothing_where_it_is_known() -> None:
    curves = {**REWARD, "truncated": flat(0.4), "truncated_reward": flat(0.0)}
    (finding,) = judged(logged(curves)(), alive=False)[0]
    assert any("earn nothing" in text for text in finding.evidence)
    masked = logged({**REWARD, "truncated": flat(0.4)}, mask_truncated_completions=True)
    (finding,) = judged(masked(), alive=False)[0]
    assert any("left out of the loss" in text for text in finding.evidence)


@pytest.mark.parametrize(
    ("name", "quantity", "role"),
    [
        ("frac_reward_zero_std", Quantity.ZERO_GROUPS, ""),
        ("generator/reward", Quantity.REWARD, "generator/"),
        ("train/rollout/ep_rew_mean", Quantity.REWARD, ""),
        ("critic/score/mean", Quantity.REWARD, ""),
        ("generator/completions/clipped_ratio", Quantity.TRUNCATED, "generator/"),
        ("response_length/clip_ratio", Quantity.TRUNCATED, ""),
        ("actor/kl_loss", Quantity.REFERENCE_KL, ""),
        ("losses/approx_kl", Quantity.UPDATE_KL, ""),
        ("policy/clipfrac_avg", Quantity.CLIPPED, ""),
        ("pass_rate/test_a", Quantity.PASSED, ""),
    ],
)
def test_names_are_read_with_their_role(name: str, quantity: Quantity, role: str) -> None:
    known = metric_meaning(name)
    assert known is not None
    assert (known.quantity, known.role) == (quantity, role)


def test_names_of_other_things_are_left_alone() -> None:
    names = [
        *("eval/reward", "eval_reward", "val/ratio", "val-core/a/reward/mean@1", "val/clipfrac_avg", "pass@1"),
        *("timing_s/reward", "reward_seconds/f", "prompt_length/clip_ratio", "completions/max_length"),
        *("kl_loss", "rewards/chosen", "compile"),
    ]
    assert [name for name in names if metric_meaning(name) is not None] == []


def beside_rollouts(updates: int, iterations: int = 60, kl: float = 0.0) -> set[str]:
    """Return the findings on a program whose steps the hooks see, and which prints a line in each iteration."""
    steps, output = Story(), Story("c", source="console")
    for iteration in range(iterations):
        for update in range(updates):
            rollout = {"rollout": 0.6} if update == 0 else {}
            own = {"metrics": {"episode_return": 20.0 + iteration % 3}} if update == 0 else {}
            steps.step_with(own, **rollout, forward=0.02, backward=0.05)
        values = {"mean_reward": 0.5 + 0.01 * (iteration % 2), "approx_kl": kl, "clipfrac": 0.0}
        output.now = steps.now
        output.tell(Metrics, values=values, step=iteration)
    return {finding.code for finding in judged_state(folded(steps, output), alive=False)[0]}


def test_what_is_printed_by_the_iteration_counts_beside_what_is_logged_by_the_step() -> None:
    assert "policy-frozen" in beside_rollouts(updates=8)
    assert "policy-frozen" not in beside_rollouts(updates=8, kl=1e-3)


def test_a_policy_that_is_updated_once_an_iteration_has_no_kl() -> None:
    assert "policy-frozen" not in beside_rollouts(updates=1) | beside_rollouts(updates=2)
