"""Journals as tests read them: every step on a line of its own, however many the writer put on one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from monitor.sources.step_lines import single_step_lines


def single_lines(journal: bytes) -> list[bytes]:
    """Return the lines of a journal, a line of several steps as a line for each."""
    return [line for each in journal.splitlines() for line in single_step_lines(each)]


def events_in(journal: Path) -> list[dict[str, Any]]:
    """Return all of a journal as the mappings of single lines. One that is no JSON raises a ValueError."""
    return [json.loads(line) for line in single_lines(journal.read_bytes())]


def steps_in(journal: Path) -> int:
    """Return how many steps a journal holds, also while it is written."""
    return sum(line.startswith(b'{"kind":"step"') for line in single_lines(journal.read_bytes()))
