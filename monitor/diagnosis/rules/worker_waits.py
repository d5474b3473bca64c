"""Waits for threads and processes of the program's own: actors, generators, sandboxes, queues. Pure."""

from __future__ import annotations

from collections.abc import Collection

from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.waiting import MIN_SAMPLED_LOOP_SHARE
from monitor.model.report import Finding
from monitor.model.steps.pace import SINCE
from monitor.model.steps.sampled_calls import sampled_range
from monitor.model.steps.unnamed_time import UNNAMED
from monitor.step_blocks import OTHER
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
    if not evidence.has_steps() or part < MIN_SAMPLED_LOOP_SHARE:
        return None
    return Finding(
        code="worker-wait",
        title=f"Waits for workers: {share(part)} of the time {SINCE}, for a queue, a pool or a process",
        evidence=[_range_line(evidence), *evidence.unnamed_places()],
        advice="Speed the workers up (more of them, batched calls, a time limit on what hangs), or let them"
        " work ahead: a longer queue, scores and samples of the next batch while this one is trained on.",
        cost=part,
        estimated=True,
        # A pool that is given all calls at once is the remedy for one call after the other, and may be all there is.
        certain=worker_seconds(evidence, (POOL,)) < seconds / 2,
        lost_fraction=evidence.wall_part(seconds),
    )


def _range_line(evidence: Evidence) -> str:
    """Return how long the training waits at least and at most: stack samples are few."""
    looks = {sample: n for sample, n in evidence.state.main.samples.looks.items() if sample.phase in UNNAMED}
    seen, of = sum(n for sample, n in looks.items() if sample.place.activity in FOR_WORKERS), sum(looks.values())
    least, most = (share(evidence.loop_part(part * _waiting_seconds(evidence))) for part in sampled_range(seen, of))
    return f"the training computes nothing for {least} to {most} of the time: {seen:,} of {of:,} stack samples (95%)"


def worker_seconds(evidence: Evidence, activities: Collection[str] = FOR_WORKERS) -> float:
    """Return the seconds in no phase in which the training waits for its own workers, by stack samples."""
    samples = evidence.sampled_seconds(*UNNAMED)
    waits = sum(seconds for sample, seconds in samples.items() if sample.place.activity in activities)
    return _waiting_seconds(evidence) * waits / sum(samples.values()) if waits and not evidence.host_only else 0.0


def _waiting_seconds(evidence: Evidence) -> float:
    """Return the host's seconds in no phase, without one-offs: a queue that runs empty is waited for in a few steps.

    The GPU computes nothing for a host that waits for a queue, beyond what it was given before. So its clock, which a
    sample of the steps is measured by, bounds these seconds (`judge`), but does not count them.
    """
    rows = evidence.report.host_phases if evidence.device is not None else evidence.report.phases
    return sum(row.recurring for row in rows if row.name == OTHER) + evidence.between_steps
