"""A recording played as if it happened now: at any speed, forwards and back, step by step.

Going back means folding again: from a state that was kept on the way, or from the beginning.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from monitor.errors import UserError
from monitor.model.fold import fold
from monitor.model.report import View
from monitor.model.state import RunState
from monitor.model.summary import Surroundings
from monitor.runs import products
from monitor.runs.catalogue import resolve
from monitor.runs.follow import FRAME, SLICE, picture
from monitor.runs.packed import packed, unpacker
from monitor.sources.identity import identity
from monitor.sources.recording import Recording
from trainhooks import rundir
from trainhooks.events import clean

KEEP_EVERY = 20_000  # events between two states that are kept: half a second of folding
MAX_KEPT = 24  # states; beyond them every other one goes, so the way back grows with the logarithm of the length
SLOWEST, FASTEST = 1 / 16, 1024.0

_decoder = unpacker(RunState)


class Player:
    """A place in a recording, and the state of the run there."""

    def __init__(self, recording: Recording, known: dict[str, Any], lives: bool = False) -> None:
        """
        Args:
            known: what `run.json` tells.
            lives: whether the recorded run still goes on, so that its end is not in the recording.
        """
        self._recording = recording
        self._known = known
        self._lives = lives
        self._products = products.load()
        self._kept: list[tuple[int, bytes]] = []
        self._every = KEEP_EVERY
        self.state = RunState()
        self.position = 0  # events folded
        self.now = recording.begin

    @property
    def simulated(self) -> bool:
        """Whether a GPU in it is no real one: said from the first screen on."""
        return self._recording.simulated

    @property
    def at_end(self) -> bool:
        return self.position >= len(self._recording)

    @property
    def elapsed(self) -> float:
        return self.now - self._recording.begin

    @property
    def length(self) -> float:
        return self._recording.end - self._recording.begin

    def play_to(self, moment: float, seconds: float = SLICE) -> bool:
        """Go to a moment, working for about so long. Returns whether it is reached."""
        recording = self._recording
        moment = min(max(moment, recording.begin), recording.end)
        goal = recording.before(moment)
        if goal < self.position:
            self._go_back(goal)
        return self._fold_to(goal, moment, seconds)

    def step_target(self, steps: int) -> float:
        """The moment at which so many steps more, or fewer, have ended; the recording's ends lie beyond the last."""
        recording = self._recording
        if steps > 0:
            at = bisect_left(recording.steps, self.position) + steps - 1
            return recording.times[recording.steps[at]] if at < len(recording.steps) else recording.end
        passed = bisect_left(recording.steps, self.position)  # steps that are folded
        at = passed + steps - 1
        return recording.times[recording.steps[at]] if at >= 0 else recording.begin

    def _go_back(self, goal: int) -> None:
        while self._kept and self._kept[-1][0] > goal:
            self._kept.pop()
        self.position, kept = self._kept[-1] if self._kept else (0, b"")
        self.state = _decoder.decode(kept) if kept else RunState()

    def _fold_to(self, goal: int, moment: float, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self.position < goal:
            upto = min(goal, self.position + 500)
            for event in self._recording.events(self.position, upto):
                fold(self.state, event)
            self.position = upto
            self._keep()
            if self.position < goal and time.monotonic() > until:
                self.now = self._recording.times[self.position]
                return False
        self.now = moment
        return True

    def _keep(self) -> None:
        if self.position - (self._kept[-1][0] if self._kept else 0) < self._every:
            return
        self._kept.append((self.position, bytes(packed(self.state))))
        if len(self._kept) > MAX_KEPT:
            self._kept = self._kept[1::2]
            self._every *= 2

    def view(self) -> View:
        """What could be known at this moment."""
        alive = self._lives or (not self.at_end and self.state.ending is None)
        missing = self._recording.missing
        return picture(self.state, Surroundings(self._known, self.now, alive, missing, products=self._products))


class Playback:
    """A feed that plays, with what a person can do to it. Every method may be called from any thread."""

    def __init__(self, player: Player, speed: float = 1.0) -> None:
        """
        Args:
            speed: seconds of the recording a second; 0 begins in pause.
        """
        self._player = player
        self._speed = speed or 1.0
        self._paused = not speed
        self._target: float | None = None  # a moment to go to, whatever the speed
        self._orders: list[Callable[[], None]] = []
        self._news = threading.Event()
        self._over = False
        self._thread: threading.Thread | None = None

    def start(self, on_view: Callable[[View], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(on_view,), name="replay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._news.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def pause(self) -> None:
        """Pause, or go on; at the end begin anew."""
        self._order(self._pause)

    def faster(self, factor: float) -> None:
        self._order(lambda: self._change_speed(factor))

    def step(self, steps: int) -> None:
        """Go forward or back by whole steps, and stay there."""
        self._order(lambda: self._go(self._player.step_target(steps), stay=True))

    def seek(self, share: float) -> None:
        """Go forward or back by a share of the whole recording."""
        self._order(lambda: self._go(self._player.now + share * self._player.length, stay=False))

    def _order(self, order: Callable[[], None]) -> None:
        self._orders.append(order)
        self._news.set()

    def _pause(self) -> None:
        if self._player.at_end and not self._paused:
            self._target = self._player.now - self._player.elapsed
        else:
            self._paused = not self._paused

    def _change_speed(self, factor: float) -> None:
        self._speed = min(max(self._speed * factor, SLOWEST), FASTEST)

    def _go(self, moment: float, stay: bool) -> None:
        self._target = moment
        self._paused |= stay

    def _run(self, on_view: Callable[[View], None]) -> None:
        last = time.monotonic()
        while not self._over:
            self._news.clear()
            while self._orders:
                self._orders.pop(0)()
                self._arrive()
            now = time.monotonic()
            if not self._paused:
                self._target = self._player.now + (now - last) * self._speed
                self._arrive()
            last = now
            if not self._over:
                on_view(self.view())
            resting = self._paused or self._player.at_end
            self._news.wait(None if resting else max(0.0, FRAME - (time.monotonic() - now)))
            if resting:
                last = time.monotonic()

    def _arrive(self) -> None:
        """Fold until the target is reached, letting go of the interpreter now and then."""
        while self._target is not None and not self._over:
            if self._player.play_to(self._target):
                self._target = None
            time.sleep(0)

    def views(self, seconds: float) -> Iterator[View]:
        """A view each so many seconds up to the end of the recording, for where no key can be pressed."""
        last = time.monotonic()
        while not self._player.at_end:
            yield self.view()
            time.sleep(seconds)
            now = time.monotonic()
            self._target, last = self._player.now + (now - last) * self._speed, now
            self._arrive()
        yield self.view()

    def view(self) -> View:
        what = ["REPLAY", *(["SIMULATED GPU"] if self._player.simulated else [])]
        return replace(self._player.view(), label=" · ".join([*what, self._where()]))

    def _where(self) -> str:
        player = self._player
        if self._paused:
            return f"paused at {_clock(player.elapsed)}"
        place = f"{_clock(player.elapsed)}/{_clock(player.length)}"
        return f"ended {place}" if player.at_end else f"{self._speed:g}x {place}"


def _clock(seconds: float) -> str:
    """`3:07`, `1:03:07`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def recorded(file: Path) -> View:
    """The view of a recording in a file, as it stands at its end.

    Raises:
        UserError: there is nothing in it that can be played.
    """
    player = open_player(str(file))
    while not player.play_to(player.now + player.length, 1.0):
        pass
    return replace(player.view(), label="REPLAY")


def open_player(named: str | None) -> Player:
    """A player of a run, or of a journal in a file of its own.

    Raises:
        UserError: there is no such run, or there is nothing in it that can be played.
    """
    path = Path(named) if named and os.path.isfile(named) else None  # pathlib's own raises on a name that is too long
    if path is not None:
        known: dict[str, Any] = {"id": clean(path.stem), "name": clean(path.stem), "recording": True}
        files, lives = [path], False
    else:
        path = resolve(named)
        files, known, lives = rundir.journals(path), identity(path), rundir.run_alive(path)
    try:
        recording = Recording(files)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    if not len(recording):
        raise UserError(f"{path} holds no events; a recording is a run's journal: JSON Lines that begin with a hello")
    return Player(recording, known, lives)
