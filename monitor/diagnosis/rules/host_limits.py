"""The host as the limit: neighbors, a CPU quota, too many threads or workers, swapping, copies to the GPU. Pure."""

from __future__ import annotations

from bisect import bisect
from statistics import median

from monitor.diagnosis import hardware, traced
from monitor.diagnosis.judge import WARNING_COST
from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.model.device.device_report import Device
from monitor.model.device.kernel_classes import COPY_IN, PAGEABLE
from monitor.model.host_waits import lost_share, wait_share
from monitor.model.report import Finding
from monitor.model.steps.sampled_calls import calls_seen
from monitor.units import duration, percent, plural, share, size
from trainhooks.protocol.calls import COPIES
from trainhooks.protocol.events import Host
from trainhooks.protocol.limits import clean

MIN_WARNING_READINGS = 30  # of the host, one a second, before a warning: a load of half a minute is no problem
MIN_INFO_READINGS = 10  # before any finding
# Of the time in which the training's threads could run: waiting for a core this much makes it take a quarter longer.
MIN_CORE_WAIT = 0.20
MIN_WAITED = 0.20  # seconds of waiting per second; threads that hardly run lose little by waiting
MIN_OTHERS_PERCENT = 25.0  # of the machine that others use then; with less, its own threads wait for each other
MIN_READINGS_SHARE = 0.6  # of the readings: the neighbors' load comes and goes
MIN_CROWDED_SHARE = 0.2  # of the readings: enough of the run to make any single step long
MAX_GAP_SECONDS = 1.5  # from a moment to the reading that describes it: they come once a second
MIN_THIRD_READINGS = 3  # in each third of the run, to compare them
MIN_STEAL_PERCENT = 10.0  # of the machine that its hypervisor gave to others: whole cores stop for slices of time
MIN_QUOTA_SHARE = 0.9  # of the cgroup's limit, used by the training in the median reading
MIN_THROTTLED = 0.25  # seconds per second in which the limit stopped threads: far from a burst now and then
MAX_GPU_BUSY = 0.9  # of the time: a GPU this busy loses nothing by a limit on CPU cores
# Where it is unknown how long threads waited: the machine is full, and others hold the larger part of it.
MIN_CPU_PERCENT = 97.0  # of the whole machine
MIN_LARGER_PERCENT = 50.0

# Slow steps that are only information may be the neighbors' doing; a drift beyond that is judged by `slow-drift`.
NEIGHBORS_EFFECT = Suppress(("slow-steps",), only_info=True, if_info=True)


@rule("cpu-starved", Family.HOST, suppresses=("gpu-starved", NEIGHBORS_EFFECT), idle_time=True)
def cpu_starved(evidence: Evidence) -> Finding | None:
    """Find threads of the training that wait for cores: others hold them, or the cgroup allows no more."""
    return _neighbors(evidence) or _quota(evidence)


def _quota(evidence: Evidence) -> Finding | None:
    """Find a container's CPU limit that the training uses in full and that stops its threads."""
    readings = [row for row in _readings(evidence) if row.cpu_limit and row.cpu_throttled is not None]
    if not evidence.has_steps() or len(readings) < MIN_WARNING_READINGS:
        return None
    limit = readings[-1].cpu_limit or 0.0
    used = median((row.tree_cpu or 0.0) / 100.0 for row in readings)
    throttled = median(row.cpu_throttled or 0.0 for row in readings)
    if used < MIN_QUOTA_SHARE * limit or throttled < MIN_THROTTLED:
        return None
    if (hardware.busy_share(evidence) or 0.0) >= MAX_GPU_BUSY:
        return None
    return Finding(
        code="cpu-starved",
        severity="warning",
        title=f"CPU limit of {limit:g} cores: training uses {used:.1f} of them",
        evidence=[f"cgroup CPU throttling: median {throttled:.2f} s per second over {len(readings)} readings"],
        advice="Raise the limit (a container's --cpus, Kubernetes' resources.limits.cpu), or start fewer threads and"
        f" workers than it has cores: OMP_NUM_THREADS={max(1, int(limit))}.",
    )


