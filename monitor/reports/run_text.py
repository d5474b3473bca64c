"""A report as text: its sections, and the whole in plain text or Markdown."""

from __future__ import annotations

import shlex
import time

from monitor.diagnosis.answer import answer
from monitor.diagnosis.explain import gain_line
from monitor.diagnosis.rules.stalls import OWN_TRAINHOOKS
from monitor.diagnosis.verdict import NO_FINDING
from monitor.hooks_reach import LITTLE_ROOM, RECORDING_ENDED
from monitor.model import group
from monitor.model.collected import Collected
from monitor.model.fold import NEWER
from monitor.model.report import FarHost, Finding, Outcome, Rates, Report, Run, Throughput
from monitor.model.steps.pace import SINCE, recent_over
from monitor.model.view import OpenWork
from monitor.reports import gpu_sections, listings, trace_sections, what_if_text
from monitor.reports.gpu_sections import gpus, host
from monitor.reports.listings import Section
from monitor.reports.time_sections import iteration, unnamed, wall
from monitor.units import UNKNOWN, age, duration, money, number, pace, plural, rate, share, signal_name
from trainhooks.protocol.limits import clean
from trainhooks.protocol.start_waits import IMPORT

# The sections: titled lines and tables, the same for every format. Unknown figures are left out or named.

MAX_SLOW_STEPS = 8  # shown; the JSON has all
MAX_METRIC_ROWS = 24
HOOKS_FAILED = "hooks-failed"  # the note's code as in trainhooks.program_errors
MAX_REASON_LINES = 5  # lines


def sections(report: Report) -> list[Section]:
    """Return all sections: outcome and speed first, then where the time goes and why."""
    parts = [
        findings(report),
        to_try(report),
        what_if(report),
        wall(report),
        gpu_sections.phases(report),
        iteration(report),
        unnamed(report),
        gpu_sections.account(report),
        gpu_sections.below_peak(report),
        trace_sections.traced(report),
        gpu_sections.host_phases(report),
        gpu_sections.mfu(report),
        speed_classes(report),
        slow_steps(report),
        skipped(report),
        metrics(report),
        startup(report),
        gpus(report),
        host(report),
        ranks(report),
        compiled(report),
        restarts(report),
        reservations(report),
    ]
    return [part for part in parts if part is not None]


# The head


def title(report: Report) -> str:
    run = report.run
    name = clean(run.name or run.id or "a run")
    return f"{name} ({clean(run.id)})" if run.id and run.id != name else name


def summary(report: Report) -> list[tuple[str, str]]:
    """Return the head of a report: the run, its outcome, progress and speed."""
    run = report.run
    where = f"{clean(run.host)}, " if run.host else ""
    when = "start unknown"
    if run.started:
        when = "started " + time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    whole, recent = speeds(report.throughput), speed(report.throughput.recent)
    rows = [
        ("Command", clean(shlex.join(run.command), 2000) if run.command else UNKNOWN),
        *([("Trainings", clean(group.line(report.group)))] if report.group else []),
        ("Where", f"{where}{when}{ranks_of(run)}"),
        ("Outcome", outcome(report)),
        ("Progress", progress(report)),
        ("Speed", f"{whole} ({SINCE})" if whole else f"{UNKNOWN} (no step measured)"),
    ]
    if work := collected(report.throughput.collected):
        rows.append(("Collected", f"{work} ({SINCE})"))
    if report.dropped.broken_off:
        who = plural(report.dropped.broken_off, "process", "processes")
        rows.insert(3, ("Cut off", f"{who} ended without a last word; the last 0.05 s may be missing"))
    if tags := run.facts.tags:
        rows.insert(2, ("Tags", clean(", ".join(f"{key}={value}" for key, value in tags.items()))))
    origin = source(report)
    if origin:
        rows.append(("Source", origin))
    if recent and recent != whole and report.outcome.state == "running":
        rows.append(("Recent", f"{recent} ({recent_over(report.throughput)})"))
    if report.progress.cost is not None:
        rows.append(("Cost", cost(report)))
    return rows


def cost(report: Report) -> str:
    total = report.progress.cost_total
    return money(report.progress.cost) + (f" of about {money(total)}" if total is not None else "")


def source(report: Report) -> str:
    """Return the source of the figures where it is not the program itself."""
    if report.run.recording:
        return "a recording, at its end"
    if report.run.source != "console":
        return ""
    where = "a log" if report.run.imported else "its log, from outside" if report.run.attached else "the console"
    return f"read from {where} (printed by the program, not measured inside it)"


