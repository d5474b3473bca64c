"""The faults of a soak: one at a time, at random, none that a run is not meant to survive without a loss."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.faults.place import HERE, Place, kill, recorder_of
from tests.signals import send_signal
from trainhooks.protocol import rundir

LONGEST = 5.0  # seconds for which something is stopped


class Mischief:
    """Strikes when it is told to; `undo` brings back what was stopped."""

    def __init__(self, place: Place, run: Path, front: int, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.viewers: list[tuple[subprocess.Popen[bytes], Path]] = []  # that are to hold every event in the end
        self._place, self._run, self._front = place, run, front
        self._random = random.Random(seed)
        self._next: list[str] = []  # each fault comes once before any comes again
        self._stopped: list[tuple[float, int]] = []  # until when, which process

    def view(self) -> subprocess.Popen[bytes]:
        out = self._place.root / f"viewer{len(self.viewers)}"
        started = self._place.start(sys.executable, str(HERE / "viewer.py"), str(self._run), str(out))
        self.viewers.append((started, out))
        return started

    def strike(self, now: float) -> None:
        strikes: dict[str, Callable[[float], None]] = {
            "viewer stopped": lambda now: self._stop(now, self.viewers[0][0].pid),
            "supervisor stopped": lambda now: self._stop(now, recorder_of(self._run)),
            "front stopped": lambda now: self._stop(now, self._front),
            "supervisor told to end": lambda _: kill(recorder_of(self._run), signal.SIGTERM),
            "viewer killed, another comes": self._replace_viewer,
            "socket removed": self._remove_socket,
            "dashboard killed": self._kill_dashboard,
        }
        if not self._next:
            self._next = self._random.sample(list(strikes), len(strikes))
        name = self._next.pop()
        strikes[name](now)
        self.done[name] += 1

    def undo(self, now: float) -> None:
        for until, pid in list(self._stopped):
            if now >= until:
                self._stopped.remove((until, pid))
                with suppress(ProcessLookupError):
                    send_signal(pid, signal.SIGCONT)

    def _stop(self, now: float, pid: int) -> None:
        kill(pid, signal.SIGSTOP)
        self._stopped.append((now + self._random.uniform(0.5, LONGEST), pid))

    def _replace_viewer(self, _: float) -> None:
        if len(self.viewers) > 1:
            viewer, _out = self.viewers.pop(self._random.randrange(1, len(self.viewers)))
            viewer.kill()
        self.view()

    def _remove_socket(self, _: float) -> None:
        place = self._random.choice([rundir.socket_path, rundir.inbox_path])
        place(self._run).unlink(missing_ok=True)

    def _kill_dashboard(self, _: float) -> None:
        terminal = self._place.trainmon("attach", self._run.name)
        terminal.read(1.0)
        terminal.kill()
        terminal.close()
