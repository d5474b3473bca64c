"""Tell what the main thread of a launched program does before its first step: a file of the run, from outside readable.

Such a process has not shown that it trains: it has no journal, and may never get one. So a thread of its own looks at
the main thread's stack, once a second at first, and keeps a small file up to date. It ends with the first step.
"""

from __future__ import annotations

import json
import os
import sys
import time

# A test of the program may put others in their place there, and count their calls.
from os import close, replace, unlink, write
from os import open as open_file
from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks.device.cuda import started_cuda
from trainhooks.own_thread import OwnThread
from trainhooks.protocol import rundir
from trainhooks.protocol.calls import Frame, package_path
from trainhooks.protocol.limits import MAX_NAME, clean
from trainhooks.protocol.start_waits import INIT_GROUP, RANKS, TO_GPU, is_helper, start_wait
from trainhooks.recording import sources
from trainhooks.recording.facts import rank_facts
from trainhooks.recording.frames import LIBRARY, Position, Sampler, called_name
from trainhooks.recording.gc_room import CollectorRoom

PERIOD = 1.0  # seconds between two looks
# Of the time so far: a program that computes without steps is looked at ever less, and what is told is hardly outdated.
PERIOD_SHARE = 1 / 60
MAX_FRAMES = 200  # of a stack, from the innermost on


def watch_start(thread: int, has_stepped: Callable[[], bool]) -> None:
    """Watch a thread until the first step, in a launched run. Never raises.

    Args:
        thread: its identifier.
        has_stepped: returns whether a step is known.
    """
    run = os.environ.get(rundir.RUN_VARIABLE)
    if not run:
        return
    watch = _Watch(run, thread, has_stepped)
    if watch.sampler.wanted:
        watch.own.start()


class _Watch:
    """What one process waits for, and the file that tells it."""

    def __init__(self, run: str, thread: int, has_stepped: Callable[[], bool]) -> None:
        self.sampler = Sampler()
        self.own = OwnThread(self._watch)
        self._room = CollectorRoom()
        self._path = os.path.join(run, f"{rundir.LOOK}{os.uname().nodename}-{os.getpid()}.json")
        self._thread = thread
        self._has_stepped = has_stepped
        self._told: Dict[str, Any] = {}
        self._began = time.monotonic()
        self._due = self._began + PERIOD  # what takes less than that need not be told

    def _watch(self) -> bool:
        """Look from time to time. Return whether this only pauses."""
        try:
            sources.read_main()
            while not self.own.pausing:
                now = time.monotonic()
                if now < self._due and self.own.wait(self._due - now):
                    continue
                self._due = time.monotonic() + max(PERIOD, PERIOD_SHARE * (time.monotonic() - self._began))
                self._room.make()
                try:
                    goes_on = not self._has_stepped() and self.look(time.monotonic())
                finally:
                    self._room.take_back()
                if not goes_on:
                    unlink(self._path)
                    return False
            return True
        except BaseException:  # nothing here may reach the training, and at its end anything may be gone
            return False

    def look(self, now: float) -> bool:
        """Look once, and write what has changed. Return whether to go on."""
        frame = sys._current_frames().get(self._thread)
        frames, positions, group = _walk(frame)
        del frame  # it would keep the tensors of its function in memory
        if not positions or is_helper(frames):
            return False
        known, place = start_wait(frames, called_name(positions[0]) or ""), self.sampler.place_of(positions)
        if known is not None and known[0] == TO_GPU and not _starts_cuda(frames) and started_cuda() is None:
            known = None  # another number format
        what, of = known or ("" if place is None else place.activity, "")
        found: Dict[str, Any] = {"what": what, "of": clean(of, MAX_NAME), **(group if what == RANKS else {})}
        is_same = found == {name: self._told.get(name) for name in found}
        since = self._told["since"] if is_same else now
        # What is waited for says more than the line inside it; where it is unknown that line is all there is.
        where = "" if place is None else str(place.users if known is not None else place)
        if is_same and where == self._told.get("place"):
            return True
        self._told = {"pid": os.getpid(), "host": os.uname().nodename, "since": since, "place": where, **found}
        return self._write({**rank_facts({}), **self._told})

    def _write(self, known: Dict[str, Any]) -> bool:
        temporary = f"{self._path}.new"
        try:
            file = open_file(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                write(file, json.dumps(known).encode())
            finally:
                close(file)
            replace(temporary, self._path)
        except OSError:  # a full disk, or a run that was removed
            return False
        return True


def _starts_cuda(frames: List[Frame]) -> bool:
    return any(function == "_lazy_init" for _, function in frames)


def _walk(frame: Optional[Any]) -> Tuple[List[Frame], List[Position], Dict[str, int]]:
    """Return files and functions of a stack, its positions, and the rank that the process group is being made with."""
    frames: List[Frame] = []
    positions: List[Position] = []
    group: Dict[str, int] = {}
    while frame is not None and len(frames) < MAX_FRAMES:
        code = frame.f_code
        frames.append((package_path(code.co_filename, LIBRARY), code.co_name))
        positions.append(Position.of(frame))
        if code.co_name == INIT_GROUP and not group:
            given = frame.f_locals
            for name in ("rank", "world_size"):
                value = given.get(name)
                if type(value) is int and value >= 0:
                    group[name] = value
        frame = frame.f_back
    return frames, positions, group
