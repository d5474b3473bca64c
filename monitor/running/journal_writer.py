"""Write one producer's journal and tell of it: the recorder's readings, or what the console reader understood."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from pathlib import Path

from trainhooks.protocol import encoding, events, limits, rundir
from trainhooks.protocol.journal import Journal, Notifier


class Writer:
    """Write one producer's events to the journal, then send them to be published. Safe from several threads."""

    def __init__(self, run: Path, source: str = "recorder") -> None:
        """
        Args:
            source: `recorder` for readings of the node; `console` for readings of the program's output.
        """
        console = source == "console"
        self.producer = f"{'console' if console else 'node'}-{uuid.uuid4().hex[:8]}"
        self._content = "console events" if console else "GPU and host readings"
        self._reported = 0  # dropped lines that a note has reported
        self._seq = 0
        self._encode = encoding.encoder()
        self._lock = threading.Lock()
        self._journal = Journal(rundir.console_journal(run) if console else rundir.node_journal(run))
        self._notifier = Notifier(run)
        hello = events.Hello(producer="", seq=0, t=time.monotonic(), source=source, wall=time.time())
        hello.host, hello.pid = socket.gethostname(), os.getpid()
        self.write(hello)

    @property
    def dropped(self) -> int:
        """Return the number of lines dropped because the disk stayed full."""
        return self._journal.dropped

    def note_unpublished(self, text: str) -> None:
        """Write a note that viewers get no frames, and why."""
        text = limits.clean(text)
        self.write(events.Note(producer="", seq=0, t=time.monotonic(), text=text, code="unpublished"))

    def note_budget(self, text: str) -> None:
        """Write a note that older parts of the run's files are freed."""
        self.write(events.Note(producer="", seq=0, t=time.monotonic(), text=text, code="disk-budget"))

    def note(self, text: str, code: str) -> None:
        """Write a note that viewers show as a warning."""
        self.write(events.Note(producer="", seq=0, t=time.monotonic(), text=text, level="warning", code=code))

    def write(self, *batch: events.Event) -> None:
        """Number the events and write them. Never raises: writing to a full disk is tried again."""
        with self._lock:
            if self.dropped > self._reported:
                text = f"{self.dropped - self._reported} {self._content} were lost: the disk is full"
                note = events.Note(
                    producer="", seq=0, t=time.monotonic(), text=text, level="warning", code="recorder-dropped"
                )
                batch = (note, *batch)
                self._reported = self.dropped
            for seq, event in enumerate(batch, self._seq + 1):
                event.producer, event.seq = self.producer, seq
            self._seq += len(batch)
            lines = b"".join(self._encode(encoding.to_dict(event)) + b"\n" for event in batch)
            self._journal.append(lines, len(batch))
            self._notifier.send(lines)

    def close(self) -> None:
        with self._lock:
            self._journal.close()
            self._notifier.close()
