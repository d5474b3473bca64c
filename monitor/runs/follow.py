"""A run, followed: its sources, folded, diagnosed, and handed on as frozen views. One path for every reader."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.history import FindingLog
from monitor.diagnosis.registry import diagnose, verdict
from monitor.diagnosis.suggestions import to_try
from monitor.errors import UserError
from monitor.model.changes import changes
from monitor.model.compare import Side
from monitor.model.curves import curves
from monitor.model.details import details
from monitor.model.earlier import Earlier
from monitor.model.fold import fold
from monitor.model.report import Alert, Report, Turn, View
from monitor.model.series import STEP
from monitor.model.speed_classes import Bounds, counted
from monitor.model.state import Ending, RunState
from monitor.model.summary import Surroundings, open_work, report
from monitor.runs import baselines, catalogue, keepsake, products
from monitor.settings import speeds
from monitor.sources.arrivals import Arrivals
from monitor.sources.console import Console
from monitor.sources.identity import ending, identity
from monitor.sources.run_directory import RunDirectory
from monitor.sources.starting import Open, starting
from trainhooks import rundir

LIVENESS = 1.0  # seconds between two looks at whether the training lives
SLICE = 0.02  # seconds of folding before the interpreter is let go, so that a screen stays quick
FRAME = 0.45  # seconds between two views: a step shows within half a second, and a slow line can carry it
REST = 5.0  # the same of a run that ended some time ago
FIRST_PAINT = 0.5  # seconds that a long history leaves to the first screen, which wants the interpreter for itself


class Run:
    """One run as its sources tell it: `advance` folds what is new, `view` says what is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = RunDirectory(path)
        self.state = keepsake.recall(self.source) or RunState()
        self._kept = self.source.bytes_read()
        self._console = Console(path / rundir.CONSOLE)
        self._arrivals = Arrivals()
        self._identity: dict[str, Any] = {}
        self._alive = False
        self._heard_out = False  # whether all was read that it wrote before it ended
        self._starting: Open = ()
        self._looked = -LIVENESS
        self._bounds = _bounds()
        self._products = products.load()
        self._log = FindingLog()
        self._measured = False
        self._stirred = time.monotonic()  # when something last came of it
        self._usual_startup: float | None = None  # -1: not known
        self.before: Side | None = None  # the run to measure by, once one was found

    def advance(self, seconds: float = SLICE) -> bool:
        """Fold new events for about so long. Returns whether there is more at hand."""
        until = time.monotonic() + seconds
        while batch := self.source.poll_slabs():
            self._stirred = time.monotonic()
            for event in batch:
                fold(self.state, event)
            if time.monotonic() > until:
                return True
        if self.source.bytes_read() - self._kept >= keepsake.WORTH:
            self._kept = self.source.bytes_read()
            keepsake.keep(self.source, self.state)
        return False

    def look(self) -> None:
        """Read what is known beside the events: identity, liveness, exit."""
        now = time.monotonic()
        if now - self._looked < LIVENESS and not (self._alive and self.state.ending is not None):
            return
        self._looked = now
        self._identity = identity(self.path)
        alive = catalogue.lives(self.path) if self.state.ending is None else rundir.ranks_alive(self.path)
        if alive != self._alive:
            self._alive, self._heard_out, self._stirred = alive, False, now
        is_silent = self._alive and self._is_here() and not (self.state.hooked or self.state.main.stepped)
        self._starting = starting(self.path) if is_silent else ()
        if not self._alive and self.state.ending is None:
            ended = ending(self.path)
            if ended is not None:
                self.state.ending = Ending(ended.get("exit_code"), ended.get("signal"), ended.get("ended_monotonic"))

    def _hear_out(self) -> None:
        """Read what it wrote between the last reading and its end: a view that calls a run over has its last step."""
        if self._alive or self._heard_out or self.source.share_read() is not None:
            return
        self._heard_out = True
        self.source.look_again()
        while self.advance():
            pass

    def _now(self) -> float:
        """The moment on the run's own clock; its last word where that clock is not this machine's."""
        last = self.state.last_event
        return time.monotonic() if self._is_here() and self._alive else (last if last is not None else time.monotonic())

    def _is_here(self) -> bool:
        return self._identity.get("boot_id") in (None, "", rundir.boot_id())

    def rests(self) -> bool:
        """Whether it has ended, and nothing has come of it for a while: another view would be as the last one was."""
        return not self._alive and time.monotonic() - self._stirred > REST

    def view(self) -> View:
        self.look()
        self._hear_out()
        around = Surroundings(
            self._identity, self._now(), self._alive, self.source.missing, self._starting, self._products
        )
        console, seen = self._console.poll()
        times = self._arrivals.of(len(console), seen, time.monotonic())
        taken = picture(self.state, around, self.before)
        if self._bounds is not None:
            steps = self.state.main.step_seconds.digested().quantiles
            taken.report.speed_classes = counted(steps.bins, steps.zeros, STEP, self._bounds)
        loading = self.source.share_read()
        return replace(
            taken,
            loading=loading,
            console=console,
            console_lines=seen,
            console_times=times,
            usual_startup=None if taken.report.progress.steps_done else self._usual(),
            turns=self._turned(taken, loading is not None),
            earlier=None if self.before is None else _earlier(self.before, taken.report),
        )

    def _turned(self, taken: View, loading: bool) -> tuple[Turn, ...]:
        """What turned since the last view; the report's log of alerts gets what turned since this reader came."""
        turns = () if loading else tuple(self._log.take(taken.report.findings, time.monotonic()))
        since = time.time() - time.monotonic()
        rows = [Alert(turn.t + since, turn.finding.code, str(turn)) for turn in self._log.turns]
        if rows:
            taken.report.alerts = sorted([*taken.report.alerts, *rows], key=lambda row: row.time or 0.0)
        return turns

    def _usual(self) -> float | None:
        """How long the start-up of this command usually takes; looked up once, in files of a few kilobytes."""
        if self._usual_startup is None:
            with contextlib.suppress(OSError):  # the runs are being removed, or lie on a disk that is gone
                self._usual_startup = baselines.usual_startup(self.path) or -1.0
        return self._usual_startup if self._usual_startup is not None and self._usual_startup > 0 else None

    def measure(self, view: View) -> None:
        """Once there are steps enough, look for the run to measure by: beside, because it may have to be read."""
        if self._measured or view.loading is not None or view.report.progress.steps_done < baselines.ENOUGH:
            return
        self._measured = True

        def find() -> None:
            with contextlib.suppress(OSError):  # the earlier run is being removed, or lies on a disk that is gone
                self.before = baselines.before(self.path, view.report, _figures)
                self._stirred = time.monotonic()

        threading.Thread(target=find, name="baseline", daemon=True).start()

    def close(self) -> None:
        self.source.close()


