"""What may help and shows no cost of its own in this run: a short list, apart from the findings. Pure.

A setting that costs this run something measurable is a finding; what stands here is worth a short trial, no more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from monitor.diagnosis import hardware, headroom, kernels
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding, Suggestion
from monitor.units import duration, share

MOST = 6  # lines; who is told everything tries nothing
ENOUGH = 20  # steps
BUSY = 0.30  # of the time in which the GPU runs something; below, no faster kernel helps
CHECKPOINTING_ROOM = 0.25  # of the memory free: less than that, activations may not fit
BATCH_ROOM = 0.40  # likewise, for twice the activations
OPTIMIZER = 0.03  # of step time
FREQUENT = 0.01  # of the elapsed time in checkpoints or logging; more than a few percent is a finding
COMPILE_PAYS = 600.0  # seconds still to come: compiling a model takes a minute or two
FILLED = 0.15  # of the positions that are padding; more than twice that is a finding

Ranked = tuple[float, Suggestion]  # what it may gain, roughly, as a share of the time: for the order alone


def to_try(evidence: Evidence, findings: list[Finding]) -> list[Suggestion]:
    """What is worth a trial, the most promising first; nothing that a finding says already."""
    if evidence.steps < ENOUGH or evidence.report.run.source != "hooks":
        return []
    told = {finding.code for finding in findings}
    found = [each for make, codes in _TRIALS if not told & set(codes) and (each := make(evidence)) is not None]
    found.sort(key=lambda row: -row[0])
    ranked = [suggestion for _, suggestion in found]
    return [*ranked, *_ignored(evidence)][:MOST]


def _precision(evidence: Evidence) -> Ranked | None:
    known, busy = hardware.peak(evidence), hardware.busy(evidence)
    if known is None or busy is None or busy < BUSY or not hardware.full_precision(evidence):
        return None
    name, peak = known
    half = "bf16" if peak.bf16 else "fp16" if peak.fp16 else None
    if half is None:
        return None
    because = f"{name} has {half} tensor cores, and all parameters are float32 without autocast"
    said = f"mixed precision ({half}): at most what matrix products take of the step"
    return busy / 2, Suggestion(said, "activations take half; weights and optimizer stay as they are", because)


def _checkpointing(evidence: Evidence) -> Ranked | None:
    free = hardware.free_memory(evidence)
    if not headroom.checkpoints(evidence) or free is None or 1 - free[0] / free[1] < CHECKPOINTING_ROOM:
        return None
    because = f"{share(1 - free[0] / free[1])} of {free[2]} was never in use"
    return 0.2, Suggestion(
        "gradient_checkpointing=False: a fifth to a third less time a step",
        "activations of all layers are kept",
        because,
    )


def _batch(evidence: Evidence) -> Ranked | None:
    free, busy = hardware.free_memory(evidence), hardware.busy(evidence)
    batch = evidence.setting("per_device_train_batch_size", "batch_size")
    steps = evidence.setting("gradient_accumulation_steps", "accumulate_grad_batches")
    if hardware.place(evidence) != "cuda" or free is None or batch is None or not _whole(batch[1]):
        return None
    if 1 - free[0] / free[1] < BATCH_ROOM:
        return None
    said = f"{batch[0]}={batch[1]} → {2 * batch[1]}"
    if steps is not None and _whole(steps[1]) and steps[1] > 1:
        said += f" with {steps[0]}={steps[1]} → {max(1, steps[1] // 2)}"
    because = f"{share(1 - free[0] / free[1])} of {free[2]} was never in use"
    because += f", and the GPU is busy {share(busy)} of the time" if busy is not None else ""
    gain = 0.1 if busy is None else max(0.05, (1 - busy) / 2)
    return gain, Suggestion(said, "activations grow with the batch", because)


def _optimizer(evidence: Evidence) -> Ranked | None:
    row, facts = evidence.phase("optimizer"), hardware.table(evidence, "optimizer")
    kind = facts.get("class")
    if row is None or row.share < OPTIMIZER or facts.get("fused") or "fused" not in facts:
        return None
    tensors = facts.get("tensors")
    if not isinstance(tensors, int) or tensors < kernels.MANY_TENSORS:
        return None
    if kind not in kernels.HAS_FUSED or hardware.place(evidence) not in ("cuda", "cpu"):
        return None
    if hardware.place(evidence) == "cpu" and not kernels.one_by_one(evidence):
        return None
    because = f"the optimizer takes {share(row.share)} of step time, and that is the most that it can gain"
    return row.share / 2, Suggestion(kernels.fused_advice(evidence, str(kind)).rstrip("."), "none", because)


def _compile(evidence: Evidence) -> Ranked | None:
    eta, busy = evidence.report.progress.eta_seconds, hardware.busy(evidence)
    compiled = "compile" in evidence.state.facts or hardware.table(evidence, "config").get("torch_compile") is True
    if compiled or eta is None or eta < COMPILE_PAYS or busy is None or busy < BUSY:
        return None
    transformers = evidence.state.facts.get("framework") == "transformers"
    said = "torch_compile=True" if transformers else "torch.compile(model)"
    because = f"the model runs eagerly on a GPU that is busy {share(busy)} of the time, for {duration(eta)} more"
    return 0.08, Suggestion(said, "some hundred MiB while compiling; CUDA graphs hold more", because)


def _rhythm(evidence: Evidence, name: str, settings: tuple[str, ...]) -> Ranked | None:
    lost = evidence.of_wall(evidence.named(name))
    if lost < FREQUENT:
        return None
    setting = evidence.setting(*settings)
    said = f"{setting[0]}={setting[1]} → higher" if setting is not None else f"{name} less often"
    return lost / 2, Suggestion(said, "none", f"{name} takes {share(lost)} of the elapsed time")


def _saving(evidence: Evidence) -> Ranked | None:
    return _rhythm(evidence, "checkpoint", ("save_steps", "every_n_train_steps"))


def _logging(evidence: Evidence) -> Ranked | None:
    return _rhythm(evidence, "logging", ("logging_steps", "log_every_n_steps"))


def _grouping(evidence: Evidence) -> Ranked | None:
    """Sequence length against the data's own lengths."""
    main = evidence.state.main
    if main.padded_steps < ENOUGH or not main.padded_tokens:
        return None
    waste = 1 - main.unpadded_tokens / main.padded_tokens
    if waste < FILLED:
        return None
    limit, longest = evidence.setting("max_length", "max_seq_length"), main.lengths.longest
    because = f"{share(waste)} of the positions are padding"
    same = main.lengths.usual() or 0.0
    if limit is not None and _whole(limit[1]) and same >= 0.99 * limit[1] and longest <= limit[1]:
        return waste, Suggestion(
            f"pad to the longest of the batch, and not to {limit[0]}={limit[1]}",
            "falls with the lengths",
            because + "; every batch is as long as the limit",
        )
    said = 'train_sampling_strategy="group_by_length", or a sampler that puts like lengths together'
    return waste / 2, Suggestion(said, "none; the longest batch stays as long", because)


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
"""Each trial, and the findings beside which it is not worth one."""


