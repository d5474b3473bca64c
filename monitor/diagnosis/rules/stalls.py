"""Progress: runs without steps, slow steps, steps that do no work. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from statistics import fmean, median

from monitor.diagnosis.judge import MIN_COST
from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.host_limits import crowd_line, crowded_at
from monitor.hooks_reach import LITTLE_ROOM, command_obstacle
from monitor.model.report import Finding, SlowStep
from monitor.model.standing import MIN_STALL_SECONDS, WAITS, doing, used_percent, works
from monitor.model.starting import StartWait
from monitor.model.state import Held
from monitor.model.steps.series import Column
from monitor.model.steps.time_split import episodes, is_rhythm, unplanned
from monitor.step_blocks import OTHER, UNNAMED
from monitor.units import age, duration, pace, plural, share
from trainhooks.protocol import start_waits
from trainhooks.protocol.vocabulary import BETWEEN_STEPS, ENV_STEPS, EPISODE_RETURN, SCALER_OVERFLOW

MIN_OCCASIONS = 3  # once or twice may be chance; what recurs has a cause
HICCUP_SECONDS = 2.0  # a machine's hiccup makes several short steps in a row long, and is one occasion
MAX_OCCASION_GAP = 2  # steps
# Of the time beyond the median, in one phase, and half of what the other phases usually take: a machine that is taken
# away makes all phases long, each by what it takes.
MIN_REPEATED_CULPRIT = 0.6
MAX_USUAL = 0.9  # of a step, in the phase that grew: one that is all of it grows whatever the cause
# Waiting for a core takes a few time slices of 0.1 s: steps longer than this have another cause.
MIN_FAR_SECONDS = 1.0
MIN_FAR_RATIO = 10.0  # times the median
MIN_OF_EXCESS = 0.8  # at one line: what else is slow there costs little beside it
MIN_STRETCH_RATIO = 1.5  # of the usual pace: what a stretch, like a single step, must exceed to matter to people
MIN_STRETCH_STEPS = 32  # all of them slow: it is no chance; fewer are judged one by one
MIN_PARTS = 10  # of the run, to know its usual pace
MAX_STEPS, MAX_NUMBERS = 20, 5  # listed, and named


@rule("slow-steps", Family.PROGRESS)
def slow_steps(evidence: Evidence) -> Finding | None:
    """Find steps far beyond the median that cost much together, one by one or in stretches."""
    single, stretches = _single_steps(evidence), _slow_stretches(evidence)
    if single is None or stretches is None:
        return single or stretches
    return stretches if (stretches.cost or 0.0) > MIN_STRETCH_RATIO * (single.cost or 0.0) else single


def _single_steps(evidence: Evidence) -> Finding | None:
    wall, main = evidence.report.wall, evidence.state.main
    source = main.device if evidence.device is not None else main  # on a GPU, by its own clock or not at all
    slow = (
        unplanned(source.slow_steps)
        if evidence.device is not None
        else episodes(source.slow_steps, main.latest.steps())
    )
    if not slow or not wall.total:
        return _slow_iterations(evidence) or _regular_steps(evidence)
    kept = len(slow) / len(source.slow_steps)
    number, excess = round(kept * source.slow_count), source.slow_excess
    if kept < 1.0:  # the others come in the rhythm of the run; only the newest are kept one by one
        excess = sum(step.seconds - step.baseline for step in slow) * source.slow_count / len(source.slow_steps)
    lost = excess / wall.total
    culprit, times = Counter(step.culprit for step in slow).most_common(1)[0]
    cost = evidence.loop_part(excess)
    if cost < MIN_COST:
        return _slow_iterations(evidence)
    worst = max(slow, key=lambda step: step.seconds - step.baseline)
    far = [step for step in slow if step.seconds >= max(MIN_FAR_SECONDS, MIN_FAR_RATIO * step.baseline)]
    moments = [step.ended for step in slow if step.ended is not None]
    is_own = _repeats(far, culprit) and _usual_share(far, culprit) <= MAX_USUAL
    place, waits = _slow_place(evidence, slow, culprit)
    crowd = None if is_own or waits else crowd_line(evidence) or crowded_at(evidence, moments)
    if place:
        what = f"; {place}"
        advice = "Find what it waits for, and give the wait a time limit." if waits else "See what it does there then."
    else:
        what = (
            f"; {UNNAMED if culprit == OTHER else culprit} grew most in {times:,} of {len(slow):,}" if culprit else ""
        )
        who = culprit if culprit and culprit != OTHER else "the program"
        advice = f"Check what {who} does in these steps: longer outputs, a time limit, a busy disk or host."
    return Finding(
        code="slow-steps",
        cost=cost,
        certain=crowd is None and (bool(place) or _repeats(slow, culprit)),
        title=f"{plural(number, 'slow step', 'slow steps')}: {share(lost)} of wall time{what}",
        evidence=[str(worst), f"{duration(excess)} beyond the median in all", *([crowd] if crowd else [])],
        advice=advice,
        lost_fraction=lost if crowd is None else None,  # how much of it is the neighbors' is unknown
        once_fraction=0.0 if crowd or _repeats(slow, culprit) else lost,  # it made no other step slower
        steps=[step.step for step in slow[-MAX_STEPS:]],
        culprit=culprit or None,
    )


def _slow_place(evidence: Evidence, slow: Sequence[SlowStep], culprit: str) -> tuple[str, bool]:
    """Return the line that took nearly all of what slow steps took too long, by stack samples, and whether it waits.

    As in `waits for a lock at train.py:7`; empty where it is not one line.
    """
    report = evidence.report
    row = next((row for row in report.host_phases or report.phases if row.name == culprit), None)
    spans = [(step.ended - step.seconds, step.ended) for step in slow if step.ended is not None]
    # What comes before a step's first phase is sampled before it is known to be of that step.
    phases = (OTHER, BETWEEN_STEPS) if culprit == OTHER else (culprit,)
    places, length = evidence.state.main.samples.around(spans, *phases)
    if row is None or not places or not report.wall.stepping:
        return "", False
    place, spent = max(places.items(), key=lambda found: found[1])
    beside = max(0.0, length - sum(end - begin for begin, end in spans))  # usual steps within the same stretches
    usual = row.recurring + (report.wall.between_steps if culprit == OTHER else 0.0)
    own = spent - beside * min(1.0, usual / report.wall.stepping)
    is_one = own >= MIN_OF_EXCESS * sum(step.seconds - step.baseline for step in slow)
    return (f"{doing(place.activity)} at {place}", place.activity in WAITS) if is_one else ("", False)


def _regular_steps(evidence: Evidence) -> Finding | None:
    """Return the finding on steps that are longer in a rhythm, where only the output tells of them: nobody else does.

    With hooks what they do more has a name, or a place between the steps.
    """
    main, wall = evidence.state.main, evidence.report.wall
    numbers = [step.step for step in main.slow_steps]
    if main.source != "console" or not wall.total or not is_rhythm(numbers):
        return None
    every = round(median(after - before for before, after in pairwise(numbers)))
    longer = median(step.seconds for step in main.slow_steps)
    usual = median(step.baseline for step in main.slow_steps)
    return Finding(
        code="slow-steps",
        cost=evidence.loop_part(main.slow_excess),
        estimated=True,  # a program may do there what it is for: collect, evaluate
        title=f"One step in {every:,} takes {duration(longer)} instead of {duration(usual)}: at most"
        f" {share(main.slow_excess / wall.total)} of wall time",
        evidence=[f"steps {', '.join(f'{number:,}' for number in numbers[-MAX_NUMBERS:])}"],
        advice="The output does not say what it does in these steps. Time what comes every so many steps: evaluations,"
        " checkpoints, samples, plots. Do it less often, or faster.",
        lost_fraction=main.slow_excess / wall.total,
        steps=numbers[-MAX_STEPS:],
    )


def _slow_stretches(evidence: Evidence) -> Finding | None:
    """Return the finding on stretches of an output's steps that are slow as a whole, and over: a whole epoch.

    Steps are compared with those before them, which are slow, too, after the first few. A stretch at the start is a
    start, one at the end a drift.
    """
    main, wall = evidence.state.main, evidence.report.wall
    curve = main.step_seconds.curve()
    known = [mean for mean in curve.mean if mean == mean]
    if main.source != "console" or not wall.total or len(known) < MIN_PARTS or len(main.baselines) != 1:
        return None
    usual = median(known)
    stretches = [
        list(parts)
        for is_slow, parts in groupby(range(len(curve.mean)), lambda at: curve.mean[at] >= MIN_STRETCH_RATIO * usual)
        if is_slow
    ]
    stretches = [parts for parts in stretches if parts[0] > 0 and parts[-1] < len(curve.mean) - 1]
    stretches = [parts for parts in stretches if len(parts) * curve.width >= MIN_STRETCH_STEPS]
    if not stretches:
        return None
    excess = sum(curve.width * (curve.mean[at] - usual) for parts in stretches for at in parts)
    lines = [
        f"steps {curve.x[parts[0]]:,.0f} to {curve.x[parts[-1] + 1] - 1:,.0f}:"
        f" {duration(fmean(curve.mean[at] for at in parts))} per step instead of {duration(usual)}"
        for parts in stretches
    ]
    crowd = crowd_line(evidence)
    return Finding(
        code="slow-steps",
        cost=evidence.loop_part(excess),
        certain=crowd is None,
        estimated=True,
        title=f"{plural(len(stretches), 'slow stretch', 'slow stretches')} of steps: at most"
        f" {share(excess / wall.total)} of wall time",
        evidence=[*lines[:MAX_NUMBERS], *([crowd] if crowd else [])],
        advice="Look at what was different in these steps: neighbors on the machine, heat, a slow disk or network, a"
        " part of the data with longer inputs.",
        lost_fraction=excess / wall.total if crowd is None else None,
        steps=[int(curve.x[parts[0]]) for parts in stretches][-MAX_STEPS:],
    )


def _slow_iterations(evidence: Evidence) -> Finding | None:
    """Return the finding on iterations that are slow by what lies between their steps."""
    cycle, wall = evidence.report.cycle, evidence.report.wall
    named = {row.name for row in (*evidence.report.phases, *evidence.report.host_phases)}
    slow = [each for each in cycle.slow if each.culprit not in named] if cycle is not None else []
    excess = sum(each.seconds - each.baseline for each in slow)
    if not slow or not wall.total:
        return None
    worst = max(slow, key=lambda each: each.seconds - each.baseline)
    culprit, times = Counter(each.culprit for each in slow).most_common(1)[0]
    crowd = crowd_line(evidence) or crowded_at(evidence, [each.ended for each in slow])
    return Finding(
        code="slow-steps",
        cost=evidence.loop_part(excess),
        certain=len(slow) >= MIN_OCCASIONS and crowd is None,
        title=f"{plural(len(slow), 'slow iteration', 'slow iterations')}: at most {share(excess / wall.total)} of wall"
        f" time; {culprit} grew most in {times:,} of {len(slow):,}",
        evidence=[str(worst), f"{duration(excess)} beyond the median in all", *([crowd] if crowd else [])],
        advice=f"Check what {culprit} does in these iterations: longer outputs, a time limit, a busy disk or host.",
        lost_fraction=excess / wall.total if crowd is None else None,
        steps=[each.step for each in slow[-MAX_STEPS:]],
        culprit=culprit,
    )


def _repeats(slow: Sequence[SlowStep], culprit: str) -> bool:
    """Return whether slow steps came again and again, with most of the excess in one phase."""
    excess = sum(step.seconds - step.baseline for step in slow)
    grown = sum(max(0.0, step.phases.get(culprit, 0.0) - step.usual_phases.get(culprit, 0.0)) for step in slow)
    least = max(MIN_REPEATED_CULPRIT, (1.0 + _usual_share(slow, culprit)) / 2)
    return _occasions(slow) >= MIN_OCCASIONS and excess > 0 and grown >= least * excess


def _usual_share(slow: Sequence[SlowStep], culprit: str) -> float:
    """Return the phase's share of such steps where they are not slow."""
    whole = sum(step.baseline for step in slow)
    return sum(step.usual_phases.get(culprit, 0.0) for step in slow) / whole if whole else 0.0


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
    if rate is not None and progress.steps_ok:
        lines.append(f"{pace(rate)} overall, {pace(rate * (1 - skipped))} without skipped steps")
    why = f": {reason}" if not others else f"; most often: {reason} ({times:,})"
    title = f"Skipped steps: {progress.steps_skipped:,} of {done:,} ({share(skipped)}){why}"
    if not progress.steps_ok:
        title = f"Nothing is learned: all {done:,} steps were skipped{why}"
    return Finding(
        code="steps-skipped",
        severity="critical" if not progress.steps_ok else "warning" if skipped > MIN_WARNING_SKIPPED_SHARE else "info",
        title=title,
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
ONLY_ACTING = "No steps: environments are stepped, and no optimizer"
ACTING_ADVICE = "Print a line per iteration, such as `generation 12 mean_return 31.4`: these are the steps then."
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
    start_waits.WEIGHTS: "Make the model on its device (torch.device as a context), or on meta before a checkpoint.",
    start_waits.WORKERS: "Start no more workers than there are cores; each gets a copy of what the data set holds.",
    start_waits.FIRST_BATCH: "Start no more workers than there are cores; do once, before the run, what each of them"
    " repeats: reading an index, opening files.",
    start_waits.COMPILE: "Keep compiled graphs between runs (TORCHINDUCTOR_CACHE_DIR), or compile a smaller part.",
    start_waits.RANKS: "Check whether the missing ranks were started, and whether MASTER_ADDR, MASTER_PORT, WORLD_SIZE"
    " and the ranks' numbers agree.",
    start_waits.LOCK_FILE: "Find who holds the lock (lsof, fuser); remove its file if nobody does.",
}


