"""A comparison of runs as text, Markdown or a mapping for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from monitor.model.compare import SAME_WORK, Comparison
from monitor.units import UNKNOWN, duration, number, rate, share

LEAST = 0.01  # of the step time: phases that changed by less are left out of the text
MOST_CHANGES = 40
SUCCESS_TELLS = 0.1  # ratios that differ by less say the same


def mapping(rows: list[Comparison]) -> dict[str, Any]:
    """For JSON: the comparisons, each of a run with the first one."""
    return {"comparisons": [asdict(row) for row in rows]}


def text(row: Comparison, markdown: bool = False) -> str:
    """One comparison, for people."""
    lines = [*_head(row, markdown), *_speeds(row), *_work(row), *_phases(row, markdown), *_wall(row, markdown)]
    lines += [*_metrics(row, markdown), *_changed(row, markdown), *(f"note: {each}" for each in row.warnings)]
    return "\n".join(lines) + "\n"


def _title(words: str, markdown: bool) -> str:
    return f"\n### {words}\n" if markdown else f"\n{words}"


def _item(words: str, markdown: bool) -> str:
    return f"- {words}" if markdown else f"  {words}"


def _head(row: Comparison, markdown: bool) -> list[str]:
    title = f"{row.after} against {row.before}: {verdict(row)}"
    return [f"## {title}\n" if markdown else title]


def verdict(row: Comparison) -> str:
    """`2.10x slower a token; data explains 94 %`."""
    if row.slower is None:
        return "speeds cannot be compared: one of them has no steps"
    words = "as fast" if abs(row.slower - 1) < 0.005 else ""
    if not words:
        ratio = row.slower if row.slower > 1 else 1 / row.slower
        words = f"{ratio:.2f}x {'slower' if row.slower > 1 else 'faster'}"
        if row.more_than_noise is False:
            words += ", which is within the noise"
    words += "" if row.per == "step" else f" a {row.per}"
    first = row.phases[0] if row.phases else None
    if row.more_than_noise and first is not None and first.explains is not None and first.explains > 0.3:
        words += f"; {first.name} explains {share(min(1.0, first.explains))}"
    return words


def _speeds(row: Comparison) -> list[str]:
    before, after = row.step_seconds
    lines = [f"  usual step  {duration(before)} → {duration(after)}  ({row.noise})"]
    for name, unit in (("tokens_per_second", "tok/s"), ("samples_per_second", "samples/s")):
        one, two = getattr(row, name)
        if one is not None or two is not None:
            lines.append(f"  {unit:<10}  {rate(one, unit)} → {rate(two, unit)}")
    return lines


def _work(row: Comparison) -> list[str]:
    """What a step does, where it is not the same; and the ratio by steps that worked, where it says something else."""
    lines = []
    for name, before, after in (
        ("tokens a step", row.work[0].tokens, row.work[1].tokens),
        ("samples a step", row.work[0].samples, row.work[1].samples),
        ("FLOPs a token", row.work[0].flops_a_token, row.work[1].flops_a_token),
    ):
        if before and after and abs(after / before - 1) > SAME_WORK:
            lines.append(f"  {name}  {number(before)} → {number(after)}  ({after / before:.2f}x)")
    each, usual = row.slower_a_success, row.slower
    if each and usual and abs(each / usual - 1) > SUCCESS_TELLS:
        lines.append(f"  all time in steps over the steps that did their work: {each:.2f}x")
    return lines


def _phases(row: Comparison, markdown: bool) -> list[str]:
    whole = sum(each.before or 0.0 for each in row.phases)
    shown = [each for each in row.phases if abs((each.after or 0.0) - (each.before or 0.0)) >= LEAST * whole]
    if not shown:
        return []
    lines = [_title("Where the difference is (mean seconds a step)", markdown)]
    for each in shown:
        part = f", {share(min(1.0, each.explains))} of it" if each.explains is not None and each.explains > 0 else ""
        lines.append(_item(f"{each.name}: {_or_none(each.before)} → {_or_none(each.after)}{part}", markdown))
    return lines


def _wall(row: Comparison, markdown: bool) -> list[str]:
    lines = [_title("Elapsed time", markdown)]
    for name, (before, after) in row.wall.items():
        if before or after:
            lines.append(_item(f"{name.replace('_', ' ')}: {_or_none(before)} → {_or_none(after)}", markdown))
    if row.cost != (None, None):
        costs = [UNKNOWN if each is None else f"${each:.2f}" for each in row.cost]
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
        return [_title("Nothing that is known of them has changed", markdown)]
    lines = [_title("What changed", markdown)]
    for each in row.changed[:MOST_CHANGES]:
        lines.append(_item(f"{each.name}: {_value(each.before)} → {_value(each.after)}", markdown))
    if len(row.changed) > MOST_CHANGES:
        lines.append(_item(f"and {len(row.changed) - MOST_CHANGES} more: see --json", markdown))
    return lines


def _or_none(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration(seconds)


def _value(value: Any) -> str:
    if value is None:
        return UNKNOWN
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:120]
