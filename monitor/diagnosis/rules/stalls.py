"""Progress: runs without steps, steps that stall, slow steps, steps that do no work. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from monitor.diagnosis.rule import BETWEEN_STEPS, Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.host_limits import crowd_line, crowded_at
from monitor.hooks_reach import command_obstacle
from monitor.model.report import Finding, SlowStep
from monitor.model.steps.time_split import episodes, unplanned
from monitor.units import age, duration, pace, plural, share
from trainhooks.protocol import start_waits
from trainhooks.protocol.vocabulary import SCALER_OVERFLOW

MIN_STALL_RATIO = 10.0  # times the median: well beyond spikes that pass
MIN_STALL_P95_RATIO = 2.0  # times the 95th percentile, likewise
MIN_STALL_SECONDS = 60.0  # less needs no warning
MIN_RESTART_RATIO = 3.0  # times the first start: a restart does the same again, and loads a checkpoint
MAX_SILENT_SECONDS = 30.0  # without a pulse: the interpreter itself is blocked, stopped or starved
MIN_TYPICAL_STEPS = 5  # before a step has a typical duration
# Seconds; a run stopped after a stall this long was most likely stopped because of it.
MIN_GIVEN_UP_SECONDS = 15.0
MIN_PAUSE_RATIO = 2.0  # times all earlier pauses between steps together: an unnamed evaluation may be one
INTERRUPTED = "KeyboardInterrupt"  # the type of exception by which a person stops a run


@rule(
    "stalled",
    Family.PROGRESS,
    suppresses=(Suppress(("unaccounted-time",), culprits=(BETWEEN_STEPS,)),),
)
def stalled(evidence: Evidence) -> Finding | None:
    """Find a step that does not end, none that begins, or a process without a sign of life."""
    return _open_step(evidence) or _no_next_step(evidence)


INSPECT = "Inspect the stack: py-spy dump --pid PID. Typically a collective, a queue or a subprocess waits."


def _stalled_finding(title: str, lines: list[str], advice: str = INSPECT) -> Finding:
    return Finding(code="stalled", severity="critical", title=title, evidence=lines, advice=advice)


def _open_step(evidence: Evidence) -> Finding | None:
    """Find a step that has been open for far longer than steps take, or a silent process."""
    now = evidence.open
    if not evidence.is_running:
        return None
    if now.silent_for is not None and now.silent_for > MAX_SILENT_SECONDS:
        return _stalled_finding(
            f"No heartbeat for {age(now.silent_for)}",
            [f"process alive, last heartbeat {age(now.silent_for)} ago"],
            "Check whether it is stopped (kill -CONT), swapping, or holds the GIL in a C call: py-spy dump --pid PID.",
        )
    if now.restarting is not None:
        return _stalled_restart(evidence, now.restarting)
    line = _overdue_line(evidence, now.step_seconds, MIN_STALL_SECONDS)
    if line is None or now.step is None:
        return None
    lines = [line]
    if now.phase is not None and now.phase_seconds is not None:
        lines.append(f"{now.phase} open for {age(now.phase_seconds)}")
    where = f" in {now.phase}" if now.phase else ""
    finding = _stalled_finding(f"Stalled: step {now.step:,} open for {age(now.step_seconds)}{where}", lines)
    finding.steps = [now.step]
    return finding


def _overdue_line(evidence: Evidence, waited: float | None, min_seconds: float) -> str | None:
    """Return a line on how long a step takes, if `waited` is far longer; else None."""
    typical = evidence.state.main.step_seconds.settled()
    if waited is None or typical.count < MIN_TYPICAL_STEPS:
        return None
    p50, p95 = typical.quantiles.at(0.5, 0.95)
    if waited < max(min_seconds, MIN_STALL_RATIO * p50, MIN_STALL_P95_RATIO * p95):
        return None
    return f"median step {duration(p50)}, p95 {duration(p95)}"


def _stalled_restart(evidence: Evidence, waited: float) -> Finding | None:
    """Find an elastic restart that does not come to its first step."""
    first = evidence.report.wall.startup or 0.0
    if waited < max(MIN_STALL_SECONDS, MIN_RESTART_RATIO * first):
        return None
    spans = [f"{name} open for {age(seconds)}" for name, seconds in evidence.open.spans[-1:]]
    return _stalled_finding(
        f"Stalled: no step in {age(waited)} since the restart",
        [f"the first start took {duration(first)} to its first step", *spans],
        "Check whether all ranks came back, and where they wait for each other: py-spy dump --pid PID.",
    )


def _no_next_step(evidence: Evidence) -> Finding | None:
    """Find a run without further steps that is still open, or that somebody stopped."""
    outcome, pulse = evidence.report.outcome, evidence.state.main.pulse
    is_running = evidence.is_running
    was_stopped = outcome.state == "killed" or (outcome.error or "").partition(":")[0] == INTERRUPTED
    waited = _waited_seconds(evidence)
    if not (is_running or was_stopped) or (is_running and evidence.open.step_seconds is not None):
        return None
    line = _overdue_line(evidence, waited, MIN_STALL_SECONDS if is_running else MIN_GIVEN_UP_SECONDS)
    if waited is None or line is None:
        return None
    if is_running and waited < MIN_PAUSE_RATIO * (evidence.report.wall.between_steps - waited):
        return None
    frame = [f"last seen at {pulse.frame}"] if pulse is not None and pulse.frame else []
    title = f"Stalled: no step ended for {age(waited)}"
    if not is_running:
        title = f"Stalled: no step ended in the last {age(waited)} before the run was stopped"
    finding = _stalled_finding(title, [line, *frame])
    finding.lost_fraction = evidence.wall_part(waited)
    return finding


def _waited_seconds(evidence: Evidence) -> float | None:
    """Return seconds from the end of the last step to the last sign of life; None where something else went on."""
    main, done = evidence.state.main, evidence.report.progress
    pulse, last = main.pulse, main.wall.last_step
    if pulse is None or last is None or pulse.spans or main.begins_again:
        return None
    if done.steps_total is not None and done.steps_done >= done.steps_total:
        return None
    return max(0.0, pulse.t - last - main.wall.since_last_step)


MIN_SLOW_SHARE = 0.01  # of the time: slow steps that cost less are alerts, not a finding
MIN_WARNING_SLOW_SHARE = 0.05  # of the time; below it slow steps are information
MIN_OCCASIONS = 3  # once or twice may be chance; what recurs has a cause
HICCUP_SECONDS = 2.0  # a machine's hiccup makes several short steps in a row long, and is one occasion
MAX_OCCASION_GAP = 2  # steps
# Of the time beyond the median, in one phase, and half of what the other phases usually take: a machine that is taken
# away makes all phases long, each by what it takes.
MIN_REPEATED_CULPRIT = 0.6
# Waiting for a core takes a few time slices of 0.1 s: steps longer than this have another cause.
MIN_FAR_SECONDS = 1.0
MIN_FAR_RATIO = 10.0  # times the median
MAX_STEPS = 20  # listed


@rule("slow-steps", Family.PROGRESS)
def slow_steps(evidence: Evidence) -> Finding | None:
    """Find single steps far beyond the median that cost much together."""
    wall, main = evidence.report.wall, evidence.state.main
    source = main.device if evidence.device is not None else main  # on a GPU, by its own clock or not at all
    slow = (
        unplanned(source.slow_steps)
        if evidence.device is not None
        else episodes(source.slow_steps, main.latest.steps())
    )
    if not slow or not wall.total:
        return None
    kept = len(slow) / len(source.slow_steps)
    number, excess = round(kept * source.slow_count), source.slow_excess
    if kept < 1.0:  # the others come in the rhythm of the run; only the newest are kept one by one
        excess = sum(step.seconds - step.baseline for step in slow) * source.slow_count / len(source.slow_steps)
    lost = excess / wall.total
    culprit, times = Counter(step.culprit for step in slow).most_common(1)[0]
    repeats = _repeats(slow, culprit)
    if lost < (MIN_SLOW_SHARE if repeats else MIN_WARNING_SLOW_SHARE):
        return None
    worst = max(slow, key=lambda step: step.seconds - step.baseline)
    far = [step for step in slow if step.seconds >= max(MIN_FAR_SECONDS, MIN_FAR_RATIO * step.baseline)]
    moments = [step.ended for step in slow if step.ended is not None]
    crowd = None if _repeats(far, culprit) else crowd_line(evidence) or crowded_at(evidence, moments)
    return Finding(
        code="slow-steps",
        severity="warning" if lost >= MIN_WARNING_SLOW_SHARE and repeats and crowd is None else "info",
        title=f"{plural(number, 'slow step', 'slow steps')}: at most {share(lost)} of wall time"
        + (f"; {culprit} grew most in {times:,} of {len(slow):,}" if culprit else ""),
        evidence=[str(worst), f"{duration(excess)} beyond the median in all", *([crowd] if crowd else [])],
        advice=f"Check what {culprit or 'the program'} does in these steps: longer outputs, a time limit, a busy disk"
        " or host.",
        lost_fraction=lost if crowd is None else None,  # how much of it is the neighbors' is unknown
        steps=[step.step for step in slow[-MAX_STEPS:]],
        culprit=culprit or None,
    )


def _repeats(slow: Sequence[SlowStep], culprit: str) -> bool:
    """Return whether slow steps came again and again, with most of the excess in one phase."""
    excess = sum(step.seconds - step.baseline for step in slow)
    grown = sum(max(0.0, step.phases.get(culprit, 0.0) - step.usual_phases.get(culprit, 0.0)) for step in slow)
    whole = sum(step.baseline for step in slow)
    usual = sum(step.usual_phases.get(culprit, 0.0) for step in slow) / whole if whole else 0.0
    least = max(MIN_REPEATED_CULPRIT, (1.0 + usual) / 2)
    return _occasions(slow) >= MIN_OCCASIONS and excess > 0 and grown >= least * excess


def _occasions(slow: Sequence[SlowStep]) -> int:
    """Return how often it happened: slow steps in a row that make a short stretch together are one occasion."""
    occasions, before, stretch = 0, None, 0.0
    for step in slow:
        in_a_row = before is not None and step.step - before <= MAX_OCCASION_GAP
        stretch = stretch + step.seconds if in_a_row else step.seconds
        if not in_a_row or stretch > HICCUP_SECONDS:
            occasions, stretch = occasions + 1, step.seconds
        before = step.step
    return occasions


MIN_SKIPPED_SHARE = 0.02  # a run in which fewer steps than one in fifty do nothing is a normal run
MIN_SKIPPED = 3
# A loss scaler begins at 65,536 and halves its scale with each step that it skips, until it fits.
MAX_HALVINGS = 16
MIN_WARNING_SKIPPED_SHARE = 0.1
MAX_SKIP_REASONS = 5  # named


@rule("steps-skipped", Family.PROGRESS)
def steps_skipped(evidence: Evidence) -> Finding | None:
    """Find steps that did no work: they make the run look faster than it is."""
    progress, rate = evidence.report.progress, evidence.report.throughput.steps_per_second
    done = progress.steps_ok + progress.steps_skipped
    searched = progress.skipped.get(SCALER_OVERFLOW, 0)
    skipped_steps = progress.steps_skipped - (searched if searched <= MAX_HALVINGS else 0)
    if skipped_steps < max(MIN_SKIPPED, MIN_SKIPPED_SHARE * done) or not evidence.has_steps():
        return None
    (reason, times), *others = sorted(progress.skipped.items(), key=lambda item: -item[1])
    skipped = progress.steps_skipped / done
    lines = [f"then: {name} ({count:,})" for name, count in others[: MAX_SKIP_REASONS - 1]]
    if rate is not None:
        lines.append(f"{pace(rate)} overall, {pace(rate * (1 - skipped))} without skipped steps")
    why = f": {reason}" if not others else f"; most often: {reason} ({times:,})"
    return Finding(
        code="steps-skipped",
        severity="warning" if skipped > MIN_WARNING_SKIPPED_SHARE else "info",
        title=f"Skipped steps: {progress.steps_skipped:,} of {done:,} ({share(skipped)}){why}",
        evidence=lines,
        advice="Fix the skipped steps first; compare speeds by the steps that did work.",
    )


# Runs in which no process reports: possible causes and what to do.

NOTHING_REPORTS = "nothing-reports"
OWN_TRAINHOOKS = "own-trainhooks"  # the note's code as in trainhooks.auto.imports, which knows a clock
MIN_WAIT_SECONDS = 20.0  # a cold import of torch and a small model's load are over by then

STARTING_ADVICE = "Still starting? Steps appear with the first optimizer step."
OUT_OF_REACH = (
    "Python out of reach? python -I, -E or -S, env -i, sudo and containers drop PYTHONPATH or TRAINMON_RUN: pass both"
    " on, and mount the directories that they name."
)
NOT_PYTHON = (
    "Not Python, or not torch? Print a line per step, such as `step 120/5000 loss 2.31` (`trainmon lines LOG` shows"
    " what is read from a log), or write the journal as demo/cpp does."
)
BY_HAND = "Any Python loop can report its steps itself: for batch in trainhooks.steps(loader): ..."
RENAME_ADVICE = "Rename the program's own module `trainhooks` and its imports to have its steps timed."


START_ADVICE = {
    start_waits.IMPORT: "Keep the environment and the program on a local disk: each import reads many small files.",
    start_waits.DOWNLOAD: "Download once, before the run, into a cache that all its processes and later runs share.",
    start_waits.CHECKPOINT: "Load weights from a local disk, once a machine, and straight to their device.",
    start_waits.DATA_SET: "Prepare the data once, before the run, and keep what that makes.",
    start_waits.WORKERS: "Start no more workers than there are cores; each gets a copy of what the data set holds.",
    start_waits.FIRST_BATCH: "Start no more workers than there are cores; do once, before the run, what each of them"
    " repeats: reading an index, opening files.",
    start_waits.COMPILE: "Keep compiled graphs between runs (TORCHINDUCTOR_CACHE_DIR), or compile a smaller part.",
    start_waits.RANKS: "Check whether the missing ranks were started, and whether MASTER_ADDR, MASTER_PORT, WORLD_SIZE"
    " and the ranks' numbers agree.",
    start_waits.LOCK_FILE: "Find who holds the lock (lsof, fuser); remove its file if nobody does.",
}


@rule(NOTHING_REPORTS, Family.PROGRESS)
def nothing_reports(evidence: Evidence) -> Finding | None:
    """Find a run without steps: what it waits for, or that no process of the training has reported in."""
    report = evidence.report
    if evidence.steps or report.progress.steps_done:
        return None
    if report.run.imported:
        advice = "`trainmon lines FILE` shows what is read from each line; add your own patterns to the config file."
        return _silent_finding("No steps could be read from this log", [], advice)
    elapsed = report.progress.elapsed_seconds
    if evidence.is_running and (elapsed is None or elapsed < MIN_WAIT_SECONDS):
        return None
    start = evidence.open.start
    if start is not None and start.seconds is not None:
        lines = [f"for {age(start.seconds)}" + (f", at {start.place}" if start.place else "")]
        title = f"No steps in {age(elapsed)}: {start.text}"
        title = title if evidence.is_running else f"Ended before its first step was done: {start.text}"
        return _silent_finding(title, lines, START_ADVICE.get(start.what, ""))
    has_reported = any(producer.source not in ("recorder", "console") for producer in evidence.state.producers.values())
    if has_reported:  # its start-up is shown while it goes on
        return None if evidence.is_running else _silent_finding("Ended before its first step was done", [], "")
    # What the hooks said before they gave way to a module of the program's own.
    own = next((row.text for row in evidence.state.alerts if row.code == OWN_TRAINHOOKS), None)
    cause = own or evidence.state.hooks_not_loaded or command_obstacle(report.run.command)
    advice = BY_HAND if own is None else RENAME_ADVICE
    reasons = [cause] if cause is not None else [OUT_OF_REACH, NOT_PYTHON]
    if not evidence.is_running:
        return _silent_finding("No steps recorded: the program did not report in", reasons, advice)
    title = f"No steps in {age(elapsed)}: the program has not reported in"
    seen = [f"seen from outside: {start.text}"] if start is not None else []
    return _silent_finding(title, [*([STARTING_ADVICE, *reasons] if cause is None else reasons), *seen], advice)


def _silent_finding(title: str, lines: list[str], advice: str) -> Finding:
    return Finding(code=NOTHING_REPORTS, severity="info", title=title, evidence=lines, advice=advice)
