"""The runs as a table."""

from __future__ import annotations

from collections.abc import Sequence

from monitor.reports.listings import plain
from monitor.runs.catalogue import RunEntry
from monitor.units import UNKNOWN, age, pace
from trainhooks.protocol.limits import clean

MIN_ANSWER = 30  # cells: of less nobody understands a verdict


def listing(entries: Sequence[RunEntry], width: int) -> str:
    """Return a table with one line for each run.

    Args:
        width: cells of a line; the verdicts are cut there, and left out where they have no room.
    """
    rows = [["RUN", "STATE", "STEPS", "SPEED", "STARTED"]]
    rows += [[clean(entry.id), _state(entry), _entry_steps(entry), _speed(entry), _age(entry)] for entry in entries]
    lines = plain(rows, left=2, indent="")
    if any(entry.tags for entry in entries):
        tags_column = ["TAGS", *(_tags(entry) for entry in entries)]
        lines = [f"{line}  {tags}".rstrip() for line, tags in zip(lines, tags_column, strict=True)]
    room = width - max(map(len, lines)) - 2
    if any(entry.verdict for entry in entries) and room >= MIN_ANSWER:
        widest = max(map(len, lines))
        answers = ["WHY, AND WHAT TO DO", *map(_answer, entries)]
        lines = [f"{line:<{widest}}  {said[:room]}".rstrip() for line, said in zip(lines, answers, strict=True)]
    return "\n".join(lines)


def standing(entry: RunEntry) -> str:
    """Return progress and speed in a few words."""
    return f"{_entry_steps(entry)} steps, {_speed(entry)}, started {_age(entry)}"


def _answer(entry: RunEntry) -> str:
    return clean(f"{entry.verdict} → {entry.fix}" if entry.fix else entry.verdict or "", 400)


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
