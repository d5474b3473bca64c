"""The first batch of each pass over the data: workers started anew, an order drawn, files listed. Pure."""

from __future__ import annotations

from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.model.report import Finding
from monitor.units import duration, plural

MIN_PASSES = 3  # that began after the run's first one: what comes once or twice has no cause of its own
MIN_FIRST_FETCH_SECONDS = 0.1  # the mean; a fork of some workers takes less, and so does a machine's hiccup
MIN_FIRST_FETCH_RATIO = 5.0  # times the median wait: else all batches are late, which has a finding of its own
# The longest of these waits may be so much of them all: one cold cache is no habit.
MAX_LONGEST_SHARE = 0.6


@rule(
    "epoch-start",
    Family.WAITING,
    suppresses=(
        Suppress(("input-bound",), if_info=True, if_most=True),
        Suppress(("slow-steps", "slow-drift"), culprits=("data",), if_info=True),
    ),
    idle_time=True,
)
def epoch_start(evidence: Evidence) -> Finding | None:
    """Find passes whose first batch takes far longer than the others."""
    first, row = evidence.state.main.first_fetches, evidence.phase("data")
    if row is None or first.count < MIN_PASSES:
        return None
    typical = _typical_wait(evidence)
    mean, beyond = first.seconds / first.count, first.seconds - first.count * typical
    if mean < max(MIN_FIRST_FETCH_SECONDS, MIN_FIRST_FETCH_RATIO * typical):
        return None
    if first.longest > MAX_LONGEST_SHARE * first.seconds:
        return None
    workers = evidence.count_setting("dataloader_num_workers", "num_workers")
    kept = evidence.setting("dataloader_persistent_workers", "persistent_workers")
    started_anew = workers is not None and bool(workers[1]) and kept is not None and kept[1] is False
    passes = plural(first.count, "pass", "passes")
    lines = [f"first batch: mean {duration(mean)} in {passes}; typical wait {duration(typical)}"]
    lines += [f"{name}={value}" for name, value in filter(None, (workers, kept))]
    return Finding(
        code="epoch-start",
        title=f"Epoch starts: {duration(mean)} of waiting for the first batch of each pass"
        + (", workers started anew" if started_anew else ""),
        evidence=lines,
        advice=_workers_advice(started_anew, bool(workers is not None and workers[1])),
        lost_fraction=evidence.wall_part(beyond),
        culprit="data",
    )


def _typical_wait(evidence: Evidence) -> float:
    """Return the median wait by the host, which fetches: the device's clock may hide a wait behind queued work."""
    stats = evidence.state.main.phases.get("data")
    return stats.seconds.settled().quantiles.at(0.5)[0] if stats is not None else 0.0


def _workers_advice(started_anew: bool, has_workers: bool) -> str:
    if started_anew:
        return (
            "Keep the workers: DataLoader(persistent_workers=True), HF dataloader_persistent_workers=True, with one"
            " loader for all epochs; or fewer workers, and longer passes (a sampler that repeats the data)."
        )
    if has_workers:
        return (
            "Check what each pass begins with: a data set that opens files or reads an index in each worker, a"
            " sampler that draws or sorts an order, a loader that is made anew. Do it once, before the first pass."
        )
    return (
        "Check what each pass begins with: a sampler that draws or sorts an order, files that are listed, a shuffle"
        " buffer that fills. Do it once, or in workers that live on (num_workers, persistent_workers=True)."
    )
