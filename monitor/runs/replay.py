"""Play a recording as if it were live: at any speed, forward and back, step by step.

Going back folds again from a state kept earlier, or from the beginning.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from monitor.errors import UserError
from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.model.view import View
from monitor.model.wall_time import RunContext
from monitor.runs.catalogue import resolve
from monitor.runs.follow import FOLD_SECONDS, build_view
from monitor.runs.run_files import identity
from monitor.runs.state_cache import decoder_of, encoded
from monitor.sources import streams
from monitor.sources.recording import Recording
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import clean

VIEW_SECONDS = 0.45  # seconds between two views
KEEP_EVERY = 20_000  # events between two kept states: half a second of folding
MAX_KEPT = 24  # states; at this number every other one is dropped and the distance between them doubles
OPENING_SECONDS = 1.0  # shown before the first step
MIN_SPEED, MAX_SPEED = 1 / 16, 1024.0

_decoder = decoder_of(RunState)


class Player:
    """A position in a recording and the state of the run there."""

    def __init__(
        self, recording: Recording, known: dict[str, Any], lives: bool = False, rank: int | None = None
    ) -> None:
        """
        Args:
            known: the content of `run.json`.
            lives: whether the recorded run is still running, so that the recording lacks its end.
            rank: the one to show; None: the lowest.
        """
        self._rank = rank
        self._recording = recording
        self._known = known
        self._lives = lives
        self._kept: list[tuple[int, bytes]] = []
        self._every = KEEP_EVERY
        self.state = RunState(chosen=rank)
        self.position = 0  # events folded
        self.now = recording.begin

    @property
    def simulated(self) -> bool:
        """Return whether any GPU of the recording is simulated."""
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

    @property
    def opening(self) -> float:
        """Return the moment to begin at: shortly before the first step ends, as nobody watches a start-up again."""
        recording = self._recording
        first = recording.times[recording.steps[0]] if recording.steps else recording.begin
        return max(recording.begin, first - OPENING_SECONDS)

    def play_to(self, moment: float, seconds: float = FOLD_SECONDS) -> bool:
        """Fold towards a moment for about `seconds`. Return whether it is reached."""
        recording = self._recording
        moment = min(max(moment, recording.begin), recording.end)
        goal = recording.count_before(moment)
        if goal < self.position:
            self._go_back(goal)
        return self._fold_to(goal, moment, seconds)

    def show_rank(self, rank: int | None) -> None:
        """Show another rank at the same moment, once it is played to again."""
        self._rank, self._kept = rank, []
        self._go_back(0)

    def step_target(self, steps: int) -> float:
        """Return the moment at which `steps` more (or, if negative, fewer) steps have ended, within the recording."""
        recording = self._recording
        if steps > 0:
            at = bisect_left(recording.steps, self.position) + steps - 1
            return recording.times[recording.steps[at]] if at < len(recording.steps) else recording.end
        passed = bisect_left(recording.steps, self.position)  # steps folded so far
        at = passed + steps - 1
        return recording.times[recording.steps[at]] if at >= 0 else recording.begin

    def _go_back(self, goal: int) -> None:
        while self._kept and self._kept[-1][0] > goal:
            self._kept.pop()
        self.position, kept = self._kept[-1] if self._kept else (0, b"")
        self.state = _decoder.decode(kept) if kept else RunState(chosen=self._rank)

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
        self._kept.append((self.position, bytes(encoded(self.state))))
        if len(self._kept) > MAX_KEPT:
            self._kept = self._kept[1::2]
            self._every *= 2

    def view(self) -> View:
        """Return the view at this moment of the recording."""
        alive = self._lives or (not self.at_end and self.state.ending is None)
        missing = self._recording.missing
        return build_view(self.state, RunContext(self._known, self.now, alive, missing))


class Playback:
    """Play a recording into views, with controls. Every method may be called from any thread."""

    def __init__(self, player: Player, speed: float = 1.0) -> None:
        """
        Args:
            speed: seconds of the recording per second; 0 starts paused.
        """
        self._player = player
        self._speed = speed or 1.0
        self._paused = not speed
        self._target: float | None = player.opening  # a moment to go to, regardless of the speed
        self._commands: list[Callable[[], None]] = []
        self._wake = threading.Event()
        self._stopped = False
        self._thread: threading.Thread | None = None

    def start(self, on_view: Callable[[View], None]) -> None:
        self._thread = threading.Thread(target=self._run, args=(on_view,), name="replay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(2.0)

    def pause(self) -> None:
        """Pause or resume; at the end start again."""
        self._enqueue(self._pause)

    def faster(self, factor: float) -> None:
        self._enqueue(lambda: self._change_speed(factor))

    def step(self, steps: int) -> None:
        """Go forward or back by whole steps, and pause there."""
        self._enqueue(lambda: self._go(self._player.step_target(steps), stay=True))

    def seek(self, share: float) -> None:
        """Go forward or back by a share of the whole recording."""
        self._enqueue(lambda: self._go(self._player.now + share * self._player.length, stay=False))

    def show_rank(self, rank: int | None) -> None:
        """Show another rank; None: the lowest."""
        self._enqueue(lambda: self._show_rank(rank))

    def _show_rank(self, rank: int | None) -> None:
        self._target = self._player.now if self._target is None else self._target
        self._player.show_rank(rank)

    def _enqueue(self, command: Callable[[], None]) -> None:
        self._commands.append(command)
        self._wake.set()

    def _pause(self) -> None:
        if self._player.at_end and not self._paused:
            self._target = self._player.now - self._player.elapsed
        else:
            self._paused = not self._paused

    def _change_speed(self, factor: float) -> None:
        self._speed = min(max(self._speed * factor, MIN_SPEED), MAX_SPEED)

    def _go(self, moment: float, stay: bool) -> None:
        self._target = moment
        self._paused |= stay

    def _run(self, on_view: Callable[[View], None]) -> None:
        self._arrive()
        last = time.monotonic()
        while not self._stopped:
            self._wake.clear()
            while self._commands:
                self._commands.pop(0)()
                self._arrive()
            now = time.monotonic()
            if not self._paused:
                self._target = self._player.now + (now - last) * self._speed
                self._arrive()
            last = now
            if not self._stopped:
                on_view(self.view())
            resting = self._paused or self._player.at_end
            self._wake.wait(None if resting else max(0.0, VIEW_SECONDS - (time.monotonic() - now)))
            if resting:
                last = time.monotonic()

    def _arrive(self) -> None:
        """Fold until the target is reached, letting other threads run in between."""
        while self._target is not None and not self._stopped:
            if self._player.play_to(self._target):
                self._target = None
            time.sleep(0)

    def views(self, seconds: float) -> Iterator[View]:
        """Yield a view every `seconds` until the recording ends, for output without a keyboard."""
        self._arrive()
        last = time.monotonic()
        while not self._player.at_end:
            yield self.view()
            time.sleep(seconds)
            now = time.monotonic()
            self._target, last = self._player.now + (now - last) * self._speed, now
            self._arrive()
        yield self.view()

    def view(self) -> View:
        parts = ["REPLAY", *(["SIMULATED GPU"] if self._player.simulated else [])]
        return replace(self._player.view(), label=" · ".join([*parts, self._where()]))

    def _where(self) -> str:
        player = self._player
        if self._paused:
            return f"paused at {_clock(player.elapsed)}"
        place = f"{_clock(player.elapsed)}/{_clock(player.length)}"
        return f"ended {place}" if player.at_end else f"{self._speed:g}x {place}"


def _clock(seconds: float) -> str:
    """Return a duration as `3:07` or `1:03:07`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def recorded(file: Path, rank: int | None = None) -> View:
    """Return the view of a recorded file at its end.

    Raises:
        UserError: the file holds no events, or no such rank.
    """
    player = open_player(str(file), rank)
    while not player.play_to(player.now + player.length, 1.0):
        pass
    return replace(player.view(), label="REPLAY")


