"""What the run computes on, and in which number format, as far as that is known. Pure; no rules of its own."""

from __future__ import annotations

from typing import Any

from monitor.diagnosis.evidence import Evidence
from monitor.model.devices import ours
from monitor.model.peaks import Peak, peak_of
from monitor.model.state import MACHINE
from trainhooks.events import Gpu, Host

READINGS = 30  # one a second; a share of fewer says little
OFF = ("off", "no", "None", "32", "32-true", "64-true")  # what stands for "no mixed precision" in the facts


def table(evidence: Evidence, name: str) -> dict[str, Any]:
    """A table of the facts; empty where it is not told."""
    found = evidence.state.facts.get(name)
    return found if isinstance(found, dict) else {}


def place(evidence: Evidence) -> str | None:
    """Where the trained parameters are: `cpu`, `cuda`...; None where nobody has told."""
    device = table(evidence, "optimizer").get("device")
    if isinstance(device, str) and not (device == "cpu" and evidence.state.devices):  # states may be offloaded
        return device
    return "cuda" if evidence.state.devices else None


def cards(evidence: Evidence) -> list[Gpu]:
    """The newest readings of the GPUs that the run uses; none where that is not known."""
    newest = [readings[-1] for readings in evidence.state.gpus.values()]
    used = ours(evidence.state)
    if used is not None:
        newest = [each for each in newest if each.uuid in used]
    elif len(newest) > 1 or place(evidence) != "cuda":
        return []
    return sorted(newest, key=lambda each: each.index)


def peak(evidence: Evidence) -> tuple[str, Peak] | None:
    """Name and peaks of the run's GPUs, where all of them are of one listed kind."""
    names = {each.name for each in cards(evidence)}
    name = names.pop() if len(names) == 1 else None
    found = peak_of(name)
    return (name, found) if name is not None and found is not None else None


def computing_share(evidence: Evidence) -> float | None:
    """The share of time in which the run's GPUs computed; None where that is not known.

    By the SMs where the driver tells of them: a GPU may be called busy all the time for kernels of microseconds.
    """
    device = evidence.device
    if device is not None and device.sm_active is not None:
        return device.sm_active
    return busy(evidence)


def busy(evidence: Evidence) -> float | None:
    """The share of time in which the run's GPUs ran something while it did steps; None where that is not known.

    By the driver, which rounds it up: a second in which one short kernel after the other runs counts as busy.
    """
    device = evidence.device
    if device is None or (device.busy_least is None and device.utilization is None):
        return None
    return max(device.busy_least or 0.0, device.utilization or 0.0)


def allocator(evidence: Evidence) -> dict[str, Any]:
    """What torch's allocator tells of the GPU's memory; empty where it does not."""
    found = table(evidence, "torch").get("gpu_memory")
    return found if isinstance(found, dict) else {}


def gpu_memory(evidence: Evidence) -> tuple[float, float] | None:
    """The most GPU memory that the run needed at once, and all there is; None where it is not known.

    By the allocator where it tells; else by the driver, which counts what is only held ready, too.
    """
    told = allocator(evidence)
    allocated, total = told.get("peak_allocated"), told.get("total")
    if isinstance(allocated, int) and isinstance(total, int) and total > 0:
        return allocated, total
    each = [
        (max(trend.high), card.memory_total)
        for card in cards(evidence)
        if (trend := evidence.state.memory.get(card.uuid)) is not None and trend.high and card.memory_total
    ]
    return max(each, key=lambda row: row[0] / row[1]) if each else None


def host_limit(reading: Host) -> tuple[int, int] | None:
    """What is in use of the memory and where it ends: of the training's cgroup where that has a limit, else of all.

    What counts towards a cgroup's limit holds files that can be dropped, and what processes hold counts shared pages
    again and again: the truth is not above the lesser of the two.
    """
    used, limit = reading.memory_limited, reading.memory_limit
    if used is not None and limit and (reading.memory_total is None or limit < reading.memory_total):
        return min(used, reading.tree_rss if reading.tree_rss is not None else used), limit
    if reading.memory_used is not None and reading.memory_total:
        return reading.memory_used, reading.memory_total
    return None


def free_memory(evidence: Evidence) -> tuple[float, float, str] | None:
    """The most memory in use so far, all there is, and whose, where the model is; None where that is not known."""
    where = place(evidence)
    if where == "cuda":
        found = gpu_memory(evidence)
        return (*found, "GPU memory") if found is not None else None
    trend = evidence.state.memory.get(MACHINE)
    limits = [found for each in evidence.state.host if (found := host_limit(each)) is not None]
    if where != "cpu" or len(limits) < READINGS or trend is None:
        return None
    used, limit = max(limits)
    return max(used, max(trend.high)), limit, "host memory"


def mixed(evidence: Evidence) -> bool | None:
    """Whether it computes in mixed precision; None where nobody can tell."""
    told = [
        evidence.state.facts.get("autocast"),
        table(evidence, "accelerate").get("mixed_precision"),
        table(evidence, "config").get("precision"),
    ]
    config = table(evidence, "config")
    if config.get("bf16") is True or config.get("fp16") is True:
        return True
    if any(isinstance(each, str) and each not in OFF for each in told):
        return True
    return False if told[0] == "off" else None


def full_precision(evidence: Evidence) -> bool:
    """Whether all parameters are fp32 and matrix products are computed as they are."""
    dtypes = table(evidence, "optimizer").get("dtypes") or table(evidence, "model").get("dtypes")
    model = table(evidence, "model").get("dtypes")
    known = {*(dtypes if isinstance(dtypes, dict) else ()), *(model if isinstance(model, dict) else ())}
    return known == {"float32"} and mixed(evidence) is False


def tf32(evidence: Evidence) -> bool | None:
    """Whether fp32 matrix products may run as TF32; None where it is not known."""
    forced = table(evidence, "environment").get("NVIDIA_TF32_OVERRIDE")
    if forced in ("0", "1"):
        return bool(forced == "1")
    if table(evidence, "config").get("tf32") is True:
        return True
    precision = table(evidence, "torch").get("matmul_precision")
    return precision != "highest" if isinstance(precision, str) else None


def calls_a_step(evidence: Evidence) -> float:
    """Calls of the model a step, as far as they are told: one, where nobody tells of more.

    By the framework's setting; else by the samples of a step and those of the call that was looked at.
    """
    pace, batch = evidence.state.main.pace, table(evidence, "ops").get("batch")
    seen = 0.0
    if pace.samples and pace.steps and isinstance(batch, int) and batch > 0:
        seen = pace.samples / pace.steps / batch
    return max(batches_a_step(evidence), float(round(seen)))


def batches_a_step(evidence: Evidence) -> float:
    """Batches of the loader a step, by the framework's setting for accumulation; one, where there is none."""
    config, done = table(evidence, "config"), 1.0
    for name in ("gradient_accumulation_steps", "accumulate_grad_batches"):
        if isinstance(config.get(name), int) and config[name] > 1:
            done = float(config[name])
    return done


def computing(evidence: Evidence) -> float:
    """Seconds in which the model is computed, forward, backward and in phases that hold both."""
    return evidence.named("forward", "backward", "training")
