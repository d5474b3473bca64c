"""Adversarial reinforcement learning on code: one small model writes programs, another writes tests that break them.

    trainmon run -- python demo/rl_code.py               # 600 steps, five to ten minutes on two CPU cores
    trainmon run -- python demo/rl_code.py --steps 40    # half a minute

The *generator* reads the name of a problem ("sum:") and completes `def f(a, b): return ...` one character at a time. The
*discriminator* reads the problem and a program ("sum:a-b?") and writes a test, "23=5" for f(2,3)==5. Both are Llama models
that start from random weights and learn by REINFORCE alone: nobody shows them a program or a test.

  Stage 1  The generator warms up against fixed validation cases.
  Stage 2  The discriminator learns to write tests that the reference solution passes and wrong programs do not.
  Stage 3  Both take turns; the generator now has to pass the discriminator's tests as well.

What the models write is really executed, in a child process without builtins and with limits on time, CPU and memory (see
rl_problems.py). The `th.` lines are all that trainmon adds; without it the program runs just the same.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rl_problems import PROBLEMS, Judgement, Problem, Verdict, expand_test, run_programs
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import trainhooks as th

PAD, END = 0, 1
ALPHABET = "\n abcdefghijklmnopqrstuvwxyz0123456789+-*<=>:?"
ID_OF = {character: number for number, character in enumerate(ALPHABET, start=2)}
# Each player may only write the characters its language has; the others serve the prompts.
PROGRAM_CHARACTERS, PROGRAM_LENGTH = "\n ab12+-*", 8
TEST_CHARACTERS, TEST_LENGTH = "0123456789<=>", 4
TESTS_PER_PROGRAM = 5

STAGES = {"1": ("generator",), "2": ("discriminator",), "3": ("generator", "discriminator")}
STAGE_SHARES = {"1": 0.5, "2": 0.2, "3": 0.3}


@dataclass
class Rollout:
    """What one call of generate() wrote: `ids` holds the prompt and the completions, padded on the right."""

    ids: Tensor
    prompt_length: int

    @property
    def mask(self) -> Tensor:
        """True for the tokens the model chose itself, its end token included."""
        return self.ids[:, self.prompt_length :] != PAD

    @property
    def texts(self) -> list[str]:
        rows: list[list[int]] = self.ids[:, self.prompt_length :].tolist()
        return ["".join(ALPHABET[token - 2] for token in row if token > END).removesuffix("\n") for row in rows]


class Player:
    """A language model that writes, and learns from what its writing earned."""

    def __init__(self, characters: str, length: int, rate: float) -> None:
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
        self.model = LlamaForCausalLM(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=rate, weight_decay=0.01)
        self.length = length
        allowed = {END, *(ID_OF[character] for character in characters)}
        self.forbidden = [token for token in range(config.vocab_size) if token not in allowed]

    @torch.no_grad()
    def write(self, prompt: str, count: int, *, greedy: bool = False) -> Rollout:
        """Samples `count` completions of one prompt; a completion ends at a line's end, as with any code model."""
        ids = torch.tensor([[ID_OF[character] for character in prompt]] * count)
        written = self.model.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=self.length,
            do_sample=not greedy,
            suppress_tokens=self.forbidden,
            eos_token_id=[END, ID_OF["\n"]],
            pad_token_id=PAD,
        )
        return Rollout(written, ids.shape[1])

    @th.phase("log_probs")
    def log_probs(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Log-probability of each completion, and the mean entropy of the choices in it."""
        logits = self.model(rollout.ids[:, :-1], use_cache=False).logits[:, rollout.prompt_length - 1 :]
        logits[..., self.forbidden] = torch.finfo(logits.dtype).min
        table = logits.log_softmax(-1)
        chosen = table.gather(-1, rollout.ids[:, rollout.prompt_length :, None]).squeeze(-1)
        entropy = -(table.exp() * table).sum(-1)
        return (chosen * rollout.mask).sum(-1), (entropy * rollout.mask).sum() / rollout.mask.sum()

    @th.phase("training")
    def update(self, log_probs: Tensor, entropy: Tensor, rewards: list[float], entropy_weight: float) -> Tensor:
        """One REINFORCE step. The baseline of a sample is the mean of the group: better than your siblings is good."""
        reward = torch.tensor(rewards)
        advantage = (reward - reward.mean()) / (reward.std() + 0.1)
        loss = -(advantage * log_probs).mean() - entropy_weight * entropy
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()


@dataclass
class Outcome:
    """What one step came to. `gen_` counts the discriminator's sound tests, `val_` the fixed cases, for the submission."""

    metrics: dict[str, Any]
    tokens: int
    samples: int


@dataclass
class Arena:
    """Both players and the rules between them."""

    generator: Player
    discriminator: Player
    batch: int
    time_limit: float
    entropy_weight: float

    def play(self, problem: Problem, role: str, stage: str) -> Outcome | None:
        """One training step of one player; None if the program to be tested is blank."""
        with th.phase("generation"):
            programs = self.generator.write(f"{problem.name}:", self.batch)
        submission = programs.texts[0]  # the one the discriminator gets to read
        if not submission.strip():
            return None
        tests: list[str | None] = []
        learner, rollout, samples, tokens = self.generator, programs, self.batch, int(programs.mask.sum())
        if stage != "1":
            with th.phase("test_generation"):
                count = self.batch if role == "discriminator" else TESTS_PER_PROGRAM
                written = self.discriminator.write(f"{problem.name}:{submission}?", count)
            tests = [expand_test(text) for text in written.texts]
            samples, tokens = samples + count, tokens + int(written.mask.sum())
        if role == "discriminator":
            learner, rollout = self.discriminator, written
        log_probs, entropy = learner.log_probs(rollout)
        verdicts = self.execute(problem, programs.texts, [test for test in tests if test])
        judged = Judgement(verdicts, tests)
        rewards = judged.test_rewards() if role == "discriminator" else judged.program_rewards()
        loss = learner.update(log_probs, entropy, rewards, self.entropy_weight)
        metrics = {"reward": sum(rewards) / len(rewards), "loss": loss, **judged.counts()}
        return Outcome(metrics, tokens, samples)

    @th.phase("execution")
    def execute(self, problem: Problem, programs: list[str], tests: list[str]) -> list[Verdict]:
        """Runs the reference, then the solutions of the other problems (wrong by intent), then `programs`."""
        others = [other.reference for other in PROBLEMS if other != problem]
        everything = [problem.reference, *others, *programs]
        return run_programs(everything, problem.validation_tests + tests, self.time_limit)

    def evaluate(self) -> str:
        """Greedy programs, and five sampled tests for each, in one line."""
        solved = sound = written = 0
        for problem in PROBLEMS:
            programs = self.generator.write(f"{problem.name}:", 1, greedy=True)
            texts = self.discriminator.write(f"{problem.name}:{programs.texts[0]}?", TESTS_PER_PROGRAM).texts
            tests = [expand_test(text) for text in texts]
            verdicts = run_programs([problem.reference, *programs.texts], problem.validation_tests + [t for t in tests if t], self.time_limit)
            solved += verdicts[1] is not None and all(verdicts[1][:5])
            sound += sum((verdicts[0] or [])[5:])
            written += len(tests)
            print("   ", problem.name, repr(programs.texts[0]), tests)
        return f"{solved}/{len(PROBLEMS)} problems solved, {sound}/{written} tests sound"

@dataclass
class Lesson:
    role: str
    epoch: int
    problems: list[Problem]

def lessons(stage: str, steps: int, dice: random.Random) -> Iterator[Lesson]:
    epoch = 0
    while steps > 0:
        epoch += 1
        for role in STAGES[stage]:
            problems = dice.sample(PROBLEMS, len(PROBLEMS))[:steps]
            steps -= len(problems)
            yield Lesson(role, epoch, problems)

def main():
    P = argparse.ArgumentParser()
    P.add_argument("--steps", type=int, default=600)
    P.add_argument("--seed", type=int, default=0)
    P.add_argument("--batch", type=int, default=32)
    P.add_argument("--time-limit", type=float, default=2.0)
    P.add_argument("--lr", type=float, default=1e-3)
    P.add_argument("--ent", type=float, default=0.02)
    args = P.parse_args()
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    torch.manual_seed(args.seed); dice = random.Random(args.seed)
    arena = Arena(Player(PROGRAM_CHARACTERS, PROGRAM_LENGTH, args.lr), Player(TEST_CHARACTERS, TEST_LENGTH, args.lr), args.batch, args.time_limit, args.ent)
    for stage in STAGES:
        n = 0
        for lesson in lessons(stage, round(args.steps * STAGE_SHARES[stage]), dice):
            for problem in th.steps(lesson.problems, role=lesson.role, stage=stage, epoch=lesson.epoch):
                n += 1
                out = arena.play(problem, lesson.role, stage)
                if out is None:
                    th.skip("empty"); continue
                th.log(**out.metrics)
        with th.span("eval"): print(stage, arena.evaluate())

main()
