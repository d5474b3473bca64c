"""`--on-alert CMD`: run the user's command for each alert, with JSON on its stdin, from a process of its own.

That process reads the run as any viewer does, so it cannot block the training, and it continues after the terminal is
closed. The command runs without a shell, one at a time, with a minimum interval and a time limit.
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
from typing import TYPE_CHECKING, Any

from monitor.errors import UserError
from monitor.running import output
from monitor.running.command import start_beside

if TYPE_CHECKING:
    from monitor.model.view import FindingChange, View

FINDINGS_SECONDS = 2.0  # between two readings of the findings
MIN_START_SECONDS = 10.0  # from one start of the command to the next
MIN_REPEAT_SECONDS = 300.0  # between two alerts of the same change of a finding: one that flickers is not repeated
MAX_COMMAND_SECONDS = 30.0  # seconds that the command may take
MAX_FINISH_SECONDS = 60.0  # for all waiting alerts after the end of the run
MAX_WAITING = 20  # alerts; the oldest is dropped, and the next one carries the number of dropped ones
MAX_LOG = 2**20  # bytes of the commands' output that are kept
LOG_NAME = "on-alert.log"


def split_command(command: str) -> list[str]:
    """Return the words of the command, split as by a shell.

    Raises:
        UserError: the command cannot be run.
    """
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise UserError(f"--on-alert: {error}: {command}") from None
    if not arguments or shutil.which(arguments[0]) is None:
        program = arguments[0] if arguments else command
        raise UserError(f"--on-alert: no program {program!r}; it is run without a shell: sh -c '...' is one")
    return arguments


def start_runner(run: Path, command: str) -> subprocess.Popen[bytes]:
    """Start the process that runs `command` for the alerts of `run`, until the run has ended.

    Raises:
        OSError: no process can be started.
    """
    return start_beside("monitor.alerts", str(run), command)


def main(run: str, command: str) -> None:
    """Watch a run until its end, and run the command for its alerts."""
    from monitor.runs.follow import Run

    with contextlib.suppress(OSError):
        os.nice(10)  # lower priority than the training and its recorder
    runner = AlertRunner(split_command(command), Path(run))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(runner.stop()))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    followed = Run(Path(run))
    due = 0.0
    while True:
        more = followed.advance()
        if not more and time.monotonic() >= due:
            due = time.monotonic() + FINDINGS_SECONDS
            view = followed.view()
            followed.measure(view)
            runner.add_view(view)
            if view.report.outcome.state != "running":
                break
        runner.poll()
        if not more:
            followed.source.wait(0.5)
    followed.close()
    runner.finish()


class AlertRunner:
    """Runs the command for each alert. Call `step` often; only `finish` blocks."""

    def __init__(self, command: list[str], run: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._command = command
        self._run = run
        self._clock = clock
        self._waiting: deque[dict[str, Any]] = deque()
        self._dropped = 0
        self._alerted: dict[tuple[str, str], float] = {}  # (finding code, kind of change) -> time of its last alert
        self._child: subprocess.Popen[bytes] | None = None
        self._min_interval = MIN_START_SECONDS
        self._started = clock() - MIN_START_SECONDS

    def add_view(self, view: View) -> None:
        """Queue alerts for the changes of findings, and for the end of the run."""
        for change in view.finding_changes:
            key, now = (change.finding.code, change.kind), self._clock()
            if now - self._alerted.get(key, -MIN_REPEAT_SECONDS) >= MIN_REPEAT_SECONDS:
                self._alerted[key] = now
                self._add(command_input(view, change))
        if view.report.outcome.state != "running":
            self._add(command_input(view, None))

    def _add(self, alert: dict[str, Any]) -> None:
        self._waiting.append(alert)
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self._dropped += 1

    def poll(self) -> None:
        """Kill a command that exceeds its time limit; start the next one if it is due."""
        now = self._clock()
        if self._child is not None and self._child.poll() is None:
            if now - self._started < MAX_COMMAND_SECONDS:
                return
            self._kill()
        self._child = None
        if self._waiting and now - self._started >= self._min_interval:
            self._start_command(self._waiting.popleft(), now)

    def _start_command(self, alert: dict[str, Any], now: float) -> None:
        alert["missed"], self._dropped = self._dropped, 0
        self._started = now
        log = self._open_log()
        # From a file, not a pipe: a command that does not read its stdin cannot block this process.
        with contextlib.suppress(OSError), tempfile.TemporaryFile() as given:
            given.write(json.dumps(alert).encode() + b"\n")
            given.seek(0)
            self._child = subprocess.Popen(
                self._command, stdin=given, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        if log >= 0:
            os.close(log)

    def _open_log(self) -> int:
        path = self._run / LOG_NAME
        with contextlib.suppress(OSError):
            if not path.exists():
                return output.open_append(path)
            if path.stat().st_size < MAX_LOG:
                return os.open(path, os.O_WRONLY | os.O_APPEND)
        return subprocess.DEVNULL

    def _kill(self) -> None:
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()

    def finish(self) -> None:
        """Run the command for the waiting alerts, without the minimum interval, after the run has ended."""
        until = self._clock() + MAX_FINISH_SECONDS
        self._min_interval = 0.0
        while (self._waiting or self._child is not None) and self._clock() < until:
            self.poll()
            time.sleep(0.05)
        self._kill()

    def stop(self) -> int:
        self._kill()
        return 0


def command_input(view: View, change: FindingChange | None) -> dict[str, Any]:
    """Return the command's JSON input for a change of a finding; None: for the end of the run."""
    from monitor.reports.run_summary import end_line

    report = view.report
    run, done = report.run, report.progress
    return {
        "event": change.kind if change is not None else "ended",
        "time": time.time(),
        "text": str(change) if change is not None else end_line(view),
        "run": {"id": run.id, "name": run.name, "host": run.host},
        "outcome": asdict(report.outcome),
        "steps_done": done.steps_done,
        "steps_total": done.steps_total,
        "finding": asdict(change.finding) if change is not None else None,
    }