def _neighbors(evidence: Evidence) -> Finding | None:
    """Find other programs that hold the cores."""
    readings, cores = _readings(evidence), evidence.report.host.cores
    if not evidence.has_steps() or len(readings) < MIN_INFO_READINGS or not cores:
        return None
    starved = [row for row in readings if _is_crowded(row, cores)]
    if len(starved) < MIN_READINGS_SHARE * len(readings):
        return None
    used, others = sum(row.cpu or 0.0 for row in starved), sum(_others_percent(row, cores) for row in starved)
    lines = [
        f"other programs: {percent(others / len(starved))} of all cores in {len(starved)} of {len(readings)} readings"
    ]
    waits = [wait for row in readings if (wait := wait_share(row)) is not None]
    waited = sum(waits) / len(waits) if waits else None
    if waited is not None:
        lines.append(f"training threads waited for a core {share(waited)} of the time in which they had work")
    stolen = sum(row.cpu_stolen or 0.0 for row in readings) / len(readings)
    if stolen >= MIN_STEAL_PERCENT:
        lines.append(f"{percent(stolen)} of CPU time went to other virtual machines (steal)")
    named = [row for row in starved if row.others_busiest_name is not None]
    who = named[-1].others_busiest_name if named else None
    if who is not None:
        lines.append(f"the busiest of them: {who}, {percent(named[-1].others_busiest or 0.0)} of a core")
    return Finding(
        code="cpu-starved",
        certain=len(readings) >= MIN_WARNING_READINGS,
        outside=True,
        title=f"CPU contention: other programs keep the {cores} cores busy, training gets"
        f" {percent(100 - 100 * others / used)} of used CPU time",
        evidence=lines,
        advice=_contention_advice(evidence.is_running, who),
        lost_fraction=None if waited is None else _lost(evidence) * evidence.wall_part(evidence.report.wall.steps),
    )


def _contention_advice(is_running: bool, who: str | None) -> str:
    if not is_running:  # whoever it was may be gone
        first = f"Run it again without {who}" if who is not None else "Run it again while nothing else runs"
    else:
        first = "Find the process (top, by CPU)" if who is None else f"Move {who} away, or this run"
    return f"{first}. Timings of this run say more about the neighbors than about its code."


def _lost(evidence: Evidence) -> float:
    """Return the share of each second since the first step in which threads wait for cores."""
    first = evidence.state.main.wall.first_step or 0.0
    readings = _readings(evidence)
    inside = [row for row in readings if row.t > first] or readings
    return sum(map(lost_share, inside)) / len(inside)


def beyond_crowd(evidence: Evidence, part: float) -> float:
    """Return a share of the time as it were without the waits for cores, all of which are taken to lie in that part.

    As it is where no other programs hold the cores; 0 where they do and the kernel tells no waits.
    """
    if crowd_line(evidence) is None:
        return part
    if all(row.tree_waiting is None for row in _readings(evidence)):
        return 0.0
    lost = _lost(evidence)
    return max(0.0, part - lost) / (1.0 - lost) if lost < 1.0 else 0.0


def crowd_line(evidence: Evidence, min_share: float = MIN_CROWDED_SHARE) -> str | None:
    """Return a line that says that other programs held the cores; None where they did not.

    Args:
        min_share: of the readings; the default is enough to make single steps long.
    """
    readings, cores = _readings(evidence), evidence.report.host.cores
    if not readings or not cores:
        return None
    count = sum(_is_crowded(row, cores) for row in readings)
    if count < min_share * len(readings):
        return None
    return f"possible cause: other programs held the cores in {count} of {len(readings)} host readings"


def crowded_at(evidence: Evidence, moments: list[float]) -> str | None:
    """Return a line that says that others held the cores at most of these moments; None where not, or unknown."""
    readings, cores = _readings(evidence), evidence.report.host.cores
    if not readings or not cores:
        return None
    readings.sort(key=lambda row: row.t)
    known = [near for t in moments if (near := _nearest(readings, t)) is not None]
    held = sum(_is_crowded(row, cores) for row in known)
    if not known or len(known) < MIN_READINGS_SHARE * len(moments) or held < MIN_READINGS_SHARE * len(known):
        return None
    return f"possible cause: other programs held the cores in {held} of {len(known)} of them, by host readings"


