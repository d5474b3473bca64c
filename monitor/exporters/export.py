"""`trainmon export`: one run, one format, one file or stdout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import IO

from monitor.exporters import chrome, tables
from monitor.exporters.events import lines
from trainhooks.events import escaped


def write_jsonl(run: Path, target: IO[bytes]) -> int:
    """The journals' own lines, one journal after the other."""
    count = 0
    for line in lines(run):
        target.write(line + b"\n")
        count += 1
    return count


def show_jsonl(run: Path, target: IO[bytes]) -> int:
    """The same for a terminal: what is no text in the lines is written as JSON escapes it."""
    count = 0
    for line in lines(run):
        target.write(escaped(line.decode("utf-8", "backslashreplace")).encode() + b"\n")
        count += 1
    return count


FORMATS: dict[str, Callable[[Path, IO[bytes]], int]] = {
    "jsonl": write_jsonl,
    "csv": tables.write_csv,
    "parquet": tables.write_parquet,
    "chrome": chrome.write,
}
