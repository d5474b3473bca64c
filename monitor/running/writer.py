"""Whoever records writes through this: one producer's journal, and its socket."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from pathlib import Path

from trainhooks import events, rundir
from trainhooks.journal import Journal, Publisher


class Writer:
    """Writes one producer's events: to the journal first, then to whoever listens. Safe from several threads."""

    def __init__(self, run: Path, source: str = "recorder") -> None:
        """
        Args:
            source: `recorder` for readings of the node; `console` for what was read from the program's output.
        """
        console = source == "console"
        self.producer = f"{'console' if console else 'node'}-{uuid.uuid4().hex[:8]}"
        self._lost = "events read from the console" if console else "readings of GPU and host"
        self._told = 0  # of the dropped lines, those that a note has told of
        self._seq = 0
        self._encode = events.encoder()
        self._lock = threading.Lock()
        self._journal = Journal(rundir.console_journal(run) if console else rundir.node_journal(run))
        self._publisher: Publisher | None = None
        hello = events.Hello("", 0, time.monotonic(), source=source, wall=time.time())
        hello.host, hello.pid = socket.gethostname(), os.getpid()
        self.write(hello)

    def listen(self) -> None:
        """Open the socket. Apart from the rest, because it loads a library: the first readings need not wait."""
        self._publisher = Publisher.open(self.producer)

    @property
    def dropped(self) -> int:
        """Lines that found no room on the disk for too long."""
        return self._journal.dropped

    def write(self, *batch: events.Event) -> None:
        """Give the events their place in the sequence and write them. Never raises: a full disk is tried again."""
        with self._lock:
            if self.dropped > self._told:
                text = f"{self.dropped - self._told} {self._lost} were lost: the disk is full"
                note = events.Note("", 0, time.monotonic(), text=text, level="warning", code="recorder-dropped")
                batch = (note, *batch)
                self._told = self.dropped
            for place, event in enumerate(batch, self._seq + 1):
                event.producer, event.seq = self.producer, place
            self._seq += len(batch)
            lines = b"".join(self._encode(events.to_dict(event)) + b"\n" for event in batch)
            self._journal.append(lines, len(batch))
            if self._publisher is not None:
                self._publisher.publish(lines)

    def close(self) -> None:
        with self._lock:
            self._journal.close()
            if self._publisher is not None:
                self._publisher.close()
