"""Tell when a line was written: as it arrived, or by what a finished log prints. The time of arrival is passed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from monitor.console.line_prefixes import DAY
from monitor.console.reading import Reading

ELAPSED_RESOLUTION = 1.0  # seconds, to which programs print an elapsed time; the time of a step is finer
MAX_CLOCK_ADVANCE = 400 * DAY  # between two lines; a larger jump means a clock that was set or misread
MAX_TIMED_BARS = 1000  # whose times are remembered
HALF_DAY = DAY / 2


class Clock(Protocol):
    """Give the moment of a reading in seconds, never decreasing."""

    def at(self, reading: Reading, advance: int) -> float:
        """Return the moment of a reading that moves the training on by `advance` steps."""
        ...


class ArrivalClock:
    """The clock of a live log: a line's moment is its arrival. The program began at `began`, by default now."""

    def __init__(self, now: float = 0.0, began: float | None = None) -> None:
        self.now = now
        self.began = now if began is None else began

    def at(self, reading: Reading, advance: int) -> float:
        return self.now


@dataclass(slots=True)
class _Timed:
    """A bar, or lines of one kind, by the elapsed time that they show."""

    began: float
    elapsed: float = 0.0
    last: float = 0.0  # when a bar was last drawn
    over: bool = False
    first: float = 0.0
    is_since_before: bool = False  # it stays about the same and does not grow: each is the time since the line before


class PrintedClock:
    """The clock of a finished log, advanced by the times in its lines; it stops where they have none.

    Times of day come first, where the lines of steps have them. Else they count between bars only, and within one
    the elapsed time that it shows does. Then counts the elapsed time in a line, made more exact by the seconds of one
    step, then the seconds of a step times the steps since the line before, then the steps per second.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._origin: float | None = None  # time of day at 0
        self._before: float | None = None
        self._by_day = False  # whether lines of steps have a time of day
        self._drawn = False  # whether a bar is drawn: its time goes on, whatever times of day stand between its frames
        self._timed: dict[str, _Timed] = {}  # by bar, or kind of line

    def at(self, reading: Reading, advance: int) -> float:
        moment = self._moment(reading, advance)
        if moment is not None and self.now < moment < self.now + MAX_CLOCK_ADVANCE:
            self.now = moment
        return self.now

    def _moment(self, reading: Reading, advance: int) -> float | None:
        if reading.wall is not None:
            self._by_day = self._by_day or advance > 0
            return self._of_day(reading.wall)
        if self._by_day:
            return None
        if reading.family == "bar":
            return self._of_bar(reading, advance) if reading.elapsed is not None else None
        if reading.elapsed is not None:
            moment = self._of_line(reading.family, reading.elapsed, advance)
            exact = self.now + reading.seconds if reading.seconds is not None and advance == 1 else None
            return exact if exact is not None and abs(exact - moment) <= ELAPSED_RESOLUTION else moment
        if reading.seconds is not None and (advance or (reading.block and not self._timed)):
            return self.now + reading.seconds * max(1, advance)
        if reading.steps_rate and advance:
            return self.now + advance / reading.steps_rate
        return None

    def _of_bar(self, bar: Reading, advance: int) -> float:
        elapsed = bar.elapsed or 0.0
        known = self._timed_as(f"{bar.key}/{bar.total}")
        # A full bar that is full again is another one, unless nothing has happened since: then it was drawn again.
        is_another = known.over and (advance > 0 or self.now > known.last + ELAPSED_RESOLUTION)
        if elapsed < known.elapsed or is_another:
            known.began = self.now
        known.elapsed, known.over = elapsed, bar.total is not None and bar.step == bar.total
        known.last = max(self.now, known.began + elapsed)
        self._drawn = not known.over
        return known.last

    def _of_line(self, kind: str, elapsed: float, advance: int) -> float:
        """Return the moment by the elapsed time in a line: since the start, since it last fell, or the line before."""
        if not advance:
            return elapsed
        known = self._timed_as(kind)
        known.first = known.first or elapsed
        if known.elapsed / 2 < elapsed < known.elapsed < 2 * known.first:
            known.is_since_before = True
        if elapsed < known.elapsed or known.is_since_before:
            known.began = self.now
        known.elapsed = elapsed
        return known.began + elapsed

    def _timed_as(self, key: str) -> _Timed:
        known = self._timed.get(key) or _Timed(self.now)
        if len(self._timed) < MAX_TIMED_BARS:
            self._timed[key] = known
        return known

    def _of_day(self, wall: float) -> float:
        if self._origin is None or (self._drawn and not self._by_day):
            self._origin = wall - self.now
        before = self._before if self._before is not None else wall
        if wall < DAY and before - wall > HALF_DAY:  # a time without its date, past midnight
            self._origin -= DAY
        self._before = wall
        return wall - self._origin
