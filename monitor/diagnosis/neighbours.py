"""Others on the same machine: whether the training's threads wait for cores that others hold. Pure."""

from __future__ import annotations

from bisect import bisect
from dataclasses import replace
from statistics import median

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import percent, share
from trainhooks.events import Host

ENOUGH = 20  # steps
READINGS = 30  # of the host, one a second, before it is an alarm: who is gone within half a minute is none
READINGS_AT_LEAST = 10  # before a word is said of it
WAITING = 0.20  # of the time in which the training's threads could run they waited for a core: a quarter longer
GRAVE = 0.50  # of that time, over all readings: steps take twice as long, and that is an alarm
WAITED = 0.20  # seconds of waiting a second; who hardly runs may wait for half of that little, and loses nothing
OTHERS_PART = 25.0  # percent of the machine that others use then; with less, its own threads wait for each other
MOSTLY = 0.6  # of the readings: neighbours come and go in turns
AT_TIMES = 0.2  # of the readings: enough of the run to make any single step long
NEAR = 1.5  # seconds from a moment to the reading that tells of it: they come once a second
AT_LEAST_EACH = 3  # readings of each third of the run, to compare them
STOLEN = 10.0  # percent of the machine that its hypervisor gave to others: whole cores stand still, for slices of time
QUOTA_USED = 0.9  # of its control group's limit that the training uses in the usual reading: it takes all there is
QUOTA_HELD = 0.25  # seconds a second in which that limit let threads stand still: far from a burst now and then
GPU_BUSY = 0.9  # of the time: what keeps its GPU at work loses nothing by a limit on its cores
# Where nobody tells how long threads waited: the machine is full, and others hold the larger part of it.
CPU_FULL = 97.0  # percent of the whole machine
LARGER_PART = 50.0


def cpu_starved(evidence: Evidence) -> Finding | None:
    """The training's threads wait for cores: others hold them, or its control group may not use more of them."""
    return _neighbours(evidence) or _confined(evidence)


def _confined(evidence: Evidence) -> Finding | None:
    """A container's limit, all of which the training uses, makes its threads stand still."""
    readings = [each for each in _readings(evidence) if each.cpu_limit and each.cpu_throttled is not None]
    if evidence.steps < ENOUGH or len(readings) < READINGS:
        return None
    limit = readings[-1].cpu_limit or 0.0
    used = median((each.tree_cpu or 0.0) / 100.0 for each in readings)
    held = median(each.cpu_throttled or 0.0 for each in readings)
    if used < QUOTA_USED * limit or held < QUOTA_HELD:
        return None
    if (hardware.busy(evidence) or 0.0) >= GPU_BUSY:
        return None
    return Finding(
        "cpu-starved",
        "warning",
        f"A limit of {limit:g} cores holds the training back: it uses {used:.1f} of them",
        [
            f"its control group let threads stand still for {held:.2f} s a second, in the usual one of"
            f" {len(readings)} readings"
        ],
        "Raise the limit (a container's --cpus, Kubernetes' resources.limits.cpu), or begin fewer threads and workers"
        f" than it has cores: OMP_NUM_THREADS={max(1, int(limit))}.",
    )


def _neighbours(evidence: Evidence) -> Finding | None:
    """It is not this training that holds the cores."""
    readings, cores = _readings(evidence), evidence.report.host.cores
    if evidence.steps < ENOUGH or len(readings) < READINGS_AT_LEAST or not cores:
        return None
    starved = [each for each in readings if _held_by_others(each, cores)]
    if len(starved) < MOSTLY * len(readings):
        return None
    used, others = sum(each.cpu or 0.0 for each in starved), sum(_of_others(each, cores) for each in starved)
    lines = [
        f"others use {percent(others / len(starved))} of what all cores can do, in {len(starved)} of {len(readings)}"
        " readings"
    ]
    waits = [waited for each in readings if (waited := _waited(each)) is not None]
    waited = sum(waits) / len(waits) if waits else None
    if waited is not None:
        lines.append(f"the training's threads waited for a core in {share(waited)} of the time in which they had work")
    stolen = sum(each.cpu_stolen or 0.0 for each in readings) / len(readings)
    if stolen >= STOLEN:
        lines.append(f"{percent(stolen)} of the machine's time went to other virtual machines (steal)")
    grave = len(readings) >= READINGS and (waited is None or waited >= GRAVE)
    return Finding(
        "cpu-starved",
        "warning" if grave else "info",
        f"Others keep this machine's {cores} cores busy: of the CPU time that is used, the training gets"
        f" {percent(100 - 100 * others / used)}",
        lines,
        "See who it is (top, by CPU). Timings of this run say more about the neighbours than about its code.",
        None if waited is None else waited * evidence.of_wall(evidence.report.wall.steps),
    )


