"""Turn lines into readings: what stands before the text is removed, then every format is tried.

What a line means may depend on the lines before it: an open block or table, and the ranks that were seen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from monitor.console import field_mapping, line_prefixes
from monitor.console.formats import Format, registered
from monitor.console.leading_numbers import MAX_HELD_LINES, LeadingNumbers
from monitor.console.lines import Line
from monitor.console.reading import MAX_LINE_CHARACTERS, Reading
from monitor.console.user_patterns import read_pattern

DIGIT = re.compile(r"[0-9]")
_NONFINITE = re.compile(r"\b(?:nan|NaN|NAN|[Ii]nf(?:inity)?|INF)\b")


@dataclass(slots=True)
class Reader:
    """Read the lines of one stream."""

    patterns: tuple[re.Pattern[str], ...] = ()  # the user's own
    lead: int | None = None  # the lowest rank that reported steps: only its lines count
    foreign: int = 0  # lines of other ranks and workers, left out
    _bare_ranks: bool = False  # whether `0: ` before a line is known to be a rank
    _formats: list[Format] = field(default_factory=lambda: [form() for form in registered()])
    _marks: tuple[str, ...] = field(init=False)  # a line that begins with one may be read though it has no number
    _stateful: list[Format] = field(init=False)
    _worker: str | None = None  # of Ray's that is followed; "": the driver itself prints its steps
    _has_bar: bool = False  # the driver
    _held: list[tuple[str | None, Reading]] = field(default_factory=list)  # of workers; of one that printed a step
    _leading: LeadingNumbers = field(default_factory=LeadingNumbers)
    _last: Line | None = None

    def __post_init__(self) -> None:
        self._marks = tuple(mark for form in self._formats for mark in form.marks)
        self._stateful = [form for form in self._formats if type(form).close is not Format.close]

    def read(self, line: Line) -> list[Reading]:
        """Return the readings of earlier lines that this line completes, then its own."""
        self._last = line
        readings = self._read(line)
        for reading in readings:
            reading.number = reading.number or line.number
            reading.row = line.row
        return [ready for reading in readings for ready in self._leading.add_reading(reading)]

    @property
    def occupied(self) -> bool:
        """Return whether the last line belongs to a block or table that is still open."""
        return bool(self._held) or self._leading.waiting or any(form.open for form in self._stateful)

    def finish(self) -> list[Reading]:
        """Return the readings of what was open when the output ended."""
        ended = self._followed() + self._close()
        for reading in ended:
            reading.number = reading.number or self._last.number if self._last is not None else 0
        return self._leading.release() + ended

    def _close(self) -> list[Reading]:
        return [reading for form in self._stateful for reading in form.close()]

    def _read(self, line: Line) -> list[Reading]:
        text = line.text
        ended: list[Reading] = []
        for form in self._stateful:
            if form.exclusive and form.open:
                bare = _without_prefixes(text)
                if line.frame and not text.strip():
                    return []
                if not form.ends_at(bare):
                    return form.read(bare) or []
                ended += form.close()
        if not DIGIT.search(text) and not _NONFINITE.search(text) and not text.lstrip().startswith(self._marks):
            ended += self._close()
            header = line_prefixes.wall(text[:MAX_LINE_CHARACTERS])[1]
            for form in self._formats:
                if form.without_numbers:
                    ended += form.read(header) or []
            return ended
        return ended + (self._by_patterns(text) or self._by_rank(text))

    def _by_patterns(self, text: str) -> list[Reading]:
        reading = read_pattern(text, self.patterns) if self.patterns else None
        if reading is None:
            return []
        reading.wall = line_prefixes.wall(text[:MAX_LINE_CHARACTERS])[0]
        return [reading]

    def _by_rank(self, text: str) -> list[Reading]:
        """Read a line, if it is one of the rank that is followed."""
        worker, text = line_prefixes.worker(text)
        return self._of_worker(worker, self._of_any_rank(text))

    def _of_any_rank(self, text: str) -> list[Reading]:
        rank, text = line_prefixes.rank(text)
        bare, stripped = line_prefixes.bare_rank(text) if rank is None else (None, text)
        if bare is None:
            return self._of_rank(rank, self._parse(text))
        readings = self._parse(stripped)
        if self._bare_ranks or any(reading.step is not None for reading in readings):
            self._bare_ranks = True
            return self._of_rank(bare, readings)
        return self._parse(text)

    def _of_worker(self, worker: str, readings: list[Reading]) -> list[Reading]:
        """Follow one worker at most, and none where the driver itself prints its steps; a bar does not count.

        The first lines of workers are held back, as the driver's own may come after them; not where it has a bar.
        """
        numbered = any(reading.step is not None and (worker or not reading.completed) for reading in readings)
        if not worker:
            if numbered and self._worker != "":
                self._worker = ""
                self.foreign += len(self._held)
                self._held.clear()
            if self._worker is None and any(reading.completed for reading in readings):
                self._has_bar = True
                return self._followed() + readings
            return readings
        if self._worker is None and self._has_bar and numbered:
            self._worker = worker
        elif self._worker is None and readings and not self._has_bar:
            for reading in readings:
                reading.number = self._last.number if self._last is not None else 0
                self._held.append((worker if numbered else None, reading))
            return self._followed() if len(self._held) > MAX_HELD_LINES else []
        if self._worker in (None, worker):
            return readings
        self.foreign += len(readings)
        return []

    def _followed(self) -> list[Reading]:
        """Return the lines held back of the first worker that printed a step, and those without a step."""
        held, self._held = self._held, []
        self._worker = next((worker for worker, _ in held if worker is not None), None)
        return [reading for worker, reading in held if worker in (None, self._worker)]

    def _of_rank(self, rank: int | None, readings: list[Reading]) -> list[Reading]:
        if rank is None or not readings:
            return readings
        if (self.lead is None or rank < self.lead) and any(reading.step is not None for reading in readings):
            self.lead = rank
        if rank != (self.lead if self.lead is not None else 0):
            self.foreign += 1
            return []
        for reading in readings:
            reading.rank = rank
        return readings

    def _parse(self, text: str) -> list[Reading]:
        wall, text = line_prefixes.wall(text)
        ended: list[Reading] = []
        readings: list[Reading] | None = None
        beginning = text[:MAX_LINE_CHARACTERS]
        for form in self._stateful:
            if form.open and not form.exclusive and form.ends_at(beginning):
                ended += form.close()
        for form in self._formats:
            readings = form.read(text if form.whole_line else beginning)
            if readings is not None:
                break
        for reading in readings or []:
            reading.wall = reading.wall if wall is None else wall
        ended += readings or []
        for reading in ended:
            field_mapping.resolve_ambiguous_times(reading)
        return [reading for reading in ended if reading.useful]


def _without_prefixes(text: str) -> str:
    return line_prefixes.wall(line_prefixes.rank(text[:MAX_LINE_CHARACTERS])[1])[1]