# Settings that do nothing here


def _ignored(evidence: Evidence) -> list[Suggestion]:
    """Settings that somebody chose and that have no effect in this run: no gain, and one thing less to believe in."""
    rows = [f"{name}: {why}" for name, why in _without_effect(evidence)]
    return [Suggestion("leave out " + row, "none", "it has no effect in this run") for row in rows]


def _without_effect(evidence: Evidence) -> list[tuple[str, str]]:
    config, loader = hardware.table(evidence, "config"), hardware.table(evidence, "loader")
    on_cpu = hardware.place(evidence) == "cpu"
    transformers = evidence.state.facts.get("framework") == "transformers"
    workers = {**loader, **config}.get("dataloader_num_workers")
    found = []
    # The default of torch is False; that of transformers is True, and nobody has chosen it.
    if on_cpu and loader.get("dataloader_pin_memory") is True and not transformers:
        found.append(("pin_memory=True", "it helps copies to a GPU, and the model is on the CPU"))
    if transformers and workers == 0:
        for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
            if config.get(name):
                found.append((f"{name}={config[name]}", "dataloader_num_workers=0, so there is nobody to do it"))
    if config.get("tf32") is True:
        known = hardware.peak(evidence)
        if on_cpu:
            found.append(("tf32=True", "it is a format of NVIDIA GPUs, and the model is on the CPU"))
        elif hardware.mixed(evidence):
            found.append(("tf32=True", "matrix products run in 16 bits here, and TF32 is for those in fp32"))
        elif known is not None and known[1].tf32 is None:
            found.append(("tf32=True", f"{known[0]} has no TF32"))
    return found


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
