"""One run of `trainmon try`: start it, end it after so many steps, and read its pace and its loss."""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from monitor.diagnosis.rules.learning_signals import MAIN_LOSS
from monitor.errors import UserError
from monitor.model.batch_argument import with_batch
from monitor.model.comparison.loop_pace import STEP_UNIT, LoopTime, Pace, loop_time, pace_of
from monitor.model.report import Report
from monitor.model.state import RankState
from monitor.running.command import module_command
from monitor.running.isolation import Isolation
from monitor.running.stopping import stop_training
from monitor.running.trial_process import WAITS, kill_left
from monitor.runs.follow import Run
from trainhooks.protocol import rundir, trial_settings
from trainhooks.protocol.trial_settings import BATCH_SIZE, Settings

LOOK_SECONDS = 0.2
START_SECONDS = 900.0  # until the first step; a large model loads for minutes
MIN_STEPS, MAX_SECONDS_RATIO = 10, 4.0  # a run that is so many times slower is ended with fewer steps
# Trackers and hubs would wait for a network that is not there, or hold runs that nobody wants.
OFFLINE = {"HF_HUB_OFFLINE": "1", "WANDB_MODE": "offline", "NEPTUNE_MODE": "offline"}


@dataclass(frozen=True, slots=True)
class Length:
    """When a run is ended: after so many steps if known, else after so many seconds of steps, with some steps."""

    seconds: float
    steps: int | None = None

    def is_reached(self, steps: int, seconds: float) -> bool:
        """Return whether it is long enough, by its steps so far and the seconds since the first one."""
        if self.steps is not None:
            return steps >= self.steps or (steps >= MIN_STEPS and seconds >= MAX_SECONDS_RATIO * self.seconds)
        return seconds >= self.seconds and steps >= MIN_STEPS


@dataclass(frozen=True, slots=True)
class Trial:
    """What one run showed."""

    report: Report
    loop: LoopTime
    losses: tuple[tuple[float, float, float], ...] = ()  # first step, mean, values: of a stretch of steps
    applied: tuple[str, ...] = ()  # names of settings that found their place
    failed: str | None = None  # why it cannot be compared, in one line

    @property
    def steps(self) -> int:
        return sum(self.loop.steps)

    def pace(self, unit: str) -> Pace | None:
        return pace_of(self.loop, unit)

    def loss(self, steps: int) -> float | None:
        """Return the mean loss of the first `steps` steps; None where there is none."""
        rows = [(mean, count) for first, mean, count in self.losses if first < steps and math.isfinite(mean)]
        total = sum(count for _, count in rows)
        return sum(mean * count for mean, count in rows) / total if total else None


def unit_of(trials: list[Trial]) -> str:
    """Return the unit to compare by: samples where all runs count them, since a step may hold more of them."""
    return "sample" if all("sample" in trial.loop.work for trial in trials) else STEP_UNIT


@contextlib.contextmanager
def place() -> Iterator[Path]:
    """A directory for the runs and for what they write, removed at the end."""
    parent = next((path for path in ("/var/tmp",) if os.access(path, os.W_OK | os.X_OK)), None)
    made = Path(tempfile.mkdtemp(prefix="trainmon-try-", dir=parent))
    (made / "state").mkdir(mode=0o700)
    try:
        yield made
    finally:
        remove(made)


def remove(path: Path) -> None:
    """Remove a directory, also one in which an overlay has worked."""
    for directory, names, _ in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                if not os.path.islink(os.path.join(directory, name)):
                    os.chmod(os.path.join(directory, name), 0o700)
    shutil.rmtree(path, ignore_errors=True)


def run_trial(
    command: list[str], settings: Settings, length: Length, where: Path, isolation: Isolation | None, listed: bool
) -> Trial:
    """Run the program once with these settings.

    Args:
        where: of `place`.
        isolation: None: it runs as always, and what it writes stays.
        listed: whether what it writes is listed, in `writes`.

    Raises:
        UserError: it cannot be started.
    """
    if BATCH_SIZE in settings:
        changed = with_batch(command, int(settings[BATCH_SIZE]))
        if changed is None:
            raise UserError(f"{BATCH_SIZE}: no argument of the command sets it, as --batch-size 8 does")
        command = changed
    words = command if isolation is None else isolation.command(command)
    environment = {**os.environ, **OFFLINE, rundir.STATE_VARIABLE: str(where / "state")}
    for name in (rundir.RUN_VARIABLE, trial_settings.VARIABLE, trial_settings.WRITES_VARIABLE):
        environment.pop(name, None)
    if settings:
        environment[trial_settings.VARIABLE] = json.dumps(settings)
    if "threads" in settings:
        environment["OMP_NUM_THREADS"] = str(settings["threads"])
    if listed:
        environment[trial_settings.WRITES_VARIABLE] = "1"
    starting = subprocess.Popen(
        module_command("monitor.running.trial_process", *words),
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C ends it by way of this process, which then removes what it left
    )
    assert starting.stdout is not None and starting.stderr is not None
    run: Path | None = None
    try:
        line = starting.stdout.readline().strip()
        if not line:
            raise UserError((starting.stderr.read().strip().splitlines() or ["the program cannot be started"])[-1])
        run = Path(line)
        return _followed(run, settings, length)
    finally:
        _end(starting, run, where)


