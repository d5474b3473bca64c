"""Settings that were left on by mistake, or that contradict the machine. Pure."""

from __future__ import annotations

from statistics import median
from typing import Any

from monitor.diagnosis import waiting
from monitor.diagnosis.evidence import Evidence
from monitor.model import activities
from monitor.model.report import Finding
from monitor.units import duration, share

ENOUGH = 20  # steps
READINGS = 30  # host readings, one a second, before the host is blamed
CPU_FULL = 97.0  # percent of the whole machine
# Of the time in which its threads could run: two to a core. Threads that wait for each other at the end of each
# operation leave gaps, and the machine does not look full.
THREADS_WAITING = 0.5
EMPTIED = 0.03  # of the looks; giving memory back waits for the device, and a loop that does it seldom is never seen
# DataLoader workers for each usable core. They wait for disks, too, so up to two are common; more take the cores from
# each other, and each takes seconds to start.
WORKERS_A_CORE = 2
WAITS = 0.15  # of step time, as for any wait for data
STARTING = 20.0  # seconds before the first step, from which on a start is slow
STARTUP_WORTH = 0.25  # of the elapsed time, once steps go on
SWAP_GROWTH = 256 * 2**20  # bytes within the readings kept: the run, and no leftover of earlier days
SWAPPED_IN = 8 * 2**20  # bytes a second, in most readings: two thousand times a second something waits for the disk


def debug_settings(evidence: Evidence) -> Finding | None:
    """Switches for finding faults that make every step slower."""
    if not evidence.enough(ENOUGH):
        return None
    on = []
    environment = _table(evidence, "environment")
    has_gpu = bool(evidence.report.gpus)
    if environment.get("CUDA_LAUNCH_BLOCKING") == "1" and has_gpu:
        on.append("CUDA_LAUNCH_BLOCKING=1: each kernel is waited for before the next one is prepared")
    flags = _table(evidence, "torch")
    if flags.get("detect_anomaly") is True:
        on.append("torch.autograd anomaly detection is on: it records a traceback for each operation")
    if flags.get("profiler") is True:
        on.append("torch's profiler is running")
    emptied = activities.calls_seen(evidence.state.main.frames, frozenset(("empty_cache",)))
    if emptied.share >= EMPTIED:
        on.append(
            f"torch.cuda.empty_cache() in each step: {share(emptied.share)} of the looks found it there, at"
            f" {emptied.places[0]}; the memory that it gives back is asked for again at once"
        )
    if not on:
        return None
    return Finding(
        "debug-settings",
        "warning",
        f"Left on from debugging: {on[0].partition(':')[0]}",
        on,
        "Turn it off for runs that need speed; what it costs shows when the next run is compared with this one.",
    )


def oversubscribed(evidence: Evidence) -> Finding | None:
    """More threads or workers than cores."""
    return _too_many_workers(evidence) or _too_many_threads(evidence)


def _too_many_workers(evidence: Evidence) -> Finding | None:
    """DataLoader workers that take the cores from each other: the first step does not come, or steps wait for data."""
    cpus = evidence.state.facts.get("cpus")
    if not isinstance(cpus, int):
        cpus = evidence.report.host.cores
    told = evidence.setting("dataloader_num_workers", "num_workers")
    seen = max((each.tree_workers or 0 for each in evidence.state.host), default=0)
    workers = max(seen, told[1] if told is not None and isinstance(told[1], int) else 0)
    if not isinstance(cpus, int) or workers <= WORKERS_A_CORE * cpus:
        return None
    data = evidence.phase("data")
    one_wait = waiting.once(data) * data.mean * data.count if data is not None else 0.0  # for the first batch
    startup = (evidence.report.wall.startup or 0.0) + one_wait
    part = data.share * (1 - waiting.once(data)) if data is not None else 0.0
    waits = evidence.enough(ENOUGH) and part >= WAITS
    if not waits and startup < STARTING:
        return None
    lines = [f"{cpus} usable cores"]
    if waits:
        lines.append(f"steps wait for data {share(part)} of their time")
    else:
        lines.append(
            f"{duration(startup)} until the first batch was there"
            if evidence.steps
            else f"{duration(startup)} before the first step, which has not come yet"
        )
    # A long run pays any start back.
    grave = waits or not evidence.enough(ENOUGH) or evidence.of_wall(startup) >= STARTUP_WORTH
    return Finding(
        "oversubscribed",
        "warning" if grave else "info",
        f"{workers} DataLoader workers share {cpus} cores",
        lines,
        f"num_workers={max(1, cpus // 2)} to {cpus}: more take the cores from each other, and take time to start.",
        evidence.of_wall(startup) if not waits else None,
        over=not waits and evidence.steps > 0,
    )


def _too_many_threads(evidence: Evidence) -> Finding | None:
    """More compute threads than cores, in a run whose cores are full or whose threads wait for them."""
    facts = evidence.state.facts
    threads, cpus = _table(evidence, "torch").get("threads"), facts.get("cpus")
    ranks = evidence.report.run.ranks or 1
    if not isinstance(threads, int) or not isinstance(cpus, int) or not evidence.enough(ENOUGH):
        return None
    local = _local_ranks(evidence, ranks)
    if threads * local <= cpus or threads * local < 1.5 * cpus:
        return None
    busy = [each.cpu for each in evidence.state.host if each.cpu is not None]
    waited = [each.tree_waiting for each in evidence.state.host if each.tree_waiting is not None]
    crowded = len(waited) >= READINGS and median(waited) >= THREADS_WAITING
    if len(busy) < READINGS or (median(busy) < CPU_FULL and not crowded):
        return None
    per = max(1, cpus // local)
    lines = [f"{threads} threads (torch.get_num_threads) in each of {local} processes", f"{cpus} usable cores"]
    lines[-1] += ", all busy" if median(busy) >= CPU_FULL else ""
    if crowded:
        lines.append(f"its threads waited for a core in {share(median(waited))} of the time in which they could run")
    return Finding(
        "oversubscribed",
        "warning",
        f"{threads * local} compute threads share {cpus} cores",
        lines,
        f"OMP_NUM_THREADS={per} (or torch.set_num_threads({per})): threads beyond the cores wait for each other.",
    )


def swap(evidence: Evidence) -> Finding | None:
    """Memory goes to the swap while the training runs."""
    used = [each.swap_used for each in evidence.state.host if each.swap_used is not None]
    back = [each.swap_in for each in evidence.state.host if each.swap_in is not None]
    grown = used[-1] - used[0] if len(used) >= READINGS else 0
    read = median(back) if len(back) >= READINGS else 0.0
    if not used or (grown < SWAP_GROWTH and read < SWAPPED_IN):
        return None
    what = f"{grown / 2**30:.1f} GiB went there in the last minutes"
    if grown < SWAP_GROWTH:
        what = f"{read / 2**20:.0f} MiB a second come back from the disk"
    begin, now = (f"{each / 2**30:.1f} GiB" for each in (used[0], used[-1]))
    return Finding(
        "swap",
        "warning",
        f"The machine swaps: {what}",
        [f"swap in use {now}, {begin} at the begin of the readings"],
        "Give the training less to hold: fewer workers, smaller caches, data that is mapped rather than loaded.",
    )


def _local_ranks(evidence: Evidence, ranks: int) -> int:
    hosts = {each.host for each in evidence.state.producers.values() if each.source == "hooks"}
    return max(1, ranks // max(1, len(hosts)))


def _table(evidence: Evidence, name: str) -> dict[str, Any]:
    found = evidence.state.facts.get(name)
    return found if isinstance(found, dict) else {}
