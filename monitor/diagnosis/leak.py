"""Memory that is never given back. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.devices import ours
from monitor.model.report import Finding
from monitor.model.state import MACHINE, TREE
from monitor.model.trend import Climb
from monitor.units import duration, size

WARM_SECONDS = 15.0  # after the first step: caches, workers, the allocator's first growth
WARM_SHARE = 0.25  # of the time watched, whichever is later
WATCHED = 45.0  # seconds after that; a shorter climb is a start
LEAST_GROWTH = 256 * 2**20  # bytes; less is lost among caches
LEAST_SHARE = 0.10  # of what it held at first, likewise
LEAST_OF_GPU = 0.05  # of the GPU's memory
# A GPU's memory is taken by an allocator that keeps what it has: it grows in the first steps, and where it goes on
# growing with every step, something is kept. So it shows sooner than on a host, where caches and workers come and go,
# and one reading is as good as two.
GPU_WARM_SECONDS, GPU_WARM_SHARE = 1.0, 0.1  # after the first three steps
GPU_WATCHED = 7.0
REALLY_USED = 0.5  # of the growth shows in what the machine has in use: files that were mapped do not
GRAVE_OF_ALL = 0.10  # of the machine's memory gone: a warning, whenever the run ends
SOON = 3600.0  # seconds until all is full: likewise, where nobody knows when the run would end


def memory_leak(evidence: Evidence) -> Finding | None:
    """What the training holds grows without end."""
    return _host_leak(evidence) or _gpu_leak(evidence)


def _climb(evidence: Evidence, what: str, steady: bool = True) -> Climb | None:
    trend, first = evidence.state.memory.get(what), evidence.state.main.wall.first_step
    if trend is None or trend.begin is None or first is None or not trend.places:
        return None
    end = trend.begin + (trend.places[-1] + 1) * trend.width
    since = max(first + WARM_SECONDS, first + WARM_SHARE * (end - first))
    if end - since < WATCHED:
        return None
    return trend.climb(since, evidence.state.main.pace.done) if steady else trend.rise(since)


def _gpu_climb(evidence: Evidence, uuid: str) -> Climb | None:
    trend, wall = evidence.state.memory.get(uuid), evidence.state.main.wall
    if trend is None or trend.begin is None or wall.first_step is None or wall.warm is None or not trend.places:
        return None
    end = trend.begin + (trend.places[-1] + 1) * trend.width
    since = max(wall.warm + GPU_WARM_SECONDS, wall.first_step + GPU_WARM_SHARE * (end - wall.first_step))
    if end - since < GPU_WATCHED:
        return None
    return trend.climb(since, evidence.state.main.pace.done, least=1)


def _host_leak(evidence: Evidence) -> Finding | None:
    climb = _climb(evidence, TREE)
    if climb is None or climb.last - climb.first < max(LEAST_GROWTH, LEAST_SHARE * climb.first):
        return None
    machine = _climb(evidence, MACHINE, steady=False)  # others on it come and go
    grown = climb.last - climb.first
    if machine is None or machine.last - machine.first < REALLY_USED * grown:
        return None
    limits = [found for each in evidence.state.host[-1:] if (found := hardware.host_limit(each)) is not None]
    lines = [f"from {size(climb.first)} to {size(climb.last)} in {duration(climb.seconds)}, steadily, after the start"]
    grave = False
    if limits:
        used, limit = limits[0]
        left = (limit - used) / climb.rate
        lines.append(f"at this rate {size(limit)} are full in {duration(max(0.0, left))}")
        eta = evidence.report.progress.eta_seconds
        grave = left < (SOON if eta is None else eta) or grown >= GRAVE_OF_ALL * limit
    return Finding(
        "memory-leak",
        "warning" if grave else "info",
        f"The training's memory grows by {size(climb.rate * 60)} a minute",
        lines,
        "Look for what is only added to: lists of losses with their graphs (loss.detach(), .item()), caches, outputs"
        " kept for a table; workers over Python lists. tracemalloc or memray name the line.",
    )


def _gpu_leak(evidence: Evidence) -> Finding | None:
    used = ours(evidence.state)
    for card in hardware.cards(evidence):
        if (used is None and len(evidence.state.gpus) > 1) or not card.memory_total:
            continue
        climb = _gpu_climb(evidence, card.uuid)
        if climb is None or climb.last - climb.first < LEAST_OF_GPU * card.memory_total:
            continue
        left = (card.memory_total - climb.newest) / climb.rate
        eta = evidence.report.progress.eta_seconds
        return Finding(
            "memory-leak",
            "info" if eta is not None and left > eta else "warning",
            f"Memory in use on GPU {card.index} grows by {size(climb.rate * 60)} a minute",
            [
                f"from {size(climb.first)} to {size(climb.last)} in {duration(climb.seconds)}, steadily",
                f"at this rate {size(card.memory_total)} are full in {duration(max(0.0, left))}",
            ],
            "losses.append(loss) keeps each step's whole graph: loss.detach(), or .item() where it is logged anyway."
            " Outputs and states that are carried from step to step are detached likewise.",
        )
    return None
