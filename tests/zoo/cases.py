"""The zoo's table: each script, the cause that was planted in it, and what else may be said of it, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
MENDED = "mended"
SIMULATED = "gpu.py"
IDLE_GPU = {"driver.count": "1", "gpu.utilization": "0", "gpu.memory_used": "700000000", "gpu.sm_clock": "345"}
# Ways to train that are right, though they look like a fault: of `learning.py`.
UNUSUAL = ("frozen_backbone", "frozen_norms", "by_hand", "by_data", "by_model", "accumulated", "assigned", "twice")

# Reinforcement learning as it should be: of `rl.py`.
RIGHT = (
    "plain", "vectorized", "in_eval_mode", "one_epoch", "dqn", "double_dqn", "reinforce", "actor_critic", "continuous",
    "imitation",
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One script and what is known of it."""

    script: str
    expected: str | None  # the code that must come first; None: nothing of weight may be found
    arguments: tuple[str, ...] = ()
    allowed: Mapping[str, str] = field(default_factory=dict)  # further codes that are true here, and why
    launcher: tuple[str, ...] = ()  # what stands between python and the script
    options: tuple[str, ...] = ()  # of `trainmon run`
    environment: Mapping[str, str] = field(default_factory=dict)
    scene: Mapping[str, str] | None = None  # GPUs are simulated: lines that go before those of eight H200
    burners: int = 0  # programs of others that take a core each meanwhile
    patience: float | None = None  # it hangs, and whoever started it ends it after so many seconds
    code: int = 0  # exit code
    twin: bool = False  # it takes the argument `mended`, which takes the cause out

    @property
    def name(self) -> str:
        words = [Path(self.script).stem, *(word for word in self.arguments if word.isidentifier())]
        return "_".join([*words, "busy"] if self.burners else words)

    @property
    def sleeps(self) -> bool:
        """Return whether it only simulates a GPU: it needs no core."""
        return self.script == SIMULATED

    @property
    def mended(self) -> Case:
        """The same script without its cause."""
        return replace(self, expected=None, arguments=(*self.arguments, MENDED))


def _gpu(scene: str, seconds: int, expected: str | None, **more: Mapping[str, str]) -> Case:
    return Case(SIMULATED, expected, (scene, str(seconds)), scene={"driver.count": "1"}, **more)  # type: ignore[arg-type]