def outcome(report: Report) -> str:
    elapsed = report.group.elapsed_seconds if report.group is not None else report.progress.elapsed_seconds
    after = f" after {duration(elapsed)}" if elapsed is not None else ""
    state = report.outcome.state
    if report.run.attached and state in ("running", "lost"):
        recorded = f", recorded for {duration(elapsed)}" if elapsed is not None else ""
        return f"running{recorded}" if state == "running" else f"ended{recorded}; exit code unknown"
    if state == "running":
        code = report.outcome.exit_code
        left = f"; the command ended with exit code {code}, and left it behind" if code is not None else ""
        return "running" + (f" for {duration(elapsed)}" if elapsed is not None else "") + left
    if state == "lost" and report.run.imported:
        return f"ended{after}; outcome not in the log"
    if state == "lost":
        return f"lost{after}: process gone, outcome unknown"
    how = _how(report.outcome)
    error = f": {clean(report.outcome.error, 300)}" if report.outcome.error else ""
    place = f", at {clean(report.outcome.place, 150)}" if report.outcome.place else ""
    left = f"; {report.outcome.left}" if report.outcome.left else ""
    return f"{state}{f' ({how})' if how else ''}{after}{error}{place}{left}"


def _how(ended: Outcome) -> str:
    if ended.signal is not None:
        return f"by {signal_name(ended.signal)}"
    if ended.exit_code is not None:
        return f"exit code {ended.exit_code}"
    return "exit code unknown" if ended.state == "finished" else ""


def progress(report: Report) -> str:
    done = report.progress
    if not done.steps_done:
        return "no step measured"
    of = f" of {done.steps_total:,}" if done.steps_total else ""
    unit = "steps, each an epoch" if done.by_epochs else "steps"
    parts = [f"{done.steps_done:,}{of} {unit}" + (f" ({share(done.fraction)})" if done.fraction is not None else "")]
    if (place := done.place()) and report.outcome.state == "running":
        parts.append(place)
    if done.steps_skipped:
        parts.append(f"{done.steps_skipped:,} skipped")
    if done.restarts:
        again = f" ({plural(done.steps_again, 'step', 'steps')} repeated)" if done.steps_again else ""
        parts.append(plural(done.restarts, "restart", "restarts") + again)
    if report.outcome.state == "running" and done.eta_seconds is not None:
        spread = ""
        if done.eta_low is not None and done.eta_high is not None:
            spread = f" ({duration(done.eta_low)} to {duration(done.eta_high)})"
        parts.append(f"about {duration(done.eta_seconds)} left{spread}")
    if done.limit_seconds is not None:
        parts.append(f"the job's limit in {duration(done.limit_seconds)}")
    return ", ".join(parts)


def speed(rates: Rates) -> str:
    """Return the known rates, tokens first: steps a second depend on the batch size."""
    parts = [
        rate(rates.tokens_per_second, "tokens/s"),
        rate(rates.samples_per_second, "samples/s"),
        pace(rates.steps_per_second),
        f"MFU {share(rates.mfu)}" if rates.mfu is not None else UNKNOWN,
    ]
    known = ", ".join(part for part in parts if part != UNKNOWN)
    if rates.counted is not None and rates.counted < 1.0:
        known += f" (tokens and samples counted in {share(rates.counted)} of the steps)"
    return known


def collected(rates: Collected) -> str:
    """Return the known rates of what reinforcement learning collects."""
    parts = [
        rate(rates.env_steps_per_second, "env steps/s"),
        rate(rates.episodes_per_second, "episodes/s"),
        rate(rates.completions_per_second, "completions/s"),
        rate(rates.generated_tokens_per_second, "generated tokens/s"),
    ]
    known = ", ".join(part for part in parts if part != UNKNOWN)
    price = rates.cost_per_1000_completions
    return known if price is None else f"{known}, {money(price)} per 1,000 completions"


def speeds(throughput: Throughput) -> str:
    """Return the rates since the first step: of the job where its ranks add up, and of the rank they come from."""
    rates, job = speed(throughput), throughput.job
    if throughput.rank is None or not rates:
        return rates
    whole = [] if job is None else [rate(job.tokens_per_second, "tokens/s"), rate(job.samples_per_second, "samples/s")]
    known = ", ".join(part for part in whole if part != UNKNOWN)
    return (f"all ranks {known}; " if known else "") + f"rank {throughput.rank}: {rates}"


