"""Lists as text and JSON: sections, reports, runs, pages of findings, readings of a log."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from textwrap import wrap
from typing import Any

import msgspec

from monitor.console.reader import LogSummary
from monitor.console.reading import Reading
from monitor.diagnosis.explain import FAMILIES, Page, page
from monitor.model.report import Report
from monitor.runs.catalogue import RunEntry
from monitor.units import UNKNOWN, age, brief, duration, number, pace, plural, rate, share
from trainhooks.protocol.limits import clean

# Sections, and tables in plain text and Markdown.

Rows = Sequence[Sequence[str]]  # the first row is the head


@dataclass(frozen=True)
class Section:
    """One titled part of a report: lines, then a table."""

    title: str
    lines: list[str] = field(default_factory=list)
    rows: Rows = ()
    left: int = 1  # columns of words; the others are numbers


def plain(rows: Rows, left: int, indent: str = "  ") -> list[str]:
    """Return aligned lines: the first `left` columns to the left, the others (numbers) to the right."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = (text.ljust(widths[at]) if at < left else text.rjust(widths[at]) for at, text in enumerate(row))
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def markdown(rows: Rows, left: int) -> list[str]:
    head, *body = rows
    rule = ["---" if at < left else "---:" for at in range(len(head))]
    return ["| " + " | ".join(cells) + " |" for cells in (map(escape, head), rule, *(map(escape, row) for row in body))]


def escape(text: str) -> str:
    """Return text escaped for Markdown: it may come from outside."""
    for sign in "\\`*[]|":
        text = text.replace(sign, "\\" + sign)
    return text.replace("<", "&lt;")


# A report as JSON; its keys are stable. Unknown is null, and so are non-finite numbers.


def as_json(report: Report) -> str:
    """Return the report as JSON, one key a line."""
    return msgspec.json.format(as_line(report), indent=2)


def as_line(report: Report) -> str:
    """Return the report as JSON in one line."""
    keys = msgspec.to_builtins(report)
    for alert in keys["alerts"]:
        del alert["slow_step"], alert["rank"]  # for the screens only, not in the JSON
    return msgspec.json.encode(keys).decode()


# The runs as a table.


def listing(entries: Sequence[RunEntry]) -> str:
    """Return a table with one line for each run."""
    rows = [["RUN", "STATE", "STEPS", "SPEED", "STARTED"]]
    rows += [[clean(entry.id), _state(entry), _entry_steps(entry), _speed(entry), _age(entry)] for entry in entries]
    lines = plain(rows, left=2, indent="")
    if any(entry.tags for entry in entries):
        tags_column = ["TAGS", *(_tags(entry) for entry in entries)]
        lines = [f"{line}  {tags}".rstrip() for line, tags in zip(lines, tags_column, strict=True)]
    return "\n".join(lines)


def standing(entry: RunEntry) -> str:
    """Return progress and speed in a few words."""
    return f"{_entry_steps(entry)} steps, {_speed(entry)}, started {_age(entry)}"


def _tags(entry: RunEntry) -> str:
    return clean(", ".join(f"{key}={value}" for key, value in entry.tags.items()))


def _state(entry: RunEntry) -> str:
    if entry.signal:
        return f"{entry.state} (signal {entry.signal})"
    if entry.state == "finished" and entry.exit_code is None:
        return "finished (code unknown)"  # nothing waited for its exit code
    return f"{entry.state} (code {entry.exit_code})" if entry.exit_code else entry.state


def _entry_steps(entry: RunEntry) -> str:
    if entry.step is None:
        return UNKNOWN
    return f"{entry.step:,}/{entry.steps_total:,}" if entry.steps_total else f"{entry.step:,}"


def _speed(entry: RunEntry) -> str:
    return pace(entry.steps_per_second)


def _age(entry: RunEntry) -> str:
    if entry.age_seconds is None:
        return UNKNOWN
    return f"{age(max(0.0, entry.age_seconds))} ago"


# The pages of findings, as text of a given width.

Style = Callable[[str], str]

_CODE = re.compile(r"`[^`]*`")
_HARD_SPACE = "\N{NO-BREAK SPACE}"


def page_text(shown: Page, width: int, strong: Style | None = None) -> str:
    """Return one page; without a style for headings as Markdown."""
    title = f"{shown.code}: {shown.line}"
    lines = [strong(title) if strong is not None else f"# {title}"]
    for heading, body in shown.sections:
        lines += ["", strong(heading) if strong is not None else f"## {heading}", *_body(body, width)]
    return "\n".join(lines) + "\n"


def list_text(strong: Style | None = None) -> str:
    """Return every code with its one line, by family."""
    widest = max(len(code) for codes in FAMILIES.values() for code in codes)
    lines: list[str] = []
    for family, codes in FAMILIES.items():
        lines += ["", strong(family) if strong is not None else family]
        for shown in map(page, codes):
            lines.append(f"  {shown.code.ljust(widest)}  {shown.line}")
    return "\n".join([*lines[1:], "", "Full page: trainmon explain CODE"]) + "\n"


def _body(body: str, width: int) -> list[str]:
    """Return paragraphs and lists, filled to the width: inserted numbers change the lengths of lines."""
    lines: list[str] = []
    for block in re.split(r"\n(?=- |\n)", body):
        indent = "  " if block.startswith("- ") else ""
        whole = _CODE.sub(lambda found: _together(found[0], width), " ".join(block.split()))
        filled = wrap(whole, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
        lines += [line.replace(_HARD_SPACE, " ") for line in filled]
    return lines


def _together(code: str, width: int) -> str:
    """Return code protected from line breaks, unless it is longer than half a line."""
    return code.replace(" ", _HARD_SPACE) if 2 * len(code) <= width else code


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
