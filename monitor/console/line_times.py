"""Tell when a line was written: as it arrived, or by what a finished log prints. The time of arrival is passed in."""

from __future__ import annotations

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
    """The clock of a live log: a line's moment is its arrival."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = self.began = now

    def at(self, reading: Reading, advance: int) -> float:
        return self.now


class PrintedClock:
    """The clock of a finished log, advanced by the times in its lines; it stops where they have none.

    Times of day come first. Without them the elapsed time of a bar counts, then the elapsed time in a line, made
    more exact by the seconds of one step, then the seconds of a step times the steps since the line before, then the
    steps per second.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._origin: float | None = None  # time of day at 0
        self._before: float | None = None
        self._bars: dict[str, tuple[float, float]] = {}  # bar -> its start, its elapsed time

    def at(self, reading: Reading, advance: int) -> float:
        moment = self._moment(reading, advance)
        if moment is not None and self.now < moment < self.now + MAX_CLOCK_ADVANCE:
            self.now = moment
        return self.now

    def _moment(self, reading: Reading, advance: int) -> float | None:
        if reading.wall is not None:
            return self._of_day(reading.wall)
        if self._origin is not None:
            return None
        if reading.family == "bar" and reading.elapsed is not None:
            key = f"{reading.key}/{reading.total}"
            began, elapsed = self._bars.get(key, (self.now, 0.0))
            again = reading.per_epoch and reading.elapsed == elapsed and advance == reading.total  # a whole epoch
            if reading.elapsed < elapsed or again:
                began = self.now
            if len(self._bars) < MAX_TIMED_BARS or key in self._bars:
                self._bars[key] = (began, reading.elapsed)
            return began + reading.elapsed
        if reading.elapsed is not None:
            exact = self.now + reading.seconds if reading.seconds is not None and advance == 1 else None
            agrees = exact is not None and abs(exact - reading.elapsed) <= ELAPSED_RESOLUTION
            return exact if agrees else reading.elapsed
        if reading.seconds is not None and (advance or reading.block):
            return self.now + reading.seconds * max(1, advance)
        if reading.steps_rate and advance and reading.family != "bar":
            return self.now + advance / reading.steps_rate
        return None

    def _of_day(self, wall: float) -> float:
        if self._origin is None:
            self._origin = wall - self.now
        before = self._before if self._before is not None else wall
        if wall < DAY and before - wall > HALF_DAY:  # a time without its date, past midnight
            self._origin -= DAY
        self._before = wall
        return wall - self._origin