SICK = (
    Case("sick_input_getitem.py", "input-bound", twin=True),
    Case("sick_input_collate.py", "input-bound", twin=True),
    Case("sick_input_disk.py", "input-bound", twin=True),
    Case("sick_unaccounted_getbatch.py", "unaccounted-time", twin=True),
    Case("sick_unaccounted_gradients.py", "unaccounted-time", twin=True),
    Case(
        "sick_between_steps.py",
        "unaccounted-time",
        twin=True,
        allowed={"slow-drift": "the curve is as long as the run"},
    ),
    Case("sick_work_between.py", "work-between-steps", twin=True),
    Case("sick_worker_wait.py", "worker-wait", twin=True),
    Case("sick_logging_api.py", "logging-overhead", twin=True),
    Case("sick_logging_hf.py", "logging-overhead", allowed={"slow-drift": "the page holds all rows so far"}),
    Case("sick_logging_plain.py", "logging-overhead", twin=True),
    Case("sick_checkpoint_hf.py", "checkpoint-stall"),
    Case("sick_checkpoint_pickle.py", "checkpoint-stall", twin=True),
    Case("sick_checkpoint_plain.py", "checkpoint-stall", twin=True),
    Case("sick_eval_plain.py", "eval-heavy", twin=True),
    Case("sick_eval_in_train_mode.py", "eval-heavy", twin=True),
    Case("sick_eval_lightning.py", "eval-heavy"),
    Case("sick_duplicate_forward.py", "duplicate-forward", twin=True),
    Case("sick_unused_gradients.py", "unused-gradients", twin=True),
    Case("sick_double_precision.py", "double-precision", twin=True),
    Case("sick_padding_hf.py", "padding-waste", twin=True),
    Case(
        "sick_length_outliers.py", "length-outliers", allowed={"padding-waste": "the others of such a batch are padded"}
    ),
    Case("sick_sequential_batching.py", "sequential-batching", twin=True),
    Case("sick_recompiling.py", "recompiling"),
    Case("sick_compile_fallback.py", "compile-fallback", allowed={"recompiling": "that is how torch came to give up"}),
    Case("sick_compile_warmup.py", "compile-warmup"),
    Case("sick_slow_startup.py", "slow-startup"),
    Case("sick_garbage_collection.py", "garbage-collection", twin=True),
    Case("sick_steps_skipped.py", "steps-skipped"),
    Case("sick_nonfinite_plain.py", "nonfinite-loss"),
    Case("sick_nonfinite_hf.py", "nonfinite-loss"),
    Case("sick_reward_flat_api.py", "reward-flat"),
    Case("sick_reward_flat_console.py", "reward-flat"),
    Case("sick_loss_flat.py", "weights-unchanged"),
    Case("sick_loss_flat_console.sh", "loss-flat"),
    Case("sick_loss_diverging.py", "loss-diverging"),
    Case("learning.py", "weights-unchanged", ("old_head",)),
    Case("learning.py", "learning-rate-zero", ("no_rate",)),
    Case("learning.py", "learning-rate-zero", ("short_schedule",)),
    Case("learning.py", "gradients-kept", ("never_zeroed",)),
    Case("learning.py", "eval-mode", ("eval_left_on",)),
    Case("learning.py", "eval-gradients", ("eval_with_gradients",)),
    Case("learning.py", "graph-retained", ("retained",)),
    Case("sick_dense_embedding.py", "dense-embedding"),
    Case("sick_slow_steps.py", "slow-steps"),
    Case("sick_slow_drift_forward.py", "slow-drift"),
    Case("sick_slow_drift_history.py", "slow-drift", allowed={"unaccounted-time": "it grows between the steps"}),
    Case("sick_stalled.py", "stalled", patience=60),
    Case("sick_stalled_worker.py", "stalled", patience=60),
    Case("sick_straggler.py", "straggler", launcher=TORCHRUN),
    Case("sick_slow_backward.py", "straggler", launcher=TORCHRUN),
    Case("sick_small_buckets.py", "communication-bound", launcher=TORCHRUN, twin=True),
    Case("sick_uneven_ranks.py", "uneven-ranks", launcher=TORCHRUN, twin=True),
    Case("sick_called_collectives.py", "communication-bound", launcher=TORCHRUN, twin=True),
    Case("sick_sharded.py", "communication-bound", launcher=TORCHRUN, twin=True),
    Case("sick_ranks_collect.py", "garbage-collection", launcher=TORCHRUN, twin=True),
    Case("sick_late_loader.py", "straggler", launcher=TORCHRUN, twin=True),
    Case("sick_slow_stage.py", "straggler", launcher=TORCHRUN, twin=True),
    Case("sick_accumulation_sync.py", "accumulation-sync", launcher=TORCHRUN, twin=True),
    Case("steady.py", "cpu-starved", ("45",), burners=6, allowed={"slow-steps": "a neighbor takes the core in turns"}),
    Case("sick_oversubscribed.py", "oversubscribed"),
    Case("sick_debug_anomaly.py", "debug-settings"),
    Case("sick_debug_profiler.py", "debug-settings"),
    Case("sick_sequential_generation.py", "sequential-generation", twin=True),
    Case("rl.py", "env-bound", ("waits_for_environment",), twin=True),
    Case("rl_text.py", "no-kv-cache", ("no_cache",), twin=True),
    Case("rl_text.py", "generation-tail", ("long_tail",), twin=True),
    Case("rl_text.py", "sequential-rewards", ("judge_in_turn",), twin=True),
    Case("sick_reference_recomputed.py", "reference-recomputed", twin=True),
    Case("rl_text.py", "zero-advantage", ("equal_rewards",), twin=True),
    Case("rl_signals.py", "weights-not-synced", ("stale_sampler",)),
    Case("rl_signals.py", "off-policy", ("other_temperature",)),
    Case("rl_async.py", "off-policy", ("unbounded",)),
    Case("rl_signals.py", "completions-truncated", ("truncated",)),
    Case("rl_signals.py", "kl-blowup", ("drifts",)),
    Case("rl_signals.py", "unparsable-outputs", ("unreadable",)),
    Case("rl.py", "policy-frozen", ("frozen",), {"unused-gradients": "the policy's: no optimizer has it"}),
    Case("rl.py", "entropy-collapse", ("collapsed",)),
    Case("sick_memory_leak.py", "memory-leak"),
    Case(
        "sick_out_of_memory.py", "out-of-memory", code=1, allowed={"memory-leak": "what fills it is never given back"}
    ),
    Case("sick_crash_in_worker.py", "crashed", code=1),
    Case("sick_below_expected.py", "below-expected", options=("--expect-tps", "500000")),
    Case("sick_inconsistent_console.sh", "inconsistent-console"),
    Case("sick_training_on_cpu.py", "training-on-cpu", scene=IDLE_GPU),
    _gpu("thermal", 24, "thermal-throttle"),
    _gpu("brake", 24, "power-brake"),
    _gpu("slowdown", 24, "hw-slowdown"),
    _gpu("locked", 45, "low-clocks"),
    _gpu("limited", 76, "power-capped"),
    _gpu("shared", 45, "gpu-shared"),
    _gpu("link", 45, "pcie-downtrained"),
    _gpu("xid", 14, "gpu-error"),
    _gpu("healthy", 12, "debug-settings", environment={"CUDA_LAUNCH_BLOCKING": "1"}),
    _gpu("starved", 72, "gpu-starved"),
    _gpu("in_fp32", 40, "fp32-matmul"),
    _gpu("in_tf32", 40, "no-mixed-precision"),
    _gpu("eager", 10, "slow-attention"),
    _gpu("computed_twice", 10, "checkpointing-unneeded"),
    _gpu("full", 10, "oom-risk"),
    _gpu("roomy", 40, "memory-headroom"),
)

