"""Places in the code: where the training thread stood, as the hooks see it, the journal holds it and people read it.

A place is an array in a line of JSON: `["train.py",41,"save","json.dump"]`. What it lacks at its end is left out.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional

from trainhooks.protocol.limits import MAX_NAME, OVERFLOW

FROM = ", from "
MAX_FRAMES = 40  # of a stack
MIN_LIBRARY_ROOM = 12  # characters; what is shorter names no line


class Line(NamedTuple):
    """A line of code, and what it calls."""

    file: str  # from the working directory; of a library its last two parts
    line: int  # 0: unknown; then `file` says all that is known
    function: str = ""  # that the line is in; empty: unknown
    call: str = ""  # dotted name, `json.dump`; begins with a dot where it is called on no name; empty: unclear, or none

    def __str__(self) -> str:
        """Return `train.py:41 (json.dump) in save`."""
        place = f"{self.file}:{self.line}" if self.line else self.file
        called = f" ({self.call})" if self.call else ""
        return f"{place}{called} in {self.function}" if self.function else place + called

    def fitted(self, room: int) -> Line:
        """Return the line with a text of at most `room` characters: the function's name is cut before all else goes."""
        over = len(str(self)) - room
        if over <= 0:
            return self
        if over < len(self.function):
            return self._replace(function=self.function[:-over].rstrip())
        number = f":{self.line}" if self.line else ""
        return Line(self.file[: max(0, room - len(number))], self.line)

    def written(self) -> List[Any]:
        """Return the array of a line of JSON."""
        return _without_end(list(self))


class Place(NamedTuple):
    """The program's own line, and what goes on inside it."""

    file: str
    line: int
    function: str = ""
    call: str = ""
    activity: str = ""  # what a library does there (`trainhooks.protocol.calls`); empty: unknown
    library: Optional[Line] = None  # the innermost line of a library that goes on inside; None: none, or not needed

    def __str__(self) -> str:
        """Return the text for people: `accelerate/accelerator.py:2861 (loss.item) in log, from train.py:83 in main`."""
        return f"{self.library}{FROM}{self.users}" if self.library is not None else str(self.users)

    @property
    def users(self) -> Line:
        """Return the program's own line."""
        return Line(*self[:4])

    @property
    def innermost_call(self) -> str:
        """Return the library's call, else the program's own; empty: neither is clear."""
        return (self.library is not None and self.library.call) or self.call

    def fitted(self) -> Place:
        """Return the place with a text of at most MAX_NAME characters, in which the program's own line comes first."""
        if len(str(self)) <= MAX_NAME:
            return self
        users = self.users.fitted(MAX_NAME)
        room = MAX_NAME - len(str(users)) - len(FROM)
        library = None if self.library is None or room < MIN_LIBRARY_ROOM else self.library.fitted(room)
        return Place(*users, self.activity, library)

    def written(self) -> List[Any]:
        """Return the array of a line of JSON."""
        return _without_end([*self[:5], self.library and self.library.written()])


class ThreadStack(NamedTuple):
    """Where a thread is: its frames with the innermost first, of long stacks the MAX_FRAMES innermost ones."""

    name: str
    is_main: bool
    frames: List[Line]
    users: Optional[int] = None  # the innermost of them in the program's own code; None: none is

    @property
    def users_line(self) -> Optional[Line]:
        return None if self.users is None else self.frames[self.users]


OTHERS = Place(OVERFLOW, 0)  # all places beyond a limit together


def _without_end(parts: List[Any]) -> List[Any]:
    while len(parts) > 2 and not parts[-1]:
        parts.pop()
    return parts
