"""The recorder: read GPUs and host once a second, write the node's journal, and publish the run.

One recorder runs per node, elected by a lock. The launcher's supervisor records in a thread; for a training that was
not launched by trainmon, `recorder_process.ensure_recorder` starts a process, which ends with the training.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from monitor import memory_tuning
from monitor.hooks_reach import NOT_LOADED
from monitor.running.journal_writer import Writer
from trainhooks.protocol import events, limits

if TYPE_CHECKING:
    from monitor.sources.host import HostSource


READING_SECONDS = 1.0  # seconds between readings
CONSOLE_DELAY = 0.05  # seconds; a program that ends sooner and prints nothing needs no console reader
STARTUP_READINGS = 5  # after so many readings all modules are loaded
MAX_READ_REST_SECONDS = 4.0  # at most for the rest of the output after the program has ended


class Recorder:
    """Read GPUs and host once per interval."""

    def __init__(self, run: Path, writer: Writer, roots: Callable[[], list[int]]) -> None:
        """
        Args:
            roots: returns the pids at the roots of the training's process trees.
        """
        from monitor.running.hooks_check import HooksCheck
        from monitor.sources.gpu_source import GpuPoller
        from monitor.sources.host import HostSource

        self._writer = writer
        self._roots = roots
        self._host: HostSource = HostSource(run)
        self._gpus = GpuPoller(READING_SECONDS, writer.write, lambda: self._host.members, self._complain)
        self._hooks_check = HooksCheck(run)
        self._trouble: set[str] = set()

    def poll(self) -> None:
        """Read the host once. The GPUs are read in another thread."""
        try:
            host = self._host.read(self._roots(), time.monotonic())
            host.note = self._gpus.trouble()
            self._writer.write(host)
            why = self._hooks_check.check(self._host.members)
            if why is not None:
                self._writer.write(events.Note(producer="", seq=0, t=host.t, text=why, code=NOT_LOADED))
        except Exception as error:
            # An unexpected error costs one reading, not all later ones.
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        """Report the error of a reading once, not every second."""
        text = limits.clean(f"a reading failed: {type(error).__name__}: {error}", 400)
        if text not in self._trouble and len(self._trouble) < 20:
            self._trouble.add(text)
            traceback.print_exception(error)
            note = events.Note(
                producer="", seq=0, t=time.monotonic(), text=text, level="warning", code="recorder-error"
            )
            self._writer.write(note)

    def record(self, ended: Callable[[float], bool]) -> None:
        """Poll until `ended`, which waits for the given seconds, returns true."""
        self._gpus.start()
        due = time.monotonic()
        polls = 0
        while True:
            self.poll()
            polls += 1
            if polls == STARTUP_READINGS:
                memory_tuning.settled()
            now = time.monotonic()
            due = max(due + READING_SECONDS, now)  # when late, continue from now, without a burst
            if ended(due - now):
                break
        self._gpus.stop()


class KernelKills:
    """Count the processes that the kernel kills, out of memory, in the control group of a process."""

    def __init__(self, membership: str | None, before: int | None = None) -> None:
        """
        Args:
            membership: the content of /proc/PID/cgroup, which a process has until it has ended.
            before: what another one has counted at the start; None: this is the start.
        """
        from monitor.sources.host import Cgroup

        self._cgroup = Cgroup()
        self._membership = membership
        self._before = self._read() if before is None else before

    @classmethod
    def of(cls, pid: int) -> KernelKills:
        from monitor.sources.polling import text_of

        return cls(text_of(f"/proc/{pid}/cgroup"))

    @property
    def known(self) -> tuple[str | None, int | None]:
        """What another one is to be made with, to count since this was made."""
        return self._membership, self._before

    def count(self) -> int | None:
        """Return how many were killed since this was made; None where the system does not say."""
        now = self._read()
        return None if now is None or self._before is None else max(0, now - self._before)

    def _read(self) -> int | None:
        return None if self._membership is None else self._cgroup.oom_kills(self._membership)
