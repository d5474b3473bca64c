"""The events of a run, read from its journals to their present ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from monitor.sources.decode import numbered
from monitor.sources.journal import JournalTail
from monitor.sources.sequence import Sequencer
from trainhooks import rundir
from trainhooks.events import Event, Hello, Step


def lines(run: Path) -> Iterator[bytes]:
    """Every whole line of every journal, as it stands there; of one too long to be read, its beginning."""
    for path in rundir.journals(run):
        tail = JournalTail(path)
        while batch := tail.read():
            yield from batch


def events(run: Path) -> Iterator[tuple[Hello | None, Event]]:
    """Every event that can be read, once and in its producer's order, with the hello of its producer."""
    hellos: dict[str, Hello] = {}
    for event in _in_order(lines(run)):
        if isinstance(event, Hello):
            hellos.setdefault(event.producer, event)
        yield hellos.get(event.producer), event


def _in_order(told: Iterable[bytes]) -> Iterator[Event]:
    """Journals may be put together twice, or overlap: an event is known by its producer and number."""
    sequencer = Sequencer()
    for line in told:
        event = numbered(line)
        if isinstance(event, Event):
            yield from sequencer.push(event)
    yield from sequencer.settle()


def steps(run: Path) -> Iterator[tuple[Hello | None, Step]]:
    for hello, event in events(run):
        if isinstance(event, Step):
            yield hello, event
