"""The output of a training that trainmon did not start: copied from its log file into the run, where it is read."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

from monitor.running import output
from trainhooks.protocol import process_identity, rundir

FOLLOWED = "followed"  # the key of `run.json`: source, file of the run, and the first byte that is copied, of each log
COPY_SECONDS = 0.05  # between two looks: the reader of steps looks as often


class Followed:
    """Copies what is appended to the logs, in a thread. The logs are opened for reading only."""

    def __init__(self, run: Path) -> None:
        self._copies: list[output.Copy] = []
        self._over = threading.Event()
        self._process = rundir.read_json(run / rundir.IDENTITY) or {}
        self.ended: float | None = None  # monotonic time at which the training was first seen to be gone
        for source, name, begin in _rows(self._process):
            with contextlib.suppress(OSError):  # its process has ended
                target = output.open_append(run / name)
                # What stands in the run already was copied by the command, or by a recorder before this one.
                self._copies.append(output.Copy(Path(source), target, begin=begin + os.fstat(target).st_size))
        self._thread = threading.Thread(target=self._copy, name="followed", daemon=True)
        self._thread.start()

    def _copy(self) -> None:
        while not self._over.wait(COPY_SECONDS):
            self._step()
            if self.ended is None and not process_identity.identity_alive(self._process):
                self.ended = time.monotonic()

    def _step(self) -> None:
        for copy in self._copies:
            while copy.step() and copy.is_behind and not self._over.is_set():
                pass

    def finish(self) -> None:
        """Copy the rest, up to a bound."""
        self._over.set()
        self._thread.join()
        self._step()


def _rows(identity: dict[str, Any]) -> list[tuple[str, str, int]]:
    rows = identity.get(FOLLOWED)
    return [
        (row[0], row[1], row[2])
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and type(row[2]) is int
        if row[1] in output.OUTPUT
    ]