def now(work: OpenWork) -> str:
    """Return the open step or span in words; empty where nothing is known of it."""
    ended = " ended" if work.step_seconds is None else _since(work.step_seconds)
    facts = [f"no step since the restart ({duration(work.restarting)})"] if work.restarting is not None else []
    facts += [f"step {work.step:,}{ended}"] if work.step is not None else []
    if work.phase:
        facts.append(f"phase {clean(work.phase)}" + _since(work.phase_seconds))
    facts += [f"{clean(name)} for {duration(seconds)}" for name, seconds in work.spans]
    if work.start is not None and not (work.spans and work.start.what == IMPORT):
        seconds = "" if work.start.seconds is None else f" ({duration(work.start.seconds)})"
        facts.append(clean(work.start.text) + seconds)
    if work.silent_for is not None and work.silent_for > 5:
        facts.append(f"no heartbeat for {duration(work.silent_for)}")
    return ", ".join(facts)


def _since(seconds: float | None) -> str:
    return f" for {duration(seconds)}" if seconds is not None else ""


# The parts


def findings(report: Report) -> Section | None:
    if not report.findings:
        none = Finding(code=NO_FINDING, severity="info", title=report.verdict)
        lines = [f"none: {clean(report.verdict)}", *(f"    → {fix}" for fix in answer(report, none).to_do[:1])]
        return Section("Findings", lines) if report.progress.steps_done else None
    lines = []
    for finding in report.findings:
        lost = finding.likely_fraction
        of = f" (about {share(lost)} of the elapsed time)" if lost is not None else ""
        lines.append(f"{finding.severity}: {clean(finding.title)}{of} [{clean(finding.code)}]")
        lines.extend(f"    {clean(evidence)}" for evidence in finding.evidence)
        if finding.advice:
            lines.append(f"    → {clean(finding.advice)}")
        without = gain_line(report, finding)
        if without is not None:
            lines.append(f"    {without}")
    return Section("Findings", lines)


def to_try(report: Report) -> Section | None:
    lines = []
    for suggestion in report.to_try:
        memory = "" if suggestion.memory == "none" else f"; memory: {clean(suggestion.memory)}"
        lines.append(f"{clean(suggestion.text)} ({clean(suggestion.because)}{memory})")
    return Section("To try", lines) if lines else None


def what_if(report: Report) -> Section | None:
    return Section("What if", what_if_text.lines(report.what_if)) if report.what_if is not None else None


def speed_classes(report: Report) -> Section | None:
    classes = report.speed_classes
    if classes is None or not classes.fast + classes.normal + classes.slow:
        return None
    bounds = [f"up to {duration(classes.fast_seconds)}", "between", f"{duration(classes.slow_seconds)} or more"]
    whole = classes.fast + classes.normal + classes.slow
    counts = [("fast", classes.fast), ("normal", classes.normal), ("slow", classes.slow)]
    rows = [
        [name, bound, f"{count:,}", share(count / whole)] for (name, count), bound in zip(counts, bounds, strict=True)
    ]
    return Section("Steps by speed", rows=[["class", "step time", "steps", "share"], *rows], left=2)


def slow_steps(report: Report) -> Section | None:
    if not report.slow_steps:
        return None
    worst = sorted(report.slow_steps, key=lambda step: step.seconds - step.baseline, reverse=True)[:MAX_SLOW_STEPS]
    more = len(report.slow_steps) - len(worst)
    lines = [clean(str(step)) + (f" (rank {step.rank})" if step.rank else "") for step in worst]
    return Section("Slow steps", lines + ([f"and {more:,} more"] if more else []))


def skipped(report: Report) -> Section | None:
    reasons = report.progress.skipped
    if not reasons:
        return None
    ranked = sorted(reasons.items(), key=lambda reason: -reason[1])
    return Section("Skipped steps", rows=[["reason", "steps"], *([clean(name, 80), f"{n:,}"] for name, n in ranked)])


def metrics(report: Report) -> Section | None:
    if not report.metrics:
        return None
    rows = [["metric", "last", "mean", "min", "max", "count", "non-finite"]]
    for name, row in list(report.metrics.items())[:MAX_METRIC_ROWS]:
        values = [number(value) for value in (row.last, row.mean, row.min, row.max)]
        rows.append([clean(name, 40), *values, f"{row.count:,}", f"{row.nonfinite:,}" if row.nonfinite else ""])
    more = len(report.metrics) - MAX_METRIC_ROWS
    return Section("Metrics", [f"{more:,} more in `report --json`"] if more > 0 else [], rows)


def startup(report: Report) -> Section | None:
    named = [part for part in report.startup if part.name != "other"]
    if not report.startup or (not named and not report.progress.steps_done):
        return None  # all of it is start-up, as the head says
    rows = [[clean(part.name, 60), duration(part.seconds)] for part in report.startup]
    return Section("Start-up", rows=[["part", "time"], *rows])