ATTACHED_ADVICE = (
    "Steps are read from the log file that it prints to: `trainmon attach --pid PID --log FILE` names one,"
    " `trainmon lines FILE` shows what is read from it. Start the next training by `trainmon run`: it needs no log."
)
STILL_ADVICE = "See what it waits for there: trainmon stack shows every thread and child process."
_OF_OTHERS = (start_waits.RANKS, start_waits.LOCK_FILE)  # who waits for these stands still, and is told why


def _is_still(evidence: Evidence, start: StartWait) -> bool:
    """Return whether what comes before the first step works no more: no CPU is used, and no bytes are moved."""
    state, seconds = evidence.state, start.seconds or 0.0
    if not evidence.is_running or start.what in _OF_OTHERS or seconds < MIN_STALL_SECONDS or not state.host:
        return False
    now = state.host[-1].t
    used = used_percent(state, now - seconds)
    return used is not None and works(state, Held(start.place or "", None, now - seconds, now)) is None


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
    start = evidence.open.start
    if start is not None and start.seconds is not None:
        lines = [f"for {age(start.seconds)}" + (f", at {start.place}" if start.place else ""), *start.ranks]
        title = f"No steps in {age(elapsed)}: {start.text}"
        title = title if evidence.is_running else f"Ended before its first step was done: {start.text}"
        if _is_still(evidence, start):
            title += ", and nothing moves"
            lines.append("its processes use no CPU, and no bytes to speak of come or go")
            return _silent_finding(title, lines, STILL_ADVICE)
        return _silent_finding(title, lines, START_ADVICE.get(start.what, ""))
    if evidence.is_running and (elapsed is None or elapsed < MIN_WAIT_SECONDS):
        return None
    acting = evidence.state.acting
    if acting is not None:
        return _silent_finding(ONLY_ACTING, _collected(acting.metrics), ACTING_ADVICE)
    if report.run.attached:
        title = f"No steps in {age(elapsed)}" if evidence.is_running else "No steps recorded"
        return _silent_finding(f"{title}: none could be read from outside", [], ATTACHED_ADVICE)
    has_reported = any(producer.source not in ("recorder", "console") for producer in evidence.state.producers.values())
    if has_reported:  # its start-up is shown while it goes on
        return None if evidence.is_running else _silent_finding("Ended before its first step was done", [], "")
    # What the hooks said before they gave way to a module of the program's own.
    noted = {row.code: row.text for row in evidence.state.alerts}
    own = noted.get(OWN_TRAINHOOKS)
    cause = own or evidence.state.hooks_not_loaded or noted.get(LITTLE_ROOM) or command_obstacle(report.run.command)
    advice = BY_HAND if own is None else RENAME_ADVICE
    reasons = [cause] if cause is not None else [OUT_OF_REACH, NOT_PYTHON]
    if not evidence.is_running:
        return _silent_finding("No steps recorded: the program did not report in", reasons, advice)
    title = f"No steps in {age(elapsed)}: the program has not reported in"
    seen = [f"seen from outside: {start.text}"] if start is not None else []
    return _silent_finding(title, [*([STARTING_ADVICE, *reasons] if cause is None else reasons), *seen], advice)


def _collected(metrics: dict[str, Column]) -> list[str]:
    """Return what processes that only step environments have counted."""
    steps, returns = metrics.get(ENV_STEPS), metrics.get(EPISODE_RETURN)
    lines = [] if steps is None else [f"{steps.settled().sum:,.0f} environment steps"]
    if returns is not None and returns.count:
        lines.append(f"return of the newest episodes: {returns.settled().last:.4g}")
    return lines


def _silent_finding(title: str, lines: list[str], advice: str) -> Finding:
    return Finding(code=NOTHING_REPORTS, severity="info", title=title, evidence=lines, advice=advice)