def _followed(run: Path, settings: Settings, length: Length) -> Trial:
    followed = Run(run)
    try:
        began = time.monotonic()
        is_ended = False
        while not is_ended:
            while followed.advance():
                pass
            pace = followed.state.main.pace
            seconds = pace.end - pace.start if pace.start is not None and pace.end is not None else 0.0
            is_late = not pace.steps and time.monotonic() - began > START_SECONDS
            if is_late or length.is_reached(pace.steps, seconds):
                stop_training(run, lambda line: None, WAITS, "trainmon try")
                is_ended = True
            elif (run / rundir.EXIT).exists():
                is_ended = True
            else:
                time.sleep(LOOK_SECONDS)
        _await_exit(run)
        while followed.advance():
            pass
        report = followed.view().report
        loop = loop_time(followed.state, report)
        trial = Trial(report, loop, _losses(followed.state.main), _applied(run))
        return replace(trial, failed=_failure(run, trial, settings, length))
    finally:
        followed.close()


def _await_exit(run: Path) -> None:
    until = time.monotonic() + 5.0
    while not (run / rundir.EXIT).exists() and time.monotonic() < until:
        time.sleep(0.05)


def _failure(run: Path, trial: Trial, settings: Settings, length: Length) -> str | None:
    outcome = trial.report.outcome
    was_stopped = (run / rundir.STOPPED).exists()
    if not was_stopped and (outcome.exit_code or outcome.signal):
        how = f"exit code {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        return f"the program fails ({how}): {outcome.error or _last_line(run) or 'it prints nothing'}"
    if trial.steps < MIN_STEPS:
        return f"{trial.steps} steps were seen, and {MIN_STEPS} are needed"
    missing = [name for name in settings if name not in (*trial.applied, BATCH_SIZE)]
    if missing:
        return f"{', '.join(missing)}: the program uses nothing that it would change"
    return None


def _last_line(run: Path) -> str | None:
    with contextlib.suppress(OSError):
        text = rundir.read_regular(run / rundir.CONSOLE, 1 << 20).decode("utf-8", "replace")
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), None)
    return None


def _applied(run: Path) -> tuple[str, ...]:
    with contextlib.suppress(OSError):
        text = rundir.read_regular(run / trial_settings.APPLIED, 1 << 16).decode("utf-8", "replace")
        return tuple(dict.fromkeys(line.partition("=")[0] for line in text.splitlines()))
    return ()


def _losses(main: RankState) -> tuple[tuple[float, float, float], ...]:
    for name, column in main.metrics.items():
        if MAIN_LOSS.fullmatch(name):
            curve = column.curve()
            return tuple(zip(curve.x, curve.mean, curve.count, strict=True))
    return ()


def writes(where: Path) -> list[tuple[str, str]]:
    """Return what the listed run has written and removed, in order: a verb and a path."""
    found: dict[tuple[str, str], None] = {}
    for path in sorted((where / "state" / "runs").glob(f"*/{trial_settings.WRITES}")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            what, _, escaped = line.partition("\t")
            with contextlib.suppress(UnicodeError):
                found[what, escaped.encode("ascii").decode("unicode_escape")] = None
    return list(found)


def _end(starting: subprocess.Popen[str], run: Path | None, where: Path) -> None:
    """End all that belongs to the run, whatever happened."""
    with contextlib.suppress(UserError, OSError):
        if run is not None and not (run / rundir.EXIT).exists():
            stop_training(run, lambda line: None, WAITS, "trainmon try")
    kill_left(run, where)
    try:
        starting.wait(10.0)
    except subprocess.TimeoutExpired:
        starting.kill()
        starting.wait()
    assert starting.stdout is not None and starting.stderr is not None
    starting.stdout.close()
    starting.stderr.close()
    for path in where.glob("changes-*"):
        remove(path)
