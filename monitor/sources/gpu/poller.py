"""The thread that reads the GPUs: apart from the host's readings, because a driver may take its time, or hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Set
from typing import TYPE_CHECKING

from monitor.deltas import Thinner
from trainhooks.events import Event

if TYPE_CHECKING:
    from monitor.sources.gpu.source import GpuSource

FIRST_READING = 0.5  # seconds that the first word on the GPUs is waited for
PATIENCE = 0.5  # seconds for a reading that is under way at the end
HANGS = 10.0  # seconds without an answer, after which a driver is said to hang


class GpuPoller:
    """Reads once an interval and hands on what it reads, until told to stop."""

    def __init__(
        self,
        interval: float,
        write: Callable[..., None],
        members: Callable[[], Set[int]],
        complain: Callable[[Exception], None],
    ) -> None:
        """
        Args:
            write: takes the events; safe to call from this thread.
            members: gives the pids of the run's process trees.
            complain: is told of what a reading raised.
        """
        self._interval = interval
        self._write = write
        self._members = members
        self._complain = complain
        self._thinner = Thinner()
        self._trouble: str | None = None
        self._answered = threading.Event()  # at least one reading is done
        self._first_wait = FIRST_READING
        self._began: float | None = None  # when the reading that is under way began
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainmon-gpus", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def trouble(self) -> str | None:
        """One line about what cannot be read."""
        self._answered.wait(self._first_wait)
        self._first_wait = 0.0
        began = self._began
        waited = 0.0 if began is None else time.monotonic() - began
        if waited > HANGS:
            return f"the NVIDIA driver has not answered for {int(waited)} s"
        return self._trouble

    def stop(self) -> None:
        self._over.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        from monitor.sources.gpu.source import GpuSource

        source = GpuSource()
        due = time.monotonic()
        while True:
            self._began = time.monotonic()
            self._poll(source)
            self._began = None
            self._answered.set()
            now = time.monotonic()
            due = max(due + self._interval, now)  # late: go on from here, without a burst that catches up
            if self._over.wait(due - now):
                break
        source.close()

    def _poll(self, source: GpuSource) -> None:
        try:
            found = source.read(time.monotonic(), self._members())
            events: list[Event] = [*map(self._thinner.thin, found.gpus), *found.notes]
            if events:
                self._write(*events)
            self._trouble = found.trouble
        except Exception as error:
            # A driver's surprise must cost a reading, not all the readings to come.
            self._complain(error)
