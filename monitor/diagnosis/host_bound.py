"""The host sets the pace: it launches kernels more slowly than the device runs them, or they are too small. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import ENOUGH_LOOKS, Evidence
from monitor.model import activities
from monitor.model.parts import OTHER
from monitor.model.report import Device, Finding
from monitor.units import duration, share

ENOUGH = 20  # steps
# Of the time in which the SMs are active. Above it, idle time is a fifth or less of what there is to win elsewhere.
LAUNCH_WORTH = 0.60
# SMs active less than this although work is queued, or with few samples a step: kernels that do not fill the device.
SMALL_WORTH = 0.40
# A rollout's environment and a reward may well compute on the host: not these.
LAUNCHING = ("forward", "backward", "optimizer", "training", "generation", "log_probs")
# Seconds of Python and driver for an operation of torch, at most, on a slow machine; the operations of a forward pass
# have to be this part of the host's time in it to be what takes it.
LAUNCH_SECONDS, LAUNCHES_PART = 50e-6, 0.3
MOSTLY = 0.5  # of the host's time, in phases that launch kernels: else it is busy with something that has a name
FEW_SAMPLES = 8  # a step: tensor cores work on tiles of 64 rows and more
FEW_TOKENS = 4096  # a step: a sequence is as good as a batch for matrix products
ROOM = 0.5  # of the memory never in use: twice the batch fits
QUEUED = 0.80  # of the time with work in the queue: the device is at work, and yet its SMs are not


def launch_bound(evidence: Evidence) -> Finding | None:
    """The device waits for launches: kernels are shorter than what Python needs to start them."""
    device = evidence.device
    if device is None or device.bound != "host" or not evidence.enough(ENOUGH):
        return None
    if device.sm_active is not None and device.sm_active > LAUNCH_WORTH:
        return None
    launching = sum(row.share * _launches(evidence, row.name) for row in evidence.report.host_phases)
    if launching < MOSTLY or few_launches(evidence):
        return None
    known = device.sm_active is not None
    lines = [*_busy(device), f"the host spends {share(launching)} of its time in phases that launch kernels"]
    launches = hardware.table(evidence, "ops").get("launches")
    if isinstance(launches, int) and launches > 0:
        lines.append(f"one forward pass starts some {launches:,} kernels")
    lines += evidence.places(*LAUNCHING) or evidence.places(OTHER)
    return Finding(
        "launch-bound",
        "warning" if known and small_batch(evidence) is None else "info",
        "Host-bound: kernels are launched more slowly than the GPU runs them"
        + (f", its SMs are active {share(device.sm_active)} of the time" if known else ""),
        lines,
        'torch.compile(model, mode="reduce-overhead") or a CUDA graph launches a step at once; fused or foreach'
        " optimizers launch fewer kernels; a larger batch gives each more to do.",
        evidence.of_wall(evidence.report.wall.stepping) * (evidence.idle_most or 0.0) if known else None,
        culprit=OTHER if _calls_a_model(evidence, OTHER) else None,
    )


def _launches(evidence: Evidence, phase: str) -> float:
    """The part of a phase of the host's that starts kernels: of time in no phase, what was seen in calls of a model."""
    if phase in LAUNCHING:
        return 1.0
    return _calls_a_model(evidence, phase) if phase == OTHER else 0.0


def _calls_a_model(evidence: Evidence, phase: str) -> float:
    """The part of the looks in which a model was called, where that is most of them: text by text, action by action."""
    seen = activities.calls_seen({phase: evidence.looks(phase)}, activities.MODELS, at_least=ENOUGH_LOOKS)
    return seen.share if seen.share >= MOSTLY else 0.0


def few_launches(evidence: Evidence) -> bool:
    """Whether the launches that were counted cannot be what takes the host so long: then it computes in between."""
    launches = hardware.table(evidence, "ops").get("launches")
    if not isinstance(launches, int) or launches < 1:
        return False
    seconds = sum(row.p50 for row in evidence.report.host_phases if row.name == "forward")  # the first one is long
    return launches * hardware.calls_a_step(evidence) * LAUNCH_SECONDS < LAUNCHES_PART * seconds


def small_batch(evidence: Evidence) -> Finding | None:
    """There is too little in a step to fill the device, and memory for more."""
    device, main = evidence.device, evidence.state.main
    if device is None or device.sm_active is None or not evidence.enough(ENOUGH) or device.sm_active > SMALL_WORTH:
        return None
    memory = hardware.gpu_memory(evidence)
    if memory is None or 1 - memory[0] / memory[1] < ROOM or not main.pace.samples or not main.pace.steps:
        return None
    samples, tokens = main.pace.samples / main.pace.steps, main.pace.tokens / main.pace.steps
    few = samples <= FEW_SAMPLES and tokens < FEW_TOKENS
    if not (few and device.bound == "host") and not (few and (device.queued or 0.0) >= QUEUED):
        return None
    each = f"{samples:.3g} samples" + (f", {tokens:,.0f} tokens" if tokens else "")
    return Finding(
        "small-batch",
        "warning",
        f"The batch is too small for the GPU: {each} a step, SMs active {share(device.sm_active)} of the time",
        [
            *_busy(device),
            f"{share(1 - memory[0] / memory[1])} of its memory was never in use",
            "what a larger one gains in samples/s is not known before it is tried; often several times as many",
        ],
        "A larger batch takes hardly longer a step until the GPU is full: raise it while samples/s grow, and the"
        " learning rate with it; with accumulation, the batch goes up and accumulation down.",
        # No bound is known: besides the idle time a larger batch shares out what a step costs whatever its size, as
        # reading the weights and updating them.
    )


def _busy(device: Device) -> list[str]:
    lines = []
    if device.queue_empty is not None:
        lines.append(f"the GPU had run out of work at every mark, in {share(device.queue_empty)} of the steps' time")
    if device.sm_active is not None:
        lines.append(
            f"SMs active {share(device.sm_active)} of the time: at most {1 / max(device.sm_active, 0.01):.2g}x without"
            " idle time"
        )
    if device.seconds is not None:
        lines.append(f"a step takes {duration(device.seconds)} by the GPU's clock")
    return lines