def contention_slowdown(evidence: Evidence) -> float | None:
    """Return how many times longer things take in the last third of the steps than in the first for want of a core.

    None: others hold the cores, and there are too few readings to tell.
    """
    first, last = evidence.state.main.wall.first_step, evidence.state.main.wall.last_step
    if first is None or last is None:
        return 1.0
    readings = [row for row in _readings(evidence) if first <= row.t <= last]
    third = len(readings) // 3
    if third < MIN_THIRD_READINGS:  # others who leave make no late step longer
        middle, cores = (first + last) / 2, evidence.report.host.cores or 1
        stay = any(row.t >= middle and _is_crowded(row, cores) for row in readings)
        return None if stay and crowd_line(evidence) else 1.0
    if readings[0].t > first + (last - first) / 3:
        return 1.0  # only the newest readings are kept: the beginning is unknown
    early, late = (median(map(lost_share, part)) for part in (readings[:third], readings[-third:]))
    return max(1.0, (1.0 - early) / max(0.05, 1.0 - late))


def _readings(evidence: Evidence) -> list[Host]:
    return [row for row in evidence.state.host if row.cpu is not None and row.tree_cpu is not None]


def _nearest(readings: list[Host], t: float) -> Host | None:
    """Return the reading that describes this moment, of readings in order: each view asks for hundreds of moments."""
    at = bisect(readings, t, key=lambda row: row.t)
    nearest = min(readings[max(0, at - 1) : at + 1], key=lambda row: abs(row.t - t))
    return nearest if abs(nearest.t - t) <= MAX_GAP_SECONDS else None


def _others_percent(reading: Host, cores: int) -> float:
    """Return the percentage of the machine that other programs use."""
    return max(0.0, (reading.cpu or 0.0) - (reading.tree_cpu or 0.0) / cores)


def _is_crowded(reading: Host, cores: int) -> bool:
    """Return whether other programs held the cores."""
    if (reading.cpu_stolen or 0.0) >= MIN_STEAL_PERCENT:
        return True
    if reading.tree_waiting is None:
        return (reading.cpu or 0.0) >= MIN_CPU_PERCENT and _others_percent(reading, cores) >= MIN_LARGER_PERCENT
    if reading.tree_waiting < MIN_CORE_WAIT or _others_percent(reading, cores) < MIN_OTHERS_PERCENT:
        return False
    ran = (reading.tree_cpu or 0.0) / 100.0  # seconds per second, over all threads
    return ran * reading.tree_waiting >= MIN_WAITED * (1.0 - reading.tree_waiting)


# Of the time in which its threads could run: two to a core. Threads that wait for each other at the end of each
# operation leave gaps, and the machine does not look full.
MIN_THREADS_WAIT_SHARE = 0.5
MIN_THREADS_RATIO = 1.5  # times the cores; a few threads more than cores cost nothing
# DataLoader workers for each usable core. They wait for disks, too, so up to two are common; more take the cores from
# each other, and each takes seconds to start.
MAX_WORKERS_PER_CORE = 2
MIN_CROWDED_WAIT_SHARE = 0.33  # of the time in which its threads could run: all takes half as long again
MIN_STARTUP_SECONDS = 20.0  # before the first step, from which on a start is slow
MIN_STARTUP_SHARE = 0.25  # of the elapsed time, once steps go on


# Too many workers are why data comes late.
@rule("oversubscribed", Family.HOST, suppresses=("gpu-starved",), softens=("input-bound",), idle_time=True)
def oversubscribed(evidence: Evidence) -> Finding | None:
    """Find more threads or workers than cores."""
    return _too_many_workers(evidence) or _too_many_threads(evidence)


