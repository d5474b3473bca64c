"""An idle GPU: a model that is not on it, late launches, small batches, synchronization, a busy host. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware, traced
from monitor.diagnosis.rule import COMPUTING, MIN_STACK_SAMPLES, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.waiting import input_bound
from monitor.gpu_lines import AMD
from monitor.model.device.device_report import Device
from monitor.model.device.trace_report import TraceReport
from monitor.model.report import Finding
from monitor.model.steps.sampled_calls import alternating, calls_seen
from monitor.step_blocks import OTHER
from monitor.units import duration, plural, share, size
from trainhooks.protocol.calls import IS_MODEL, SYNCHRONIZES

# A rollout's environment and a reward may well compute on the host: only these phases launch kernels all the time.
LAUNCHING = COMPUTING
# Of the time in which the SMs are active. Above it, idle time is a fifth or less of what there is to win elsewhere.
MAX_LAUNCH_BOUND_ACTIVE = 0.60
# Seconds of Python and driver for an operation of torch, at most, on a slow machine; the operations of a forward pass
# have to be this part of the host's time in it to be what takes it.
LAUNCH_SECONDS, MIN_LAUNCHES_SHARE = 50e-6, 0.3
# Of the host's time, in phases that launch kernels: else it is busy with something that has a name.
MIN_LAUNCH_SHARE = 0.5


# Between two kernels of a CUDA graph; the fix replaces launches by that.
GRAPH_GAP = 1e-6  # seconds
MAX_GRAPH_GAP = 2e-6


# Time in no phase that launches kernels is not reported twice; where something else explains the late launches, that
# says nothing of the time in no phase.
@rule(
    "launch-bound",
    Family.GPU,
    suppresses=("gpu-starved", Suppress(("unaccounted-time",), same_culprit=True, if_shown=True)),
    idle_time=True,
    only_bound=True,
)
def launch_bound(evidence: Evidence) -> Finding | None:
    """Find a GPU that waits for launches: kernels are shorter than what Python needs to start them."""
    device = evidence.device
    if device is None or device.bound != "host" or not evidence.has_steps():
        return None
    active = device.sm_active
    if active is not None and active > MAX_LAUNCH_BOUND_ACTIVE:
        return None
    launching = sum(row.share * _launch_share(evidence, row.name) for row in evidence.report.host_phases)
    if launching < MIN_LAUNCH_SHARE or has_few_launches(evidence):
        return None
    lines = [*_idle_lines(device), f"host spends {share(launching)} of its time in phases that launch kernels"]
    launches = evidence.facts.ops.launches
    trace = traced.kernel_trace(evidence)
    if trace is not None and trace.launches:
        most = max(trace.classes, key=lambda row: row.count)
        lines.append(
            f"{trace.launches:,.0f} launches a step, {share(most.count / trace.launches)} of them {most.name};"
            f" {traced.how(trace)}"
        )
    elif launches:
        lines.append(f"about {launches:,} kernels per forward pass")
    lines += evidence.places(*LAUNCHING) or evidence.places(OTHER)
    busy = active if trace is None or trace.parts else trace.busy
    likely, least = (_without_launches(evidence, trace, gap) for gap in (GRAPH_GAP, MAX_GRAPH_GAP))
    return Finding(
        code="launch-bound",
        title="Launch-bound: kernels run faster than the host launches them"
        + (f", the GPU is busy {share(busy)} of the time" if busy is not None else ""),
        evidence=lines,
        advice='Use torch.compile(model, mode="reduce-overhead") or a CUDA graph to launch a step at once, and fused or'
        " foreach optimizers; a larger batch gives each kernel more work.",
        cost=launching if busy is None else None,
        lost_fraction=evidence.loop_share * (evidence.max_idle or 0.0) if busy is not None else None,
        likely_fraction=likely,
        least_fraction=least,
        certain=busy is not None and small_batch(evidence) is None,
        culprit=OTHER if _model_call_share(evidence, OTHER) else None,
    )


def _without_launches(evidence: Evidence, trace: TraceReport | None, gap: float) -> float | None:
    """Return the share of wall time that goes where kernels follow each other after so many seconds.

    None where their number or their time is not known.
    """
    seconds, idle = evidence.step_seconds, evidence.max_idle
    if trace is None or trace.launches is None or not seconds or idle is None:
        return None
    return max(0.0, idle - trace.launches * gap / seconds) * evidence.loop_share


def _launch_share(evidence: Evidence, phase: str) -> float:
    """Return the part of a host phase that launches kernels; of time in no phase, the sampled calls of a model."""
    if phase in LAUNCHING:
        return 1.0
    return _model_call_share(evidence, phase) if phase == OTHER else 0.0


def _model_call_share(evidence: Evidence, phase: str) -> float:
    """Return the share of stack samples in calls of a model where that is most of them: text by text, for example."""
    samples = calls_seen({phase: evidence.stack_samples(phase)}, IS_MODEL, at_least=MIN_STACK_SAMPLES)
    return samples.share if samples.share >= MIN_LAUNCH_SHARE else 0.0


def has_few_launches(evidence: Evidence) -> bool:
    """Return whether the counted launches cannot be what takes the host so long: then it computes in between."""
    launches = evidence.facts.ops.launches
    if not launches:
        return False
    seconds = sum(row.p50 for row in evidence.report.host_phases if row.name == "forward")  # the first one is long
    return launches * hardware.calls_per_step(evidence) * LAUNCH_SECONDS < MIN_LAUNCHES_SHARE * seconds


# SMs active less than this although work is queued, or with few samples per step: kernels that do not fill the GPU.
MAX_SMALL_BATCH_ACTIVE = 0.40
MAX_BATCH_SAMPLES = 8  # per step: tensor cores work on tiles of 64 rows and more
MAX_TOKENS = 4096  # per step: for matrix products a long sequence is like a batch
MIN_BATCH_ROOM = 0.5  # of the memory: twice the batch fits
MIN_QUEUED_SHARE = 0.80  # of the time with work in the queue: the GPU works, but its SMs are not all used


@rule("small-batch", Family.MODEL, suppresses=("gpu-starved",))
def small_batch(evidence: Evidence) -> Finding | None:
    """Find steps with too little work to fill the GPU, and memory for more.

    No cost is known: besides the idle time a larger batch shares out what a step costs whatever its size, as reading
    and updating the weights.
    """
    device, pace = evidence.device, evidence.state.main.pace
    if device is None or device.sm_active is None or not evidence.has_steps():
        return None
    memory = hardware.gpu_memory(evidence)
    if device.sm_active > MAX_SMALL_BATCH_ACTIVE or memory is None or not pace.samples or not pace.steps:
        return None
    free = 1 - memory[0] / memory[1]
    samples, tokens = pace.samples / pace.steps, pace.tokens / pace.steps
    if free < MIN_BATCH_ROOM or samples > MAX_BATCH_SAMPLES or tokens >= MAX_TOKENS:
        return None
    if device.bound != "host" and (device.queued or 0.0) < MIN_QUEUED_SHARE:
        return None
    size_words = f"{samples:.3g} samples" + (f", {tokens:,.0f} tokens" if tokens else "")
    return Finding(
        code="small-batch",
        severity="warning",
        title=f"Small batch: {size_words} per step, SMs active {share(device.sm_active)} of the time",
        evidence=[
            *_idle_lines(device),
            f"{share(free)} of GPU memory never used",
            "gain in samples/s unknown before a trial, often several times",
        ],
        advice="Raise the batch size while samples/s grow, and the learning rate with it: a step takes hardly longer"
        " until the GPU is full. With accumulation, raise the batch and lower accumulation.",
    )


def _idle_lines(device: Device) -> list[str]:
    lines = []
    if device.queue_empty is not None:
        lines.append(f"the GPU had nothing queued in {share(device.queue_empty)} of step time")
    if device.trace is not None and device.trace.busy is not None:
        lines.append(f"kernels run in {share(device.trace.busy)} of a usual step; {traced.how(device.trace)}")
    elif device.sm_active is not None:
        lines.append(f"SMs active {share(device.sm_active)} of the time, by the driver: an estimate of the busy share")
    if device.seconds is not None:
        lines.append(f"{duration(device.seconds)} per step by the GPU's clock")
    return lines


# The host waits for the GPU in the middle of a step and leaves it idle each time.

MIN_PASS_SYNCS = 2  # in one forward pass; one at the end of a step reads the loss
# Of the stack samples in forward and backward: there a training has no reason to wait for the GPU.
MIN_SYNC_SAMPLES_SHARE = 0.20
INSIDE = ("forward", "backward", "optimizer", "training", "generation", "rollout")
MAX_SYNC_ROWS = 3
# To one value copied to the host, at most: a launch takes some ten microseconds, and a value not much longer by itself.
MAX_LAUNCHES_PER_SYNC = 30
MIN_SYNC_SAMPLED = 0.5  # of the stack samples in no phase: then most of that time is this
MIN_READING_SHARE = 0.3  # of the samples in one function, for it to be one that reads values from the GPU

# Time in no phase and launches that come late are what the host does meanwhile: it waits for the GPU.
HOST_WAITS = ("unaccounted-time", "launch-bound", "small-batch", "gpu-starved")


@rule("synchronizing", Family.GPU, suppresses=HOST_WAITS, idle_time=True, only_bound=True)
def synchronizing(evidence: Evidence) -> Finding | None:
    """Find values copied to the host in the middle of a step."""
    device, idle = evidence.device, evidence.max_idle
    if device is None or idle is None or not evidence.has_steps() or device.bound == "data":
        return None
    counted, after = _count_syncs(evidence), _share_after_step(evidence)
    samples = calls_seen(evidence.state.main.samples.by_phase(), SYNCHRONIZES, INSIDE)
    often = counted >= MIN_PASS_SYNCS and _syncs_often(evidence, counted)
    forward = evidence.phase("forward")
    if samples.whole and not samples.places and (forward is None or forward.share < MIN_SYNC_SAMPLES_SHARE):
        often = False  # too short to show in any sample
    if not often and samples.share < MIN_SYNC_SAMPLES_SHARE and after < MIN_SYNC_SAMPLES_SHARE:
        return None
    lines = [f"GPU idle at most {share(idle)} of the time"]
    if counted:
        values = plural(counted, "value", "values")
        lines.append(f"{values} copied to the host in one forward pass: {_sync_places(evidence)}")
    if samples.places:
        lines.append(f"{share(samples.share)} of stack samples in steps wait for the GPU, most at {samples.places[0]}")
    if after >= MIN_SYNC_SAMPLES_SHARE:
        lines.append(f"{share(after)} of GPU time follows the optimizer, where values are copied to the host")
        lines += evidence.places(OTHER)
    return Finding(
        code="synchronizing",
        title="GPU synchronization within steps: the GPU runs out of work",
        evidence=lines,
        advice="Keep values on the GPU and read them once in many steps: .item(), .cpu(), bool(), nonzero() and"
        " printing wait for all queued work.",
        lost_fraction=idle * evidence.loop_share,
    )


def _count_syncs(evidence: Evidence) -> int:
    return sum(row.count for row in evidence.facts.ops.syncs)


def _syncs_often(evidence: Evidence, counted: int) -> bool:
    """Return whether values are copied so often that this, and not launching, is what the host does."""
    launches = evidence.facts.ops.launches
    return launches is not None and counted * MAX_LAUNCHES_PER_SYNC >= launches


def _share_after_step(evidence: Evidence) -> float:
    """Return the share of GPU time in no phase while the host copies values from it: metrics, norms.

    By the GPU's clock: a host that reads its loss there waits for what the GPU does in the other phases.
    """
    row, samples = evidence.phase(OTHER), evidence.stack_samples(OTHER)
    if row is None or evidence.host_only or not samples:
        return 0.0
    syncs = calls_seen({OTHER: samples}, SYNCHRONIZES, at_least=MIN_STACK_SAMPLES)
    if syncs.share >= MIN_SYNC_SAMPLED:
        return row.share * syncs.share
    # Between two values the same function launches what computes the next one, on a GPU that has run out of work.
    steps = {place for phase, place in evidence.state.main.samples.looks if phase in LAUNCHING}
    reading = alternating(samples, SYNCHRONIZES, MIN_READING_SHARE, steps)
    return row.share * reading if reading >= MIN_SYNC_SAMPLED else 0.0


def _sync_places(evidence: Evidence) -> str:
    return ", ".join(f"{row.count} at {row.place}" for row in evidence.facts.ops.syncs[:MAX_SYNC_ROWS])


# Seconds of forward and backward per step. A step starts some hundred kernels of ten microseconds: a model that is done
# sooner than this may be as fast on the CPU.
MIN_COMPUTING_SECONDS = 0.02
MAX_USED_SHARE = 0.5  # of a GPU's memory in use by others: beyond, it is not free for this run


@rule("training-on-cpu", Family.GPU)
def training_on_cpu(evidence: Evidence) -> Finding | None:
    """Find a free GPU while the trained parameters are in host memory."""
    if hardware.model_device(evidence) != "cpu" or not evidence.has_steps():
        return None
    seconds = sum(row.mean for name in ("forward", "backward") if (row := evidence.phase(name)) is not None)
    free = [
        card
        for card in (readings[-1] for readings in evidence.state.gpus.values())
        if not card.uuid.startswith(AMD)  # it may be a processor's own graphics, which trains nothing
        and not card.mig  # a split card is used by its instances
        and card.memory_used is not None
        and card.memory_total
        and card.memory_used < MAX_USED_SHARE * card.memory_total
    ]
    if not free or seconds < MIN_COMPUTING_SECONDS:
        return None
    chosen, card = _cpu_setting(evidence), free[0]
    return Finding(
        code="training-on-cpu",
        severity="info" if chosen else "warning",
        title=f"Training on CPU while GPU {card.index} is free: {card.name or card.uuid}",
        evidence=[
            f"forward and backward {duration(seconds)} per step, parameters on cpu",
            chosen or _torch_build(evidence),
            f"GPU {card.index}: {size(card.memory_used)} of {size(card.memory_total)} in use",
        ],
        advice=_move_advice(evidence),
    )


def _cpu_setting(evidence: Evidence) -> str:
    """Return the setting that asks for the CPU; empty where there is none."""
    if evidence.facts.environment.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides all GPUs"
    config = evidence.facts.config
    return "use_cpu=True" if config.use_cpu else "no_cuda=True" if config.no_cuda else ""


def _torch_build(evidence: Evidence) -> str:
    version = evidence.facts.torch.cuda
    if version is None:
        return "CUDA support of this torch unknown"
    return f"torch built for CUDA {version}" if version else "torch is a CPU build: torch.version.cuda is None"


def _move_advice(evidence: Evidence) -> str:
    framework = evidence.facts.framework
    if evidence.facts.torch.cuda == "":
        return (
            "Install a torch for this driver's CUDA (https://pytorch.org/get-started), then move the model to the GPU."
        )
    if framework == "transformers":
        return "Check torch.cuda.is_available(); the Trainer then uses the GPU (use_cpu=False)."
    if framework == "lightning":
        return 'Check torch.cuda.is_available(), then use Trainer(accelerator="gpu").'
    return (
        'Call model.to("cuda") before the optimizer is made, move each batch too, and check torch.cuda.is_available().'
    )


MIN_BUSY_READINGS = 10  # one a second, while steps are done
MAX_STARVED_BUSY = 0.40  # of the time busy, on average; a GPU with a sync in each step is at 60% and more
MIN_NAMED_CAUSE_SHARE = 0.15  # of the elapsed time in a span, or of step time in `data`: that has a finding of its own


def _host_computes(evidence: Evidence) -> bool:
    """Return whether the host sets the pace with hardly any kernels to launch: it computes while the GPU waits."""
    device = evidence.device
    if device is None or device.bound != "host" or not has_few_launches(evidence):
        return False
    return device.sm_active is not None and device.sm_active < MAX_STARVED_BUSY


# The findings on causes of an idle GPU all suppress this one.
@rule("gpu-starved", Family.GPU, idle_time=True, only_bound=True)
def gpu_starved(evidence: Evidence) -> Finding | None:
    """Find a GPU that is idle for much of the steps although they do not wait for data."""
    used, report, device = hardware.busy_share(evidence), evidence.report, evidence.device
    readings = device.readings if device is not None else 0
    if used is None or not evidence.has_steps():
        return None
    if (used >= MAX_STARVED_BUSY or readings < MIN_BUSY_READINGS) and not _host_computes(evidence):
        return None
    data = evidence.phase("data")
    if input_bound(evidence) is not None or (data is not None and data.share >= MIN_NAMED_CAUSE_SHARE):
        return None
    if any(evidence.wall_part(seconds) >= MIN_NAMED_CAUSE_SHARE for seconds in report.wall.spans.values()):
        return None  # checkpoints and evaluations have findings of their own
    lines = [f"GPU busy {share(used)} of the time in steps, by the driver"]
    if device is not None and device.sm_active is not None:
        used = min(used, device.sm_active)
        lines = [f"SMs active {share(used)} of the time in steps, by the driver"]
    rows = [row for row in report.phases if row.name not in ("forward", "backward", "optimizer", "data")]
    most = max(rows, key=lambda row: row.share, default=None)
    if most is not None and most.share >= MIN_NAMED_CAUSE_SHARE:
        name = "time in no named phase" if most.name == OTHER else most.name
        lines.append(f"{name}: {duration(most.mean)} per step, {share(most.share)} of step time")
    lines.append(f"between steps: {share(evidence.wall_part(report.wall.between_steps))} of wall time")
    return Finding(
        code="gpu-starved",
        title=f"GPU idle {share(1 - used)} of the time, not waiting for data",
        evidence=[*lines, *evidence.places(OTHER)],
        advice="Check what the program does on the CPU meanwhile. Fetch no values in the inner loop (.item(), .cpu(),"
        " print(loss)). A larger batch gives each kernel more work.",
        lost_fraction=(1 - used) * evidence.loop_share,
    )
