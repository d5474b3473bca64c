"""Names: phases by the names that frameworks use, and metrics that show whether a model learns."""

from __future__ import annotations

import re
from typing import Dict, Optional

# Metrics, by words of their names. LEARNING_SIGNALS: the most important first.
LOSS, REWARD, ACCURACY = "loss", "reward", "accuracy"
LEARNING_SIGNALS = (REWARD, LOSS, ACCURACY, "acc")
LOWER_IS_BETTER = (LOSS, "perplexity", "ppl", "error", "wer", "cer", "bpb", "bits_per_byte", "nll", "mse", "mae")
HIGHER_IS_BETTER = (REWARD, ACCURACY, "acc", "f1", "bleu", "rouge", "score", "pass_rate", "win_rate", "auc")

# Metrics that the hooks add to a program's own: of calls of generate(), and the seconds of each reward function.
# Of the decoding steps in which all sequences of a call end, `TAIL_STEPS` are those with under a quarter at work.
DECODE_STEPS, TAIL_STEPS, UNCACHED_CALLS = "decode_steps", "tail_steps", "uncached_calls"
OWN_LOOP = "a loop of the program's own"  # it gives the model all tokens so far for each new one
GENERATE_METRICS = frozenset((
    "generate_calls", "generate_batch", "completions", "prompt_tokens", "new_tokens",
    DECODE_STEPS, TAIL_STEPS, UNCACHED_CALLS,
))  # fmt: skip
ENV_STEPS, EPISODES, EPISODE_LENGTH, EPISODE_RETURN = "env_steps", "episodes", "episode_length", "episode_return"
LOWEST, HIGHEST = "_min", "_max"  # behind the name of a mean over several episodes
EPISODE_FIGURES = (EPISODE_RETURN, EPISODE_LENGTH)
EPISODE_EXTREMES = frozenset(name + end for name in EPISODE_FIGURES for end in (LOWEST, HIGHEST))
BETWEEN_CELLS = "between cells"  # the span in which a notebook waits for a person
BETWEEN_STEPS = "between steps"  # the phase of stack samples outside all steps
ENV_CALLS, ENV_SECONDS = "env_calls", "env_seconds"  # of `step`: a vector's call is one step of each environment
ACTOR = "actor"  # the source of a process that steps environments, and trains nothing itself
HOOKS_METRICS = GENERATE_METRICS | {ENV_STEPS, ENV_CALLS, ENV_SECONDS, EPISODES, EPISODE_LENGTH}
REWARD_SECONDS = "reward_seconds/"

SCALER_OVERFLOW = "gradient overflow (loss scaler)"  # the reason of a step that the scaler skips

# Whole words, so that `reward_std` or `loss_scale` are not taken for the thing itself.
LOSS_NAME = re.compile(r"(?:^|[/_. ])loss$|^loss[/_.]", re.IGNORECASE)
# `f1_score` and `dice_score` are scores of an evaluation; `rewards/chosen` is one of DPO, which maximizes no reward.
REWARD_NAME = re.compile(
    r"(?:^|[/_. ])(?:rewards?|returns?)(?:[/_. ]?mean)?$|(?:^|[/. ]|(?:mean|avg|average)_)scores?(?:[/_. ]?mean)?$"
    r"|(?:^|/)rewards?/(?!chosen|rejected|margins|accurac)[^/]+(?:/mean)?$",
    re.IGNORECASE,
)
_DERIVED = re.compile(r"scale|weight|coef|std|var|seconds|truncated", re.IGNORECASE)  # of one, not one itself


def is_loss(name: str) -> bool:
    """Return whether a metric of this name is a loss."""
    return LOSS_NAME.search(name) is not None and _DERIVED.search(name) is None


def is_reward(name: str) -> bool:
    """Return whether a metric of this name is a reward."""
    return REWARD_NAME.search(name) is not None and _DERIVED.search(name) is None


PHASES: Dict[str, str] = {
    # TRL: the names of its profiled sections, without the trainer's
    "vLLM.generate": "generation",
    "transformers.generate": "generation",
    "transformers.generate_batch": "generation",
    "transformers.generate_paged": "generation",
    "_get_per_token_logps": "log_probs",
    "_get_per_token_logps_and_entropies": "log_probs",
    "_get_last_hidden_state": "log_probs",
    "_calculate_rewards": "reward",
    "_prepare_inputs": "advantage",  # the rest of it, without generation, rewards and log-probabilities
    "compute_loss": "forward",
    "sync_weights": "weight_sync",
    "_move_model_to_vllm": "weight_sync",
    # verl: its timers
    "gen": "generation",
    "old_log_prob": "log_probs",
    "ref": "log_probs",
    "adv": "advantage",
    "update_actor": "training",
    "update_critic": "training",
    "update_weights": "weight_sync",
    "save_checkpoint": "checkpoint",
    "testing": "eval",
    # OpenRLHF: its timings
    "ppo_train": "training",
    "broadcast": "weight_sync",
    # torchtitan
    "data_loading": "data",
    "fetching_batch": "data",
    "fwd_bwd": "training",
    "optim": "optimizer",
    # Lightning: the names of its profiler's actions and hooks, without the class
    "train_dataloader_next": "data",
    "batch_to_device": "h2d",
    "training_step": "forward",
    "optimizer_step": "optimizer",
    "validation_step": "eval",
    # common names
    "dataloader": "data",
    "to_device": "h2d",
    "evaluate": "eval",
    "evaluation": "eval",
    "rollout": "generation",
    "rewards": "reward",
    "logprobs": "log_probs",
    "logps": "log_probs",
    "advantages": "advantage",
}


# Words in names of an actor's methods, the most telling first: `update_weights` trains nothing.
METHOD_WORDS = (
    ("weight_sync", "weights sync"),
    ("log_probs", "logprob logprobs logps prob probs"),
    ("reward", "reward rewards score scores"),
    ("generation", "generate generation"),
    ("rollout", "rollout rollouts collect sample act play episode episodes"),
    ("training", "train learn fit update"),
)
IDLE = "idle"  # the span of an actor that trains, between two calls


def method_phase(name: str) -> str:
    """Return the phase that a call of an actor's method is, by its name; what tells nothing is a phase of its own."""
    words = set(name.lower().split("_"))
    found = (phase for phase, known in METHOD_WORDS if words & set(known.split()))
    return phase_name(name) or next(found, name)


def phase_name(alias: str) -> Optional[str]:
    """Return the phase that a framework calls `alias`; None if unknown."""
    return PHASES.get(alias)
