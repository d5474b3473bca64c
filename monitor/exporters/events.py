"""The events of a run, read from its journals to their present ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from monitor.sources.decode import decode
from monitor.sources.journal import JournalTail
from trainhooks import rundir
from trainhooks.events import Event, Hello, Step


def lines(run: Path) -> Iterator[bytes]:
    """Every whole line of every journal, as it stands there."""
    for path in rundir.journals(run):
        tail = JournalTail(path)
        while batch := tail.read():
            yield from batch


def events(run: Path) -> Iterator[tuple[Hello | None, Event]]:
    """Every event that can be read, with the hello of its producer."""
    hellos: dict[str, Hello] = {}
    for line in lines(run):
        event = decode(line)
        if isinstance(event, Event):
            if isinstance(event, Hello):
                hellos[event.producer] = event
            yield hellos.get(event.producer), event


def steps(run: Path) -> Iterator[tuple[Hello | None, Step]]:
    for hello, event in events(run):
        if isinstance(event, Step):
            yield hello, event
