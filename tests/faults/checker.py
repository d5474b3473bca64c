"""What every viewer that survived must hold: the events of the journals, each once, and nothing else."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from trainhooks.protocol import rundir

Name = tuple[str, int]  # producer, number: what identifies an event


class _Line(msgspec.Struct):
    producer: str
    seq: int
    duration: list[float] | float = 0.0  # of a line of several steps: a number of the sequence for each


_decode = msgspec.json.Decoder(_Line).decode


def journalled(run: Path) -> list[Name]:
    """Every event of a run's journals, read in another way than the product does."""
    lines = (_decode(line) for path in rundir.journals(run) for line in path.read_bytes().splitlines())
    return [(line.producer, line.seq + place) for line in lines for place in range(_events(line))]


def _events(line: _Line) -> int:
    return len(line.duration) if isinstance(line.duration, list) else 1


def seen(told: Path) -> tuple[list[Name], int]:
    """What a viewer wrote down: its events, and how many it says are missing."""
    rows = [line.split() for line in told.read_text().splitlines()]
    assert rows[-1][0] == "missing", "the viewer has not come to its end"
    return [(producer, int(seq)) for producer, seq in rows[:-1]], int(rows[-1][1])


def differences(run: Path, told: Path) -> int:
    """Events that a viewer lacks, has twice or made up."""
    truth, (given, missing) = Counter(journalled(run)), seen(told)
    have = Counter(given)
    return (truth - have).total() + (have - truth).total() + missing
