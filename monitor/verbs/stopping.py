"""The stops that were asked for on a screen: each is carried through, whatever becomes of that screen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from monitor.errors import complain, say

LOOK_SECONDS = 0.05


class Stop:
    """One, in a thread of its own, which waits for no screen."""

    def __init__(self, path: Path) -> None:
        self.ended = False  # the training has
        self.error: Exception | None = None
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._run, args=(path,), name="stop", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def tell(self, say: Callable[[str], None]) -> None:
        """Say each line, those that were said elsewhere too, until it is over."""
        told, over = 0, False
        while not over:
            over = self.over  # before the lines: what it said last is told after it
            for line in self.lines[told:]:
                say(line)
                told += 1
            if not over:
                time.sleep(LOOK_SECONDS)

    def _run(self, path: Path) -> None:
        from monitor.running.stop import stop_training

        try:
            self.ended = stop_training(path, self.lines.append)
        except Exception as error:  # for the person who asked
            self.error = error


class Stops:
    """All that one process was asked for."""

    def __init__(self) -> None:
        self._begun: dict[Path, Stop] = {}

    def stop(self, path: Path, say: Callable[[str], None]) -> None:
        """Begin, or go on watching what has begun, until it is over.

        Raises:
            Exception: whatever was wrong with it.
        """
        stop = self._begun.get(path)
        if stop is None or (stop.over and not stop.ended):
            stop = self._begun[path] = Stop(path)
        stop.tell(say)
        if stop.error is not None:
            raise stop.error

    def finish(self) -> None:
        """When the screen has gone: say on the terminal what is still to be done, until it is."""
        try:
            for path, stop in self._begun.items():
                if not stop.over:
                    stop.tell(say)
                    if stop.error is not None:
                        complain(f"{path.name} could not be stopped: {stop.error}")
        except KeyboardInterrupt:
            say("no longer waited for: no further signal is sent")
            raise

    def ended(self, path: Path) -> bool:
        """Whether a stop has ended this training."""
        return path in self._begun and self._begun[path].ended
