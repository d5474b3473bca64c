"""Sections of a report on the time of the run: its parts, and what stack samples say of the time in no phase."""

from __future__ import annotations

from monitor.model.cycle import steps_text
from monitor.model.report import Report
from monitor.model.steps.pace import SINCE
from monitor.reports.listings import Section
from monitor.units import duration, share
from trainhooks.protocol.limits import clean

NO_TIMES = "unknown: no step times in the console output"
MAX_KINDS, MAX_SLOW = 4, 3  # lines that people read
ROUNDING_SECONDS = 1e-6  # seconds: what is left of a sum by rounding


def wall(report: Report) -> Section | None:
    account = report.wall
    if not account.total or not report.progress.steps_done:
        return None  # before the first step all is start-up, which has its own table
    if account.startup is None:
        return Section("Wall time", [NO_TIMES])
    shown = [
        [clean(name, 40), duration(seconds), share(seconds / account.total)]
        for name, seconds in account.parts
        if seconds > ROUNDING_SECONDS
    ]
    total = ["total", duration(account.total), share(1.0)]
    return Section("Wall time", rows=[["part", "time", "share"], *shown, total])


def iteration(report: Report) -> Section | None:
    """Return the iteration of reinforcement learning, by role and part."""
    found = report.cycle
    if found is None:
        return None
    clock = "" if report.device is None else ", by the host's clock"
    line = f"{duration(found.seconds)}, {steps_text(found.steps)}; mean of the recent ones{clock}"
    if found.staleness is not None:
        line += f"; staleness {steps_text(found.staleness)}"
    lines = [line]
    if len(found.kinds) > 1:
        kinds = [
            f"{clean(kind.name, 60)} {share(kind.share)} ({duration(kind.typical_seconds)})" for kind in found.kinds
        ]
        lines.append(f"kinds, with their typical time: {'; '.join(kinds[:MAX_KINDS])}")
    worst = sorted(found.slow, key=lambda slow: slow.baseline - slow.seconds)
    lines += [clean(str(slow), 200) for slow in worst[:MAX_SLOW]]
    rows = [["role", "part", "time", "share"]]
    for role in found.roles:
        for part in role.parts:
            rows.append([clean(role.label, 40), part.name, duration(part.seconds), share(part.share)])
    if len(found.roles) == 1 and not found.roles[0].role and not found.roles[0].stage:
        rows = [row[1:] for row in rows]
    return Section("Iteration", lines, rows, left=2 if len(rows[0]) == 4 else 1)


def unnamed(report: Report) -> Section | None:
    """Return the unnamed time by lines of the program."""
    account = report.unnamed
    if account is None or not account.matters(report.wall.stepping):
        return None
    rows = [["what", "where", "time", "share", "per step"]]
    for part in account.parts:
        grown = f"{duration(part.early)} → {duration(part.late)}, growing" if part.grows else ""
        place = "elsewhere" if part.place is None else clean(part.place, 128)
        rows.append([clean(part.activity or "", 24), place, duration(part.seconds), share(part.share), grown])
    clock = "" if report.device is None else " by the host's clock"
    parts = f"places sampled, {account.looks:,} looks; share of the time {SINCE}"
    line = f"{duration(account.seconds)}{clock}; {parts}"
    return Section("Unnamed time", [line], rows, left=2)