WELL = (
    Case("well_plain_epochs.py", None),
    Case("well_accumulation.py", None),
    Case("well_compile_warmup.py", None),
    Case("well_bucketed.py", None),
    Case("well_first_step.py", None),
    Case("well_five_steps.py", None),
    Case("well_gan.py", None),
    Case("well_rl_generation.py", None),
    Case("well_hf_trainer.py", None),
    Case("well_lightning.py", None),
    Case("well_lbfgs.py", None),
    Case("well_nanogpt.py", None),
    Case("well_cache_grows.py", None),
    Case("well_cosine_plateau.py", None),
    Case("well_tiny_epochs.py", None),
    Case("well_ddp.py", None, launcher=TORCHRUN),
    Case("well_trl_grpo.py", None),
    Case("well_console.py", None),
    Case("well_explicit.py", None),
    Case("well_actor_critic.py", None),
    Case("well_distillation.py", None),
    Case("well_accelerate.py", None),
    Case("well_checkpointing.py", None),
    Case("well_two_tasks.py", None),
    Case("well_curriculum.py", None),
    Case("well_folds.py", None),
    Case("well_talkative.py", None),
    *(Case("learning.py", None, (kind,)) for kind in UNUSUAL),
    *(Case("rl.py", None, (kind,)) for kind in RIGHT),
    Case("rl_signals.py", None, ("healthy",)),
    Case("rl_async.py", None, ("bounded",)),
    Case(
        "steady.py",
        None,
        ("15", "beside_one"),
        burners=2,
        allowed={"cpu-starved": "it is true", "slow-steps": "a neighbor takes the core in turns"},
    ),
    _gpu("capped_a_little", 40, None),
    _gpu("as_it_should_be", 40, None),
)

CASES = (*SICK, *WELL)