def _too_many_workers(evidence: Evidence) -> Finding | None:
    """Find workers that take the cores from each other, or from the training: it starts late, waits or shares cores."""
    cpus = evidence.facts.cpus if evidence.facts.cpus is not None else evidence.report.host.cores
    setting = evidence.count_setting("dataloader_num_workers", "num_workers")
    running = int(max(evidence.host_values("tree_workers"), default=0))
    loading = setting[1] if setting is not None else 0
    workers = max(running, loading)
    if cpus is None or workers <= MAX_WORKERS_PER_CORE * cpus:
        return None
    data = evidence.phase("data")
    first_wait = data.once if data is not None else 0.0  # for the first batch
    # Each program imports, whatever its workers do; workers that load no data keep no first batch waiting.
    imports = sum(row.seconds for row in evidence.report.startup if row.name.startswith("import "))
    startup = (evidence.report.wall.startup or 0.0) - imports + first_wait if loading > cpus else 0.0
    total = data.mean * data.count if data is not None else 0.0
    part = data.share * data.recurring / total if data is not None and total else 0.0
    waits = evidence.has_steps() and part >= WARNING_COST
    crowds = _crowds_itself(evidence)
    if not waits and not crowds and startup < MIN_STARTUP_SECONDS:
        return None
    if waits:
        line = f"steps wait for data {share(part)} of their time"
    elif crowds:
        line = f"threads waited for a core at least {share(MIN_CROWDED_WAIT_SHARE)} of the time in which they could run"
    elif evidence.steps:
        line = f"{duration(startup)} until the first batch, imports apart"
    else:
        line = f"{duration(startup)} so far without a first step, imports apart"
    # In a long run a slow start does not matter.
    is_warning = waits or crowds or not evidence.has_steps() or evidence.wall_part(startup) >= MIN_STARTUP_SHARE
    return Finding(
        code="oversubscribed",
        severity="warning" if is_warning else "info",
        title=f"Too many workers: {workers} {'DataLoader workers' if loading else 'worker processes'} on {cpus} cores",
        evidence=[f"{cpus} usable cores", line],
        advice=(f"Set num_workers={max(1, cpus // 2)} to {cpus}" if loading else f"Start at most {cpus}")
        + ": more workers take the cores from each other and delay the start.",
        lost_fraction=evidence.wall_part(startup) if not waits and not crowds else None,
        over=not waits and not crowds and evidence.steps > 0,
    )


def _crowds_itself(evidence: Evidence) -> bool:
    """Return whether the training's own threads and workers hold the cores that others of them wait for.

    Where a GPU computes, what comes late is data, and that is a condition of its own.
    """
    readings, cores = _readings(evidence), evidence.report.host.cores
    if not evidence.has_steps() or len(readings) < MIN_INFO_READINGS or not cores:
        return False
    if hardware.model_device(evidence) != "cpu":
        return False
    full = [
        row
        for row in readings
        if (row.tree_waiting or 0.0) >= MIN_CROWDED_WAIT_SHARE and _others_percent(row, cores) < MIN_OTHERS_PERCENT
    ]
    return len(full) >= MIN_READINGS_SHARE * len(readings)


