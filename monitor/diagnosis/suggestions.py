"""Settings worth a short trial, besides the findings. Pure.

A setting with a measurable cost in this run is a finding; a suggestion may help but has no such cost.
"""

from __future__ import annotations

from collections.abc import Callable

from monitor.diagnosis import hardware
from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.rules import kernels, memory
from monitor.model.cycle import LEARN
from monitor.model.report import Finding, Suggestion
from monitor.units import duration, share
from trainhooks.protocol.facts import Compile

MAX_SUGGESTIONS = 6  # nobody tries a longer list
MIN_BUSY_SHARE = 0.30  # of the time in which the GPU runs something; below, no faster kernel helps
MIN_FREE_FOR_ACTIVATIONS = 0.25  # of the memory free: with less, activations may not fit
MIN_LEARNING = 0.5  # of an iteration: else what a step saves is little of the time
MIN_FREE_FOR_BATCH = 0.40  # likewise, for twice the activations
MIN_OPTIMIZER_PART = 0.03  # of step time
MIN_WALL_SHARE = 0.01  # of the elapsed time in checkpoints or logging; more than a few percent is a finding
MIN_COMPILE_SECONDS = 600.0  # still to come: compiling a model takes a minute or two
MIN_PADDING_PART = 0.15  # of the positions; more than twice that is a finding
MIN_LENGTH_PART = 0.99  # of the length limit that every batch has: it is padded to the limit

Ranked = tuple[float, Suggestion]  # a rough possible gain as a share of the time, for the order only


def suggest(evidence: Evidence, findings: list[Finding]) -> list[Suggestion]:
    """Return the suggestions, the most promising first, without those that a finding already makes."""
    if not evidence.has_steps() or evidence.report.run.source != "hooks":
        return []
    codes = {finding.code for finding in findings}
    rows = [row for make, beside in _TRIALS if not codes & set(beside) and (row := make(evidence)) is not None]
    rows.sort(key=lambda row: -row[0])
    return [*(suggestion for _, suggestion in rows), *_ignored_settings(evidence)][:MAX_SUGGESTIONS]


def _precision(evidence: Evidence) -> Ranked | None:
    known, busy = hardware.gpu_peak(evidence), hardware.busy_share(evidence)
    if known is None or busy is None or busy < MIN_BUSY_SHARE or not hardware.is_fp32(evidence):
        return None
    name, peak = known
    half = "bf16" if peak.bf16 else "fp16" if peak.fp16 else None
    if half is None:
        return None
    text = f"mixed precision ({half}): at most the share of matrix products in a step"
    because = f"{name} has {half} tensor cores, all parameters are float32 without autocast"
    return busy / 2, Suggestion(text, "activations are halved; weights and optimizer stay the same", because)


def _checkpointing(evidence: Evidence) -> Ranked | None:
    free = _free_memory_line(evidence, MIN_FREE_FOR_ACTIVATIONS)
    if not memory.has_checkpointing(evidence) or free is None or not _mostly_learns(evidence):
        return None
    text = "gradient_checkpointing=False: a fifth to a third less time per step"
    return 0.2, Suggestion(text, "activations of all layers are kept", free)


def _mostly_learns(evidence: Evidence) -> bool:
    """Return whether most of the time is the model's learning: in an iteration it may be a few percent."""
    cycle = evidence.report.cycle
    return cycle is None or sum(p.share for role in cycle.roles for p in role.parts if p.name == LEARN) >= MIN_LEARNING


def _free_memory_line(evidence: Evidence, min_share: float) -> str | None:
    """Return a line on how much memory was never used, where that is at least this share of it."""
    memory = hardware.model_memory(evidence)
    if memory is None or 1 - memory[0] / memory[1] < min_share:
        return None
    return f"{share(1 - memory[0] / memory[1])} of {memory[2]} never used"


def _batch(evidence: Evidence) -> Ranked | None:
    free, busy = _free_memory_line(evidence, MIN_FREE_FOR_BATCH), hardware.busy_share(evidence)
    batch = evidence.count_setting("per_device_train_batch_size", "batch_size")
    steps = evidence.count_setting("gradient_accumulation_steps", "accumulate_grad_batches")
    if hardware.model_device(evidence) != "cuda" or free is None or batch is None or not batch[1]:
        return None
    text = f"{batch[0]}={batch[1]} → {2 * batch[1]}"
    if steps is not None and steps[1] > 1:
        text += f" with {steps[0]}={steps[1]} → {max(1, steps[1] // 2)}"
    because = free + (f", GPU busy {share(busy)} of the time" if busy is not None else "")
    gain = 0.1 if busy is None else max(0.05, (1 - busy) / 2)
    return gain, Suggestion(text, "activations grow with the batch", because)


def _optimizer(evidence: Evidence) -> Ranked | None:
    row, facts, place = evidence.phase("optimizer"), evidence.facts.optimizer, hardware.model_device(evidence)
    if row is None or row.share < MIN_OPTIMIZER_PART or facts.fused is True or facts.fused is None:
        return None
    kind, tensors = facts.kind, facts.tensors
    if tensors is None or tensors < kernels.MIN_TENSORS or kind not in kernels.HAS_FUSED:
        return None
    if place not in ("cuda", "cpu") or (place == "cpu" and not kernels.is_one_by_one(evidence)):
        return None
    because = f"the optimizer takes {share(row.share)} of step time, the most that it can gain"
    return row.share / 2, Suggestion(kernels.fused_setting(evidence, kind), "none", because)


