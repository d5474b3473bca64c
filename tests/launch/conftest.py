"""Real processes, in a state directory of the test's own; whatever a test leaves running is ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.signals import send_group_signal, send_signal
from trainhooks.protocol import process_identity, rundir

ROOT = Path(__file__).resolve().parents[2]
TRAINMON = [sys.executable, "-m", "monitor"]


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait until something holds; a limit against hanging, no claim about speed."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.02)


def python(source: str) -> list[str]:
    return [sys.executable, "-u", "-c", source]


class State:
    """The state directory of a test, and trainmon run in it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environment = {
            **{key: value for key, value in os.environ.items() if key != rundir.RUN_VARIABLE},
            rundir.STATE_VARIABLE: str(path),
            "PYTHONPATH": str(ROOT),
        }

    def call(self, *words: str, **options: object) -> subprocess.CompletedProcess[bytes]:
        given: dict[str, object] = {"stdin": subprocess.DEVNULL, "capture_output": True, "timeout": 60, **options}
        return subprocess.run([*TRAINMON, *words], env=self.environment, cwd=ROOT, **given)  # type: ignore[call-overload,no-any-return]

    def run(self, *command: str, options: tuple[str, ...] = (), **more: object) -> subprocess.CompletedProcess[bytes]:
        return self.call("run", "--no-tui", *options, "--", *command, **more)

    def start(self, *command: str, options: tuple[str, ...] = (), **more: object) -> subprocess.Popen[bytes]:
        """A run in the background, once its training is up."""
        before = set(self.runs())
        pipes: dict[str, object] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        words = [*TRAINMON, "run", "--no-tui", *options, "--", *command]
        front = subprocess.Popen(words, env=self.environment, cwd=ROOT, **{**pipes, **more})  # type: ignore[call-overload]
        wait_for(lambda: any(self.pid(run) for run in set(self.runs()) - before) or front.poll() is not None)
        return front  # type: ignore[no-any-return]

    def runs(self) -> list[Path]:
        """Oldest first."""
        found = [path.parent for path in self.path.glob("runs/*/run.json")]
        return sorted(found, key=lambda path: float((rundir.read_json(path / "run.json") or {}).get("started") or 0))

    @property
    def only(self) -> Path:
        (run,) = self.runs()
        return run

    def pid(self, run: Path) -> int:
        """The training's pid; 0 while it has none."""
        return int((rundir.read_json(run / rundir.IDENTITY) or {}).get("pid") or 0)

    def supervisor(self, run: Path) -> int:
        """The pid of whoever records the run; 0 while nobody does."""
        lock = next(iter(run.glob("node-*.lock")), None)
        owner = (lock and rundir.read_json(lock)) or {}
        living = process_identity.process_alive(owner.get("pid"), owner.get("start_ticks"), owner.get("boot_id"))
        return int(owner["pid"]) if living else 0

    def strike(self, run: Path, number: signal.Signals) -> int:
        """Signal whoever records the run, once there is one: its pid."""
        wait_for(lambda: self.supervisor(run))
        send_signal(pid := self.supervisor(run), number)
        return pid

    def ended(self, run: Path) -> dict[str, object] | None:
        return rundir.read_json(run / rundir.EXIT)


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path / "state")
    yield made
    for run in made.runs():
        identity = rundir.read_json(run / rundir.IDENTITY) or {}
        if process_identity.process_alive(identity.get("pid"), identity.get("start_ticks"), identity.get("boot_id")):
            with contextlib.suppress(OSError):
                send_group_signal(identity["pid"], signal.SIGKILL)
        if recorder := made.supervisor(run):
            with contextlib.suppress(OSError):
                send_signal(recorder, signal.SIGKILL)