def _bounds() -> Bounds | None:
    try:
        return speeds.bounds()
    except UserError:  # the command line has said so; a run is followed without them, rather than not at all
        return None


def picture(state: RunState, around: Surroundings, before: Side | None = None) -> View:
    """The state, reported and diagnosed: all of a view that comes from the events."""
    known = report(state, around)
    working = open_work(state, around, known.outcome)
    evidence = Evidence(state, known, working, before)
    known.findings = diagnose(evidence)
    known.to_try = to_try(evidence, known.findings)
    return View(
        report=known,
        verdict=verdict(known.findings, evidence),
        open=working,
        **curves(state),
        notes=list(state.notes),
        label="SIMULATED GPU" if any(gpu.simulated for gpu in known.gpus) else None,
        details=details(state, known.outcome.state != "running"),
    )


def load(path: Path, measured: bool = True) -> View:
    """The view of a run as its journals stand now: read once, to their ends.

    Args:
        measured: by the last comparable run of the same command, too.
    """
    run = Run(path)
    try:
        while run.advance(1.0):
            pass
        view = run.view()
        baselines.keep(path, _side(view))
        if measured and view.report.progress.steps_done >= baselines.ENOUGH:
            run.before = baselines.before(path, view.report, _figures)
            view = run.view() if run.before is not None else view
        return view
    finally:
        run.close()


def _earlier(before: Side, now: Report) -> Earlier:
    told = tuple((change.name, change.before, change.after) for change in changes(before.report, now))
    return Earlier(before.report.run.id, before.report.run.name, told)


def _figures(path: Path) -> Side:
    return _side(load(path, measured=False))


def _side(view: View) -> Side:
    return Side(view.report, view.step_seconds)


class Follower:
    """Follows a run in a thread of its own, and hands on a frozen view some times a second."""

    def __init__(self, path: Path, frame: float = FRAME) -> None:
        self._path = path
        self._frame = frame
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, on_view: Callable[[View], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(on_view,), name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def _run(self, on_view: Callable[[View], None]) -> None:
        run = Run(self._path)
        try:
            shown: float | None = None  # when the last view was
            while not self._stop.is_set():
                more = run.advance()
                first = shown is None
                began = time.monotonic()
                if shown is None or began >= shown + (REST if run.rests() else self._frame):
                    view = run.view()
                    run.measure(view)
                    on_view(view)
                    shown = max(began, time.monotonic() - self._frame / 2)  # a view that takes long leaves a rest, too
                if more:
                    self._stop.wait(FIRST_PAINT if first else 0)
                else:
                    # Nothing of what is published in between would be seen sooner if it were read sooner.
                    self._stop.wait(self._frame if run.rests() else max(0.0, shown + self._frame - time.monotonic()))
        finally:
            run.close()
