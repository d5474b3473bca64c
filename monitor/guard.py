"""`--stop-on WHAT`: stop a training that meets a condition, from a process of its own.

That process reads the run as any viewer does. Before it stops the training it keeps where each thread was.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from monitor.errors import UserError
from monitor.model.conditions import BadCondition, Condition, Conditions, Met, read_stop_conditions
from monitor.model.wall_time import STOPPED_BY_RULE
from monitor.reports import stack_text
from monitor.reports.waited import told
from monitor.running import output
from monitor.running.command import start_beside
from monitor.running.stack_requests import process_stacks
from monitor.running.stopping import stop_training
from monitor.runs.run_files import stopped_by

LOOK_SECONDS = 2.0  # between two looks at the findings
WAITS = (60.0, 60.0, 10.0)  # seconds after SIGINT, SIGTERM and SIGKILL
QUIET_SECONDS = 600.0  # without a byte read or written, before SIGKILL
STACKS = "stacks.txt"  # of the run: where each thread was before it was stopped
LOG_NAME = "stop-on.log"
EXIT_CODE = 124  # of `trainmon run` for a training that was stopped, as of `timeout`


@dataclass(frozen=True, slots=True)
class Guard:
    """What a training is to be stopped on.

    Attributes:
        quiet: seconds in which it reads and writes nothing before it is killed.
    """

    text: str
    quiet: float = QUIET_SECONDS

    @classmethod
    def read(cls, text: str, kill_after: float | None, has_price: bool) -> Guard:
        """Return the guard of an option or a setting.

        Raises:
            UserError: a condition is none, or cannot be known.
        """
        if any(condition.kind == "cost" for condition in _conditions(text)) and not has_price:
            raise UserError("--stop-on: cost is known with --price, or `price` in [run] of the configuration")
        return cls(text, QUIET_SECONDS if kill_after is None else kill_after)

    def start(self, run: Path) -> None:
        """Start the process that stops the run once it meets a condition, and ends with it.

        Raises:
            UserError: no process can be started.
        """
        try:
            start_beside("monitor.guard", str(run), self.text, str(self.quiet))
        except OSError as error:  # too many processes, or no memory
            raise UserError(f"--stop-on: {error.strerror or error}; the training goes on without it") from None

    def status(self, run: Path, status: int) -> int:
        """Return the exit code of `trainmon run`: EXIT_CODE where a condition has ended the training."""
        return EXIT_CODE if (stopped_by(run) or "").startswith(STOPPED_BY_RULE) else status


def _conditions(text: str) -> list[Condition]:
    """Return the conditions in a text.

    Raises:
        UserError: one of them is none.
    """
    from monitor.diagnosis.diagnose import BY_CODE

    try:
        return read_stop_conditions(text, BY_CODE)
    except BadCondition as error:
        raise UserError(f"--stop-on: {error}") from None


def main(run: str, text: str, kill_after: str) -> None:
    """Watch a run until its end, and stop it once it meets a condition."""
    with contextlib.suppress(OSError):
        os.nice(10)  # lower priority than the training and its recorder
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    path = Path(run)
    met = _first_met(path, Conditions(_conditions(text)))
    if met is not None:
        _stop(path, told(met), float(kill_after))


def _first_met(path: Path, wanted: Conditions) -> Met | None:
    """Return the first condition that came true; None: the run has ended before."""
    from monitor.runs.follow import views_while_running

    for view in views_while_running(path, LOOK_SECONDS):
        met = wanted.met(view.report)
        if met:
            return met[0]
    return None


def _stop(run: Path, reason: str, quiet: float) -> None:
    with contextlib.suppress(UserError, OSError):
        text = stack_text.text(run.name, process_stacks(run))
        _write(run / STACKS, text)
    with contextlib.suppress(UserError, OSError):
        stop_training(run, lambda line: _write(run / LOG_NAME, f"{line}\n"), WAITS, reason, quiet)


def _write(path: Path, text: str) -> None:
    file = output.open_append(path)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)