def crowded(evidence: Evidence, often: float = AT_TIMES) -> str | None:
    """In words, that others held the cores in this share of the readings; None where they did not.

    Args:
        often: as it stands, often enough to make single steps long.
    """
    readings, cores = _readings(evidence), evidence.report.host.cores
    if not readings or not cores:
        return None
    times = sum(_held_by_others(each, cores) for each in readings)
    if times < often * len(readings):
        return None
    return f"in {times} of {len(readings)} readings of the host, others held the cores: they may be the reason"


def crowded_then(evidence: Evidence, moments: list[float]) -> str | None:
    """In words, that others held the cores at most of these moments; None where they did not, or nobody knows."""
    readings, cores = _readings(evidence), evidence.report.host.cores
    if not readings or not cores:
        return None
    readings.sort(key=lambda each: each.t)
    known = [near for t in moments if (near := _near(readings, t)) is not None]
    held = sum(_held_by_others(each, cores) for each in known)
    if not known or len(known) < MOSTLY * len(moments) or held < MOSTLY * len(known):
        return None
    return f"others held the cores in {held} of {len(known)} of them, by the host's readings: they may be the reason"


def held_up(evidence: Evidence) -> float | None:
    """How many times longer things take in the last third of the steps than in the first for want of a core.

    None: on a machine where others hold the cores, too few readings to tell.
    """
    first, last = evidence.state.main.wall.first_step, evidence.state.main.wall.last_step
    if first is None or last is None:
        return 1.0
    readings = [each for each in _readings(evidence) if first <= each.t <= last]
    third = len(readings) // 3
    if third < AT_LEAST_EACH:
        return None if crowded(evidence) else 1.0
    if readings[0].t > first + (last - first) / 3:
        return 1.0  # only the latest readings are kept: what the beginning was like is no longer known
    early, late = (median(map(_longer, part)) for part in (readings[:third], readings[-third:]))
    return max(1.0, (1.0 - early) / max(0.05, 1.0 - late))


def _readings(evidence: Evidence) -> list[Host]:
    return [each for each in evidence.state.host if each.cpu is not None and each.tree_cpu is not None]


def _near(readings: list[Host], t: float) -> Host | None:
    """The reading that tells of this moment, of readings in order: each view asks it of hundreds of moments."""
    at = bisect(readings, t, key=lambda each: each.t)
    nearest = min(readings[max(0, at - 1) : at + 1], key=lambda each: abs(each.t - t))
    return nearest if abs(nearest.t - t) <= NEAR else None


def _waited(reading: Host) -> float | None:
    """The share of the time in which its threads could run and had no core, or one that stood still."""
    if reading.tree_waiting is None:
        return None
    return 1.0 - (1.0 - reading.tree_waiting) * (1.0 - min(100.0, reading.cpu_stolen or 0.0) / 100.0)


def _longer(reading: Host) -> float:
    """The share of each second that went so: a program that sleeps, or waits for a GPU, seldom asks for a core."""
    waiting, ran = reading.tree_waiting, (reading.tree_cpu or 0.0) / 100.0  # seconds a second, over all threads
    if waiting is None:
        return 0.0
    return _waited(replace(reading, tree_waiting=min(waiting, ran * waiting / max(0.01, 1.0 - waiting)))) or 0.0


def _of_others(reading: Host, cores: int) -> float:
    """Percent of the machine."""
    return max(0.0, (reading.cpu or 0.0) - (reading.tree_cpu or 0.0) / cores)


def _held_by_others(reading: Host, cores: int) -> bool:
    if (reading.cpu_stolen or 0.0) >= STOLEN:
        return True
    if reading.tree_waiting is None:
        return (reading.cpu or 0.0) >= CPU_FULL and _of_others(reading, cores) >= LARGER_PART
    if reading.tree_waiting < WAITING or _of_others(reading, cores) < OTHERS_PART:
        return False
    ran = (reading.tree_cpu or 0.0) / 100.0  # seconds a second, over all threads
    return ran * reading.tree_waiting >= WAITED * (1.0 - reading.tree_waiting)
