"""What one line says, and the names in it made into the field's own. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from trainhooks.auto.vocabulary import phase_name
from trainhooks.events import MAX_NAME, Number, clean

MAX_FIGURES = 200  # taken from one line
MORE_THAN_ALL = 105.0  # percent; parts that add up to more contradict themselves


@dataclass(slots=True)
class Reading:
    """What was understood of one line. None and empty: the line does not say."""

    family: str  # what it was recognised as: bar, step, metrics, phases, skip, epoch, pattern
    number: int = 0  # of the line
    row: int = 0  # of the line on the screen
    rank: int | None = None
    head: int | None = None  # a number without a name before everything else in the line
    wall: float | None = None  # a time of day in the line: seconds, comparable within one log

    key: str = ""  # which of several counters: the label of a bar, the word for a step
    label: str = ""  # the words before a bar
    step: int | None = None
    total: int | None = None
    completed: bool = False  # `step` is how many are done, as a bar has it; else the number of one
    per_epoch: bool = False  # it counts from the beginning in each epoch
    fraction: float | None = None
    mention: bool = False  # a step is named, but the line does not say that it has been reached
    unit: str = ""  # what a bar counts
    epoch: float | None = None
    epochs: int | None = None

    metrics: dict[str, Number] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    shares: float = 0.0  # percent that the program gives for the phases together
    block: bool = False  # the phases belong to one step, whose seconds are told
    seconds: float | None = None  # of one step, by the program's own clock
    elapsed: float | None = None  # since the bar, or the training, began
    spare: dict[str, float] = field(default_factory=dict)  # seconds by name: what they are, the other figures say
    tokens: int | None = None  # in one step
    samples: int | None = None
    tokens_total: float | None = None  # so far
    samples_total: float | None = None
    tokens_rate: float | None = None  # a second
    samples_rate: float | None = None
    steps_rate: float | None = None
    average: bool = False  # the rates are over the whole time so far
    role: str | None = None
    reason: str | None = None  # why a step was skipped
    impossible: list[str] = field(default_factory=list)  # figures left out because they cannot be true

    @property
    def useful(self) -> bool:
        """Whether anything was read at all."""
        told = (self.step, self.fraction, self.epoch, self.elapsed, self.tokens_total, self.tokens_rate, self.seconds)
        more = (self.samples_total, self.samples_rate, self.total, self.tokens, self.samples)
        return bool(self.metrics or self.phases) or any(each is not None for each in (*told, *more))


# Names


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


ROLES = words("generator discriminator actor critic policy teacher student solver proposer challenger verifier")
_NOT_NAME = re.compile(r"[^\w@./%-]+")
PHASE_ENDING = re.compile(r"(?:_(?:time|seconds|secs?|s|ms|latency|duration)|time)$")

_PHASES = {
    **dict.fromkeys(
        ("data", "data_time", "data_load", "data_wait", "dataloading", "load_data", "batch_loading"), "data"
    ),
    **dict.fromkeys(("h2d", "to_gpu", "host_to_device"), "h2d"),
    **dict.fromkeys(("forward", "fwd", "forward_pass", "forward_compute", "forward-compute"), "forward"),
    **dict.fromkeys(("backward", "bwd", "backward_pass", "backward_compute", "backward-compute"), "backward"),
    **dict.fromkeys(("optimizer", "optim", "opt", "optimizer_step", "opt_step"), "optimizer"),
    **dict.fromkeys(("generation", "generate", "gen", "rollout", "rollouts", "sampling"), "generation"),
    **dict.fromkeys(("reward", "rewards", "reward_computation"), "reward"),
    **dict.fromkeys(("test_gen", "gen_tests", "generate_tests"), "test_generation"),
    **dict.fromkeys(("exec", "execute", "sandbox", "run_tests", "run_code", "code_execution"), "execution"),
    **dict.fromkeys(("logprob", "log_prob", "logp", "ref_logprobs", "ref_log_probs", "old_log_probs"), "log_probs"),
    **dict.fromkeys(("test_generation", "execution", "log_probs", "advantage", "training", "weight_sync"), ""),
    **dict.fromkeys(("checkpoint", "checkpointing", "save_checkpoint"), "checkpoint"),
    **dict.fromkeys(("eval", "evaluation", "validation"), "eval"),
    **dict.fromkeys(("logging", "log"), "logging"),
}


@lru_cache(maxsize=4096)
def name(text: str) -> str:
    """A figure's name as it is kept: lower case, words joined by underscores."""
    text = clean(text, MAX_NAME).strip(" '\"`.:-_/*#>%")
    return _NOT_NAME.sub("_", text.lower()).strip("_")


def phase(text: str) -> str:
    """What a program calls a part of its step, in the field's words where there are such."""
    plain = name(text)
    bare = PHASE_ENDING.sub("", plain) or plain
    return known_phase(bare) or known_phase(plain) or bare


def known_phase(plain: str) -> str | None:
    """The field's word for a part of a step; None where this is none that is known."""
    if plain in _PHASES:
        return _PHASES[plain] or plain
    return phase_name(plain)


def split_role(plain: str) -> tuple[str | None, str]:
    """`discriminator_reward` is the discriminator's `reward`."""
    first, _, rest = plain.partition("_")
    return (first, rest) if first in ROLES and rest else (None, plain)