def _too_many_threads(evidence: Evidence) -> Finding | None:
    """Find more compute threads than cores in a run whose cores are full or whose threads wait for them."""
    threads, cpus = evidence.facts.torch.threads, evidence.facts.cpus
    if threads is None or cpus is None or not evidence.has_steps():
        return None
    ranks = _local_ranks(evidence)
    count = max(1, cpus // ranks)
    if threads * ranks < MIN_THREADS_RATIO * cpus or threads <= count:  # ranks beyond the cores have one thread each
        return None
    busy, waiting = evidence.host_values("cpu"), evidence.host_values("tree_waiting")
    waits = len(waiting) >= MIN_WARNING_READINGS and median(waiting) >= MIN_THREADS_WAIT_SHARE
    if len(busy) < MIN_WARNING_READINGS or (median(busy) < MIN_CPU_PERCENT and not waits):
        return None
    full = ", all busy" if median(busy) >= MIN_CPU_PERCENT else ""
    lines = [
        f"{threads} threads (torch.get_num_threads) in each of {plural(ranks, 'process', 'processes')}",
        f"{cpus} usable cores{full}",
    ]
    if waits:
        lines.append(f"threads waited for a core {share(median(waiting))} of the time in which they could run")
    return Finding(
        code="oversubscribed",
        severity="warning",
        title=f"Too many threads: {threads * ranks} compute threads on {cpus} cores",
        evidence=lines,
        advice=f"Set OMP_NUM_THREADS={count} or torch.set_num_threads({count}): threads beyond the cores wait for each"
        " other.",
    )


def _local_ranks(evidence: Evidence) -> int:
    hosts = {producer.host for producer in evidence.state.producers.values() if producer.source == "hooks"}
    return max(1, (evidence.report.run.ranks or 1) // max(1, len(hosts)))


MIN_SWAP_GROWTH = 256 * 2**20  # bytes within the readings kept: by this run, not left over from earlier days
MIN_SWAP_IN = 8 * 2**20  # bytes per second, in most readings: 2,000 times a second something waits for the disk


@rule("swap", Family.MEMORY, suppresses=("gpu-starved",), idle_time=True)
def swap(evidence: Evidence) -> Finding | None:
    """Find memory that goes to the swap while the training runs."""
    used, back = evidence.host_values("swap_used"), evidence.host_values("swap_in")
    grown = used[-1] - used[0] if len(used) >= MIN_WARNING_READINGS else 0
    read = median(back) if len(back) >= MIN_WARNING_READINGS else 0.0
    # Pages that nobody needs go to the swap beside a large page cache: that costs no time.
    costs = any(back) or any(evidence.host_values("pressure_memory"))
    if not used or not (read >= MIN_SWAP_IN or (grown >= MIN_SWAP_GROWTH and costs)):
        return None
    what = f"{grown / 2**30:.1f} GiB swapped out in the last minutes"
    if grown < MIN_SWAP_GROWTH:
        what = f"{read / 2**20:.0f} MiB/s swapped in"
    return Finding(
        code="swap",
        severity="warning",
        title=f"Swapping: {what}",
        evidence=[f"swap in use {used[-1] / 2**30:.1f} GiB, first reading {used[0] / 2**30:.1f} GiB"],
        advice="Reduce the training's memory: fewer workers, smaller caches, memory-mapped instead of loaded data.",
    )


# Data between host and GPU: slow copies, and copies back and forth.

# Bytes per second of a copy from pageable memory, which the driver moves piece by piece through a buffer of its own:
# 3 to 8 GB/s by machine, whatever the link can do; 5.1 on one with an H100.
PAGEABLE_RATE = 5e9
# The same from pinned memory where the link is unknown: 16 lanes of the fourth generation, in practice. So fast is
# what remains of a copy: on the training's own stream no kernel runs beside it.
PINNED_RATE = 25e9
MIN_SAMPLED_SHARE = 0.15  # of all stack samples
# Bytes per second on the link, over the whole time: a batch of tokens or labels is thousands of times less.
MIN_TRAFFIC = 1e9
# Practical bytes per second of one lane, by generation: about 0.8 of the signal rate.
LANE_RATE = {1: 0.2e9, 2: 0.4e9, 3: 0.8e9, 4: 1.6e9, 5: 3.2e9, 6: 6.4e9}
MAX_LINK_SHARE = 0.5  # of what the link can carry: a faster copy is not limited by pageable memory
MIN_BOTH_WAYS_SHARE = 0.25  # of the traffic in the larger direction, that the other one has at least

# Time in no phase and launches that come late are what the host does meanwhile: it copies.
HOST_IS_BUSY = ("unaccounted-time", "launch-bound", "small-batch", "gpu-starved")


# Batches that the loop makes itself, from a list of arrays, take more of the time in no phase than their copies do.
@rule(
    "pageable-copies",
    Family.GPU,
    suppresses=(
        Suppress(("unaccounted-time",), if_most=True),
        *(code for code in HOST_IS_BUSY if code != "unaccounted-time"),
    ),
)
def pageable_copies(evidence: Evidence) -> Finding | None:
    """Find batches copied to the GPU from memory that is not pinned, while the host waits."""
    device = evidence.device
    if device is None or not evidence.has_steps() or offload(evidence) is not None:
        return None
    by_batch, by_samples = _by_batch(evidence), _by_stack_samples(evidence, device)
    part = min(1.0, max(by_batch[0], by_samples[0]))
    trace = traced.kernel_trace(evidence)
    if trace is not None:
        part = traced.step_share(evidence, trace, COPY_IN + PAGEABLE)
    remains = min(1.0, PAGEABLE_RATE / (_link_rate(evidence) or PINNED_RATE))
    return Finding(
        code="pageable-copies",
        title=f"Pageable copies to the GPU: about {share(part)} of step time",
        evidence=[*by_batch[1], *by_samples[1], *_sm_line(device)],
        advice='Use DataLoader(pin_memory=True) or tensor.pin_memory() with batch.to("cuda", non_blocking=True): copies'
        " are several times as fast and the host does not wait for them; on a separate stream they overlap with"
        " computation.",
        estimated=trace is None,
        lost_fraction=part * (1.0 - remains) * evidence.loop_share,
    )


def _by_batch(evidence: Evidence) -> tuple[float, list[str]]:
    """Return the share of a step that copying its batch takes, by the batch's size."""
    batch, seconds = evidence.facts.batch, evidence.step_seconds
    if batch.bytes is None or batch.pinned is not False or not seconds:
        return 0.0, []
    part = batch.bytes / PAGEABLE_RATE * hardware.batches_per_step(evidence) / seconds
    copy = f"{share(min(1.0, part))} of a step to copy at {PAGEABLE_RATE / 1e9:g} GB/s"
    return part, [f"batch of {size(batch.bytes)} in pageable memory: {copy}"]


def _by_stack_samples(evidence: Evidence, device: Device) -> tuple[float, list[str]]:
    """Return the share of stack samples in copies, where the link's traffic shows much data and a slow copy."""
    samples = calls_seen(evidence.state.main.samples.by_phase(), COPIES)
    rate, possible = device.pcie_rx or 0.0, _link_rate(evidence)
    if samples.share < MIN_SAMPLED_SHARE or rate < MIN_TRAFFIC:
        return 0.0, []
    speed = rate / samples.share
    if possible is not None and speed >= MAX_LINK_SHARE * possible:
        return 0.0, []
    part = samples.share
    if not evidence.host_only:  # the GPU's time in these phases holds the copies and the host's wait for them
        part = min(part, sum(row.share for row in evidence.report.phases if row.name in samples.phases))
    limit = f"; link limit about {possible / 1e9:.0f} GB/s" if possible is not None else ""
    lines = [
        f"{share(samples.share)} of stack samples in copies, most at {samples.places[0]}",
        f"{rate / 1e9:.1f} GB/s to the GPU, about {speed / 1e9:.1f} GB/s during copies{limit}",
    ]
    return part, lines


@rule("offload", Family.GPU, suppresses=HOST_IS_BUSY, only_bound=True)
def offload(evidence: Evidence) -> Finding | None:
    """Find steps that move much data to the GPU and back: weights, activations or optimizer states on the host."""
    device = evidence.device
    if device is None or not evidence.has_steps():
        return None
    into, back = device.pcie_rx, device.pcie_tx
    if into is None or back is None or min(into, back) < max(MIN_TRAFFIC, MIN_BOTH_WAYS_SHARE * max(into, back)):
        return None
    samples = calls_seen(evidence.state.main.samples.by_phase(), COPIES)
    lines = [f"{into / 1e9:.1f} GB/s to the GPU and {back / 1e9:.1f} GB/s back, over the whole time"]
    lines += [f"{share(samples.share)} of stack samples in copies, most at {place}" for place in samples.places[:1]]
    idle = evidence.max_idle
    return Finding(
        code="offload",
        title="Offloading: data moves to the GPU and back in every step",
        evidence=lines + _sm_line(device),
        advice="Keep on the GPU what fits: activations (no save_on_cpu), weights and optimizer states (no CPU offload)."
        " Copy the rest through pinned memory on a separate stream.",
        lost_fraction=idle * evidence.loop_share if idle is not None else None,
    )


def _sm_line(device: Device) -> list[str]:
    return [] if device.sm_active is None else [f"SMs active {share(device.sm_active)} of the time"]


def _link_rate(evidence: Evidence) -> float | None:
    """Return the bytes per second that the slowest PCIe link of the run's GPUs carries in practice."""
    watches = [evidence.state.throttles.gpus.get(card.uuid) for card in hardware.gpus(evidence)]
    links = [watch.link for watch in watches if watch is not None]
    rates = [LANE_RATE[gen] * (link.lanes_max or 16) for link in links if (gen := link.generation_max) in LANE_RATE]
    return min(rates, default=None)


MIN_FREE_CORES = 0.9  # of the time, threads that can run do: else it waits for a core, not for the interpreter


@rule("gil-contention", Family.HOST, suppresses=HOST_IS_BUSY, idle_time=True, only_bound=True)
def gil_contention(evidence: Evidence) -> Finding | None:
    """Find a thread beside the training that keeps Python's interpreter busy, while the GPU waits for launches."""
    found, idle = evidence.facts.busy_thread, evidence.max_idle
    if found.share is None or found.late is None or evidence.device is None or not evidence.has_steps():
        return None
    if idle is None or hardware.scheduled_share(evidence) < MIN_FREE_CORES:
        return None
    place = f" at {found.place}" if found.place is not None else ""
    return Finding(
        code="gil-contention",
        title=f"GIL contention: thread {clean(found.name or '', 40)} uses {share(found.share)} of a core in Python",
        evidence=[
            f"last seen{place}" if place else "its line is not known",
            f"other threads wait {duration(found.late)} for their turn, each time (median)",
        ],
        advice="Move its work into a process, or let it wait: a blocking get() or an Event in place of a loop that"
        " asks again. Every call of torch needs the interpreter first.",
        lost_fraction=idle * evidence.loop_share,
    )
