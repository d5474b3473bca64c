"""The end that a scheduler sets: whether the training can finish before it. Pure."""

from __future__ import annotations

from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.model.report import Finding
from monitor.units import age, rough

MIN_STEPS = 50  # the first ones are slower: caches, compilation, kernels that are chosen
MIN_BEYOND = 0.1  # of the time that is left: a speed that varies by less may still make it


@rule("job-limit", Family.PROGRESS, no_bound=True)
def job_limit(evidence: Evidence) -> Finding | None:
    """Find a run that the scheduler will end before its last step, even at the best speed that its past allows."""
    done = evidence.report.progress
    left, low, high, likely = done.limit_seconds, done.eta_low, done.eta_high, done.eta_seconds
    if left is None or low is None or high is None or likely is None or done.steps_ok + done.steps_skipped < MIN_STEPS:
        return None
    if low <= left * (1.0 + MIN_BEYOND):
        return None
    return Finding(
        code="job-limit",
        severity="warning",
        title=f"Will not finish: {rough(likely - left)} short of the job's limit",
        evidence=[f"{age(likely)} to go ({age(low)} to {age(high)}), and the job ends in {age(left)}"],
        advice="Save a checkpoint before the end (#SBATCH --signal=USR1@300 tells the program) and go on in another job"
        " (--requeue); or ask for more time (scontrol update).",
    )
