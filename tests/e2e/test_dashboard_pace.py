"""The dashboard never stands still: whatever keys are pressed, the clock on the screen is the run's."""

from __future__ import annotations

import os
import random
import re
import select
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from monitor.tui.refresh_rate import QUESTION
from tests.e2e.conftest import PATIENCE, Box, Terminal
from trainhooks.protocol import rundir

KEYS = 60
SCREEN_COST = 0.1  # seconds of the processor that a new screen takes
PACES = (0.0, 0.02, 0.1, 0.5, 1.5)  # seconds from a key to the next
# Screens, panels, dialogs, themes, the cursor. No key that leaves, pauses or types into a filter.
PRESSED = ("s", "b", "w", "c", "u", "i", "l", "r", "\x1b", "\x1b", "\x1b", "?", ":", "M", "t", "1", "2", "5", "6",
           "m", "f", "\t", "[", "]", "\x1b[A", "\x1b[B")  # fmt: skip

TRAINING = """
import sys, time
import trainhooks as th
th.init(name="pulsar", total_steps=100000)
for index in th.steps(range(100000)):
    with th.phase("generation"):
        time.sleep(0.06)
    with th.phase("training"):
        time.sleep(0.03)
    th.log(reward=index / 100, loss=1 / (index + 1))
    th.count(tokens=100)
    print("line", index, flush=True)
"""


class Screen(Terminal):
    """A terminal that answers the question behind a picture, as most do, or does not, as some."""

    answers = True

    def read(self, seconds: float = 0.1) -> None:
        seen = len(self.raw)
        super().read(seconds)
        if self.answers:
            for _ in range(self.raw.count(QUESTION.encode(), max(0, seen - len(QUESTION) + 1))):
                with suppress(OSError):
                    os.write(self.master, b"\x1b[?2026;2$y")

    @property
    def elapsed(self) -> int | None:
        """The whole seconds that the head says have passed; None where a dialog covers them."""
        head = self.screen.display[:6]
        found = re.search(r"elapsed (?:(\d+) min)? ?(?:(\d+) s)?", "\n".join(head))
        if found is None or not any(found.groups()):
            place = next(((y, line.find("elapsed")) for y, line in enumerate(head) if y and "elapsed" in line), None)
            tile = head[place[0] - 1][max(0, place[1] - 1) :] if place is not None else ""
            found = re.match(r" *(?:(\d+) min)? ?(?:(\d+) s)?", tile)
        minutes, seconds = found.groups() if found is not None else (None, None)
        return None if minutes is None and seconds is None else 60 * int(minutes or 0) + int(seconds or 0)


class Heartbeat:
    """How much longer than its own time the processor takes for a piece of work beside the test, at worst."""

    WORK = 0.01  # seconds of the processor

    def __init__(self) -> None:
        self.slowest = 1.0
        self._over = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while not self._over.wait(0.05):
            begun, until = time.monotonic(), time.thread_time() + self.WORK
            while time.thread_time() < until:
                pass
            self.slowest = max(self.slowest, (time.monotonic() - begun) / self.WORK)

    def stop(self) -> None:
        self._over.set()


class SideBySide:
    """Two dashboards on one run, a keyed and a quiet one: what the box delays, it delays on both."""

    def __init__(self, keyed: Screen, quiet: Screen, started: float) -> None:
        self.keyed, self.quiet, self._started = keyed, quiet, started
        self.stale: dict[Screen, list[float]] = {keyed: [], quiet: []}

    def read(self, seconds: float) -> None:
        """Read both as it comes for so long, and note how old at least the time is that each shows."""
        until = time.monotonic() + seconds
        while True:
            ready, _, _ = select.select(
                [self.keyed.master, self.quiet.master], [], [], max(0.0, until - time.monotonic())
            )
            for screen in (self.keyed, self.quiet):
                if screen.master in ready:
                    screen.read(0)
            if time.monotonic() >= until:
                break
        for screen, stale in self.stale.items():
            if (elapsed := screen.elapsed) is not None:
                stale.append(time.monotonic() - self._started - (elapsed + 1))  # it shows whole seconds, rounded down


def opened(box: Box, monkeypatch: pytest.MonkeyPatch, answers: bool, *words: str) -> Screen:
    monkeypatch.setattr("tests.e2e.conftest.Terminal", Screen)
    screen = box.trainmon(*words)
    assert isinstance(screen, Screen)
    screen.answers = answers
    return screen


def wait_for_steps(screen: Screen, *others: Screen) -> None:
    """Read until a step is on the screen; the others are read meanwhile, as a terminal does."""

    def shown(text: str) -> bool:
        for other in others:
            other.read(0)
        return re.search(r"step [1-9][\d,]* of", text) is not None

    screen.wait_for(shown)


@pytest.mark.parametrize("answers", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.long
def test_after_any_keys_at_any_pace_the_time_shown_is_the_runs(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    keyed = opened(box, monkeypatch, answers, "run", "--", sys.executable, str(script))
    wait_for_steps(keyed)
    quiet = opened(box, monkeypatch, answers, "attach")
    wait_for_steps(quiet, keyed)
    identity = rundir.read_json(box.run() / rundir.IDENTITY)
    assert identity is not None
    both = SideBySide(keyed, quiet, identity["started_monotonic"])
    heartbeat = Heartbeat()
    lots = random.Random(11)
    begun = time.monotonic()
    burst = most = 1  # keys that wait for one another's screens
    for _ in range(KEYS):
        keyed.press(lots.choice(PRESSED))
        pace = lots.choice(PACES)
        both.read(pace)
        burst = burst + 1 if pace < SCREEN_COST else 1
        most = max(most, burst)
        assert time.monotonic() - begun < 4 * PATIENCE
    assert len(both.stale[keyed]) > KEYS / 2, "dialogs do not cover the head for long"
    heartbeat.stop()
    box_is_late = max(0.0, *both.stale[quiet]) + most * SCREEN_COST * heartbeat.slowest
    assert max(both.stale[keyed]) <= 1 + box_is_late, both.stale[keyed]
