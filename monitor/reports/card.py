"""The short report of a run: how it goes, why it is slow and what to do, where its time went. At most 32 lines.

What it says is apart from how it is laid out, for the page that says the same in a browser.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from functools import partial

from monitor.diagnosis.answer import Answer, answer
from monitor.diagnosis.explain import shorten_advice
from monitor.diagnosis.verdict import NO_FINDING
from monitor.model import group
from monitor.model.cycle import IDLE_PART
from monitor.model.report import Finding, GpuRow, Report, usual_shares
from monitor.model.view import View
from monitor.reports import run_text
from monitor.reports.time_sections import NO_TIMES
from monitor.units import UNKNOWN, bar, duration, pace, rate, share, size, size_of
from trainhooks.protocol.limits import clean

WIDTH = 100  # cells of a line
INDENT = "  "
GAP = "   "  # between facts of a line
MAX_EVIDENCE, MAX_OTHERS, MAX_PHASES, MAX_PARTS = 3, 2, 6, 5  # lines
BAR = 36  # cells
MIN_SHARE = 0.01  # of a phase or a part of the time that is named
LABEL = 11  # cells of a label at the left


def text(view: View) -> str:
    """Return the short report, of lines of at most WIDTH characters, but for names without spaces."""
    explained = "" if view.verdict.code == NO_FINDING else f"trainmon explain {view.verdict.code}"
    more = _flow(filter(None, [f"trainmon report --full {clean(view.report.run.id or '')}", explained]), WIDTH - LABEL)
    return "\n".join(line.rstrip() for line in [*lines(view), *_labeled("more", more)]) + "\n"


def lines(view: View) -> list[str]:
    """Return the same without where to read more."""
    report = view.report
    told = [line for row in facts(view) for line in _flow(row, hanging=True)]
    said = answer(report, view.verdict)
    told += [*advice(said), *_others(said.others), *_time(report)]
    notes = [line for note in _notes(report) for line in _wrap(note, WIDTH - LABEL)]
    return told + _labeled("INCOMPLETE", notes)


# The run


def facts(view: View) -> list[list[str]]:
    """Return rows of facts, cleaned: the run and its speed, its trainings, its machine, what it learns by."""
    report = view.report
    done = report.progress
    tokens, samples = (
        rate(whole, unit)
        for whole, unit in (
            (report.throughput.tokens_per_second, "tokens/s"),
            (report.throughput.samples_per_second, "samples/s"),
        )
    )
    speeds = [
        pace(report.throughput.steps_per_second),
        tokens,
        samples,
        run_text.collected(report.throughput.collected),
    ]
    if report.throughput.mfu is not None:
        speeds.append(f"MFU {share(report.throughput.mfu)}")
    run = [clean(report.run.name or report.run.id or "a run"), run_text.outcome(report)]
    run += [run_text.progress(report)] if done.steps_done else []
    run += [each for each in speeds if each not in (UNKNOWN, "")]
    run += [f"cost {run_text.cost(report)}"] if done.cost is not None else []
    run += [run_text.source(report)] if run_text.source(report) else []
    run += [against] if (against := view.against) else []
    trainings = [f"Trainings {clean(group.line(report.group))}"] if report.group else []
    doing = run_text.now(view.open) if report.outcome.state == "running" else ""
    now = [f"now {doing}"] if doing else []
    return [run, trainings, _machine(report), [str(signal) for signal in view.signals], now]


def _machine(report: Report) -> list[str]:
    gpus = [gpu for gpu in report.gpus if gpu.ours is not False]
    device = report.device
    if not gpus or (device is None and not any(gpu.ours for gpu in gpus)):
        host = report.host
        cores = f"{host.tree_cpu / 100:.1f} of {host.cores} cores" if host.tree_cpu is not None and host.cores else ""
        memory = size(host.tree_rss) if host.tree_rss else ""
        facts = [fact for fact in (cores, memory, _ranks(report)) if fact]
        return ["CPU", *facts] if cores or memory else facts
    first = gpus[0]
    several = f"{len(gpus)} x " if len(gpus) > 1 else ""
    facts = [several + clean(first.name or first.uuid) + (" SIMULATED" if first.simulated else "")]
    if device is not None and device.busy_least is not None and device.busy_most is not None:
        facts.append(f"busy {_range(device.busy_least, device.busy_most)}")
    elif device is not None and device.utilization is not None:
        facts.append(f"busy {share(device.utilization)} (driver)")
    if device is not None and device.tensor_active is not None:
        facts.append(f"tensor cores {share(device.tensor_active)}")
    return [*facts, *_readings(first), *filter(None, [_ranks(report)])]


def _range(low: float, high: float) -> str:
    return share(low) if share(low) == share(high) else f"{share(low)} to {share(high)}"


def _readings(gpu: GpuRow) -> Iterable[str]:
    """Return power, memory and temperature; of a run that has ended, power over its steps."""
    mean = gpu.over_steps.get("power")
    power = gpu.power if mean is None else mean.mean
    if power is not None:
        yield f"{power:.0f}{f' of {gpu.power_limit:.0f}' if gpu.power_limit else ''} W"
    if gpu.memory_used is not None:
        yield size_of(gpu.memory_used, gpu.memory_total)
    if gpu.temperature is not None:
        yield f"{gpu.temperature:.0f} °C"


def _ranks(report: Report) -> str:
    if report.run.ranks < 2:
        return ""
    slow = report.straggler
    waits = f", the others wait {share(slow.share)} for rank {slow.rank}" if slow is not None else ""
    shown = f", figures of rank {report.run.rank}" if report.run.rank is not None else ""
    return f"{report.run.ranks} ranks{shown}{waits}"


# Why, and what to do


def advice(said: Answer, evidence: int = MAX_EVIDENCE) -> list[str]:
    """Return the answer as lines.

    Args:
        evidence: how many lines of it, at most.
    """
    title = said.title + (f"  [{said.code}]" if said.code else "")
    lines = _labeled(said.heading, _wrap(title, WIDTH - LABEL))
    for line in said.evidence[:evidence]:
        lines += _wrapped(line)[:2]  # of the page, which has it whole
    lines += ["DO THIS"] if said.to_do else []
    for place, step in enumerate(said.to_do, 1):
        lines += _wrap(step, WIDTH - 5, initial_indent=f"{INDENT}{place}  ", subsequent_indent=INDENT + "   ")
    return [*lines, *(_wrapped(said.gain) if said.gain else [])]


def _others(others: Sequence[Finding]) -> list[str]:
    if not others:
        return []
    lines = ["ALSO"]
    for finding in others[:MAX_OTHERS]:
        title = f"{finding.severity}: {clean(finding.title)}  [{clean(finding.code)}]"
        lines += _wrap(title, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT * 2)[:2]
        if fix := shorten_advice(clean(finding.advice), WIDTH - 6):
            lines.append(f"{INDENT * 2}→ {fix}")
    more = others[MAX_OTHERS:]
    if more:
        lines += _wrapped(f"and {len(more)} more: {', '.join(clean(finding.code) for finding in more)}")[:1]
    return lines


# Where the time went


def _time(report: Report) -> list[str]:
    if not report.progress.steps_done:
        return []
    return [*_bars(report), *_account(report), *_slow(report)]


def bars(report: Report) -> tuple[str, list[tuple[str, float, float]]] | None:
    """Return the phases of an iteration, or of a step, in the order of the loop: a title; name, seconds and share."""
    cycle = report.cycle
    if cycle is not None and cycle.phases and cycle.count:  # else steps, of which how many make one is unknown
        typical = f"; median {duration(cycle.typical_seconds)}" if cycle.typical_seconds else ""
        title = f"ITERATION{GAP}{duration(cycle.seconds)}, mean of recent ones ({cycle.count:,} in all){typical}"
        order = {row.name: place for place, row in enumerate(report.phases)}
        parts = sorted(cycle.phases, key=lambda part: order.get(part.name, len(order)))
        rows = [(part.name, part.seconds, part.share) for part in parts]
    elif report.phases:
        clock = "GPU clock" if any(row.clock == "cuda" for row in report.phases) else "host clock"
        once = sum(row.share * (1 - row.usual_mean / row.mean) for row in report.phases if row.mean)
        aside = f"; one-offs, as a first step, took {share(once)} of step time" if once >= MIN_SHARE else ""
        title = f"STEP{GAP}{clock}, mean of a step{aside}"
        shares = usual_shares(report.phases)
        rows = [(row.name, row.usual_mean, shares[row.name]) for row in report.phases]
    else:
        return None
    kept = {name for name, _, _ in sorted(rows, key=lambda row: -row[2])[:MAX_PHASES]}
    return title, [row for row in rows if row[0] in kept and row[2] >= MIN_SHARE]


def _bars(report: Report) -> list[str]:
    found = bars(report)
    if found is None:
        return []
    title, rows = found
    names = max((len(clean(name, 24)) for name, _, _ in rows), default=0)
    return [title, *(_bar(*row, names) for row in rows), *_waiting(report)]


def _waiting(report: Report) -> list[str]:
    """Return which roles of an iteration wait for others, where several work side by side."""
    roles = report.cycle.roles if report.cycle is not None else []
    if not any(role.is_concurrent for role in roles):
        return []
    idle = [(role.label, part.share) for role in roles for part in role.parts if part.name == IDLE_PART]
    facts = [f"{clean(label, 24)} {share(part)}" for label, part in idle if part >= MIN_SHARE]
    return _labeled("WAITING", _flow(facts, WIDTH - LABEL)) if facts else []


def _bar(name: str, seconds: float, part: float, names: int) -> str:
    return f"{INDENT}{clean(name, 24):<{names}}  {duration(seconds):>8}  {share(part):>5}  {bar(part, BAR)}"


def _account(report: Report) -> list[str]:
    wall = report.wall
    if not wall.total:
        return []
    if wall.startup is None:
        return _labeled("RUN", [NO_TIMES])
    shown = [(name, seconds) for name, seconds in wall.parts if seconds >= MIN_SHARE * wall.total]
    facts = [f"{clean(name, 40)} {duration(seconds)} ({share(seconds / wall.total)})" for name, seconds in shown]
    return _labeled("RUN", _flow([f"{duration(wall.total)}:", *facts[:MAX_PARTS]], WIDTH - LABEL))


def _slow(report: Report) -> list[str]:
    """Return the step that lost most."""
    if not report.slow_steps:
        return []
    worst = max(report.slow_steps, key=lambda step: step.seconds - step.baseline)
    more = f" ({len(report.slow_steps) - 1:,} more)" if len(report.slow_steps) > 1 else ""
    return _labeled("", _wrap(clean(str(worst)) + more, WIDTH - LABEL)[:2])


def _notes(report: Report) -> list[str]:
    """Return what is missing from this report because events or lines were lost."""
    lost = run_text.reservations(report)
    return [] if lost is None else lost.lines[:2]


# Lines


def _labeled(label: str, lines: Sequence[str]) -> list[str]:
    return [f"{label if not place else '':<{LABEL}}{line}" for place, line in enumerate(lines)]


# A path or a command stays whole: people copy them.
_wrap = partial(textwrap.wrap, break_long_words=False, break_on_hyphens=False)


def _wrapped(words: str) -> list[str]:
    return _wrap(words, WIDTH, initial_indent=INDENT, subsequent_indent=INDENT * 2)


def _flow(facts: Iterable[str], width: int = WIDTH, hanging: bool = False) -> list[str]:
    """Return facts side by side, in as many lines as they need; a fact is broken only if it has no room alone."""
    lines: list[str] = []
    for fact in facts:
        indent = INDENT if hanging and lines else ""
        if lines and len(lines[-1]) + len(GAP) + len(fact) <= width:
            lines[-1] += GAP + fact
        else:
            lines += _wrap(fact, width, initial_indent=indent, subsequent_indent=INDENT * 2)
    return lines
