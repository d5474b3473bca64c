"""The thread that reads a program's output, and records its steps and metrics."""

from __future__ import annotations

import contextlib
import threading
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.running import output

if TYPE_CHECKING:
    pass
from monitor.running.recorder import CONSOLE_DELAY, MAX_READ_REST_SECONDS


class OutputReader:
    """Read a run's output in a thread until `finish`, and record its steps and metrics."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, name="console", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            if self._over.wait(CONSOLE_DELAY) and not _has_output(self._run):
                return
            from monitor.running.console_recorder import ConsoleRecorder  # slow to import; here nothing waits for it

            recorder = ConsoleRecorder(self._run)
            recorder.record(self._over.wait)
            self._over.wait()
            recorder.finish()
        except Exception:  # an error here must not stop the rest of the recording
            traceback.print_exc()

    def finish(self) -> None:
        """Wait at most `MAX_READ_REST_SECONDS` until the rest of the output is read."""
        self._over.set()
        self._thread.join(MAX_READ_REST_SECONDS)


def _has_output(run: Path) -> bool:
    """Return whether there is any output."""
    for path in output.output_files(run):
        with contextlib.suppress(OSError):
            if path.stat().st_size:
                return True
    return False