def open_player(named: str | None, rank: int | None = None) -> Player:
    """Return a player of a run or of a journal file.

    Raises:
        UserError: no such run, or it holds no events, or no such rank.
    """
    path = Path(named) if named and os.path.isfile(named) else None  # Path.is_file raises on a name that is too long
    if path is not None:
        known: dict[str, Any] = {"id": clean(path.stem), "name": clean(path.stem), "recording": True}
        files, lives = [path], False
    else:
        path = resolve(named)
        files, known, lives = streams.leading_journals(rundir.journals(path)), identity(path), rundir.run_alive(path)
    try:
        recording = Recording(files)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror or error}") from None
    if not len(recording):
        raise UserError(f"{path} holds no events; a recording is a run's journal: JSON Lines that begin with a hello")
    if rank is not None:
        check_rank(rank, recording.ranks, path.name)
    return Player(recording, known, lives, rank)


def check_rank(rank: int, known: Sequence[int], run: str) -> None:
    """Raise UserError where a run has no such rank."""
    if rank in known:
        return
    if not known:
        raise UserError(f"{run}: no rank has reported yet")
    ranks = f"its ranks are {known[0]} to {known[-1]}" if len(known) > 1 else f"its only rank is {known[0]}"
    raise UserError(f"{run} has no rank {rank}: {ranks}")
