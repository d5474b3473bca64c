"""When a line was written: as it arrived, or as a finished log tells. Pure: the time of arrival is passed in."""

from __future__ import annotations

from typing import Protocol

from monitor.console.prefixes import DAY
from monitor.console.reading import Reading

COARSE = 1.0  # an elapsed time is printed to the second or so, the time of a step is finer
HALF_DAY = DAY / 2


class Clock(Protocol):
    """Gives the moment of a reading, in seconds that never go back."""

    def at(self, reading: Reading, advance: int) -> float: ...


class Arrival:
    """The clock of a living log: a line is as old as its arrival."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def at(self, reading: Reading, advance: int) -> float:
        return self.now


class Told:
    """The clock of a finished log, wound by what its lines say; it stands still where they say nothing.

    Times of day come first. Without them the elapsed time of a bar counts, then the elapsed time in a line, made finer
    by the seconds of one step, then the seconds of a step times the steps since the line before,
    and then the steps a second.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._origin: float | None = None  # time of day at 0
        self._before = 0.0
        self._bars: dict[str, tuple[float, float]] = {}  # label -> when it began, how long it had run

    def at(self, reading: Reading, advance: int) -> float:
        moment = self._moment(reading, advance)
        if moment is not None and self.now < moment < self.now + 400 * DAY:
            self.now = moment
        return self.now

    def _moment(self, reading: Reading, advance: int) -> float | None:
        if reading.wall is not None:
            return self._of_day(reading.wall)
        if self._origin is not None:
            return None
        if reading.family == "bar" and reading.elapsed is not None:
            key = f"{reading.key}/{reading.total}"
            began, ran = self._bars.get(key, (self.now, -1.0))
            again = reading.per_epoch and reading.elapsed == ran and advance == reading.total  # a whole epoch
            if reading.elapsed < ran or ran < 0 or again:
                began = self.now
            if len(self._bars) < 1000 or key in self._bars:
                self._bars[key] = (began, reading.elapsed)
            return began + reading.elapsed
        if reading.elapsed is not None:
            own = self.now + reading.seconds if reading.seconds is not None and advance == 1 else None
            return own if own is not None and abs(own - reading.elapsed) <= COARSE else reading.elapsed
        if reading.seconds is not None and (advance or reading.block):
            return self.now + reading.seconds * max(1, advance)
        if reading.steps_rate and advance and reading.family != "bar":
            return self.now + advance / reading.steps_rate
        return None

    def _of_day(self, wall: float) -> float:
        if self._origin is None:
            self._origin = wall - self.now
        if wall < DAY and self._before - wall > HALF_DAY:  # a time without its date, past midnight
            self._origin -= DAY
        self._before = wall
        return wall - self._origin
