"""A run that never ran: what happened in it, step by step, from which every figure of a view follows. No clock."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, median

from monitor.model.report import Alert, Finding, Rates, SlowStep
from monitor.model.view import KindRow
from monitor.units import brief, share
from trainhooks.protocol.events import Span

STARTED = 1_760_000_000.0
TOTAL = 600
STARTUP = {"load models": 31.0, "import torch": 8.1, "CUDA init": 2.2, "other": 3.3}
BETWEEN = 0.31  # seconds between two steps
SPANS = (("checkpoint", 50, 6.1), ("eval", 90, 21.0))  # after each so many steps, for so many seconds
USUAL = {"generation": 10.9, "test_generation": 2.4, "log_probs": 1.2, "execution": 1.9, "training": 1.4}
SLOW = {88: ("execution", 24.0), 131: ("generation", 31.0), 207: ("generation", 45.2)}
SKIPPED, REASON = (148, 149, 150), "empty code generated"
EASY = 100  # steps of the first stage
RECENT = 10  # steps
CALLS, SAMPLES, PADDING = 7, 16, 1700  # generate() calls a step, samples, tokens of padding
PRICE = 2.49  # dollars an hour


def phases_of(step: int, pace: float = 1.0) -> dict[str, float]:
    """Seconds of each phase of a step: always the same for the same step."""
    noise = random.Random(step)
    if step in SKIPPED:
        return {"generation": noise.uniform(0.2, 0.4), "other": noise.uniform(0.05, 0.1)}
    seconds = {name: pace * usual * noise.uniform(0.86, 1.16) for name, usual in USUAL.items()}
    if step % 9 == 4:
        seconds["generation"] *= 0.35  # a cache hit
    if step in SLOW:
        name, value = SLOW[step]
        seconds[name] = value
    seconds["other"] = noise.uniform(0.15, 0.4)
    return seconds


def reward(step: int) -> float:
    return 0.18 + 0.42 * (1 - math.exp(-step / 140)) + random.Random(step * 7).uniform(-0.09, 0.09)


def loss(step: int) -> float:
    if step in (61, 62):
        return math.nan
    return 0.9 + 1.9 * math.exp(-step / 45) + random.Random(step * 13).uniform(-0.06, 0.06)


def stage_of(step: int) -> str:
    return "easy" if step <= EASY else "hard"


def tokens_of(step: int) -> int:
    return 7400 + step


@dataclass(frozen=True)
class Course:
    """The first `steps` steps of the run; with other settings it takes `pace` times as long, and wins `gain` times."""

    steps: int
    pace: float = 1.0
    gain: float = 1.0

    @cached_property
    def done(self) -> list[dict[str, float]]:
        return [phases_of(step, self.pace) for step in range(1, self.steps + 1)]

    @cached_property
    def totals(self) -> list[float]:
        return [sum(each.values()) for each in self.done]

    @cached_property
    def _laid_out(self) -> tuple[list[float], list[Span]]:
        """The begin of each step, and of the one to come; and what ran between them. In seconds since the start."""
        at, begins, spans = sum(STARTUP.values()), [], []
        for step, seconds in enumerate(self.totals, 1):
            begins.append(at)
            at += seconds
            for name, every, length in SPANS:
                if step % every == 0:
                    spans.append(Span("r0", step, at + length, name, at, length, own=length, step=step))
                    at += length
            at += BETWEEN
        return [*begins, at], spans

    @property
    def begins(self) -> list[float]:
        return self._laid_out[0]

    @property
    def spans(self) -> list[Span]:
        return self._laid_out[1]

    def end(self, step: int) -> float:
        return self.begins[step - 1] + self.totals[step - 1]

    @cached_property
    def usual(self) -> dict[str, float]:
        return {name: median(values) for name, values in self.by_phase().items()}

    @property
    def usual_step(self) -> float:
        return median(self.totals)

    def by_phase(self) -> dict[str, list[float]]:
        return {name: [each[name] for each in self.done if name in each] for name in phases_of(1)}

    def slow(self) -> list[SlowStep]:
        return [
            SlowStep(step, 0, self.totals[step - 1], self.usual_step, culprit, self.done[step - 1], self.usual)
            for step, (culprit, _) in SLOW.items()
            if step <= self.steps
        ]

    def skipped(self) -> list[int]:
        return [step for step in SKIPPED if step <= self.steps]

    def kind(self, stage: str) -> KindRow:
        """What is usual among the latest steps of a stage."""
        mine = [step for step in self.worked() if stage_of(step) == stage]
        latest = [self.done[step - 1] for step in mine[-128:]]
        phases = {name: median(each[name] for each in latest) for name in USUAL}
        return KindRow(None, stage, len(mine), len(latest), median(sum(each.values()) for each in latest), phases)

    def worked(self, first: int = 1) -> list[int]:
        return [step for step in range(first, self.steps + 1) if step not in SKIPPED]

    def logged(self, step: int) -> dict[str, float]:
        """The metrics of a step; a skipped one has none."""
        if step in SKIPPED:
            return {}
        return {
            "reward": self.gain * reward(step), "loss": loss(step), "gen_passed": float(step * 7 % 6),
            "kl": 0.01 * math.sin(step / 11) ** 2, "learning_rate": 1e-5 * (1 - step / 700),
        }  # fmt: skip

    def metrics(self) -> dict[str, dict[int, float]]:
        told = {step: self.logged(step) for step in self.worked()}
        return {name: {step: each[name] for step, each in told.items()} for name in self.logged(1)}

    def printed(self, step: int) -> str:
        told = self.logged(step)
        if not told:
            return f"[step {step}] skipped: {REASON}"
        figures = f"reward={told['reward']:.3f} loss={told['loss']:.3f}"
        return f"[step {step}] {figures} passed {told['gen_passed']:.0f}/5 tests, kl={told['kl']:.4f}"

    def seconds(self, steps: int) -> float:
        """From the begin of the newest so many steps on."""
        return self.begins[-1] - self.begins[max(0, self.steps - steps)]

    def rates(self, steps: int) -> Rates:
        """Over the newest so many steps, and what lay between them."""
        first, seconds = max(1, self.steps - steps + 1), self.seconds(steps)
        worked = self.worked(first)
        tokens = sum(map(tokens_of, worked))
        return Rates((self.steps - first + 1) / seconds, tokens / seconds, SAMPLES * len(worked) / seconds, None)


def findings(course: Course, elapsed: float) -> list[Finding]:
    generation, whole = sum(course.by_phase()["generation"]), sum(course.totals)
    slow, skipped = course.slow(), course.skipped()
    found = [Finding(
        code="sequential-generation", severity="warning",
        title=f"Generation takes {share(generation / whole)} of every step:"
            f" {CALLS} generate() calls a step, each with a"
        " batch of one",
        evidence=[f"generation {brief(generation / course.steps)} of {brief(whole / course.steps)} a step (mean of"
         f" {course.steps} steps)", f"{CALLS}.0 calls a step, 1.0 sequence a call"],
        advice="Put the prompts of a step into one batched generate() call, or serve generation with vLLM",
        lost_fraction=(1 - 1 / CALLS) * generation / elapsed,
    )]  # fmt: skip
    if slow:
        longest, beyond = max(slow, key=lambda each: each.seconds), sum(each.seconds - each.baseline for each in slow)
        culprit, often = Counter(each.culprit for each in slow).most_common(1)[0]
        found.append(Finding(
            code="slow-steps", severity="info",
            title=f"{len(slow)} of {course.steps} steps took more than twice the usual time;"
            f" {culprit} grew most in {often}"
            " of them",
            evidence=[f"step {longest.step} took {brief(longest.seconds)},"
            f" usual {brief(longest.baseline)}: {longest.culprit}"
             f" {brief(longest.phases[longest.culprit])}",
             f"together {brief(beyond)} more than usual, {share(beyond / elapsed)} of the run"],
            advice="Look for long completions: cap max_new_tokens, or stop early", lost_fraction=beyond / elapsed,
            steps=[each.step for each in slow],
        ))  # fmt: skip
    if skipped:
        mean = fmean(course.totals[step - 1] for step in skipped)
        title = f"{len(skipped)} of {course.steps} steps did no work ({REASON})"
        found.append(
            Finding(code="steps-skipped", severity="info", title=title, evidence=[f"they took {brief(mean)} each"])
        )
    return found


def alerts(course: Course) -> list[Alert]:
    told = [
        Alert(STARTED + course.end(each.step), "slow-steps", str(each), each.step, each.rank) for each in course.slow()
    ]
    if skipped := course.skipped():
        text = f"{len(skipped)} steps in a row did no work: {REASON}"
        told.append(Alert(STARTED + course.end(skipped[-1]), "skipped", text))
    return sorted(told, key=lambda each: each.time)