def ranks_of(run: Run) -> str:
    """Return how many ranks there are, and whose figures these are where a rank was asked for."""
    if run.ranks < 2:
        return ""
    return f", {run.ranks} ranks" + (f", figures of rank {run.rank}" if run.rank is not None else "")


def ranks(report: Report) -> Section | None:
    if len(report.ranks) < 2:
        return None
    lines = []
    slow = report.straggler
    if slow is not None:
        base = "of the step-to-step time"
        lines.append(f"rank {slow.rank} slowest: the others wait at least {share(slow.share)} {base}")
    lines += [_clock(host) for host in report.run.hosts[1:]]
    are_apart = any(row.host is not None for row in report.ranks)
    usual = "mean step" if all(row.is_mean for row in report.ranks) else "median step"
    rows = [["rank", usual, "waiting", "of the step", "steps", *(["host"] if are_apart else [])]]
    for row in report.ranks:
        waits = duration(row.usual_wait), share(row.wait_share)
        of = [clean(row.host or "", 40)] if are_apart else []
        rows.append([str(row.rank), duration(row.step_seconds), *waits, f"{row.steps:,}", *of])
    return Section("Ranks", lines, rows)


def _clock(host: FarHost) -> str:
    """Return how a host's clock is told, and whether it speaks."""
    told = f"{clean(host.name, 60)}: clock unknown"
    if host.clock is not None and host.uncertainty is not None:
        told = f"{clean(host.name, 60)}: clock ahead by {host.clock:+,.4f} s ± {duration(host.uncertainty)}, corrected"
    return told if host.silent_seconds is None else f"{told}; silent for {age(host.silent_seconds)}"


def compiled(report: Report) -> Section | None:
    """Return what torch.compile did, by the facts."""
    known = report.run.facts.compile
    named = (known.graphs, "graph"), (known.recompiles, "recompile"), (known.graph_breaks, "graph break")
    counts = [plural(count, one, f"{one}s") for count, one in named if count is not None]
    counts += [duration(known.seconds)] if known.seconds is not None else []
    lines = [", ".join(counts)] if counts else []
    lines += [clean(reason, 200) for reason in known.reasons[:MAX_REASON_LINES]]
    return Section("torch.compile", lines) if lines else None


def restarts(report: Report) -> Section | None:
    lines = [clean(row.text, 200) for row in report.alerts if row.code == "restart"]
    return Section("Restarts", lines[-MAX_REASON_LINES:]) if lines else None


def reservations(report: Report) -> Section | None:
    """Return what is missing from this report because events or lines were lost."""
    lost = report.dropped
    whole = (NEWER, OWN_TRAINHOOKS, LITTLE_ROOM, RECORDING_ENDED)
    lines = [clean(row.text, 400) for row in report.alerts if row.code in whole]
    for row in report.alerts:
        if row.code == HOOKS_FAILED:
            known = row.time is not None and report.run.started is not None
            since = f" (after {duration((row.time or 0.0) - (report.run.started or 0.0))})" if known else ""
            lines.append(f"{clean(row.text, 400)}{since}")
    if lost.events:
        lines.append(f"dropped before the journal: {plural(lost.events, 'event', 'events')}")
    if lost.lines:
        lines.append(f"missing or unreadable in the journals: {plural(lost.lines, 'line', 'lines')}")
    if lost.parts:
        lines.append(f"left out, as their time was no time: {plural(lost.parts, 'part', 'parts')} of steps")
    if lost.broken_off:
        begin = plural(lost.broken_off, "journal breaks", "journals break")
        lines.append(f"{begin} off: the last 0.05 s of the process are missing (more on a full or hanging disk)")
    return Section("Incomplete", lines) if lines else None


# The whole, in plain text and in Markdown.


def text(report: Report) -> str:
    """Return the whole report for a terminal or a mail, without markup."""
    lines = [title(report), *head(report)]
    for section in sections(report):
        lines += ["", *listings.plain_section(section)]
    return "\n".join(lines) + "\n"


def markdown(report: Report) -> str:
    """Return the whole report as Markdown, for an issue or a pull request."""
    lines = [f"# {listings.escape(title(report))}", ""]
    lines += listings.markdown([("", ""), *summary(report)], left=2)
    for section in sections(report):
        lines += ["", f"## {section.title}", ""]
        for line in section.lines:
            nested = line.startswith(" ")
            lines.append(f"{'  ' if nested else ''}- {listings.escape(line.strip())}")
        if section.rows:
            lines += ([""] if section.lines else []) + listings.markdown(section.rows, section.left)
    return "\n".join(lines) + "\n"


def head(report: Report) -> list[str]:
    """Return the lines below the title: command, place, outcome, progress, speed."""
    return [f"  {label:<9} {text}" for label, text in summary(report)]
