"""Adversarial reinforcement learning on code: one small model writes programs, another writes tests that break them.

    trainmon run -- python demo/rl_code.py               # five to ten minutes on two CPU cores
    trainmon run -- python demo/rl_code.py --steps 40    # half a minute
    trainmon run -- python demo/rl_code.py --steps 40 --generate-batch 4    # what small calls of generate() cost

The *generator* reads the name of a problem ("sum:") and completes `def f(a, b): return ...`, one character at a time.
The *discriminator* reads the problem and a program ("sum:a-b?") and writes a test, "23=5" for f(2,3)==5. Both are Llama
models that start from random weights and learn by REINFORCE alone: nobody shows them a program or a test.

  Stage 1  The generator warms up against fixed validation cases.
  Stage 2  The discriminator learns to write tests that the reference solution passes and wrong programs do not.
  Stage 3  Both take turns; the generator now has to pass the discriminator's tests as well.

What the models write is really executed, in a child process without builtins and with limits on time, CPU and memory
(see rl_problems.py). Most programs of an untrained model do not even compile. Where the one to be tested is blank, the
step is skipped, with a note. The `th.` lines are all of the instrumentation.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from rl_problems import PROBLEMS, Judgment, Problem, expand_test, run_programs
from torch import Tensor
from torch.nn.functional import pad
from transformers import LlamaConfig, LlamaForCausalLM

import trainhooks as th

PAD, END = 0, 1
ALPHABET = "\nabcdefghijklmnopqrstuvwxyz0123456789+-*<=>:?"
ID_OF = {character: number for number, character in enumerate(ALPHABET, start=2)}
# Each player may only write the characters of its own language; the other characters occur in prompts.
PROGRAM_CHARACTERS, PROGRAM_LENGTH = "\nab12+-*", 5
TEST_CHARACTERS, TEST_LENGTH = "0123456789<=>", 4
TESTS_PER_PROGRAM = 5

LEARNING_RATE = 3e-4
ENTROPY_WEIGHT = 0.015

STAGES = {"1": ("generator",), "2": ("discriminator",), "3": ("generator", "discriminator")}
STAGE_SHARES = {"1": 0.5, "2": 0.2}  # of all steps; stage 3 gets the rest


@dataclass
class Rollout:
    """Completions of one prompt: `ids` (count, length) holds the prompt and the completions, padded on the right."""

    ids: Tensor
    prompt_length: int

    @property
    def completions(self) -> Tensor:
        return self.ids[:, self.prompt_length :]

    @property
    def mask(self) -> Tensor:
        """True for the tokens that the model chose, its end token included."""
        return self.completions != PAD

    @property
    def texts(self) -> list[str]:
        rows: list[list[int]] = self.completions.tolist()
        return ["".join(ALPHABET[token - 2] for token in row if token > END).strip() for row in rows]


class Player:
    """A language model with its optimizer: samples completions, and learns from their rewards."""

    def __init__(self, characters: str, length: int, at_once: int) -> None:
        config = LlamaConfig(
            vocab_size=len(ALPHABET) + 2,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=4,
            num_attention_heads=4,
            max_position_embeddings=64,
            pad_token_id=PAD,
            bos_token_id=None,
            eos_token_id=END,
        )
        self.model: Any = LlamaForCausalLM(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=LEARNING_RATE, weight_decay=0.01, fused=True)
        self.length, self.at_once = length, at_once
        allowed = {END, *(ID_OF[character] for character in characters)}
        self.forbidden = [token for token in range(config.vocab_size) if token not in allowed]

    @torch.no_grad()
    def write(self, prompt: str, count: int, *, greedy: bool = False) -> Rollout:
        """Sample `count` completions of one prompt; a completion ends with its line, as in code models."""
        start = torch.tensor([[ID_OF[character] for character in prompt]])
        written = []
        while count > 0:
            ids = start.repeat(min(count, self.at_once), 1)
            count -= len(ids)
            done = self.model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=self.length,
                do_sample=not greedy,
                suppress_tokens=self.forbidden,
                eos_token_id=[END, ID_OF["\n"]],
                pad_token_id=PAD,
            )  # as long as the longest completion
            written.append(pad(done, (0, start.shape[1] + self.length - done.shape[1]), value=PAD))
        return Rollout(torch.cat(written), start.shape[1])

    @th.phase("log_probs")
    def log_probs(self, rollout: Rollout) -> Tensor:
        """Return the log-probability of each completion under the current policy, with gradients."""
        logits = self.model(rollout.ids[:, :-1], use_cache=False).logits[:, rollout.prompt_length - 1 :]
        logits[..., self.forbidden] = -torch.inf
        # After its end a completion is PAD, which is forbidden: use any other token there, as the mask removes it.
        chosen = rollout.completions.masked_fill(~rollout.mask, END)
        table: Tensor = logits.log_softmax(-1).gather(-1, chosen[..., None]).squeeze(-1)
        return (table * rollout.mask).sum(-1)

    @th.phase("training")
    def update(self, log_probs: Tensor, rewards: list[float]) -> Tensor:
        """Do one REINFORCE step, with the group's mean as baseline; return the loss.

        An entropy bonus rewards improbable completions: otherwise the policy collapses to the first one rewarded.
        """
        soft = torch.tensor(rewards) - ENTROPY_WEIGHT * log_probs.detach()
        advantage = (soft - soft.mean()) / (soft.std() + 0.1)
        loss = -(advantage * log_probs).mean()
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()


@dataclass
class Outcome:
    """The result of a step. gen_* counts the discriminator's sound tests, val_* the fixed cases, for the submission."""

    metrics: dict[str, Any]
    tokens: int
    samples: int


