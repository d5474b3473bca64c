"""Read output as lines: bytes decoded as a terminal shows them, what stands before the text, each line's moment."""

from __future__ import annotations

import codecs
import re
from calendar import timegm
from dataclasses import dataclass
from typing import Protocol

from monitor.console.reading import Reading

# From bytes to lines of text as shown on a screen, frame by frame.

MAX_LINE = 64 * 1024  # characters; longer lines are cut
MAX_ESCAPE = 4096  # characters of an unfinished escape sequence that are kept
MAX_PARTS = 1024  # pieces of a line before they are joined
MAX_JUMP = 10_000  # lines that one cursor movement may cross
MAX_BACK = 1024  # characters of a line in which a step back is followed; no bar is longer
MIN_BACK_FRAME = 16  # new characters that make a frame of their own, where a step back ends it; a spinner has fewer
TAB = "\t"

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_TOKEN = re.compile(
    "[^\x00-\x08\x0b-\x1f\x7f-\x9f]+"
    r"|\x1b\[([0-?]{0,64})[ -/]{0,8}([@-~])"  # colors, cursor movements
    "|\x1b[\\]PX^_][^\x07\x1b\r]{0,4096}(?:\x07|\x1b\\\\)?"  # titles, links, the clipboard
    "|\x1b[ -/]{0,4}[0-Z\\\\^-~]"  # other short ones
    "|\x08+|[\x00-\x1f\x7f-\x9f]"
)
_INCOMPLETE = re.compile(
    "\x1b(?:\\[[0-?]{0,64}[ -/]{0,8}|[\\]PX^_][^\x07\x1b\r\n]{0,4096}\x1b?|[ -/]{0,4})\\Z|\r\\Z",
)


@dataclass(frozen=True, slots=True)
class Line:
    """One line, or one frame of a line that is drawn repeatedly."""

    text: str
    number: int  # of the line in the file, from 1
    row: int  # of the line on the screen: a bar that is drawn again keeps its row
    frame: bool  # overwritten, not ended by a line feed


