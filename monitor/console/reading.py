"""Hold the values of one line, parse numbers and times as programs print them, remember what was reported.

Every pattern is of bounded length, so that no text takes long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from trainhooks.protocol import limits
from trainhooks.protocol.events import Note
from trainhooks.protocol.limits import Number

MAX_VALUES = 200  # per line
MAX_LINE_CHARACTERS = 4096  # characters of a line that are read; JSON and dicts are read whole
MAX_PERCENT_SUM = 105.0  # percent; a larger sum of parts is a contradiction


@dataclass(slots=True)
class Reading:
    """The values of one line. None and empty mean unknown."""

    family: str  # what it was recognized as: bar, step, metrics, phases, skip, epoch or pattern
    number: int = 0  # of the line
    row: int = 0  # of the line on the screen
    rank: int | None = None
    head: int | None = None  # a number without a name before everything else in the line
    wall: float | None = None  # a time of day in the line: seconds, comparable within one log

    key: str | None = None  # name of the counter: the label of a bar, the word for a step
    label: str | None = None  # the words before a bar
    step: int | None = None
    total: int | None = None
    completed: bool = False  # `step` is the number of steps done, as in a bar; else the number of one step
    per_epoch: bool = False  # it restarts in every epoch
    fraction: float | None = None
    mention: bool = False  # a step is named, but perhaps not reached
    unit: str | None = None  # what a bar counts
    epoch: float | None = None
    epochs: int | None = None
    planned_epochs: int | None = None  # by a printed configuration

    metrics: dict[str, Number] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    shares: float | None = None  # percent that the program gives for the phases together
    block: bool = False  # the phases belong to one step, whose seconds are given
    seconds: float | None = None  # of one step, by the program's own clock
    elapsed: float | None = None  # since the bar, or the training, began
    ambiguous_times: dict[str, float] = field(default_factory=dict)  # their meaning depends on the line's other values
    tokens: int | None = None  # in one step
    samples: int | None = None
    tokens_total: float | None = None  # since the beginning
    samples_total: float | None = None
    tokens_rate: float | None = None  # per second
    samples_rate: float | None = None
    steps_rate: float | None = None
    average: bool = False  # the rates are over the whole time so far
    role: str | None = None
    reason: str | None = None  # why a step was skipped
    impossible: list[str] = field(default_factory=list)  # values left out because they cannot be true

    @property
    def useful(self) -> bool:
        """Return whether the line has any value."""
        position = (self.step, self.fraction, self.epoch, self.elapsed, self.total, self.seconds, self.planned_epochs)
        counts = (self.tokens, self.samples, self.tokens_total, self.samples_total, self.tokens_rate, self.samples_rate)
        has_values = bool(self.metrics or self.phases or self.reason or self.impossible or self.block or self.shares)
        return has_values or any(value is not None for value in (*position, *counts))

    @property
    def counter(self) -> str:
        """Return the key of the counter: bars of one label and different totals are different counters."""
        if self.family != "bar":
            return self.key or "step"
        return f"{self.key}/{self.total}" if self.total is not None else self.key or "bar"


# Printed numbers and times

# 1,234.5  12  .5  1e-05  nan  inf
NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3}){1,6}(?![\d,])(?:\.\d{1,24})?|\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][-+]?\d{1,4})?"
)
NONFINITE = r"[-+]?(?:nan|NaN|NAN|inf(?:inity)?|Inf(?:inity)?|INF)(?![A-Za-z])"

CLOCK = r"\d{1,4}:\d{2}(?::\d{2})?(?:\.\d{1,6})?"  # mm:ss or h:mm:ss, as bars have it

_SCALES = {"k": 1e3, "K": 1e3, "M": 1e6, "m": 1e6, "G": 1e9, "B": 1e9, "T": 1e12, "P": 1e15}
SCALE = r"[kKMGBT](?![A-Za-z])"

_UNITS = {
    **dict.fromkeys(("ns", "nsec"), 1e-9),
    **dict.fromkeys(("us", "µs", "μs", "usec"), 1e-6),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
TIME_UNIT = (
    r"(?:nsec|ns|usec|us|µs|μs|msecs?|ms|milliseconds?|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)"
    r"(?![A-Za-z/])"
)
# 1m16s  2h 3m  1 day, 2:03:04  46:47
SPAN = (
    rf"(?:\d{{1,4}} days?,? )?{CLOCK}"
    r"|\d{1,6}(?:\.\d{1,9})? ?[dhm] ?\d{1,2} ?[hms](?: ?\d{1,2} ?[ms])?(?![A-Za-z])"
)

# [====>   ]  [███░░]
DRAWN_BAR = re.compile(r"\[(?=[^\]]{0,200}[=#>█▉▊▋▌▍▎▏●■])[-=#>.*+ █▏▎▍▌▋▊▉░▒▓●○■□]{3,200}\]")

_PIECE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s?([a-zA-Zµμ]{1,12})")
_CLOCK = re.compile(r"(?:(\d{1,4}) days?,? )?(\d{1,4}):(\d{2})(?::(\d{2}))?(\.\d{1,6})?")


def number(text: str) -> Number | None:
    """Parse a number; return "nan", "inf" or "-inf" for one that is not finite, None for anything else."""
    text = text.strip().replace(",", "")
    try:
        is_integer = len(text) <= 15 and text.lstrip("+-").isdigit() and text.isascii()
        return int(text) if is_integer else limits.number(float(text))
    except ValueError:
        return None


def whole(text: str) -> int | None:
    """Parse a count, `5,438` or `1.2k`; return None for anything else or beyond the largest integer of an event."""
    scaled = scale(text)
    return int(scaled) if scaled is not None and 0 <= scaled <= limits.MAX_INTEGER else None


def scale(text: str) -> float | None:
    """Parse a number with its letter: `0.03M` is 30,000."""
    text = text.strip()
    factor = _SCALES.get(text[-1:], 1.0)
    value = number(text[:-1] if text[-1:] in _SCALES else text)
    return None if value is None or isinstance(value, str) else value * factor


def unit_seconds(unit: str) -> float | None:
    """Return the seconds of a unit of time; None for other units."""
    return _UNITS.get(unit if unit in _UNITS else unit.lower())


def seconds(text: str) -> float | None:
    """Parse a time, in seconds. `46:47` is minutes and seconds; `1m16s`, `1:02:03`, `45.2ms`, `3 sec`."""
    text = text.strip()
    clock = _CLOCK.fullmatch(text)
    if clock is not None:
        days, first, second, third, rest = clock.groups()
        parts = (int(first) * 60 + int(second)) * 60 + int(third) if third else int(first) * 60 + int(second)
        return 86400.0 * int(days or 0) + parts + float(rest or 0)
    total, at = 0.0, 0
    for piece in _PIECE.finditer(text):
        length = unit_seconds(piece.group(2))
        if length is None or text[at : piece.start()].strip():
            return None
        total += float(piece.group(1)) * length
        at = piece.end()
    return total if at and at == len(text) else None


# What was reported of readings already: notes and metrics.

MAX_NOTES = 20
# Journals hold these texts: the diagnosis reads what follows them.
NOTE_PREFIX, LEFT_OUT = "console: ", "left out, because it cannot be true: "
MAX_LAST_VALUES = 2000  # names whose last value is kept; values of others are reported every time


@dataclass(slots=True)
class Reported:
    """What was reported already: a program's output repeats itself."""

    impossible: dict[str, int] = field(default_factory=dict)  # name of an impossible value -> times it was left out
    # Metric -> step and value as last reported
    _seen: dict[str, tuple[int | None, Number]] = field(default_factory=dict)
    _noted: set[str] = field(default_factory=set)

    def new_metrics(self, metrics: dict[str, Number], step: int | None) -> dict[str, Number]:
        """Return the metrics that are new: a bar repeats its metrics with every frame."""
        new = {}
        for name, value in metrics.items():
            if self._seen.get(name) != (step, value):
                new[name] = value
                if name in self._seen or len(self._seen) < MAX_LAST_VALUES:
                    self._seen[name] = (step, value)
        return new

    def note(self, text: str, now: float, code: str | None = None) -> Note | None:
        """Return a note on the output, the first time."""
        kind = code or text
        if kind in self._noted or len(self._noted) >= MAX_NOTES:
            return None
        self._noted.add(kind)
        return Note(
            producer="", seq=0, t=now, text=f"{NOTE_PREFIX}{text}", level="warning" if code else "info", code=code
        )

    def refusal(self, value: str, now: float) -> Note | None:
        """Count an impossible value. Return a note where it is the first of its name."""
        name = value.rpartition(" ")[0] or value
        note = None
        if name not in self.impossible and len(self.impossible) < MAX_NOTES:
            note = self.note(f"{LEFT_OUT}{value}", now)
            self.impossible[name] = 0
        if name in self.impossible:
            self.impossible[name] += 1
        return note