class Arena:
    """Both players and the rules of their game."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.generator = Player(PROGRAM_CHARACTERS, PROGRAM_LENGTH, args.generate_batch)
        self.discriminator = Player(TEST_CHARACTERS, TEST_LENGTH, args.generate_batch)
        self.batch, self.time_limit = args.batch, args.time_limit

    def play(self, problem: Problem, role: str, stage: str) -> Outcome | None:
        """Do one training step of one player; return None if the program to be tested is blank."""
        with th.phase("generation"):
            programs = self.generator.write(f"{problem.name}:", self.batch)
        submission = programs.texts[0]  # the one that the discriminator reads
        if not submission:
            return None
        learner, rollout, written = self.generator, programs, []
        tokens, samples = int(programs.mask.sum()), self.batch
        if stage != "1":
            count = self.batch if role == "discriminator" else TESTS_PER_PROGRAM
            with th.phase("test_generation"):
                tests = self.discriminator.write(f"{problem.name}:{submission}?", count)
            written = [expand_test(text) for text in tests.texts]
            tokens, samples = tokens + int(tests.mask.sum()), samples + count
            if role == "discriminator":
                learner, rollout = self.discriminator, tests
        log_probs = learner.log_probs(rollout)
        with th.phase("execution"):
            judged = self.execute(problem, programs.texts, written)
        rewards = judged.test_rewards() if role == "discriminator" else judged.program_rewards()
        loss = learner.update(log_probs, rewards)
        metrics = {"reward": sum(rewards) / len(rewards), "loss": loss, **judged.counts()}
        return Outcome(metrics, tokens, samples)

    def execute(self, problem: Problem, programs: list[str], written: list[str | None]) -> Judgment:
        """Run the reference, then the solutions of the other problems (wrong here), then `programs`, on all tests."""
        others = [other.reference for other in PROBLEMS if other != problem]
        tests = problem.fixed_tests + [test for test in written if test]
        return Judgment(run_programs([problem.reference, *others, *programs], tests, self.time_limit), written)

    def evaluate(self) -> str:
        """Print the likeliest program for each problem and a test of it; return the score."""
        solved = sound = 0
        for problem in PROBLEMS:
            program = self.generator.write(f"{problem.name}:", 1, greedy=True).texts[0]
            texts = self.discriminator.write(f"{problem.name}:{program}?", TESTS_PER_PROGRAM).texts
            written = [expand_test(text) for text in texts]
            judged = self.execute(problem, [program], written)
            counts = judged.counts()
            right = counts["val_passed"] == counts["val_total"]
            solved, sound = solved + right, sound + counts["gen_total"]
            example = next((test for test in written if test), "no test")
            print(f"    {'✓' if right else '✗'} {problem.name:<11} return {program:<8} {example}")
        return f"{solved}/{len(PROBLEMS)} problems solved, {sound}/{TESTS_PER_PROGRAM * len(PROBLEMS)} tests sound"

    def save(self, path: Path) -> None:
        players = {"generator": self.generator, "discriminator": self.discriminator}
        state = {role: (player.model.state_dict(), player.optimizer.state_dict()) for role, player in players.items()}
        torch.save(state, path.with_suffix(".new"))
        path.with_suffix(".new").replace(path)  # atomically: a crash while saving leaves the previous file

    def load(self, path: Path) -> None:
        state = torch.load(path, weights_only=True)
        for role, player in {"generator": self.generator, "discriminator": self.discriminator}.items():
            model, optimizer = state[role]
            player.model.load_state_dict(model)
            player.optimizer.load_state_dict(optimizer)


def load_models(args: argparse.Namespace, checkpoint: Path) -> Arena:
    """Build both players and load the checkpoint; without one, save the initial weights first."""
    arena = Arena(args)
    if checkpoint.exists():
        print(f"Going on from {checkpoint}", flush=True)
    else:
        arena.save(checkpoint)
    arena.load(checkpoint)
    return arena


def lessons(stage: str, steps: int, rng: random.Random) -> Iterator[tuple[str, int, list[Problem]]]:
    """Yield role, epoch and problems until the steps are used up. In an epoch each role trains on every problem."""
    epoch = 0
    while steps > 0:
        epoch += 1
        for role in STAGES[stage]:
            problems = rng.sample(PROBLEMS, len(PROBLEMS))[:steps]
            steps -= len(problems)
            yield role, epoch, problems


def train_stage(arena: Arena, stage: str, steps: int, rng: random.Random) -> str:
    """Run all steps of one stage; return its summary."""
    number, skipped, began = 0, 0, time.monotonic()
    rewards: dict[str, list[float]] = {role: [] for role in STAGES[stage]}
    for role, epoch, problems in lessons(stage, steps, rng):
        for problem in th.steps(problems, role=role, stage=stage, epoch=epoch):
            number += 1
            outcome = arena.play(problem, role, stage)
            if outcome is None:
                skipped += 1
                th.skip("empty code generated")
                print(f"⚠ Skipping {role} step {number}/{steps}: empty code generated", flush=True)
                continue
            th.log(**outcome.metrics)
            th.count(tokens=outcome.tokens, samples=outcome.samples)
            rewards[role].append(outcome.metrics["reward"])
            print(f"Step {number}/{steps} - {describe(role, outcome.metrics)}", flush=True)
    trends = [f"{role} reward {trend(earned)}" for role, earned in rewards.items() if earned]
    seconds = time.monotonic() - began
    return f"Stage {stage}: {', '.join(trends) or 'no reward'}; {skipped} of {steps} steps skipped; {seconds:.0f} s"


def trend(earned: list[float]) -> str:
    return f"{fmean(earned[:20]):.2f} -> {fmean(earned[-20:]):.2f}"


def describe(role: str, metrics: dict[str, Any]) -> str:
    passed = [f"{tests}_passed={metrics[tests + '_passed']}/{metrics[tests + '_total']}" for tests in ("gen", "val")]
    return f"{role.capitalize()} Reward: {metrics['reward']:.2f} ({', '.join(passed)})"


def train(args: argparse.Namespace, directory: Path) -> None:
    checkpoint, rng = directory / "players.pt", random.Random(args.seed)
    with th.span("load models"):
        arena = load_models(args, checkpoint)
    budget = {stage: round(args.steps * share) for stage, share in STAGE_SHARES.items()}
    budget["3"] = args.steps - sum(budget.values())
    for stage, steps in budget.items():
        if steps == 0:
            continue
        print(f"Stage {stage}: {' and '.join(STAGES[stage])}, {steps} steps", flush=True)
        summary = train_stage(arena, stage, steps, rng)
        with th.span("eval"):
            score = arena.evaluate()
        with th.span("checkpoint"):
            arena.save(checkpoint)
        print(f"{summary}; {score}", flush=True)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add = parser.add_argument
    add("--steps", type=int, default=1600, help="training steps over all stages (default: %(default)s)")
    add("--seed", type=int, default=0, help="same seed, same run (default: %(default)s)")
    add("--batch", type=int, default=64, help="programs, or tests, in a step (default: %(default)s)")
    add("--generate-batch", type=int, default=32, help="how many to sample in one generate() (default: %(default)s)")
    add("--time-limit", type=float, default=5.0, help="seconds for a step's programs to run (default: %(default)s)")
    add("--checkpoint-dir", type=Path, help="keep the models here, and go on from there (default: keep nothing)")
    args = parser.parse_args()
    if min(args.steps, args.generate_batch) < 1 or args.batch < 2 or args.time_limit <= 0:
        parser.error("--steps and --generate-batch must be 1 or more, --batch 2 or more, --time-limit above 0")
    return args


def main() -> None:
    args = parse_args()
    th.init(name="rl-code", total_steps=args.steps, config=vars(args))
    torch.manual_seed(args.seed)
    # A second thread does not speed up matrices this small, and slows them down if another program needs the core.
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="rl-code-") as scratch:
        directory = args.checkpoint_dir or Path(scratch)
        directory.mkdir(parents=True, exist_ok=True)
        train(args, directory)


if __name__ == "__main__":
    main()
