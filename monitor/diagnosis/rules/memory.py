"""Memory that is about to run out, grows without end, is fragmented, or is left unused. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from statistics import median

from monitor.diagnosis import hardware, traced
from monitor.diagnosis.rule import COMPUTING, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.user_settings import DELAYS_ALL_LAUNCHES
from monitor.model.device.kernel_classes import ATTENTION, NORMALIZATION, SOFTMAX
from monitor.model.report import Finding
from monitor.model.state import MACHINE, OTHER_PROCESSES, TRAINERS, TREE, used_gpus
from monitor.model.steps.pace import amounts_per_step
from monitor.model.trend import MIN_STRETCHES, Climb
from monitor.step_blocks import OTHER
from monitor.units import duration, plural, share, size, size_of
from trainhooks.protocol.events import Host

# Of the GPU's memory in use by tensors: a batch a tenth longer than the longest no longer fits.
MAX_TENSOR_SHARE = 0.95
MIN_RETRIES = 4  # times that the allocator had to free its cache and start over; once may be a first long batch
MAX_HOST_SHARE = 0.95  # of the memory that the training may use, in all recent readings
MIN_GROWING_SHARE = 0.01  # of it, within the readings kept: what does not grow may stay there for ever

# Memory that fills costs time as well: fresh pages in each step or in some, retries, at last the disk. What gets slower
# with it has that name.
FILLING_MEMORY = Suppress(("slow-drift", "slow-steps"), culprits=(*COMPUTING, OTHER))


# Before others: it ends the run.
@rule("oom-risk", Family.MEMORY, priority=6, suppresses=(FILLING_MEMORY,))
def oom_risk(evidence: Evidence) -> Finding | None:
    """Find memory that is about to run out."""
    return _gpu_near_limit(evidence) or _host_near_limit(evidence)


def _oom(severity: str, title: str, lines: list[str], advice: str) -> Finding:
    return Finding(code="oom-risk", severity=severity, title=title, evidence=lines, advice=advice)


def _gpu_near_limit(evidence: Evidence) -> Finding | None:
    allocator = evidence.facts.torch.gpu_memory
    total, peak, retries = allocator.total, allocator.peak_allocated, allocator.retries or 0
    if not total or peak is None or not evidence.has_steps():
        return None
    is_full = peak >= MAX_TENSOR_SHARE * total
    if not is_full and (retries < MIN_RETRIES or memory_fragmented(evidence) is not None):
        return None
    lines = [f"peak tensor memory {size_of(peak, total)}"]
    if retries:
        lines.append(f"allocator retries: at least {retries:,}")
    reason = f"peak {share(peak / total)}" if is_full else plural(retries, "allocator retry", "allocator retries")
    advice = gpu_advice(evidence) + (" trainmon memory says what holds it now." if evidence.is_running else "")
    return _oom("warning", f"GPU memory almost full: {reason}", lines, advice)


def _host_near_limit(evidence: Evidence) -> Finding | None:
    readings, tree = host_readings(evidence.state.host), evidence.report.host.tree_rss
    if len(readings) < hardware.MIN_READINGS or not evidence.has_steps() or tree is None:
        return None
    used, limit = readings[-1]
    recent = readings[-hardware.MIN_READINGS :]
    grown = used - recent[0][0]
    if min(recent)[0] < MAX_HOST_SHARE * limit or grown < MIN_GROWING_SHARE * limit or tree < used / 2:
        return None
    lines = [f"{size(grown)} more than half a minute ago", *_process_lines(evidence)]
    title = f"Host memory almost full: {size_of(used, limit)} and growing"
    return _oom("warning", title, lines, host_advice(evidence))


def host_readings(readings: Sequence[Host]) -> list[tuple[int, int]]:
    """Return memory in use and its limit for each host reading that has them."""
    return [limit for reading in readings if (limit := hardware.host_memory(reading)) is not None]


def _process_lines(evidence: Evidence) -> list[str]:
    tree = evidence.report.host.tree_rss
    return [f"training processes use {size(tree)}"] if tree is not None else []


def gpu_advice(evidence: Evidence) -> str:
    now = evidence.setting_now("per_device_train_batch_size", "batch_size")
    return (
        f"Use a smaller batch{now} with more accumulation, limit the longest sequences, or set"
        " PYTORCH_ALLOC_CONF=expandable_segments:True against fragmentation."
    )


def host_advice(evidence: Evidence) -> str:
    now = evidence.setting_now("dataloader_num_workers", "num_workers")
    return f"Use fewer DataLoader workers{now}, memory-mapped instead of loaded data, smaller caches, or more memory."


MIN_SPLIT_RETRIES = 2  # allocator retries; one may be the first long batch
MIN_SPLIT_SHARE = 0.15  # of all memory, reserved by the allocator beyond what tensors ever took
# With frequent retries that is its limit, wherever it lies (a part of the GPU, set by set_per_process_memory_fraction,
# or what others leave): then a smaller share of what it reserved is fragmentation enough.
MIN_FREQUENT_RETRIES, MIN_SPLIT_OF_RESERVED = 5, 0.08


# Before what it causes: retries make steps slow and launches late.
@rule("memory-fragmented", Family.MEMORY, priority=5, suppresses=("gpu-starved", DELAYS_ALL_LAUNCHES))
def memory_fragmented(evidence: Evidence) -> Finding | None:
    """Find an allocator that frees its cache and starts over though tensors take far less than all memory."""
    allocator = evidence.facts.torch.gpu_memory
    total, peak, reserved = allocator.total, allocator.peak_allocated, allocator.peak_reserved
    retries = allocator.retries
    if total is None or peak is None or reserved is None or retries is None or not evidence.has_steps():
        return None
    unused = reserved - peak
    often = retries >= MIN_FREQUENT_RETRIES and unused >= MIN_SPLIT_OF_RESERVED * reserved
    if not often and (retries < MIN_SPLIT_RETRIES or unused < MIN_SPLIT_SHARE * total):
        return None
    return Finding(
        code="memory-fragmented",
        severity="warning",
        title=f"GPU memory fragmented: {size(unused)} reserved and never in use",
        evidence=[
            f"peak tensor memory {size_of(peak, total)}; torch reserved {size(reserved)}",
            f"allocator retries: at least {retries:,}",
        ],
        advice="Set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before torch 2.9), or pad"
        " batches to a few sizes.",
    )


# Memory that is never given back.

WARMUP_SECONDS = 3.0  # after the first step: workers start, the allocator and lazy libraries take their first memory
WARMUP_SHARE = 0.25  # of the time watched, whichever is later
MIN_WATCHED_SECONDS = 8.0  # after that: one reading a second in each part that has to rise
# While a run goes on, a cache or a buffer that still fills looks like a leak: more is asked for. The more so in the
# first pass over the data, in which every item is new.
MIN_WATCHED_LIVE_SECONDS, MIN_WATCHED_FIRST_PASS_SECONDS = 20.0, 45.0
MIN_CLIMB_STEPS = 16  # two in each part: growth within a step is work, not a leak
MIN_GROWN_BYTES = 128 * 2**20  # bytes; less is lost among caches and libraries that are loaded late
MIN_GROWTH_SHARE = 0.10  # of what it held at first, likewise
MIN_CULPRIT_GROWTH_SHARE = 0.7  # of the growth, for one kind of process to be named
MAX_MORE_WORK = 1.1  # times the tokens or samples a step: longer sequences take more memory, and none is lost
CRITICAL_SECONDS_LEFT = 600.0  # until all is full: then the run ends before anybody has looked twice
MIN_GPU_GROWTH_SHARE = 0.05  # of the GPU's memory
# A GPU's memory is taken by an allocator that keeps what it has: it grows in the first steps, and where it goes on
# growing with every step, something is kept. So it shows sooner than on a host, where caches and workers come and go,
# and one reading is as good as two.
GPU_WARMUP_SECONDS, GPU_WARMUP_SHARE = 1.0, 0.1  # after the first three steps
MIN_GPU_WATCHED_SECONDS = 7.0
MIN_MACHINE_GROWTH_SHARE = 0.5  # of the growth shows in the machine's memory: mapped files do not
MIN_WARNING_GROWTH_SHARE = 0.10  # of the machine's memory gone: a warning, whenever the run ends
MAX_SECONDS_LEFT = 3600.0  # until all is full: likewise, where it is unknown when the run would end


# Before others: it ends the run, and slows it down before that.
@rule("memory-leak", Family.MEMORY, priority=4, suppresses=(FILLING_MEMORY,))
def memory_leak(evidence: Evidence) -> Finding | None:
    """Find memory of the training that grows without end."""
    return _host_leak(evidence) or _gpu_leak(evidence)


def _climb(
    evidence: Evidence,
    what: str,
    warmup: tuple[float | None, float, float],
    min_seconds: float,
    least: int | None = MIN_STRETCHES,
) -> Climb | None:
    """Return how memory grew after the warm-up; None where it did not, or not for long enough.

    Args:
        what: whose memory: `TREE`, `MACHINE` or a GPU's UUID.
        warmup: begin, seconds after it, and share of the time watched; the later end counts.
        least: readings for each part of a steady climb; None: any rise counts.
    """
    main = evidence.state.main
    trend, first, until = evidence.state.memory.get(what), main.wall.first_step, main.wall.last_step
    if trend is None or trend.end is None or first is None or until is None or warmup[0] is None:
        return None
    begin, seconds, part = warmup[0], *warmup[1:]
    end = min(until, trend.end)
    since = max(begin + seconds, first + part * (end - first))
    if end - since < min_seconds:
        return None
    if least is None:
        return trend.rise(since, 1, until)
    climb = trend.climb(since, main.pace.done, least, until)
    return climb if climb is not None and climb.steps >= MIN_CLIMB_STEPS else None


def _growth_line(climb: Climb) -> str:
    line = f"{size(climb.first)} → {size(climb.last)} in {duration(climb.seconds)}, steady growth"
    rate = climb.per_step
    return line if rate is None else f"{line}: {size(rate.rate)} per step ({size(rate.low)} to {size(rate.high)})"


def _full_line(limit: float, left: float) -> str:
    return f"at this rate {size(limit)} are full in {duration(max(0.0, left))}"


def _min_watched(evidence: Evidence) -> float:
    """Return for how many seconds growth has to last after the warm-up."""
    passes = evidence.state.main.passes
    if not evidence.is_running:
        return MIN_WATCHED_SECONDS
    return MIN_WATCHED_FIRST_PASS_SECONDS if passes.number == 1 and passes.batches else MIN_WATCHED_LIVE_SECONDS


def _host_leak(evidence: Evidence) -> Finding | None:
    warmup = (evidence.state.main.wall.first_step, WARMUP_SECONDS, WARMUP_SHARE)
    min_watched = _min_watched(evidence)
    climb = _climb(evidence, TREE, warmup, min_watched, least=1)
    if climb is None or climb.last - climb.first < max(MIN_GROWN_BYTES, MIN_GROWTH_SHARE * climb.first):
        return None
    # Other programs on the machine come and go: its memory need not grow steadily.
    machine = _climb(evidence, MACHINE, warmup, min_watched, least=None)
    grown = climb.last - climb.first
    if machine is None or machine.last - machine.first < MIN_MACHINE_GROWTH_SHARE * grown:
        return None
    if _is_more_work(evidence):
        return None
    lines, severity = [_growth_line(climb)], "info"
    limits = host_readings(evidence.state.host[-1:])
    if limits:
        used, limit = limits[0]
        left = (limit - used) / climb.rate
        lines.append(_full_line(limit, left))
        severity = _leak_severity(evidence, left, grown >= MIN_WARNING_GROWTH_SHARE * limit)
    who = _growing_processes(evidence, warmup, grown)
    return Finding(
        code="memory-leak",
        severity=severity,
        title=f"Memory leak: {who} by {size(climb.rate * 60)} per minute",
        evidence=lines,
        advice="Look for what only grows: lists of losses with their graphs (loss.detach(), .item()), caches, outputs"
        " kept for a table, workers over Python lists. trainmon memory --growth names the line while it runs, else"
        " tracemalloc or memray.",
    )


def _leak_severity(evidence: Evidence, left: float, is_much: bool) -> str:
    """Return how grave it is that memory is full in `left` seconds."""
    eta = evidence.report.progress.eta_seconds
    if left >= (MAX_SECONDS_LEFT if eta is None else eta) and not is_much:
        return "info"
    ends_it = evidence.is_running and left < min(CRITICAL_SECONDS_LEFT, eta if eta is not None else left + 1.0)
    return "critical" if ends_it else "warning"


def _growing_processes(evidence: Evidence, warmup: tuple[float | None, float, float], grown: float) -> str:
    """Return whose memory it is: the training process's, its workers', or that of all together."""
    names = {TRAINERS: "training process grows", OTHER_PROCESSES: "workers and other child processes grow"}
    for what, name in names.items():
        own = _climb(evidence, what, warmup, 0.0, least=None)
        if own is not None and own.last - own.first >= MIN_CULPRIT_GROWTH_SHARE * grown:
            ranks = len(evidence.report.ranks)
            return "training processes grow" if what == TRAINERS and ranks > 1 else name
    return "training grows"


def _is_more_work(evidence: Evidence) -> bool:
    """Return whether the newest steps have more tokens or samples than the first ones: a curriculum."""
    amounts = amounts_per_step(evidence.state.main.pace)
    third = len(amounts) // 3
    return third > 0 and median(amounts[-third:]) > MAX_MORE_WORK * median(amounts[:third])


def _gpu_leak(evidence: Evidence) -> Finding | None:
    if used_gpus(evidence.state) is None and len(evidence.state.gpus) > 1:
        return None
    warmup = (evidence.state.main.wall.warm, GPU_WARMUP_SECONDS, GPU_WARMUP_SHARE)
    for card in hardware.gpus(evidence):
        climb = _climb(evidence, card.uuid, warmup, MIN_GPU_WATCHED_SECONDS, least=1)
        if not card.memory_total or climb is None:
            continue
        if climb.last - climb.first < MIN_GPU_GROWTH_SHARE * card.memory_total:
            continue
        left = (card.memory_total - climb.newest) / climb.rate
        eta = evidence.report.progress.eta_seconds
        return Finding(
            code="memory-leak",
            severity="info" if eta is not None and left > eta else "warning",
            title=f"Memory leak: GPU {card.index} grows by {size(climb.rate * 60)} per minute",
            evidence=[_growth_line(climb), _full_line(card.memory_total, left)],
            advice="losses.append(loss) keeps each step's whole graph: use loss.detach(), or .item() where it is logged"
            " anyway. Detach outputs and states that are carried from step to step.",
        )
    return None


# Memory left unused, and time spent on saving it.

MIN_UNUSED_SHARE = 0.50  # of the memory: twice the batch fits, and the longest batch may still be to come
MIN_BUSY_GPU = 0.80  # of the time in which the GPU ran something; one that is idle needs other help than memory
MIN_LENGTH_STEPS = 100  # steps, so that long batches have been among them
RECOMPUTED_SHARE = 0.33  # of backward: one forward more, and a backward is about two
MIN_BACKWARD_RATIO = 1.5  # times forward that a backward takes at least if the layers are computed again inside it


@rule("memory-headroom", Family.MEMORY)
def memory_headroom(evidence: Evidence) -> Finding | None:
    """Find GPU memory half of which is never used while the GPU is busy."""
    memory, used = hardware.gpu_memory(evidence), hardware.busy_share(evidence)
    if memory is None or used is None or used < MIN_BUSY_GPU or evidence.steps < MIN_LENGTH_STEPS:
        return None
    peak, total = memory
    if 1 - peak / total < MIN_UNUSED_SHARE:
        return None
    batch = evidence.count_setting("per_device_train_batch_size", "batch_size")
    larger = f"{batch[0]} {batch[1]} -> {2 * batch[1]}" if batch is not None else "a batch twice as large"
    return Finding(
        code="memory-headroom",
        severity="info",
        title=f"Unused GPU memory: {share(1 - peak / total)}",
        evidence=[f"peak {size_of(peak, total)} in {evidence.steps:,} steps"],
        advice=f"{share(1 - peak / total)} of GPU memory is free: try {larger} with less accumulation while tokens/s"
        " grow, or no gradient checkpointing.",
    )


@rule("checkpointing-unneeded", Family.MODEL, priority=9)  # one setting; it makes launches needless, too
def checkpointing_unneeded(evidence: Evidence) -> Finding | None:
    """Find gradient checkpointing although there is memory for all activations."""
    memory, backward, forward = hardware.model_memory(evidence), evidence.phase("backward"), evidence.phase("forward")
    if not has_checkpointing(evidence) or memory is None or backward is None or not evidence.is_often(backward.count):
        return None
    used, total, kind = memory
    again = _forward_again(evidence)
    recomputed = RECOMPUTED_SHARE * backward.recurring
    if again is not None and forward is not None:
        recomputed = min(backward.recurring, again * forward.recurring)
    if 1 - used / total < MIN_UNUSED_SHARE:
        return None
    # On a GPU the host's clock says nothing of the two: it waits wherever it next needs a result.
    is_slow = forward is not None and backward.mean >= MIN_BACKWARD_RATIO * forward.mean
    if hardware.model_device(evidence) != "cuda" and not is_slow:
        return None
    return Finding(
        code="checkpointing-unneeded",
        title=f"Unneeded gradient checkpointing: {share(1 - used / total)} of {kind} never used",
        evidence=[
            f"peak {size_of(used, total)}",
            f"backward with recomputation: {duration(backward.mean)} per step",
            *([f"forward kernels run {again:.2g} more times in backward, by the trace"] if again is not None else []),
        ],
        advice="Set gradient_checkpointing=False and try it on the longest batch: activations of all layers are then"
        " kept.",
        estimated=again is None,
        lost_fraction=evidence.wall_part(recomputed),
    )


# Kernels that only a forward pass launches, by class: those of attention, norms and softmax say so in their names.
_FORWARD = re.compile(r"fprop|fwd|[Ff]orward|vectorized_layer_norm|RowwiseMoments")
_BACKWARD = re.compile(r"bprop|bwd|[Bb]ackward|grad")


def _forward_again(evidence: Evidence) -> float | None:
    """Return how often backward runs the forward pass again, by its kernels; None where that is not known."""
    counts: dict[str, dict[str, float]] = {}
    for row in traced.kernels(evidence, ATTENTION, NORMALIZATION, SOFTMAX):
        if _FORWARD.search(row.name) and not _BACKWARD.search(row.name):
            by_phase = counts.setdefault(row.name, {})
            by_phase[row.phase] = by_phase.get(row.phase, 0.0) + row.count
    both = [row["backward"] / row["forward"] for row in counts.values() if row.get("forward") and row.get("backward")]
    return median(both) if both else None


def has_checkpointing(evidence: Evidence) -> bool:
    """Return whether gradient checkpointing is on."""
    return evidence.facts.model.gradient_checkpointing is True or bool(evidence.facts.ops.flops_recompute)
