"""A comparison of runs as text, Markdown or a mapping for JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from monitor.model.comparison.compare import MAX_WORK_DIFFERENCE, Comparison
from monitor.model.comparison.loop_pace import STEP_UNIT
from monitor.reports import listings
from monitor.reports.machine_output import versioned
from monitor.units import UNKNOWN, duration, number, rate, share
from trainhooks.protocol.limits import clean

ROUNDING = 1e-6  # seconds: what rounding leaves of a sum
MIN_TOLD_DIFFERENCE = 0.005  # ratios nearer to 1 are "as fast"
MIN_EXPLAINED_SHARE = 0.3  # of the difference: a part that explains less is not named in one line
MIN_CHANGE_SHARE = 0.01  # of the step time: phases that changed by less are left out of the text
MOST_CHANGES = 40
MAX_SKIPPED_DIFFERENCE = 0.5  # of the steps: beyond it most of the difference in speed is that of the work
MOST_UNLIKE = 4  # differences beside the verdict
MIN_RATIO_CHANGE = 0.1  # ratios that differ by less count as equal


@dataclass(frozen=True, slots=True)
class Comparisons:
    """What `compare --json` prints: every other run against the first one."""

    comparisons: list[Comparison]


def mapping(rows: list[Comparison]) -> dict[str, Any]:
    """Return the comparisons for JSON, of every other run with the first one."""
    return versioned(asdict(Comparisons(rows)))


def text(row: Comparison, markdown: bool = False) -> str:
    """Return one comparison as text for people."""
    lines = [*_head(row, markdown), *_speeds(row), *_work(row), *_phases(row, markdown), *_wall(row, markdown)]
    lines += [*_metrics(row, markdown), *_changed(row, markdown)]
    lines += [listings.escape(line) if markdown else line for line in (f"note: {each}" for each in row.warnings)]
    return "\n".join(lines) + "\n"


def _title(words: str, markdown: bool) -> str:
    return f"\n### {words}\n" if markdown else f"\n{words}"


def _item(words: str, markdown: bool) -> str:
    return f"- {listings.escape(words)}" if markdown else f"  {words}"


def _head(row: Comparison, markdown: bool) -> list[str]:
    title = f"{row.after} against {row.before}: {verdict(row)}"
    return [f"## {listings.escape(title)}\n" if markdown else title]


def verdict(row: Comparison) -> str:
    """Return `2.10x slower per token (1.98x to 2.22x); data explains 94%`."""
    before, after = row.skipped
    if abs(after - before) > MAX_SKIPPED_DIFFERENCE:
        return f"not the same work: {_skipped(before)} skipped before, {_skipped(after)} now"
    if row.slower is None:
        return "speeds not comparable: one run has no steps"
    words = "as fast" if abs(row.slower - 1) < MIN_TOLD_DIFFERENCE else _ratio(row.slower)
    words += "" if row.per == STEP_UNIT else f" per {row.per}"
    if row.interval is None:
        words += " (unproven: too few steps)"
    else:
        words += f" ({' to '.join(f'{end:.2f}x' for end in _ends(row.slower, row.interval))})"
        words = words if row.more_than_noise else f"not certain: {words}"
    if row.unlike:
        named = ", ".join(
            f"{clean(each.name, 40)} {_value(each.before)} → {_value(each.after)}" for each in row.unlike[:MOST_UNLIKE]
        )
        more = f", {len(row.unlike) - MOST_UNLIKE} more" if len(row.unlike) > MOST_UNLIKE else ""
        words += f" (not alike: {named}{more})"
    first = max(row.phases, key=lambda phase: phase.explains or 0.0, default=None)
    if first is not None and first.explains is not None and first.explains > MIN_EXPLAINED_SHARE:
        words += f"; {first.name} explains {share(min(1.0, first.explains))}"
    return words


def _ratio(slower: float) -> str:
    return f"{slower:.2f}x slower" if slower > 1 else f"{1 / slower:.2f}x faster"


def _ends(slower: float, interval: tuple[float, float]) -> tuple[float, float]:
    """Return the ends of the interval in the terms of the ratio: of a faster run, how many times faster."""
    low, high = interval
    return (low, high) if slower > 1 - MIN_TOLD_DIFFERENCE else (1 / high, 1 / low)


def _skipped(part: float) -> str:
    return "all steps" if part == 1.0 else "no step" if part == 0.0 else f"{share(part)} of the steps"


def _speeds(row: Comparison) -> list[str]:
    before, after = row.step_seconds
    lines = [f"  from step to step  {duration(before)} → {duration(after)}  {row.noise}"]
    for name, unit in (("tokens_per_second", "tok/s"), ("samples_per_second", "samples/s")):
        one, two = getattr(row, name)
        if one is not None or two is not None:
            lines.append(f"  {unit:<10}  {rate(one, unit)} → {rate(two, unit)}")
    return lines


def _work(row: Comparison) -> list[str]:
    """Return the work a step where it differs, and the ratio by steps that did work where that differs."""
    lines = []
    for name, before, after in (
        ("tokens per step", row.work[0].tokens, row.work[1].tokens),
        ("samples per step", row.work[0].samples, row.work[1].samples),
        ("FLOPs per token", row.work[0].flops_a_token, row.work[1].flops_a_token),
    ):
        if before and after and abs(after / before - 1) > MAX_WORK_DIFFERENCE:
            lines.append(f"  {name}  {number(before)} → {number(after)}  ({after / before:.2f}x)")
    per_success, per_step = row.slower_a_success, row.slower
    if per_success and per_step and abs(per_success / per_step - 1) > MIN_RATIO_CHANGE:
        lines.append(f"  step time per successful step: {per_success:.2f}x")
    return lines


def _phases(row: Comparison, markdown: bool) -> list[str]:
    whole = sum(phase.before or 0.0 for phase in row.phases)
    shown = [
        phase for phase in row.phases if abs((phase.after or 0.0) - (phase.before or 0.0)) >= MIN_CHANGE_SHARE * whole
    ]
    if not shown:
        return []
    lines = [_title("Difference by part (mean time per step, one-offs left out)", markdown)]
    for phase in shown:
        part = f", {share(min(1.0, phase.explains))} of it" if phase.explains is not None and phase.explains > 0 else ""
        lines.append(_item(f"{phase.name}: {_or_none(phase.before)} → {_or_none(phase.after)}{part}", markdown))
    return lines


def _wall(row: Comparison, markdown: bool) -> list[str]:
    lines = []
    if any(max(before or 0.0, after or 0.0) > ROUNDING for before, after in row.once.values()):
        lines.append(_title("One-offs (in no ratio)", markdown))
        for name, (before, after) in row.once.items():
            if max(before or 0.0, after or 0.0) > ROUNDING:
                lines.append(_item(f"{name}: {_or_none(before)} → {_or_none(after)}", markdown))
    lines.append(_title("Elapsed time", markdown))
    for name, (before, after) in row.wall.items():
        if max(before or 0.0, after or 0.0) > ROUNDING:
            lines.append(_item(f"{name.replace('_', ' ')}: {_or_none(before)} → {_or_none(after)}", markdown))
    if row.cost != (None, None):
        costs = [UNKNOWN if cost is None else f"${cost:.2f}" for cost in row.cost]
        lines.append(_item(f"cost: {costs[0]} → {costs[1]}", markdown))
    return lines


def _metrics(row: Comparison, markdown: bool) -> list[str]:
    if not row.metrics:
        return []
    lines = [_title("Last values", markdown)]
    for name, (before, after) in list(row.metrics.items())[:MOST_CHANGES]:
        lines.append(_item(f"{name}: {_value(before)} → {_value(after)}", markdown))
    return lines


def _changed(row: Comparison, markdown: bool) -> list[str]:
    if not row.changed:
        return [_title("Same command, config and versions", markdown)]
    lines = [_title("Changes", markdown)]
    for change in row.changed[:MOST_CHANGES]:
        lines.append(_item(f"{change.name}: {_value(change.before)} → {_value(change.after)}", markdown))
    if len(row.changed) > MOST_CHANGES:
        lines.append(_item(f"and {len(row.changed) - MOST_CHANGES} more: see --json", markdown))
    return lines


def _or_none(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds)


def _value(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:120]
