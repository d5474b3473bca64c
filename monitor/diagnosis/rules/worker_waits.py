"""Waits for threads and processes of the program's own: actors, generators, sandboxes, queues. Pure."""

from __future__ import annotations

from collections.abc import Collection

from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.waiting import MIN_UNNAMED_SHARE, MIN_WARNING_UNNAMED_SHARE, unnamed_seconds
from monitor.model.report import Finding
from monitor.model.steps.pace import SINCE
from monitor.model.steps.unnamed_time import UNNAMED
from monitor.units import share
from trainhooks.protocol.calls import FOR_WORKERS, POOL


@rule(
    "worker-wait",
    Family.WAITING,
    suppresses=("gpu-starved", Suppress(("unaccounted-time", "slow-steps", "slow-drift"), if_most=True, if_info=True)),
    idle_time=True,
)
def worker_wait(evidence: Evidence) -> Finding | None:
    """Find a training that waits for what its own workers make: samples, completions, scores."""
    seconds = worker_seconds(evidence)
    part = evidence.loop_part(seconds)
    if not evidence.has_steps() or part < MIN_UNNAMED_SHARE:
        return None
    # A pool that is given all calls at once is the remedy for calls one after the other, and may be all there is to do.
    is_warning = part >= MIN_WARNING_UNNAMED_SHARE and worker_seconds(evidence, (POOL,)) < seconds / 2
    return Finding(
        code="worker-wait",
        severity="warning" if is_warning else "info",
        title=f"Waits for workers: {share(part)} of the time {SINCE}, for a queue, a pool or a process",
        evidence=["the training computes nothing meanwhile, by stack samples", *evidence.unnamed_places()],
        advice="Speed the workers up (more of them, batched calls, a time limit on what hangs), or let them"
        " work ahead: a longer queue, scores and samples of the next batch while this one is trained on.",
        lost_fraction=evidence.wall_part(seconds),
    )


def worker_seconds(evidence: Evidence, activities: Collection[str] = FOR_WORKERS) -> float:
    """Return the seconds in no phase in which the training waits for its own workers, by stack samples."""
    samples = evidence.sampled_seconds(*UNNAMED)
    waits = sum(seconds for sample, seconds in samples.items() if sample.place.activity in activities)
    return unnamed_seconds(evidence) * waits / sum(samples.values()) if waits and not evidence.host_only else 0.0
