"""The lines of a log with what was read from each, as text and JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from monitor.console.log_parser import LogSummary
from monitor.console.reading import Reading
from monitor.units import brief, duration, number, plural, rate, share
from trainhooks.protocol.limits import clean

WIDTH = 160

LINES_HEADING = f"{'line':>7}  {'kind':<8} {'step':<13} figures"

EXAMPLE = """  [[console.pattern]]
  regex = 'round (?P<step>\\d+) of (?P<total>\\d+): energy (?P<energy>\\S+)'"""


def row(reading: Reading) -> str:
    """Return one reading in one line."""
    parts = [
        _epoch(reading),
        reading.role or "",
        *(f"{name} {number(value)}" for name, value in reading.metrics.items()),
    ]
    parts += [f"{name} {brief(seconds)}" for name, seconds in reading.phases.items()]
    parts += [
        rate(reading.tokens_rate, "tokens/s") if reading.tokens_rate is not None else "",
        rate(reading.samples_rate, "samples/s") if reading.samples_rate is not None else "",
        f"{reading.tokens_total:,.0f} tokens so far" if reading.tokens_total is not None else "",
        f"{reading.samples_total:,.0f} samples so far" if reading.samples_total is not None else "",
        f"{duration(reading.seconds)} per step" if reading.seconds is not None else "",
        f"{duration(reading.elapsed)} so far" if reading.elapsed is not None else "",
        f"skipped: {reading.reason}" if reading.reason else "",
        *(f"impossible: {figure}" for figure in reading.impossible),
    ]
    label = f"{reading.label}: " if reading.label else ""
    figures = clean(label + ", ".join(part for part in parts if part), WIDTH)
    return f"{reading.number:>7}  {reading.family:<8} {_step(reading):<13} {figures}".rstrip()


def _step(reading: Reading) -> str:
    if reading.step is None:
        return (
            share(reading.fraction)
            if reading.fraction is not None
            else f"of {reading.total:,}"
            if reading.total
            else ""
        )
    return f"{reading.step:,}/{reading.total:,}" if reading.total is not None else f"{reading.step:,}"


def _epoch(reading: Reading) -> str:
    if reading.epoch is None:
        return ""
    return f"epoch {reading.epoch:g}" + (f"/{reading.epochs}" if reading.epochs else "")


def as_mapping(reading: Reading) -> dict[str, Any]:
    """Return one reading for JSON, without its unset fields."""
    known = asdict(reading)
    fields = {name: value for name, value in known.items() if value not in (None, "", [], {}, False) and name != "row"}
    if reading.step is not None:
        fields["step"] = reading.step
    return {"line": fields.pop("number", 0), "kind": fields.pop("family"), **fields}


def summary_json(summary: LogSummary) -> str:
    return json.dumps(asdict(summary), indent=1)


def summary_text(summary: LogSummary, config: str) -> str:
    """Return the summary of a log, and the lines that a user pattern could match."""
    kinds = ", ".join(f"{count:,} {family}" for family, count in summary.families.items())
    lines = [
        f"{plural(summary.lines, 'line', 'lines')}, {summary.read:,} of them read" + (f": {kinds}" if kinds else "")
    ]
    lines.append(f"  steps      {_summary_steps(summary)}")
    rows = [
        ("metrics", ", ".join(summary.metrics)),
        ("phases", ", ".join(summary.phases)),
        ("spans", ", ".join(f"{name} {duration(seconds)}" for name, seconds in summary.spans.items())),
        ("left out", ", ".join(f"{name} ({count:,} times, impossible)" for name, count in summary.impossible.items())),
        (
            "ranks",
            f"{plural(summary.other_ranks, 'line', 'lines')} of other ranks ignored" if summary.other_ranks else "",
        ),
    ]
    lines += [f"  {label:<10} {clean(text, 4000)}" for label, text in rows if text]
    lines += [f"  note       {clean(note)}" for note in summary.notes if "cannot be true" not in note]
    if summary.silent:
        lines += ["", f"Lines with unrecognized numbers ({summary.silent:,}; first ones):"]
        lines += [f"{at:>7}  {text}" for at, text in summary.silent_first]
        lines += ["", f"To read such lines, add a pattern to {config}:", EXAMPLE]
    return "\n".join(lines) + "\n"


def _summary_steps(summary: LogSummary) -> str:
    if not summary.steps:
        return "none: no step numbers found"
    done = summary.start_step + summary.steps
    of = f" of {summary.total:,}" if summary.total is not None else ""
    skipped = f", {summary.skipped:,} skipped" if summary.skipped else ""
    before = f", {summary.start_step:,} before the start of the log" if summary.start_step else ""
    if summary.timed:
        times = f"; times for {summary.timed:,}, over {duration(summary.seconds)}"
    else:
        times = "; no times in the text (while a program runs, line arrival times are used)"
    return f"{done:,}{of}{skipped}{before}{times}"
