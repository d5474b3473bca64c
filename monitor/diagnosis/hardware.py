"""The hardware of the run and its number format, as far as known, for the rules. Pure."""

from __future__ import annotations

from statistics import median

from monitor.diagnosis.rule import Evidence
from monitor.model.compute.mfu import NOT_MIXED, matmul_precision
from monitor.model.compute.peaks import Peak, peak_of
from monitor.model.state import MACHINE, used_gpus
from trainhooks.protocol.events import Gpu, Host

MIN_READINGS = 30  # one a second, before a share of them is used


def model_device(evidence: Evidence) -> str | None:
    """Return where the trained parameters are: `cpu`, `cuda`...; None where unknown."""
    device = evidence.facts.optimizer.device
    if device is not None and not (device == "cpu" and evidence.state.devices):  # states may be offloaded
        return device
    return "cuda" if evidence.state.devices else None


def gpus(evidence: Evidence) -> list[Gpu]:
    """Return the newest readings of the GPUs that the run uses; none where these are unknown."""
    newest = [readings[-1] for readings in evidence.state.gpus.values()]
    used = used_gpus(evidence.state)
    if used is not None:
        newest = [card for card in newest if card.uuid in used]
    elif len(newest) > 1 or model_device(evidence) != "cuda":
        return []
    return sorted(newest, key=lambda card: card.index)


def gpu_peak(evidence: Evidence) -> tuple[str, Peak] | None:
    """Return name and peaks of the run's GPUs, where all of them are of one listed kind."""
    names = {card.name for card in gpus(evidence)}
    name = names.pop() if len(names) == 1 else None
    peaks = peak_of(name)
    return (name, peaks) if name is not None and peaks is not None else None


def computing_share(evidence: Evidence) -> float | None:
    """Return the share of time in which the run's GPUs computed; None where unknown.

    By SM activity where the driver has it: a GPU may be called busy all the time for kernels of microseconds.
    """
    device = evidence.device
    return device.sm_active if device is not None and device.sm_active is not None else busy_share(evidence)


def busy_share(evidence: Evidence) -> float | None:
    """Return the share of time in steps in which the run's GPUs ran something; None where unknown.

    By the driver, which rounds it up: a second in which one short kernel after the other runs counts as busy.
    """
    device = evidence.device
    if device is None or (device.busy_least is None and device.utilization is None):
        return None
    return max(device.busy_least or 0.0, device.utilization or 0.0)


def gpu_memory(evidence: Evidence) -> tuple[float, float] | None:
    """Return peak and total bytes of GPU memory; None where unknown.

    By the allocator where it is known; else by the driver, which counts reserved memory, too.
    """
    allocator = evidence.facts.torch.gpu_memory
    if allocator.peak_allocated is not None and allocator.total:
        return allocator.peak_allocated, allocator.total
    rows = [
        (trend.highest, card.memory_total)
        for card in gpus(evidence)
        if (trend := evidence.state.memory.get(card.uuid)) is not None and trend.highest and card.memory_total
    ]
    return max(rows, key=lambda row: row[0] / row[1]) if rows else None


def host_memory(reading: Host) -> tuple[int, int] | None:
    """Return memory in use and its limit: of the training's cgroup where that has a limit, else of the host.

    What counts towards a cgroup's limit holds files that can be dropped, and what processes hold counts shared pages
    again and again: the truth is not above the lesser of the two.
    """
    used, limit = reading.memory_limited, reading.memory_limit
    if used is not None and limit and (reading.memory_total is None or limit < reading.memory_total):
        return min(used, reading.tree_rss if reading.tree_rss is not None else used), limit
    if reading.memory_used is not None and reading.memory_total:
        return reading.memory_used, reading.memory_total
    return None


def model_memory(evidence: Evidence) -> tuple[float, float, str] | None:
    """Return peak and total bytes of the memory that holds the model, and its name; None where unknown."""
    where = model_device(evidence)
    if where == "cuda":
        memory = gpu_memory(evidence)
        return (*memory, "GPU memory") if memory is not None else None
    trend = evidence.state.memory.get(MACHINE)
    limits = [pair for reading in evidence.state.host if (pair := host_memory(reading)) is not None]
    if where != "cpu" or len(limits) < MIN_READINGS or trend is None:
        return None
    used, limit = max(limits)
    return max(used, trend.highest), limit, "host memory"


def is_mixed(evidence: Evidence) -> bool | None:
    """Return whether it computes in mixed precision; None where unknown."""
    facts, config = evidence.facts, evidence.facts.config
    settings = (facts.autocast, facts.accelerate.mixed_precision, config.precision)
    if config.bf16 or config.fp16 or any(setting is not None and setting not in NOT_MIXED for setting in settings):
        return True
    return False if facts.autocast == "off" else None


def is_fp32(evidence: Evidence) -> bool:
    """Return whether all parameters are fp32 and matrix products use them as they are."""
    dtypes = {*evidence.facts.optimizer.dtypes, *evidence.facts.model.dtypes}
    return dtypes == {"float32"} and is_mixed(evidence) is False


def allows_tf32(evidence: Evidence) -> bool | None:
    """Return whether fp32 matrix products may run as TF32; None where unknown."""
    precision = matmul_precision(evidence.facts)
    return precision != "highest" if precision is not None else None


def calls_per_step(evidence: Evidence) -> float:
    """Return the calls of the model per step; one where unknown.

    By the framework's setting; else by the samples of a step and those of the call that was watched.
    """
    pace, batch = evidence.state.main.pace, evidence.facts.ops.batch
    calls = 0.0
    if pace.samples and pace.steps and batch:
        calls = pace.samples / pace.steps / batch
    return max(batches_per_step(evidence), float(round(calls)))


def batches_per_step(evidence: Evidence) -> float:
    """Return the loader's batches per step, by the framework's setting for accumulation; one where there is none."""
    config = evidence.facts.config
    settings = (config.accumulate_grad_batches, config.gradient_accumulation_steps)
    return next((float(batches) for batches in settings if batches is not None and batches > 1), 1.0)


def computing_seconds(evidence: Evidence) -> float:
    """Return the seconds in which the model is computed: forward, backward and phases that hold both."""
    return evidence.named_seconds("forward", "backward", "training")


def scheduled_share(evidence: Evidence) -> float:
    """Return the share of the time in which threads that could run did: on a busy host a call takes longer."""
    waiting = evidence.host_values("tree_waiting")
    return 1 - min(1.0, max(0.0, median(waiting))) if waiting else 1.0
