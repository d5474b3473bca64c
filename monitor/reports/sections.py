"""A report as titled lines and tables of text, the same for every format. What is not known is left out or said."""

from __future__ import annotations

import shlex
import time

from monitor.diagnosis.gain import without_it
from monitor.diagnosis.silence import OWN_TRAINHOOKS
from monitor.model.fold import NEWER
from monitor.model.pace import SINCE, recent_over
from monitor.model.report import Outcome, PhaseRow, Rates, Report
from monitor.reports import device
from monitor.reports import what_if as assumed
from monitor.reports.machine import gpus, host
from monitor.reports.table import Section
from monitor.units import UNKNOWN, duration, money, number, pace, plural, rate, share, signal_name
from trainhooks.events import clean

SLOW_STEPS = 8  # shown; the JSON has all
METRICS = 24
REASONS = 5  # lines
NO_TIMES = "not known: what was printed does not tell when a step began or ended"
DUST = 1e-6  # seconds: what is left of a sum by rounding


def sections(report: Report) -> list[Section]:
    """All that there is to say, in the order in which people ask: running? how fast? where does the time go? why?"""
    parts = [
        findings(report),
        to_try(report),
        what_if(report),
        wall(report),
        phases(report),
        device.account(report),
        device.idle_places(report),
        device.below_peak(report),
        host_phases(report),
        mfu(report),
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
    """The head of a report: what ran, how it stands, how far it is, how fast it goes."""
    run = report.run
    where = f"{clean(run.host)}, " if run.host else ""
    when = "start unknown"
    if run.started:
        when = "started " + time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    whole, recent = speed(report.throughput), speed(report.throughput.recent)
    rows = [
        ("Command", clean(shlex.join(run.command), 2000) if run.command else UNKNOWN),
        ("Where", f"{where}{when}" + (f", {run.ranks} ranks" if run.ranks > 1 else "")),
        ("Outcome", outcome(report)),
        ("Progress", progress(report)),
        ("Speed", f"{whole} ({SINCE})" if whole else f"{UNKNOWN} (no step has been measured)"),
    ]
    tags = run.facts.get("tags")
    if isinstance(tags, dict):
        rows.insert(2, ("Tags", clean(", ".join(f"{key}={value}" for key, value in tags.items()))))
    told = source(report)
    if told:
        rows.append(("Source", told))
    if recent and recent != whole and report.outcome.state == "running":
        rows.append(("Lately", f"{recent} ({recent_over(report.throughput)})"))
    if report.progress.cost is not None:
        total = report.progress.cost_total
        of = f" of about {money(total)}" if total is not None else ""
        rows.append(("Cost", f"{money(report.progress.cost)}{of}"))
    return rows


def source(report: Report) -> str:
    """Where the figures come from, if not from inside the program."""
    if report.run.recording:
        return "a recording, as it stands at its end"
    if report.run.source != "console":
        return ""
    where = "a log" if report.run.imported else "the console"
    return f"read from {where}: what the program printed of its steps, not measured inside it"


def outcome(report: Report) -> str:
    elapsed = report.progress.elapsed_seconds
    after = f" after {duration(elapsed)}" if elapsed is not None else ""
    state = report.outcome.state
    if state == "running":
        return "running" + (f" for {duration(elapsed)}" if elapsed is not None else "")
    if state == "lost" and report.run.imported:
        return f"ended{after}; a log does not tell how"
    if state == "lost":
        return f"lost{after}: it is gone, and nobody saw how it ended"
    how = _how(report.outcome)
    error = f": {clean(report.outcome.error, 300)}" if report.outcome.error else ""
    return f"{state}{f' ({how})' if how else ''}{after}{error}"


def _how(ended: Outcome) -> str:
    if ended.signal is not None:
        return f"by {signal_name(ended.signal)}"
    if ended.exit_code is not None:
        return f"exit code {ended.exit_code}"
    return "exit code unknown: nobody waited for it" if ended.state == "finished" else ""


def progress(report: Report) -> str:
    done = report.progress
    if not done.steps_done:
        return "no step has been measured"
    of = f" of {done.steps_total:,}" if done.steps_total else ""
    parts = [f"{done.steps_done:,}{of} steps" + (f" ({share(done.fraction)})" if done.fraction is not None else "")]
    if done.steps_skipped:
        parts.append(f"{done.steps_skipped:,} of them skipped")
    if done.restarts:
        again = f" ({plural(done.steps_again, 'step', 'steps')} done once more)" if done.steps_again else ""
        parts.append(plural(done.restarts, "restart", "restarts") + again)
    if report.outcome.state == "running" and done.eta_seconds is not None:
        spread = ""
        if done.eta_low is not None and done.eta_high is not None:
            spread = f" ({duration(done.eta_low)} to {duration(done.eta_high)})"
        parts.append(f"about {duration(done.eta_seconds)} left{spread}")
    return ", ".join(parts)


def speed(rates: Rates) -> str:
    """The rates that are known, tokens first: steps a second change with the batch size and say the least."""
    parts = [
        rate(rates.tokens_per_second, "tokens/s"),
        rate(rates.samples_per_second, "samples/s"),
        pace(rates.steps_per_second),
        f"MFU {share(rates.mfu)}" if rates.mfu is not None else UNKNOWN,
    ]
    return ", ".join(part for part in parts if part != UNKNOWN)


# The parts


def findings(report: Report) -> Section | None:
    if not report.findings:
        return None
    lines = []
    for finding in report.findings:
        lost = finding.lost_fraction
        of = f" (at most {share(lost)} of the elapsed time)" if lost is not None else ""
        lines.append(f"{finding.severity}: {clean(finding.title)}{of} [{clean(finding.code)}]")
        lines.extend(f"    {clean(evidence)}" for evidence in finding.evidence)
        if finding.advice:
            lines.append(f"    → {clean(finding.advice)}")
        without = without_it(report, finding)
        if without is not None:
            lines.append(f"    {without}")
    return Section("Findings", lines)


def to_try(report: Report) -> Section | None:
    lines = []
    for each in report.to_try:
        memory = "" if each.memory == "none" else f"; memory: {clean(each.memory)}"
        lines.append(f"{clean(each.text)} ({clean(each.because)}{memory})")
    return Section("To try", lines) if lines else None


def what_if(report: Report) -> Section | None:
    return Section("What if", assumed.lines(report.what_if)) if report.what_if is not None else None


def wall(report: Report) -> Section | None:
    account = report.wall
    if not account.total or not report.progress.steps_done:
        return None  # before the first step all is start-up, and the start-up has a table of its own
    if account.startup is None:
        return Section("Where the wall time went", [NO_TIMES])
    parts = [
        ("start-up", account.startup),
        ("steps", account.steps),
        *((clean(name, 40), seconds) for name, seconds in sorted(account.spans.items(), key=lambda span: -span[1])),
        ("between steps", account.between_steps),
        ("teardown", account.teardown),
    ]
    shown = [
        [name, duration(seconds), share(seconds / account.total)]
        for name, seconds in parts
        if seconds is not None and seconds > DUST
    ]
    total = ["total", duration(account.total), share(1.0)]
    return Section("Where the wall time went", rows=[["part", "time", "share"], *shown, total])


def phases(report: Report) -> Section | None:
    if not report.phases:
        return None
    return Section("Where the step time went", device.clocks(report), _phase_rows(report.phases), left=2)


def host_phases(report: Report) -> Section | None:
    """The host's lane beside the device's: what Python did, its waits for the device included."""
    if report.device is None or report.device.clock is None or not report.host_phases:
        return None
    told = "time in no phase holds the waits for the GPU: it costs nothing while the GPU is busy"
    return Section("Where the host was", [told], _phase_rows(report.host_phases), left=2)


def _phase_rows(phases: list[PhaseRow]) -> list[list[str]]:
    rows = [["phase", "clock", "share", "mean", "p50", "p95", "max", "steps"]]
    for row in phases:
        times = [duration(value) for value in (row.mean, row.p50, row.p95, row.max)]
        rows.append([clean(row.name, 40), clean(row.clock, 8), share(row.share), *times, f"{row.count:,}"])
    return rows


def mfu(report: Report) -> Section | None:
    """How the share of the hardware's peak comes about; where GPUs are at work and there is none, why."""
    told = report.throughput
    own = [clean(told.mfu_of_program)] if told.mfu_of_program else []
    if told.mfu_formula:
        return Section("How the MFU comes about", [*(clean(line) for line in told.mfu_formula), *own])
    return Section("MFU", [f"unknown: {clean(told.mfu_unknown)}", *own]) if told.mfu_unknown else None


def speed_classes(report: Report) -> Section | None:
    told = report.speed_classes
    if told is None or not told.fast + told.normal + told.slow:
        return None
    bounds = [f"up to {duration(told.fast_seconds)}", "between", f"{duration(told.slow_seconds)} or more"]
    whole = told.fast + told.normal + told.slow
    counts = [("fast", told.fast), ("normal", told.normal), ("slow", told.slow)]
    rows = [
        [name, bound, f"{count:,}", share(count / whole)] for (name, count), bound in zip(counts, bounds, strict=True)
    ]
    return Section("Steps by speed", rows=[["class", "a step", "steps", "share"], *rows], left=2)


def slow_steps(report: Report) -> Section | None:
    if not report.slow_steps:
        return None
    worst = sorted(report.slow_steps, key=lambda step: step.seconds - step.baseline, reverse=True)[:SLOW_STEPS]
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
    for name, row in list(report.metrics.items())[:METRICS]:
        values = [number(value) for value in (row.last, row.mean, row.min, row.max)]
        rows.append([clean(name, 40), *values, f"{row.count:,}", f"{row.nonfinite:,}" if row.nonfinite else ""])
    more = len(report.metrics) - METRICS
    return Section("Metrics", [f"{more:,} more in `report --json`"] if more > 0 else [], rows)


def startup(report: Report) -> Section | None:
    told = [part for part in report.startup if part.name != "other"]
    if not report.startup or (not told and not report.progress.steps_done):
        return None  # that all of it is start-up says the head
    rows = [[clean(part.name, 60), duration(part.seconds)] for part in report.startup]
    return Section("Start-up", rows=[["part", "time"], *rows])


def ranks(report: Report) -> Section | None:
    if len(report.ranks) < 2:
        return None
    lines = []
    slow = report.straggler
    if slow is not None:
        base = "of the time from step to step"
        lines.append(f"rank {slow.rank} is slowest: the others wait for it {share(slow.share)} {base}, at least")
    rows = [["rank", "median step", "waiting", "of the step", "steps"]]
    for row in report.ranks:
        waits = duration(row.usual_wait), share(row.wait_share)
        rows.append([str(row.rank), duration(row.step_seconds), *waits, f"{row.steps:,}"])
    return Section("Ranks", lines, rows)


def compiled(report: Report) -> Section | None:
    """What torch.compile did, as far as the facts tell."""
    found = report.run.facts.get("compile")
    if not isinstance(found, dict):
        return None
    told = [
        plural(found[key], one, f"{one}s")
        for key, one in (("graphs", "graph"), ("recompiles", "recompile"), ("graph_breaks", "graph break"))
        if isinstance(found.get(key), int)
    ]
    if isinstance(found.get("seconds"), int | float):
        told.append(duration(found["seconds"]))
    reasons = found.get("reasons")
    lines = [", ".join(told)] if told else []
    lines += [clean(reason, 200) for reason in reasons[:REASONS]] if isinstance(reasons, list) else []
    return Section("torch.compile", lines) if lines else None


def restarts(report: Report) -> Section | None:
    lines = [clean(row.text, 200) for row in report.alerts if row.code == "restart"]
    return Section("Restarts", lines[-REASONS:]) if lines else None


def reservations(report: Report) -> Section | None:
    """What this report does not know because it was lost."""
    lost = report.dropped
    lines = [clean(row.text, 400) for row in report.alerts if row.code in (NEWER, OWN_TRAINHOOKS)]
    if lost.events:
        lines.append(f"dropped before they reached a journal: {plural(lost.events, 'event', 'events')}")
    if lost.lines:
        lines.append(f"missing or unreadable in the journals: {plural(lost.lines, 'line', 'lines')}")
    if lost.broken_off:
        begin = plural(lost.broken_off, "journal breaks", "journals break")
        lines.append(f"{begin} off: the process's last moment is missing (0.05 s; more on a full or hanging disk)")
    return Section("Incomplete", lines) if lines else None
