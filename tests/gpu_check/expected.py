"""The table of the scripts: what was planted in each, which codes name it, and what else may be said, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parent / "scripts"
SHARED = ("common.py", "hf.py", "models.py")  # what several scripts import


@dataclass(frozen=True)
class Case:
    """One script and what is known of it."""

    script: str
    accepted: tuple[str, ...] = ()  # codes of which one must come first; none: the script is healthy
    allowed: Mapping[str, str] = field(default_factory=dict)  # further codes that are true here, and why
    gain: bool = True  # whether the mended twin's samples a second say what mending is worth
    options: tuple[str, ...] = ()  # of the script's own
    beside: bool = False  # the check itself starts another program on the GPU meanwhile
    needs: str | None = None  # a package that may be missing
    at_least: float = 0.0  # seconds of training without which the cause cannot show

    @property
    def sick(self) -> bool:
        return bool(self.accepted)

    @property
    def name(self) -> str:
        words = [Path(self.script).stem, *(word.strip("-") for word in self.options)]
        return "_".join([*words, "beside"] if self.beside else words)


SMALL_KERNELS = {"launch-bound": "its kernels are short, too", "small-batch": "a step is little work, too"}
SHORT = {"compile-warmup": "the run is so short that compiling is much of it"}

# The plainest first: where time runs out, the last ones are left out.
SICK = (
    Case("sick_launch_bound.py", ("launch-bound",), {"small-batch": "a larger one fills the GPU as well"}),
    Case("sick_small_batch.py", ("small-batch", "launch-bound"), SMALL_KERNELS),
    Case("sick_fp32.py", ("fp32-matmul",), {"no-mixed-precision": "bf16 would help as well"}),
    Case("sick_attention_by_hand.py", ("slow-attention",)),
    Case("sick_pageable_copies.py", ("pageable-copies",)),
    Case("sick_item_each_layer.py", ("synchronizing",), SMALL_KERNELS),
    Case("sick_unfused_optimizer.py", ("unfused-optimizer",), SMALL_KERNELS),
    Case("sick_losses_kept.py", ("memory-leak",), {"oom-risk": "that is how it ends"}, gain=False, at_least=11.0),
    Case("sick_recompiling.py", ("recompiling",), {"compile-fallback": "torch gives up after a few", **SHORT}),
    Case("sick_slow_loader.py", ("input-bound",)),
    Case("sick_checkpoint_each_20.py", ("checkpoint-stall",)),
    Case("sick_launch_blocking.py", ("debug-settings",), SMALL_KERNELS),
    Case("sick_empty_cache.py", ("debug-settings",)),
    Case("sick_offload_optimizer.py", ("offload", "pageable-copies"), {"pageable-copies": "so it is copied"}),
    Case("sick_offload_activations.py", ("offload",)),
    Case("sick_misaligned.py", ("misaligned-shapes",)),
    Case("sick_channels_first.py", ("channels-last",)),
    Case("sick_deterministic.py", ("deterministic-mode",)),
    Case(
        "sick_generate_one_by_one.py",
        ("sequential-generation",),
        {**SMALL_KERNELS, "no-mixed-precision": "the answers are made in fp32", "fp32-matmul": "the same"},
    ),
    Case("sick_decode_one_by_one.py", ("sequential-generation", "launch-bound", "small-batch"), SMALL_KERNELS),
    Case("sick_logging_each_step.py", ("logging-overhead", "synchronizing"), {"synchronizing": "logging does it"}),
    Case("sick_item_each_microbatch.py", ("synchronizing", "launch-bound"), SMALL_KERNELS),
    Case("sick_too_many_workers.py", ("oversubscribed", "slow-startup"), {**SMALL_KERNELS}, gain=False),
    Case(
        "sick_fragmented.py",
        ("memory-fragmented",),
        {"oom-risk": "it is near its limit", "synchronizing": "a retry waits for the GPU"},
    ),
    Case("sick_gpu_shared.py", ("gpu-shared",), beside=True),
)

WELL = (
    Case("well_nanogpt.py"),
    Case("well_hf_gpt2.py"),
    Case("well_dense.py"),
    Case("well_resnet.py"),
    Case("well_evaluation.py"),
    Case("well_accumulation.py"),
    Case("well_cuda_graph.py"),
    Case("well_lora.py"),
    Case("well_ppo.py"),
    Case("well_nanogpt.py", options=("--compiled",), allowed=SHORT),
    Case("well_lightning.py", needs="lightning"),
    Case("well_trl_sft.py", needs="trl"),
)


def order() -> list[Case]:
    """Sick and healthy in turn, so that whatever time there is goes to both."""
    sick, well = list(SICK), list(WELL)
    mixed: list[Case] = []
    while sick or well:
        mixed += sick[:2] + well[:1]
        sick, well = sick[2:], well[1:]
    return mixed
