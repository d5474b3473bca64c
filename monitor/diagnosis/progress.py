"""Is it moving? Steps that stall, spike, or do no work. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.neighbours import crowded, crowded_then
from monitor.model.report import Finding, SlowStep
from monitor.units import age, duration, pace, plural, share

STALL_RATIO = 10.0  # times the usual: far past every spike that ends by itself
STALL_LEAST = 60.0  # seconds; nobody wants to be called for less
RESTART_RATIO = 3.0  # times the first start: a restart does the same again, and loads a checkpoint
SILENCE_IS_STALL = 30.0  # seconds without a pulse: the interpreter itself is held, stopped or starved

SLOW_SHARE = 0.01  # slow steps that cost under one percent of the time are alerts, not a finding
SLOW_WORTH = 0.05  # a twentieth of the time is worth going after; below it, accidents are alerts, too
OCCASIONS = 3  # once or twice is an accident of the machine; what comes back has a cause
HICCUP = 2.0  # seconds: a machine's hiccup makes several short steps in a row long, and is one occasion
ONE_CAUSE = 0.6  # of the time beyond the usual, in one phase; a machine that is taken away makes all phases long
# Who waits for a core waits some time slices of a tenth of a second, whatever it does: these are not the neighbours'.
FAR_LEAST = 1.0  # seconds
FAR_RATIO = 10.0  # times the usual
SKIPPED_SHARE = 0.02  # a run in which fewer steps than one in fifty do nothing is a normal run
SKIPPED_ENOUGH = 3


def stalled(evidence: Evidence) -> Finding | None:
    """No step has ended for far longer than a step takes, or the process is silent."""
    now, state = evidence.open, evidence.state
    if evidence.report.outcome.state != "running":
        return None
    if now.silent_for is not None and now.silent_for > SILENCE_IS_STALL:
        return Finding(
            "stalled",
            "critical",
            f"No sign of life for {age(now.silent_for)}",
            [f"the run lives, and the last pulse of its training came {age(now.silent_for)} ago"],
            "See whether it is stopped (kill -CONT), swapping, or holds the GIL in a C call: py-spy dump --pid PID.",
        )
    if now.restarting is not None:
        return _stalled_restart(evidence, now.restarting)
    usual = state.main.step_seconds.digested()
    if now.step is None or now.step_seconds is None or usual.count < 5:
        return None
    p50, p95 = usual.quantiles.at(0.5, 0.95)
    if now.step_seconds < max(STALL_LEAST, STALL_RATIO * p50, 2 * p95):
        return None
    where = f" in {now.phase}" if now.phase else ""
    evidence_lines = [f"a step usually takes {duration(p50)} (p95 {duration(p95)})"]
    if now.phase is not None and now.phase_seconds is not None:
        evidence_lines.append(f"{now.phase} has been open for {age(now.phase_seconds)}")
    return Finding(
        "stalled",
        "critical",
        f"Step {now.step:,} has been open for {age(now.step_seconds)}{where}",
        evidence_lines,
        "See where it stands: py-spy dump --pid PID. A collective, a queue or a subprocess that waits is usual.",
        steps=[now.step],
    )


def _stalled_restart(evidence: Evidence, waited: float) -> Finding | None:
    """An elastic restart has not come to its first step."""
    first = evidence.report.wall.startup or 0.0
    if waited < max(STALL_LEAST, RESTART_RATIO * first):
        return None
    spans = [f"{name} has been open for {age(seconds)}" for name, seconds in evidence.open.spans[-1:]]
    return Finding(
        "stalled",
        "critical",
        f"No step in the {age(waited)} since the restart",
        [f"the first start took {duration(first)} to its first step", *spans],
        "See whether all ranks came back, and where they wait for each other: py-spy dump --pid PID.",
    )


def slow_steps(evidence: Evidence) -> Finding | None:
    """Single steps far beyond the usual, and what they cost together."""
    wall, main = evidence.report.wall, evidence.state.main
    found = main.device if evidence.device is not None else main  # on a GPU, by the device's clock or not at all
    if not found.slow_count or not wall.total:
        return None
    slow = found.slow_steps
    lost = found.slow_excess / wall.total
    culprit, times = Counter(each.culprit for each in slow).most_common(1)[0]
    comes_back = _comes_back(slow, culprit)
    if lost < (SLOW_SHARE if comes_back else SLOW_WORTH):
        return None
    worst = max(slow, key=lambda each: each.seconds - each.baseline)
    shown = len(slow)
    far = [each for each in slow if each.seconds >= max(FAR_LEAST, FAR_RATIO * each.baseline)]
    moments = [each.ended for each in slow if each.ended is not None]
    crowd = None if _comes_back(far, culprit) else crowded(evidence) or crowded_then(evidence, moments)
    return Finding(
        "slow-steps",
        "warning" if lost >= SLOW_WORTH and comes_back and crowd is None else "info",
        f"{plural(found.slow_count, 'slow step', 'slow steps')} cost {share(lost)} of the time at most"
        + (f"; {culprit} grew most in {times:,} of {shown:,}" if culprit else ""),
        [str(worst), f"{duration(found.slow_excess)} beyond the usual in all", *([crowd] if crowd else [])],
        f"Look at what {culprit or 'the program'} does in these steps: longer outputs, a time limit hit, a busy disk or"
        " box.",
        lost if crowd is None else None,  # how much of it is the neighbours' nobody knows
        [each.step for each in slow[-20:]],
        culprit or None,
    )


def _comes_back(slow: Sequence[SlowStep], culprit: str) -> bool:
    """Whether it happened again and again, and in one phase."""
    return _occasions(slow) >= OCCASIONS and _part(slow, culprit) >= ONE_CAUSE


def _occasions(slow: Sequence[SlowStep]) -> int:
    """How often it happened: slow steps in a row that make a short stretch together are one occasion."""
    occasions, before, stretch = 0, None, 0.0
    for each in slow:
        in_a_row = before is not None and each.step - before <= 2
        stretch = stretch + each.seconds if in_a_row else each.seconds
        if not in_a_row or stretch > HICCUP:
            occasions, stretch = occasions + 1, each.seconds
        before = each.step
    return occasions


def _part(slow: Sequence[SlowStep], culprit: str) -> float:
    """How much of the time beyond the usual this phase took."""
    beyond = sum(each.seconds - each.baseline for each in slow)
    grown = sum(max(0.0, each.phases.get(culprit, 0.0) - each.usual_phases.get(culprit, 0.0)) for each in slow)
    return grown / beyond if beyond > 0 else 0.0


def steps_skipped(evidence: Evidence) -> Finding | None:
    """Steps that did no work: they make the run look faster than it is."""
    progress = evidence.report.progress
    done = progress.steps_ok + progress.steps_skipped
    if progress.steps_skipped < SKIPPED_ENOUGH or progress.steps_skipped < SKIPPED_SHARE * done:
        return None
    reason, times = max(progress.skipped.items(), key=lambda item: item[1])
    skipped = progress.steps_skipped / done
    rate = evidence.report.throughput.steps_per_second
    others = sorted(progress.skipped.items(), key=lambda item: -item[1])[1:5]
    lines = [f"then: {name} ({count:,})" for name, count in others]
    if rate is not None:
        lines.append(f"{pace(rate)} in all, {pace(rate * (1 - skipped))} that did work")
    why = f": {reason}" if len(progress.skipped) == 1 else f"; most often: {reason} ({times:,})"
    return Finding(
        "steps-skipped",
        "warning" if skipped > 0.1 else "info",
        f"{progress.steps_skipped:,} of {done:,} steps ({share(skipped)}) did no work{why}",
        lines,
        "Compare speeds by the steps that did work; mend the cause of the skips before anything else.",
    )
