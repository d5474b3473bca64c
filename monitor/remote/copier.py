"""Keep the copy of a run on another host up to date: once, or in a thread that comes back after the line was cut."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeGuard

from monitor.errors import UserError
from monitor.remote.clocks import Clock, Exchange
from monitor.remote.copies import LOCK, Far, copy_path, far_of, remove_old, write_far, writing
from monitor.remote.copy_writer import BadFrame, CopyWriter
from monitor.remote.far_side import MAX_STARTS
from monitor.remote.joined import earlier_starts, join
from monitor.remote.line import Frame, Line, LineCut, Target, open_line
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.limits import MAX_NAME, clean

ANSWER_SECONDS = 60.0  # for what a far side is asked
DEAD_SECONDS = 15.0  # without a byte, of a far side that speaks each second: the line is cut, whatever it looks like
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds before another line is opened
FIRST_SECONDS = 3.0  # for which the first screen waits for the whole history
READ_SECONDS = 0.2
FIRST_EXCHANGES = 8  # of timestamps, at once
EXCHANGE_SECONDS = 2.0  # between two later ones


@dataclass(slots=True)
class Copier:
    """One run of a far host and its copy here.

    Attributes:
        path: the copy's directory.
        is_known: set once the copy says whether the run lives, by which clock, or the first line was cut before.
        is_even: set once it has all that the run had written.
        error: why the newest line was cut.
        others: more runs of the same job there.
    """

    target: Target
    run: str
    path: Path
    _line: Line | None
    is_known: threading.Event = field(default_factory=threading.Event)
    is_even: threading.Event = field(default_factory=threading.Event)
    error: str = ""
    others: tuple[str, ...] = ()

    @classmethod
    def open(cls, target: Target, run: str, asks: bool = True, job: str | None = None) -> Copier:
        """Open a line and find a run there.

        Args:
            run: an id, a name, the start of an id; empty: the one that is running, or the last.
            asks: whether ssh may ask for a password on the terminal.
            job: what names a job; only runs of that one count.

        Raises:
            UserError: there is no such run, no way there, or no place for a copy.
        """
        try:
            line = open_line(target, asks)
            try:
                found, others = _found(line, run, job)
                with writing():
                    return cls(target, found, copy_path(target.host, found), line, others=others)
            except BaseException:
                line.close()
                raise
        except LineCut as error:
            raise UserError(f"{target.host}: {error}") from None

    def copy_once(self) -> None:
        """Copy what there is, and close the line.

        Raises:
            UserError: the line was cut before.
        """
        try:
            with writing():
                lock = rundir.Lock.acquire(self.path / LOCK)
        except UserError:
            self.close()
            raise
        if lock is None:  # another process writes it
            self.close()
            return
        try:
            self._copy(until_even=True)
        except (LineCut, BadFrame, OSError) as error:
            raise UserError(f"{self.target.host}: {error}") from None
        finally:
            lock.release()
            self.close()

    def _copy(self, until_even: bool = False, stop: threading.Event | None = None) -> None:
        """Copy over the open line until it is cut, `stop` is set, or everything is here."""
        assert self._line is not None
        line, clock = self._line, Clock()
        writer = CopyWriter(self.path)
        far = replace(far_of(self.path) or Far(), host=self.target.host, run=self.run, error="")
        try:
            line.send({"do": "follow", "run": self.run, "have": writer.have()})
            sent: dict[int, float] = {}
            asked, next_asked, progressed = 0, 0.0, time.monotonic()
            while stop is None or not stop.is_set():
                now = time.monotonic()
                if now >= next_asked:
                    asked, sent = asked + 1, {asked: now}
                    line.send({"do": "time", "n": asked - 1})
                    next_asked = now + (READ_SECONDS if asked < FIRST_EXCHANGES else EXCHANGE_SECONDS)
                for frame in line.frames(READ_SECONDS):
                    if not self.is_even.is_set() and (frame.kind == "even" or (frame.kind == "bytes" and frame.data)):
                        progressed = now  # a long history may take long; what comes after it counts no more
                    if writer.take(frame):
                        continue
                    if frame.kind == "time":
                        _note_time(clock, sent, frame)
                    elif frame.kind == "state":
                        far = _noted(far, clock, frame)
                        write_far(self.path, far)
                        if far.clock is not None:  # a part of a job is not read before
                            self.is_known.set()
                    elif frame.kind == "refused":
                        raise LineCut(clean(frame.header.get("text"), MAX_NAME))
                    elif frame.kind == "even":
                        self.is_even.set()
                if until_even and self.is_even.is_set() and clock.best(now) is not None:
                    write_far(self.path, _noted(far, clock, None))
                    return
                if until_even and now - progressed > ANSWER_SECONDS:
                    raise LineCut(f"no answer within {ANSWER_SECONDS:g} s")
                if time.monotonic() - line.heard > DEAD_SECONDS:
                    raise LineCut("the far side is silent")
        finally:
            writer.close()

    def keep_on(self, stop: threading.Event) -> None:
        """Copy until `stop` is set; open the line again whenever it was cut. Never raises."""
        pause = FIRST_PAUSE
        while not stop.is_set():
            lock, began = None, time.monotonic()
            try:
                lock = rundir.Lock.acquire(self.path / LOCK)
                if lock is None:  # another process copies: should it end, this one goes on
                    self.close()
                    self.is_known.set()
                    self.is_even.set()
                    stop.wait(1.0)
                    continue
                if self._line is None:
                    self._line = open_line(self.target, asks=False)
                self._copy(stop=stop)
            except (LineCut, BadFrame, OSError, UserError) as error:
                self.error = clean(str(error), MAX_NAME)
                if (known := far_of(self.path)) is not None:
                    write_far(self.path, replace(known, error=self.error))
                self.is_known.set()
                pause = FIRST_PAUSE if time.monotonic() - began > LONGEST_PAUSE else min(LONGEST_PAUSE, 2 * pause)
            finally:
                if lock is not None:
                    lock.release()
            self.close()
            stop.wait(pause * random.uniform(0.5, 1.0))  # many viewers do not come back at the same moment

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None


class JoinThread:
    """Copies the parts of a job, and joins them with what is there of earlier starts, while a `with` block lasts."""

    def __init__(self, copiers: list[Copier]) -> None:
        self._copiers = copiers
        self._copies = [CopyThread(copier) for copier in copiers]

    def __enter__(self) -> Path:
        """
        Raises:
            UserError: they are not parts of one job, or there is no place for it.
        """
        try:
            parts = [copy.__enter__() for copy in self._copies]
            parts += earlier_starts(parts[0], [path for copier in self._copiers for path in _others(copier)])
            with writing():
                return join(parts) if len(parts) > 1 else parts[0]
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_: object) -> None:
        for copy in self._copies:
            copy.__exit__()


class CopyThread:
    """Copies a run while a `with` block lasts."""

    def __init__(self, copier: Copier) -> None:
        self._copier = copier
        self._stop = threading.Event()
        self._thread = threading.Thread(target=copier.keep_on, args=(self._stop,), name="copier", daemon=True)

    def __enter__(self) -> Path:
        """
        Raises:
            UserError: nothing comes of the run.
        """
        remove_old()
        self._thread.start()
        self._copier.is_known.wait(ANSWER_SECONDS)
        if far_of(self._copier.path) is None:
            self.__exit__()
            raise UserError(f"{self._copier.target.host}: {self._copier.error or 'no answer'}")
        self._copier.is_even.wait(FIRST_SECONDS)
        return self._copier.path

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread.ident is None:  # it was not started
            self._copier.close()
        else:
            self._thread.join(3.0)


def _others(copier: Copier) -> Iterator[Path]:
    """Yield copies of the other runs of the job on a host, as far as they can be had."""
    for run in copier.others:
        with contextlib.suppress(UserError, OSError):
            path = copy_path(copier.target.host, run)
            if not (path / rundir.EXIT).exists():  # it was copied before, to its end
                Copier.open(copier.target, run, asks=False).copy_once()
            yield path


def _found(line: Line, run: str, job: str | None) -> tuple[str, tuple[str, ...]]:
    line.send({"do": "find", "run": run, "job": job})
    until = time.monotonic() + ANSWER_SECONDS
    while time.monotonic() < until:
        for frame in line.frames(READ_SECONDS):
            if frame.kind == "refused":
                raise LineCut(clean(frame.header.get("text"), 2 * MAX_NAME))
            found, others = frame.header.get("run"), frame.header.get("others")
            if frame.kind == "found" and _is_name(found):
                return found, tuple(filter(_is_name, others[:MAX_STARTS] if isinstance(others, list) else ()))
    raise LineCut("no answer")


def _is_name(value: Any) -> TypeGuard[str]:
    return isinstance(value, str) and value == clean(value, MAX_NAME) and value != ""


def _note_time(clock: Clock, sent: dict[int, float], frame: Frame) -> None:
    at, far = sent.pop(_whole(frame.header.get("n")), None), _number(frame.header.get("monotonic"))
    if at is not None and far is not None:
        clock.add(Exchange(at, time.monotonic(), far))


def _noted(far: Far, clock: Clock, frame: Frame | None) -> Far:
    """Return what is known now, after a frame `state` or another word."""
    now = time.monotonic()
    best = clock.best(now)
    if best is not None:
        far = replace(far, clock=best.offset, uncertainty=best.uncertainty(now))
    if frame is not None:
        header = frame.header
        far = replace(far, alive=header.get("alive") is True, ranks=header.get("ranks") is True)
    return replace(far, heard=time.time(), heard_monotonic=now, boot_id=process_identity.boot_id() or "")


def _number(value: Any) -> float | None:
    return float(value) if type(value) in (int, float) and abs(value) < 1e12 else None


def _whole(value: Any) -> int:
    return value if type(value) is int else -1
