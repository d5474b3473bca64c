"""Frameworks on unmodified scripts: exact steps and tokens, all of the time told, nothing that a user would notice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from monitor.model.report import Report
from tests.auto.watched import LIMIT, ROOT, SCRIPTS, Watched, adds_up, entered, environment, phases, watched
from tests.journal_lines import events_in

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
BAR = re.compile(r"\d+%[|\u2501 ]|\d+/\d+ .*it/s|it/s\]|\u2501")
# What a clock decides, and differs between any two runs.
CLOCKED = re.compile(r"('(?:\w+_)?(?:runtime|\w+_per_second|step_time)': ')[^']*(')")
TEMPORARY = re.compile(r"/tmp/\w+")


class Both:
    """A script run bare and under `trainmon run`."""

    def __init__(self, state: Path, script: str, *arguments: str) -> None:
        command = [str(SCRIPTS / script), *arguments]
        self.bare = subprocess.run(
            [sys.executable, *command],
            env=environment(state),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        assert self.bare.returncode == 0, self.bare.stderr
        self.seen: Watched = watched(state, *command)
        self.truth = truth(self.bare.stdout)

    def is_as_bare(self) -> None:
        """The exit code, both outputs, and the losses to the last bit."""
        assert self.seen.code == 0, self.seen.err
        assert truth(self.seen.out) == self.truth
        assert lasting(self.seen.out) == lasting(self.bare.stdout)
        assert lasting(self.seen.err) == lasting(self.bare.stderr)

    def tells_all_of_the_time(self) -> None:
        (journal,) = self.seen.journals
        adds_up(events_in(journal))
        report: Report = self.seen.report
        wall = report.wall
        parts = wall.startup + wall.steps + sum(wall.spans.values()) + wall.between_steps + wall.teardown
        assert wall.total
        assert abs(parts - wall.total) <= 0.02 * wall.total
        assert abs(sum(row.share for row in report.phases) - 1) <= 0.02

    def counts(self) -> dict[str, int]:
        return {name: self.seen.counted(name) for name in ("tokens", "padded_tokens", "samples")}

    def metric(self, name: str) -> list[float]:
        return [event["values"][name] for event in self.seen.events("metrics") if name in event["values"]]


def truth(output: str) -> dict[str, Any]:
    (line,) = [line for line in output.splitlines() if line.startswith("TRUTH ")]
    told: dict[str, Any] = json.loads(line.removeprefix("TRUTH "))
    return told


def lasting(text: str) -> list[str]:
    """Lines without progress bars, whose frames come as the clock has it, and without figures that a clock decides."""
    lines = [line.strip() for line in re.split(r"[\r\n]", ESCAPES.sub("", text))]
    kept = [line for line in lines if line and not BAR.search(line)]
    return [TEMPORARY.sub("/tmp/x", CLOCKED.sub(r"\1\2", line)) for line in kept]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Both]:
    """Runs each script once."""
    done: dict[tuple[str, ...], Both] = {}

    def of(*command: str) -> Both:
        if command not in done:
            done[command] = Both(tmp_path_factory.mktemp("state"), *command)
        return done[command]

    return of


GRPO = pytest.param(("trl_grpo.py",), marks=pytest.mark.long)
SCRIPTS_RUN = [
    ("accelerate_loop.py",),
    pytest.param(("hf_trainer.py",), marks=pytest.mark.long),
    pytest.param(("lightning_fit.py", "lightning"), marks=pytest.mark.long),
]


@pytest.mark.parametrize("command", [*SCRIPTS_RUN, GRPO], ids=" ".join)
class TestEach:
    @pytest.mark.long
    def test_the_user_sees_no_difference(self, run: Callable[..., Both], command: tuple[str, ...]) -> None:
        run(*command).is_as_bare()

    @pytest.mark.long
    def test_every_step_is_told_once(self, run: Callable[..., Both], command: tuple[str, ...]) -> None:
        both = run(*command)
        assert len(both.seen.steps()) == both.truth["steps"] > 0
        assert {step["status"] for step in both.seen.steps()} == {"ok"}

    def test_all_of_the_time_is_told(self, run: Callable[..., Both], command: tuple[str, ...]) -> None:
        run(*command).tells_all_of_the_time()

    def test_forward_backward_and_optimizer_are_in_each_step(
        self, run: Callable[..., Both], command: tuple[str, ...]
    ) -> None:
        for step in run(*command).seen.steps():
            assert {"forward", "backward", "optimizer"} <= set(phases(step))


@pytest.mark.parametrize("command", SCRIPTS_RUN, ids=" ".join)
def test_tokens_are_exact(run: Callable[..., Both], command: tuple[str, ...]) -> None:
    both = run(*command)
    assert both.counts() == {name: both.truth[name] for name in ("tokens", "padded_tokens", "samples")}


@pytest.mark.long
def test_two_trainings_with_hugging_faces_trainer(run: Callable[..., Both]) -> None:
    both = run("hf_trainer.py")
    assert [facts["total_steps"] for facts in both.seen.events("facts") if "total_steps" in facts] == [7, 14]
    assert both.seen.report.progress.steps_total == 14
    facts = both.seen.facts
    assert facts["framework"] == "transformers"
    settings = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2, "bf16": False, "max_steps": 7}
    assert settings.items() <= facts["config"].items()
    assert facts["config"]["dataloader_num_workers"] == 2
    model = facts["model"]
    assert (model["class"], model["attention"]) == ("LlamaForCausalLM", "sdpa")
    assert model["parameters"] == model["trainable_parameters"] == model["dtypes"]["float32"] > 10_000
    assert facts["dataset"] == {"train_samples": 25}
    # Logged after each step, never the loss of a part of one.
    logged = [loss.hex() for name in ("loss", "eval_loss") for loss in both.metric(name)]
    assert sorted(logged) == sorted(both.truth["losses"])
    assert not any("loss" in step.get("metrics", {}) for step in both.seen.steps())
    assert len(both.metric("grad_norm")) == len(both.metric("learning_rate")) == 14
    assert not both.metric("epoch")
    assert [len(both.seen.spans(name)) for name in ("eval", "checkpoint")] == [6, 4]


@pytest.mark.long
def test_grpo_by_its_phases(run: Callable[..., Both]) -> None:
    both = run("trl_grpo.py")
    assert both.seen.report.progress.steps_total == 3
    steps = both.seen.steps()
    for step in steps:
        of = phases(step)
        assert {"generation", "log_probs", "reward", "advantage"} <= set(of)
        metrics = step["metrics"]
        assert (metrics["generate_calls"], metrics["generate_batch"]) == (1, 8)
        assert metrics["prompt_tokens"] == 8 * len("1+2=")
        assert 0 < metrics["new_tokens"] <= 8 * 5
        # Each of eight completions is run by a process of its own; the other function takes its length.
        assert 0 < metrics["reward_seconds/short"] < metrics["reward_seconds/runs"] <= of["reward"]
    # Sixteen completions went through the policy: TRL counts the same tokens.
    assert both.metric("num_tokens")[-1] == both.seen.counted("tokens")
    assert [value.hex() for value in both.metric("reward")] == both.truth["losses"][1::2]
    for name in ("reward_std", "kl", "completions/mean_length"):
        assert len(both.metric(name)) == 3
    assert {span["name"] for span in both.seen.events("span")} >= {"load model", "load weights", "load config"}


@pytest.mark.long
def test_online_dpo_by_its_phases(tmp_path: Path) -> None:
    seen = watched(tmp_path, str(SCRIPTS / "trl_online_dpo.py"))
    assert seen.code == 0, seen.err
    steps = seen.steps()
    assert len(steps) == 6
    assert all({"generation", "log_probs", "reward", "forward", "backward"} <= set(phases(step)) for step in steps)
    assert sum(phases(step)["reward"] for step in steps) >= float(seen.out.split()[-1])
    assert [step["metrics"]["completions"] for step in steps] == [8] * 6


@pytest.mark.long
def test_lightning_with_its_metrics_and_stops(run: Callable[..., Both]) -> None:
    both = run("lightning_fit.py", "lightning")
    assert both.seen.report.progress.steps_total == 10
    facts = both.seen.facts
    assert facts["framework"] == "lightning"
    assert facts["config"]["gradient_accumulation_steps"] == 2
    assert facts["model"]["class"] == "Small"
    # The last batch of each accumulation: what Lightning itself would have logged.
    of_epoch = [*range(1, 9, 2), 8]
    logged = [both.truth["losses"][start + batch] for start in (0, 9) for batch in of_epoch]
    assert [loss.hex() for loss in both.metric("train_loss")] == logged
    assert len(both.metric("val_loss")) == 2
    assert [len(both.seen.spans(name)) for name in ("eval", "checkpoint")] == [3, 2]  # the first is a check
    for step in both.seen.steps():
        of = phases(step)
        assert of["forward"] >= both.truth["forward_seconds"]
        # Lightning calls the model inside the optimizer's step: its time counts once.
        assert sum(of.values()) <= step["duration"] + 1e-6


@pytest.mark.long
def test_lightning_calls_its_module_once_a_step(tmp_path: Path) -> None:
    seen = watched(tmp_path, str(SCRIPTS / "lightning_plain.py"))
    steps = seen.steps()
    assert len(steps) == 80
    # In the first step it does not show yet whether the model's own calls are seen.
    assert {entered(step)["forward"] for step in steps[1:]} == {1}
    assert not any("forwards" in step for step in steps)
    assert "forwards" not in seen.facts and "duplicate-forward" not in [each.code for each in seen.report.findings]


def test_accelerate_steps_where_gradients_are_whole(run: Callable[..., Both]) -> None:
    both = run("accelerate_loop.py")
    assert both.seen.facts["accelerate"]["gradient_accumulation_steps"] == 4
    assert [step["samples"] for step in both.seen.steps()] == 2 * [12, 12, 1]
    assert both.seen.spans("eval")
