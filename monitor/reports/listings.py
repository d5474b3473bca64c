"""Sections and tables in plain text and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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


def plain_section(section: Section) -> list[str]:
    """Return a section as lines."""
    table = plain(section.rows, section.left) if section.rows else []
    return [section.title, *(f"  {line}" for line in section.lines), *table]


def markdown(rows: Rows, left: int) -> list[str]:
    head, *body = rows
    rule = ["---" if at < left else "---:" for at in range(len(head))]
    return ["| " + " | ".join(cells) + " |" for cells in (map(escape, head), rule, *(map(escape, row) for row in body))]


def escape(text: str) -> str:
    """Return text escaped for Markdown: it may come from outside."""
    for sign in "\\`*[]|":
        text = text.replace(sign, "\\" + sign)
    return text.replace("<", "&lt;")
