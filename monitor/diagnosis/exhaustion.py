"""Memory has run out, or is about to. Pure."""

from __future__ import annotations

import re

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import plural, share, size, size_of

ENOUGH = 20  # steps
NEAR_END = 0.95  # of the GPU's memory in use by tensors: a batch a tenth longer than the longest no longer fits
RETRIES = 4  # times that the allocator had to give its cache back and begin anew; once may be a first long batch
SPLIT_RETRIES = 2  # likewise; one may be the first long batch
SPLIT = 0.15  # of all memory, held by the allocator beyond what tensors ever took
# Where it begins anew again and again, that is its limit, wherever it lies (a part of the card, set by
# set_per_process_memory_fraction, or what others leave): then less of what it holds is pieces enough.
SPLIT_OFTEN, SPLIT_OF_HELD = 5, 0.08
HOST_NEAR_END = 0.95  # of the memory that the training may use, in all readings of late
KILLED_NEAR_END = 0.90  # likewise at the last reading before a SIGKILL: the last second may take the rest
GROWS = 0.01  # of it, within the readings kept: what stays where it is may stay there for ever
SIGKILL = 9
_OUT_OF_MEMORY = re.compile(r"out of memory|OutOfMemoryError|^MemoryError|can't allocate memory", re.IGNORECASE)


def oom_risk(evidence: Evidence) -> Finding | None:
    """Memory has run out, or is about to."""
    return _ran_out(evidence) or _gpu_near_end(evidence) or _host_near_end(evidence)


def _ran_out(evidence: Evidence) -> Finding | None:
    outcome = evidence.report.outcome
    if outcome.error and _OUT_OF_MEMORY.search(outcome.error):
        memory = hardware.gpu_memory(evidence)
        lines = [outcome.error[:300]]
        if memory is not None:
            lines.append(f"GPU memory: {size_of(*memory)} needed at once, as far as it was seen")
        return Finding("oom-risk", "critical", "The run ended because memory ran out", lines, _gpu_advice(evidence))
    readings = [found for each in evidence.state.host[-3:] if (found := hardware.host_limit(each)) is not None]
    if outcome.signal != SIGKILL or not readings:
        return None
    used, limit = max(readings)
    if used < KILLED_NEAR_END * limit:
        return None
    return Finding(
        "oom-risk",
        "critical",
        "The run was killed (SIGKILL) when host memory was nearly full: most likely by the kernel",
        [f"{size_of(used, limit)} in use at the last reading", *_tree(evidence)],
        _host_advice(evidence),
    )


def _gpu_near_end(evidence: Evidence) -> Finding | None:
    told = hardware.allocator(evidence)
    total, peak, retries = told.get("total"), told.get("peak_allocated"), told.get("retries")
    if not isinstance(total, int) or not isinstance(peak, int) or not evidence.enough(ENOUGH):
        return None
    retries = retries if isinstance(retries, int) else 0
    if peak < NEAR_END * total and (retries < RETRIES or memory_fragmented(evidence) is not None):
        return None
    lines = [f"tensors took {size_of(peak, total)} at once, at most"]
    if retries:
        lines.append(f"the allocator had to give its cache back at least {plural(retries, 'time', 'times')}")
    return Finding(
        "oom-risk",
        "warning",
        f"GPU memory is about to run out: {share(peak / total)} of it were in use at once"
        if peak >= NEAR_END * total
        else f"GPU memory is about to run out: torch's allocator has begun anew {plural(retries, 'time', 'times')}",
        lines,
        _gpu_advice(evidence),
    )


def memory_fragmented(evidence: Evidence) -> Finding | None:
    """The allocator gives its cache back and begins anew, though tensors take far less than all memory."""
    told = hardware.allocator(evidence)
    total, peak, held, retries = (told.get(name) for name in ("total", "peak_allocated", "peak_reserved", "retries"))
    if not all(isinstance(each, int) for each in (total, peak, held, retries)) or not evidence.enough(ENOUGH):
        return None
    assert isinstance(total, int) and isinstance(peak, int) and isinstance(held, int) and isinstance(retries, int)
    often = retries >= SPLIT_OFTEN and held - peak >= SPLIT_OF_HELD * held
    if not often and (retries < SPLIT_RETRIES or held - peak < SPLIT * total):
        return None
    return Finding(
        "memory-fragmented",
        "warning",
        f"GPU memory is split into pieces: {size(held - peak)} held and never in use at once",
        [
            f"tensors took {size_of(peak, total)} at once, at most; torch held {size(held)}",
            f"its allocator had to give its cache back at least {plural(retries, 'time', 'times')}",
        ],
        "PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF before torch 2.9), or pad batches to a"
        " few sizes.",
    )


def _host_near_end(evidence: Evidence) -> Finding | None:
    readings = [found for each in evidence.state.host if (found := hardware.host_limit(each)) is not None]
    tree = evidence.report.host.tree_rss
    if len(readings) < hardware.READINGS or not evidence.enough(ENOUGH) or tree is None:
        return None
    used, limit = readings[-1]
    lately = readings[-hardware.READINGS :]
    if min(lately)[0] < HOST_NEAR_END * limit or used - lately[0][0] < GROWS * limit or tree < used / 2:
        return None
    return Finding(
        "oom-risk",
        "warning",
        f"Host memory is about to run out: {size_of(used, limit)} in use, and it grows",
        [f"{size(used - lately[0][0])} more than half a minute ago", *_tree(evidence)],
        _host_advice(evidence),
    )


def _tree(evidence: Evidence) -> list[str]:
    tree = evidence.report.host.tree_rss
    return [f"the training's processes hold {size(tree)}"] if tree is not None else []


def _gpu_advice(evidence: Evidence) -> str:
    batch = evidence.setting("per_device_train_batch_size", "batch_size")
    now = f" ({batch[0]}={batch[1]} now)" if batch is not None else ""
    return (
        f"A smaller batch{now} with as much more accumulation; a limit for the longest sequences;"
        " PYTORCH_ALLOC_CONF=expandable_segments:True against fragments."
    )


def _host_advice(evidence: Evidence) -> str:
    workers = evidence.setting("dataloader_num_workers", "num_workers")
    now = f" ({workers[0]}={workers[1]} now)" if workers is not None else ""
    return f"Fewer DataLoader workers{now}, data that is mapped rather than loaded, smaller caches, or more memory."
