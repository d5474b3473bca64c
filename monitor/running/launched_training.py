"""A started training, as the process that started it sees it: its output, signals and end."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from monitor.running import exit_record, lifetime, output, recorder_process
from monitor.running.journal_writer import Writer
from trainhooks.protocol import process_identity, rundir

GROWING_SECONDS = 0.02  # between two copies of output that grows
QUIET_SECONDS = 0.04  # between two copies of output that does not grow
WATCH_SECONDS = 0.2  # between two checks of the processes while the dashboard is shown


@dataclass(frozen=True)
class Ended:
    """How the training ended. None is unknown."""

    exit_code: int | None
    signal: int | None

    @property
    def status(self) -> int:
        """Return the exit code that a shell would give; 1 where the end is unknown."""
        if self.signal is not None:
            return 128 + self.signal
        return 1 if self.exit_code is None else self.exit_code


class LaunchedTraining:
    """A started training, as seen by the process that started it."""

    def __init__(
        self,
        run: Path,
        supervisor: int,
        pid: int,
        copies: list[output.Copy],
        subreaper: bool,
        lifetime_limit: lifetime.LifetimeLimit | None,
    ) -> None:
        self.run = run
        self._exit = run / rundir.EXIT  # made once: it is read in every poll
        self.pid = pid
        self.lifetime_limit = lifetime_limit
        self._supervisor = supervisor
        self._copies = copies
        self._subreaper = subreaper
        self._start_ticks = process_identity.start_ticks(pid)
        self.unrecorded: str | None = None  # why the output is not recorded
        self.was_terminated = False  # by SIGTERM: exit, too, when the training has ended
        self._statuses: dict[int, int] = {}  # of children that were reaped: pid -> wait status
        self._supervisor_died = False  # the supervisor died before the training
        self._ended: Ended | None = None

    @property
    def must_outlive_training(self) -> bool:
        """Return whether this process must not end before the training, which would end with it."""
        return self.lifetime_limit is not None and self.lifetime_limit.this_process

    def poll(self) -> Ended | None:
        """Return how the training ended, or None while it runs. Also reap children."""
        if self._ended is None:
            self._ended = self._recorded_end() or self._check_processes()
        return self._ended

    def is_alive(self) -> bool:
        """Return whether the program still runs."""
        return process_identity.process_alive(self.pid, self._start_ticks, None)

    def signal_group(self, number: int) -> None:
        """Send a signal to the program and its workers, if they still run."""
        if self.is_alive():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(self.pid), number)

    def passthrough(self) -> Ended:
        """Copy the training's output until it has ended and all output is copied."""
        while True:
            ended = self.poll()  # before copying, so that output written before the end is copied below
            moved = [copy.step() for copy in self._copies]
            if ended is not None:
                while any(copy.step() for copy in self._copies):
                    pass
                return ended
            if not any(copy.is_behind for copy in self._copies):
                time.sleep(GROWING_SECONDS if any(moved) else QUIET_SECONDS)

    @property
    def lost_output(self) -> int:
        """Return the bytes of output that were not passed on, since the disk was full."""
        return sum(copy.lost for copy in self._copies)

    def wait(self) -> Ended:
        """Wait for the training's end without showing its output."""
        while (ended := self.poll()) is None:
            time.sleep(WATCH_SECONDS)
        return ended

    def watch(self, on_end: Callable[[], None]) -> None:
        """Poll in a thread while the dashboard runs; call `on_end` when the training has ended."""

        def poll_until_end() -> None:
            while self.poll() is None:
                time.sleep(WATCH_SECONDS)
            on_end()

        threading.Thread(target=poll_until_end, name="front", daemon=True).start()

    def _recorded_end(self) -> Ended | None:
        written = rundir.read_json(self._exit)
        return Ended(written.get("exit_code"), written.get("signal")) if written is not None else None

    def _check_processes(self) -> Ended | None:
        """Reap children and return how the training ended; write it down if the supervisor died before."""
        self._reap()
        if not self._supervisor_died:
            if self._supervisor not in self._statuses:
                return None
            written = self._recorded_end()
            if written is not None:
                return written
            self._supervisor_died = True
            self._replace_recorder()
        if self.pid in self._statuses:
            return self._write_end(os.waitstatus_to_exitcode(self._statuses[self.pid]))
        if not self.is_alive() and not self._awaits_reaping():
            return Ended(None, None)
        return None

    def _reap(self) -> None:
        if not self._subreaper:
            with contextlib.suppress(ChildProcessError):
                pid, status = os.waitpid(self._supervisor, os.WNOHANG)
                if pid:
                    self._statuses[pid] = status
            return
        for pid in (self._supervisor, self.pid):
            with contextlib.suppress(ChildProcessError):  # reaped before, or still the supervisor's own
                if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                    self._statuses[pid] = os.waitpid(pid, 0)[1]
        # Orphaned descendants are reaped here, too. They are in other sessions; a child in our session belongs to
        # other code in this process, which waits for it. The first process of a container gets orphans of any session.
        with contextlib.suppress(ChildProcessError, ProcessLookupError):
            while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if os.getsid(dead.si_pid) == os.getsid(0) and os.getpid() != 1:
                    return
                pid, status = os.waitpid(dead.si_pid, 0)
                if pid in (self._supervisor, self.pid):
                    self._statuses[pid] = status

    def _awaits_reaping(self) -> bool:
        """Return whether the training is a child of this process that has ended and waits to be reaped."""
        try:
            return self._subreaper and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return False

    def _replace_recorder(self) -> None:
        with contextlib.suppress(OSError):  # too many processes, no memory: only readings are lost
            recorder_process.ensure_recorder(self.run)

    def _write_end(self, returncode: int) -> Ended:
        try:
            writer = Writer(self.run)
        except OSError:
            exit_record.write_exit(self.run, None, returncode)
        else:
            exit_record.write_exit(self.run, writer, returncode)
            writer.close()
        return Ended(returncode, None) if returncode >= 0 else Ended(None, -returncode)
