"""Stops requested on a screen. They are completed even if that screen closes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from monitor.errors import complain, say

if TYPE_CHECKING:
    pass


STOP_LINES_SECONDS = 0.05  # between two checks for new lines


class StopRequest:
    """One stop of a training, in its own thread, independent of any screen."""

    def __init__(self, path: Path) -> None:
        self.ended = False  # whether the training has ended
        self.error: Exception | None = None
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(path,), name="stop", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def report(self, say: Callable[[str], None]) -> None:
        """Report all lines from the first one, until the stop is over."""
        printed, over = 0, False
        while not over:
            over = self.over  # read before the lines, so that the last ones are not missed
            for line in self.lines[printed:]:
                say(line)
                printed += 1
            if not over:
                time.sleep(STOP_LINES_SECONDS)

    def _run(self, path: Path) -> None:
        from monitor.running.stopping import stop_training

        try:
            self.ended = stop_training(path, self.lines.append)
        except Exception as error:  # raised again where the stop was requested
            self.error = error


class StopRequests:
    """All stops requested in this process."""

    def __init__(self) -> None:
        self._begun: dict[Path, StopRequest] = {}

    def stop(self, path: Path, say: Callable[[str], None]) -> None:
        """Stop a training, or follow the stop in progress, and report its lines until it is over.

        Raises:
            Exception: the stop failed.
        """
        stop = self._begun.get(path)
        if stop is None or (stop.over and not stop.ended):
            stop = self._begun[path] = StopRequest(path)
        stop.report(say)
        if stop.error is not None:
            raise stop.error

    def finish(self) -> None:
        """Wait for the stops in progress after the screen has closed, and print their lines."""
        try:
            for path, stop in self._begun.items():
                if not stop.over:
                    stop.report(say)
                    if stop.error is not None:
                        complain(f"{path.name} could not be stopped: {stop.error}")
        except KeyboardInterrupt:
            say("no longer waited for: no further signal is sent")
            raise

    @property
    def ended(self) -> bool:
        """Whether a stop has ended a training."""
        return any(stop.ended for stop in self._begun.values())
