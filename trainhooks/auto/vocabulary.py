"""The one table of what frameworks call the parts of a step, and what the field calls them."""

from __future__ import annotations

from typing import Dict, Optional

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
    "_prepare_inputs": "advantage",  # what is left of it without generation, rewards and log-probabilities
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
    # Lightning: the names of its profiler's actions and hooks, without the class
    "train_dataloader_next": "data",
    "batch_to_device": "h2d",
    "training_step": "forward",
    "optimizer_step": "optimizer",
    "validation_step": "eval",
    # the field's habits
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


def phase_name(alias: str) -> Optional[str]:
    """The field's name for what a framework calls `alias`; None where it is none of these."""
    return PHASES.get(alias)