class Terminal:
    """Decode bytes into lines."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""  # the beginning of an escape sequence, or a carriage return whose line feed may follow
        self._parts: list[str] = []
        self._length = 0
        self._backed = 0  # characters in the line after the last step back
        self._last: tuple[str, int] | None = None  # the last frame and its row: repeated, it is ignored
        self._drawn = False  # this line overwrote text
        self._number = 1
        self._row = 0
        self._out: list[Line] = []

    def feed(self, data: bytes) -> list[Line]:
        """Return the lines and frames that ended in `data`."""
        return self._feed_text(self._held + self._decoder.decode(data))

    def finish(self) -> list[Line]:
        """Return the remaining lines at the end of the output."""
        lines = self._feed_text(self._held + self._decoder.decode(b"", True), last=True)
        self._end_frame()
        lines += self._out
        self._out = []
        return lines

    def frame(self, still: bool = False) -> Line | None:
        """Return a frame that is complete though not ended yet; None where it may still be growing.

        Args:
            still: also one that may still grow, if it has been drawn.
        """
        text = "".join(self._parts)
        whole = self._held == "\r" or (self._drawn and (still or text.rstrip().endswith("]")))
        return Line(text, self._number, self._row, True) if whole and text.strip() else None

    def _feed_text(self, text: str, last: bool = False) -> list[Line]:
        self._held = ""
        if not last:
            incomplete = _INCOMPLETE.search(text, max(0, len(text) - MAX_ESCAPE - 8))
            if incomplete is not None:
                self._held, text = text[incomplete.start() :], text[: incomplete.start()]
        if "\r" in text:
            text = text.replace("\r\n", "\n")
        *whole, rest = text.split("\n")
        for part in whole:
            self._write(part)
            self._end_line()
        self._write(rest)
        lines, self._out = self._out, []
        return lines

    def _write(self, part: str) -> None:
        if not part:
            return
        if _CONTROL.search(part) is None:
            self._append(part)
            return
        for token in _TOKEN.finditer(part):
            text = token.group()
            first = text[0]
            if first == "\x1b":
                if token.group(2):
                    self._command(token.group(1), token.group(2))
            elif first == "\r":
                self._end_frame()
            elif first == "\b":
                self._back(len(text))
            elif first == TAB or (first >= " " and not "\x7f" <= first <= "\x9f"):
                self._append(text)

    def _append(self, text: str) -> None:
        room = MAX_LINE - self._length
        if room > 0:
            self._parts.append(text[:room])
            self._length += min(len(text), room)
            if len(self._parts) > MAX_PARTS:
                self._parts = ["".join(self._parts)]

    def _command(self, arguments: str, final: str) -> None:
        """Apply one control sequence. Colors and modes are ignored; a cursor movement ends the frame."""
        if final in "ABEF":
            self._end_frame()
            lines = min(MAX_JUMP, _first(arguments, 1))
            self._row = max(0, self._row - lines) if final in "AF" else self._row + lines
        elif final in "HfJ" or self._starts_over(arguments, final):
            self._end_frame()
        elif final in "CG":
            self._append(" ")
        elif final == "D":
            self._back(_first(arguments, 1))

    def _starts_over(self, arguments: str, final: str) -> bool:
        """Return whether a sequence erases this line or moves back in it."""
        if final == "K":
            return _first(arguments, 0) in (1, 2)
        return final == "G" and _first(arguments, 1) <= max(1, self._length)

    def _back(self, count: int) -> None:
        if self._length > MAX_BACK:
            return
        text = "".join(self._parts)
        left = text[: max(0, len(text) - count)]
        if len(text) - self._backed >= MIN_BACK_FRAME:
            self._end_frame()
        self._parts, self._length, self._drawn, self._backed = [left], len(left), True, len(left)

    def _end_frame(self) -> None:
        text = "".join(self._parts)
        if text.strip() and (text, self._row) != self._last:
            self._last = (text, self._row)
            self._out.append(Line(text, self._number, self._row, True))
        self._parts, self._length, self._drawn, self._backed = [], 0, True, 0

    def _end_line(self) -> None:
        self._out.append(Line("".join(self._parts), self._number, self._row, False))
        self._parts, self._length, self._drawn, self._backed = [], 0, False, 0
        self._number += 1
        self._row += 1


def _first(arguments: str, default: int) -> int:
    digits = arguments.split(";")[0][:6]
    return int(digits) if digits.isascii() and digits.isdigit() else default


# What launchers and loggers put before a line: ranks, times of day and levels.

_RANK = re.compile(
    r"^\s{0,8}(?:\[(?:rank|default|node\d{1,4}[:, ]{1,2}rank|GPU|r)[ :=]?(?P<a>\d{1,6})\]:?"
    r"|\[(?:\d{1,4},)?(?P<b>\d{1,6})\](?:<std(?:out|err)>)?:"
    r"|\(?rank[ :=]{1,2}(?P<c>\d{1,6})\)?[:\]|]?)\s?",
    re.IGNORECASE,
)
_RAY = re.compile(r"^\s{0,8}\([\w.:-]{1,120} pid=\d{1,10}(?:, ip=[\w.:-]{1,60})?\)\s?")
_BARE_RANK = re.compile(r"^(?P<rank>\d{1,5}): (?=\S)")
_WALL = re.compile(
    r"(?P<year>\d{4})[-/](?P<month>\d\d)[-/](?P<day>\d\d)[T ,-]{1,2}(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)"
    r"(?P<f>[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
)
_DAY_FIRST = re.compile(  # or the month first, as transformers has it: distinguished only where one is above 12
    r"(?P<a>\d\d)/(?P<b>\d\d)/(?P<year>\d{4}),? (?:- )?(?P<h>\d\d):(?P<m>\d\d):(?P<s>\d\d)(?P<f>[.,]\d{1,9})?"
)
_TIME = re.compile(
    r"^\W{0,3}(?:[IWEF]\d{4} |[A-Z]{1,8}[: ]{1,3}|\d\d/\d\d )?(?P<h>[01]\d|2[0-3]):(?P<m>[0-5]\d):(?P<s>[0-5]\d)"
    r"(?P<f>[.,]\d{1,9})?(?=[\s\]|-])(?P<glog>\s{1,8}\d{1,20}\s[\w./-]{1,80}:\d{1,6}\]|\s[\w.]{1,60}\]:)?"
)
_LOGGER = re.compile(
    r"^[\s\-|:]{0,8}"
    r"(?:[\w./\[\]<>:-]{1,80}\s{1,4}[-|:]\s{1,4}|\[[A-Za-z_][\w.:, /-]{0,60}\]:?\s{0,4}|[\w.]{1,60}:){0,3}?"
    r"[\s\-|:\[]{0,8}\b(?:INFO|WARNING|WARN|DEBUG|ERROR|NOTICE)\b[\s\-|:\]]{0,8}"
    r"(?:[\w./<>]{1,80}:[\w<>]{1,60}:\d{1,6}\s{1,3}[-|]\s{1,3})?"
)

DAY = 86400.0
MAX_PREFIX = 64  # characters in which a time of day ends


def rank(text: str) -> tuple[int | None, str]:
    """Return the rank that a launcher wrote before the line, and the line without it."""
    if text[:1] not in "[(rR ":
        return None, text
    if "pid=" in text[:160] and (worker := _RAY.match(text)) is not None:
        text = text[worker.end() :]
    match = _RANK.match(text)
    if match is None:
        return None, text
    number = next(group for group in match.groups() if group is not None)
    return int(number), text[match.end() :]


def bare_rank(text: str) -> tuple[int | None, str]:
    """Return the rank of `3: step 10 ...` as srun writes it. It may also be something else; the caller decides."""
    match = _BARE_RANK.match(text) if text[:1].isdigit() else None
    return (int(match["rank"]), text[match.end() :]) if match is not None else (None, text)


def wall(text: str) -> tuple[float | None, str]:
    """Return the time of day at the beginning of a line, in seconds, and the line without it and its logger's words.

    The zone is unknown: the seconds serve for differences, and to be shown as they were printed.
    """
    head = text[:MAX_PREFIX]
    match = _WALL.search(head) or _DAY_FIRST.search(head) or _TIME.match(head) if ":" in head else None
    moment = _moment(match) if match is not None else None
    if match is not None and moment is not None:
        text = text[: match.start()] + " " + text[match.end() :]
    return moment, _without_logger(text)


def _moment(match: re.Match[str]) -> float | None:
    parts = match.groupdict()
    hour, minute, second = (int(parts[part]) for part in ("h", "m", "s"))
    fraction = float("0." + parts["f"][1:]) if parts["f"] else 0.0
    if "year" not in parts:
        return hour * 3600.0 + minute * 60 + second + fraction
    if "month" in parts:
        month, day = int(parts["month"]), int(parts["day"])
    else:
        month, day = sorted((int(parts["a"]), int(parts["b"])), key=lambda part: part > 12)
    year = int(parts["year"])
    if not (1970 <= year < 2200 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24):
        return None
    return timegm((year, month, day, hour, minute, second, 0, 0, 0)) + fraction


def _without_logger(text: str) -> str:
    if not any(level in text[:160] for level in ("INFO", "WARN", "DEBUG", "ERROR", "NOTICE")):
        return text
    match = _LOGGER.match(text[:200])
    return text[match.end() :] if match is not None else text


# When a line was written: as it arrived, or by what a finished log prints. The time of arrival is passed in.

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
