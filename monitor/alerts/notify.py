"""`--on-alert CMD`: a person's own command, told of each alert by JSON on its stdin. In a process of its own.

It reads the run as any viewer does, so it can neither hold nor harm the training, and goes on when the terminal is
closed. The command is run without a shell, one at a time, not too often, and not for ever.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from monitor.errors import UserError
from monitor.model.report import Turn, View
from monitor.running import output, own_process

LOOK = 2.0  # seconds between two looks at the findings
APART = 10.0  # seconds at least from one start of the command to the next
AGAIN = 300.0  # seconds before the same of a finding is told once more
LIMIT = 30.0  # seconds that the command may take
LAST = 60.0  # seconds that all of it may take once the run has ended
MAX_WAITING = 20  # alerts; the oldest gives way, and the next one tells how many did
MAX_LOG = 2**20  # bytes of the commands' own output that are kept
LOG = "on-alert.log"


def words(command: str) -> list[str]:
    """The words of the command, as a shell splits them.

    Raises:
        UserError: it cannot be run.
    """
    try:
        found = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--on-alert: {error}: {command}") from None
    if not found or shutil.which(found[0]) is None:
        raise UserError(
            f"--on-alert: no program {found[0] if found else command!r}; it is run without a shell: sh -c '...' is one"
        )
    return found


def start(run: Path, command: str) -> subprocess.Popen[bytes]:
    """Start the process that tells `command` of the alerts of `run`, until the run has ended.

    Raises:
        OSError: the system refuses to.
    """
    return subprocess.Popen(
        own_process.command("monitor.alerts.notify", str(run), command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main(run: str, command: str) -> None:
    """Watch a run until its end."""
    from monitor.runs.follow import Run

    with contextlib.suppress(OSError):
        os.nice(10)  # after the training, and after its recorder
    bell = Bell(words(command), Path(run))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(bell.stop()))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    followed = Run(Path(run))
    due = 0.0
    while True:
        more = followed.advance()
        if not more and time.monotonic() >= due:
            due = time.monotonic() + LOOK
            view = followed.view()
            followed.measure(view)
            bell.take(view)
            if view.report.outcome.state != "running":
                break
        bell.step()
        if not more:
            followed.source.wait(0.5)
    followed.close()
    bell.finish()


class Bell:
    """Runs the command for each alert. `step` is to be called often; nothing here waits but `finish`."""

    def __init__(self, command: list[str], run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = command
        self._run = run
        self._clock = clock
        self._waiting: deque[dict[str, Any]] = deque()
        self._missed = 0
        self._told: dict[tuple[str, str], float] = {}  # (finding, turn) -> when
        self._child: subprocess.Popen[bytes] | None = None
        self._apart = APART
        self._started = clock() - APART

    def take(self, view: View) -> None:
        """Note what turned, and the end of the run."""
        for turn in view.turns:
            key, now = (turn.finding.code, turn.kind), self._clock()
            if now - self._told.get(key, -AGAIN) >= AGAIN:
                self._told[key] = now
                self._add(message(view, turn))
        if view.report.outcome.state != "running":
            self._add(message(view, None))

    def _add(self, told: dict[str, Any]) -> None:
        self._waiting.append(told)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._missed += 1

    def step(self) -> None:
        """End a command that takes too long; start the next one where it is time."""
        now = self._clock()
        if self._child is not None and self._child.poll() is None:
            if now - self._started < LIMIT:
                return
            self._kill()
        self._child = None
        if self._waiting and now - self._started >= self._apart:
            self._begin(self._waiting.popleft(), now)

    def _begin(self, told: dict[str, Any], now: float) -> None:
        told["missed"], self._missed = self._missed, 0
        self._started = now
        log = self._log()
        # In a file, not a pipe: a command that does not read cannot hold us.
        with contextlib.suppress(OSError), tempfile.TemporaryFile() as given:
            given.write(json.dumps(told).encode() + b"\n")
            given.seek(0)
            self._child = subprocess.Popen(
                self._command, stdin=given, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        if log >= 0:
            os.close(log)

    def _log(self) -> int:
        path = self._run / LOG
        with contextlib.suppress(OSError):
            if not path.exists():
                return output.create(path)
            if path.stat().st_size < MAX_LOG:
                return os.open(path, os.O_WRONLY | os.O_APPEND)
        return subprocess.DEVNULL

    def _kill(self) -> None:
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def finish(self) -> None:
        """The run has ended: tell what still waits, one after the other, without the pauses between them."""
        until = self._clock() + LAST
        self._apart = 0.0
        while (self._waiting or self._child is not None) and self._clock() < until:
            self.step()
            time.sleep(0.05)
        self._kill()

    def stop(self) -> int:
        self._kill()
        return 0


def message(view: View, turn: Turn | None) -> dict[str, Any]:
    """What the command is told: of a turn, or of the end of the run."""
    report = view.report
    run, done = report.run, report.progress
    return {
        "event": turn.kind if turn is not None else "ended",
        "time": time.time(),
        "text": str(turn) if turn is not None else f"{run.name or run.id} {report.outcome.state}",
        "run": {"id": run.id, "name": run.name, "host": run.host},
        "outcome": asdict(report.outcome),
        "steps_done": done.steps_done,
        "steps_total": done.steps_total,
        "finding": asdict(turn.finding) if turn is not None else None,
    }