def _compile(evidence: Evidence) -> Ranked | None:
    eta, busy = evidence.report.progress.eta_seconds, hardware.busy_share(evidence)
    if evidence.facts.compile != Compile() or evidence.facts.config.torch_compile:
        return None
    if eta is None or eta < MIN_COMPILE_SECONDS or busy is None or busy < MIN_BUSY_SHARE:
        return None
    transformers = evidence.facts.framework == "transformers"
    text = "torch_compile=True" if transformers else "torch.compile(model)"
    because = f"the model runs eagerly on a GPU busy {share(busy)} of the time, for {duration(eta)} more"
    return 0.08, Suggestion(text, "some hundred MiB while compiling; CUDA graphs take more", because)


def _frequency(evidence: Evidence, name: str, settings: tuple[str, ...]) -> Ranked | None:
    lost = evidence.wall_part(evidence.named_seconds(name))
    if lost < MIN_WALL_SHARE:
        return None
    setting = evidence.setting(*settings)
    text = f"{setting[0]}={setting[1]} → higher" if setting is not None else f"{name} less often"
    return lost / 2, Suggestion(text, "none", f"{name} takes {share(lost)} of wall time")


def _saving(evidence: Evidence) -> Ranked | None:
    return _frequency(evidence, "checkpoint", ("save_steps", "every_n_train_steps"))


def _logging(evidence: Evidence) -> Ranked | None:
    return _frequency(evidence, "logging", ("logging_steps", "log_every_n_steps"))


def _grouping(evidence: Evidence) -> Ranked | None:
    main = evidence.state.main
    if not evidence.is_often(main.padded_steps) or not main.padded_tokens:
        return None
    waste = 1 - main.unpadded_tokens / main.padded_tokens
    if waste < MIN_PADDING_PART:
        return None
    limit, longest = evidence.count_setting("max_length", "max_seq_length"), main.lengths.longest
    because = f"{share(waste)} of the positions are padding"
    typical = main.lengths.typical() or 0.0
    if limit is not None and limit[1] and typical >= MIN_LENGTH_PART * limit[1] and longest <= limit[1]:
        text = f"pad to the longest of the batch instead of {limit[0]}={limit[1]}"
        because += "; every batch is as long as the limit"
        return waste, Suggestion(text, "falls with the lengths", because)
    text = 'train_sampling_strategy="group_by_length", or a sampler that groups similar lengths'
    return waste / 2, Suggestion(text, "none; the longest batch stays as long", because)


# The suggestions, and the findings that make them superfluous.
_TRIALS: tuple[tuple[Callable[[Evidence], Ranked | None], tuple[str, ...]], ...] = (
    (_precision, ("fp32-matmul", "no-mixed-precision", "gpu-starved", "input-bound")),
    (_checkpointing, ("checkpointing-unneeded", "oom-risk")),
    (_batch, ("sequential-batching", "oom-risk", "memory-leak", "input-bound")),
    (_optimizer, ("unfused-optimizer",)),
    (_compile, ("gpu-starved", "input-bound")),
    (_saving, ("checkpoint-stall",)),
    (_logging, ("logging-overhead",)),
    (_grouping, ("padding-waste", "length-outliers")),
)


def _ignored_settings(evidence: Evidence) -> list[Suggestion]:
    """Return settings that the user chose and that have no effect in this run."""
    rows = [f"{name}: {why}" for name, why in _settings_without_effect(evidence)]
    return [Suggestion(f"leave out {row}", "none", "no effect in this run") for row in rows]


def _settings_without_effect(evidence: Evidence) -> list[tuple[str, str]]:
    config, loader = evidence.facts.config, evidence.facts.loader
    on_cpu = hardware.model_device(evidence) == "cpu"
    transformers = evidence.facts.framework == "transformers"
    of_config = config.dataloader_num_workers
    workers = loader.dataloader_num_workers if of_config is None else of_config
    settings = []
    # The default of torch is False; that of transformers is True, and nobody has chosen it.
    if on_cpu and loader.dataloader_pin_memory and not transformers:
        settings.append(("pin_memory=True", "it helps copies to a GPU, and the model is on the CPU"))
    if transformers and workers == 0:
        for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
            if value := getattr(config, name):
                settings.append((f"{name}={value}", "there are no workers (dataloader_num_workers=0)"))
    if config.tf32:
        known = hardware.gpu_peak(evidence)
        if on_cpu:
            settings.append(("tf32=True", "it is a format of NVIDIA GPUs, and the model is on the CPU"))
        elif hardware.is_mixed(evidence):
            settings.append(("tf32=True", "it is for fp32 matrix products, and these run in 16 bits"))
        elif known is not None and known[1].tf32 is None:
            settings.append(("tf32=True", f"{known[0]} has no TF32"))
    return settings
