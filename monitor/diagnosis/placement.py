"""The GPU and whether it has work: a model that is not on it, a program that does not keep it busy. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware, host_bound, waiting
from monitor.diagnosis.evidence import Evidence
from monitor.model.fold import OTHER
from monitor.model.report import Finding
from monitor.units import duration, share, size

ENOUGH = 20  # steps
# Seconds of forward and backward a step. A step is some hundred kernels of ten microseconds to start: a model that is
# done sooner than this may be as fast on the CPU.
WORTH_A_GPU = 0.02
TAKEN = 0.5  # of a GPU's memory in use by others: it is not there for this run
STARVED_READINGS = 10  # one a second, while steps are done
STARVED = 0.40  # of the time busy, usually; a GPU with a sync in each step is at 60 % and more
CAUSED = 0.15  # of the elapsed time in a span, or of step time in `data`: that has a finding of its own


def training_on_cpu(evidence: Evidence) -> Finding | None:
    """A GPU is free, and the parameters that are trained lie in the host's memory."""
    if hardware.place(evidence) != "cpu" or not evidence.enough(ENOUGH):
        return None
    seconds = sum(row.mean for name in ("forward", "backward") if (row := evidence.phase(name)) is not None)
    free = [
        each
        for each in (readings[-1] for readings in evidence.state.gpus.values())
        if not each.mig  # a card that is split is used by its instances
        and each.memory_used is not None
        and each.memory_total
        and each.memory_used < TAKEN * each.memory_total
    ]
    if not free or seconds < WORTH_A_GPU:
        return None
    wanted = _wanted(evidence)
    card = free[0]
    return Finding(
        "training-on-cpu",
        "info" if wanted else "warning",
        f"The model is on the CPU, and GPU {card.index} is free: {card.name or card.uuid}",
        [
            f"forward and backward take {duration(seconds)} a step; the parameters are on the cpu",
            wanted or _torch(evidence),
            f"GPU {card.index}: {size(card.memory_used)} of {size(card.memory_total)} in use",
        ],
        _move(evidence),
    )


def _wanted(evidence: Evidence) -> str:
    """The setting by which somebody has chosen so."""
    if hardware.table(evidence, "environment").get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides all GPUs"
    config = hardware.table(evidence, "config")
    for name in ("use_cpu", "no_cuda"):
        if config.get(name) is True:
            return f"{name}=True"
    return ""


def _torch(evidence: Evidence) -> str:
    flags = hardware.table(evidence, "torch")
    if "cuda" not in flags:
        return "whether this torch can use a GPU is not known"
    if flags["cuda"] is None:
        return "this torch is a build for the CPU: torch.version.cuda is None"
    return f"this torch is built for CUDA {flags['cuda']}"


def _move(evidence: Evidence) -> str:
    flags = hardware.table(evidence, "torch")
    if flags.get("cuda", "") is None:
        return "Install a torch for this driver's CUDA (https://pytorch.org/get-started), then move the model to it."
    framework = evidence.state.facts.get("framework")
    if framework == "transformers":
        return "See torch.cuda.is_available(); the Trainer then uses the GPU by itself (use_cpu=False)."
    if framework == "lightning":
        return 'See torch.cuda.is_available(); then Trainer(accelerator="gpu").'
    return 'model.to("cuda") before the optimizer is made, and each batch likewise; see torch.cuda.is_available().'


def _host_computes(evidence: Evidence) -> bool:
    """Whether the host sets the pace, with hardly any kernels to launch: it computes while the GPU waits."""
    device = evidence.device
    if device is None or device.bound != "host" or not host_bound.few_launches(evidence):
        return False
    return device.sm_active is not None and device.sm_active < STARVED


def gpu_starved(evidence: Evidence) -> Finding | None:
    """The GPU is idle for much of the steps, and they do not wait for data."""
    used, report = hardware.busy(evidence), evidence.report
    readings = report.device.readings if report.device is not None else 0
    if used is None or not evidence.enough(ENOUGH):
        return None
    if (used >= STARVED or readings < STARVED_READINGS) and not _host_computes(evidence):
        return None
    data = evidence.phase("data")
    if waiting.input_bound(evidence) is not None or (data is not None and data.share >= CAUSED):
        return None
    if any(evidence.of_wall(seconds) >= CAUSED for seconds in report.wall.spans.values()):
        return None  # checkpoints and evaluations are told by their own names
    rows = [row for row in report.phases if row.name not in ("forward", "backward", "optimizer", "data")]
    most = max(rows, key=lambda row: row.share, default=None)
    lines = [f"GPU busy {share(used)} of the time, by the driver's readings while steps were done"]
    if report.device is not None and report.device.sm_active is not None:
        used = min(used, report.device.sm_active)
        lines = [f"SMs active {share(used)} of the time, by the driver's readings while steps were done"]
    if most is not None and most.share >= CAUSED:
        named = "time in no named phase" if most.name == OTHER else most.name
        lines.append(f"{named} takes {duration(most.mean)} a step, {share(most.share)} of step time")
    lines.append(f"between steps: {share(evidence.of_wall(report.wall.between_steps))} of the elapsed time")
    return Finding(
        "gpu-starved",
        "warning",
        f"The GPU is idle {share(1 - used)} of the time, and the steps do not wait for data",
        [*lines, *evidence.places(OTHER)],
        "See what the program does meanwhile on the CPU; fetch no value in the inner loop (.item(), .cpu(),"
        " print(loss)); a larger batch gives each kernel more to do.",
        1 - used,
    )
