"""A run, followed: its sources, folded, diagnosed, and handed on as frozen views. One path for every reader."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from monitor import keepsake
from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.registry import diagnose, verdict
from monitor.model.curves import curves
from monitor.model.fold import fold
from monitor.model.report import View
from monitor.model.state import Ending, RunState
from monitor.model.summary import Surroundings, open_work, report
from monitor.sources.console import Console
from monitor.sources.decode import tidy_facts
from monitor.sources.run_directory import RunDirectory
from trainhooks import rundir

LIVENESS = 1.0  # seconds between two looks at whether the training lives
SLICE = 0.02  # seconds of folding before the interpreter is let go, so that a screen stays quick
FRAME = 0.5  # seconds between two views: a person cannot read faster, and a slow line carries it
FIRST_PAINT = 0.5  # seconds that a long history leaves to the first screen, which wants the interpreter for itself


class Run:
    """One run as its sources tell it: `advance` folds what is new, `view` says what is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = RunDirectory(path)
        self.state = keepsake.recall(self.source) or RunState()
        self._kept = self.source.bytes_read()
        self._console = Console(path / rundir.CONSOLE)
        self._identity: dict[str, Any] = {}
        self._alive = False
        self._looked = -LIVENESS

    def advance(self, seconds: float = SLICE) -> bool:
        """Fold new events for about so long. Returns whether there is more at hand."""
        until = time.monotonic() + seconds
        while batch := self.source.poll():
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
        if now - self._looked < LIVENESS:
            return
        self._looked = now
        self._identity = tidy_facts(rundir.read_json(self.path / rundir.IDENTITY) or {})
        self._alive = rundir.run_alive(self.path)
        if not self._alive and self.state.ending is None:
            ended = rundir.read_json(self.path / rundir.EXIT)
            if ended is not None:
                self.state.ending = _ending(ended)

    def _now(self) -> float:
        """The moment on the run's own clock; its last word where that clock is not this machine's."""
        here = self._identity.get("boot_id") in (None, "", rundir.boot_id())
        last = self.state.last_event
        return time.monotonic() if here and self._alive else (last if last is not None else time.monotonic())

    def view(self) -> View:
        self.look()
        state = self.state
        around = Surroundings(self._identity, self._now(), self._alive, self.source.missing)
        known = report(state, around)
        working = open_work(state, around, known.outcome)
        evidence = Evidence(state, known, working)
        known.findings = diagnose(evidence)
        console, seen = self._console.poll()
        return View(
            report=known,
            verdict=verdict(known.findings, evidence),
            open=working,
            **curves(state),
            notes=list(state.notes),
            label="SIMULATED GPU" if any(gpu.simulated for gpu in known.gpus) else None,
            loading=self.source.share_read(),
            console=console,
            console_lines=seen,
        )

    def close(self) -> None:
        self.source.close()


def _ending(mapping: dict[str, Any]) -> Ending:
    code, signal, t = (mapping.get(key) for key in ("exit_code", "signal", "ended_monotonic"))
    return Ending(
        code if isinstance(code, int) else None,
        signal if isinstance(signal, int) else None,
        float(t) if isinstance(t, int | float) else None,
    )


def load(path: Path) -> View:
    """The view of a run as its journals stand now: read once, to their ends."""
    run = Run(path)
    try:
        while run.advance(1.0):
            pass
        return run.view()
    finally:
        run.close()


class Follower:
    """Follows a run in a thread of its own, and hands on a frozen view twice a second."""

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
            next_view = 0.0
            while not self._stop.is_set():
                more = run.advance()
                first = next_view == 0.0
                if time.monotonic() >= next_view:
                    on_view(run.view())
                    next_view = time.monotonic() + self._frame
                if more:
                    self._stop.wait(FIRST_PAINT if first else 0)
                else:
                    run.source.wait(max(0.0, min(self._frame, next_view - time.monotonic())))
        finally:
            run.close()
