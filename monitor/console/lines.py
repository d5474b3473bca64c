"""Read output as lines: bytes decoded as a terminal shows them, frame by frame."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

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
        self._back = 0  # steps back that nothing has followed yet
        self._right = ""  # what stands right of a step back into a bar: the count is drawn over its middle
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
        text = self._text()
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
                self._back += len(text)
            elif first == TAB or (first >= " " and not "\x7f" <= first <= "\x9f"):
                self._append(text)

    def _append(self, text: str) -> None:
        if self._back:
            self._step_back()
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
            self._back += _first(arguments, 1)

    def _starts_over(self, arguments: str, final: str) -> bool:
        """Return whether a sequence erases this line or moves back in it."""
        if final == "K":
            return _first(arguments, 0) in (1, 2)
        return final == "G" and _first(arguments, 1) <= max(1, self._length)

    def _step_back(self) -> None:
        """Go back by all steps that came together, as something is written there."""
        count, self._back = self._back, 0
        if not count or self._length > MAX_BACK:
            return
        text = self._text()
        left = text[: max(0, self._length - count)]
        if left.count("[") > left.count("]"):
            right = text[len(left) :]
        else:
            right = ""
            if len(text) - self._backed >= MIN_BACK_FRAME:
                self._end_frame()
        self._parts, self._length, self._drawn, self._backed, self._right = [left], len(left), True, len(left), right

    def _text(self) -> str:
        """Return the line so far, with what a step back has left of it."""
        left = "".join(self._parts)
        return left + self._right[self._length - self._backed :] if self._right else left

    def _end_frame(self) -> None:
        text = self._text()
        if text.strip() and (text, self._row) != self._last:
            self._last = (text, self._row)
            self._out.append(Line(text, self._number, self._row, True))
        self._parts, self._length, self._drawn, self._backed, self._right = [], 0, True, 0, ""
        self._back = 0

    def _end_line(self) -> None:
        self._out.append(Line(self._text(), self._number, self._row, False))
        self._parts, self._length, self._drawn, self._backed, self._right = [], 0, False, 0, ""
        self._back = 0
        self._number += 1
        self._row += 1


def _first(arguments: str, default: int) -> int:
    digits = arguments.split(";")[0][:6]
    return int(digits) if digits.isascii() and digits.isdigit() else default
