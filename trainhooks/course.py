"""The course of a step: which entries it is made of, in which order.

Most steps of a loop take the same course as the one before. What is worked out once for a course, which stretch of
time belongs to which phase, then serves every step that takes it.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Optional, Tuple

from trainhooks.entries import COUNT, LOG

MAX_COURSES = 256  # of a lane; where steps take ever new courses they are digested entry by entry
MAX_LENGTH = 256  # entries of a course


class Course:
    """Where the time of such a step goes. It begins with the wait for its item, and ends where the next one begins.

    Attributes:
        names, times, clocks: its phases in the order of their first appearance: as they are sent, how often each is
            entered, whose clock it was.
        turns: (place of an entry, phase) where a stretch of time ends, and whose it was; one past the last: none
        item: the place of the entry that tells that the item has come.
        logs, counts: places of entries with metrics, and with amounts of work.
    """

    __slots__ = ("clocks", "counts", "item", "logs", "names", "times", "turns")

    def __init__(self) -> None:
        self.names: List[str] = []
        self.times: List[int] = []
        self.clocks: List[str] = []
        self.turns: List[Tuple[int, int]] = []
        self.item = 0
        self.logs: List[int] = []
        self.counts: List[int] = []


class Courses:
    """The courses that the steps of a lane have taken so far.

    Args:
        phase_name: a phase's name as it is sent.
    """

    def __init__(self, phase_name: Callable[[str], str]) -> None:
        self._phase_name = phase_name
        self._known: Dict[Tuple[Any, ...], Optional[Course]] = {}

    def find(self, whats: Tuple[Any, ...]) -> Optional[Course]:
        """The course of a step with these entries; None where it is to be digested entry by entry.

        Args:
            whats: the first item of each entry, from a NEXT up to the next one.
        """
        try:
            return self._known[whats]
        except KeyError:
            if len(self._known) >= MAX_COURSES or len(whats) > MAX_LENGTH:
                return None
            found = self._known[whats] = _work_out(whats, self._phase_name)
            return found


def _work_out(whats: Tuple[Any, ...], phase_name: Callable[[str], str]) -> Optional[Course]:
    course = Course()
    times = {"data": 1}  # how often each phase is entered
    turns: List[Tuple[int, Optional[str]]] = []
    opened = ["data"]
    for place, what in enumerate(whats[1:], 1):
        if what == LOG:
            course.logs.append(place)
        elif what == COUNT:
            course.counts.append(place)
        elif what is None and opened:
            turns.append((place, opened.pop()))
            if not opened and not course.item:
                course.item = place
        elif type(what) is str:
            turns.append((place, opened[-1] if opened else None))
            opened.append(what)
            times[what] = times.get(what, 0) + 1
        else:
            return None  # something rare
    if opened:
        return None  # it outlasts the step
    phases: List[Optional[str]] = [*times, None]
    course.turns = [(place, phases.index(phase)) for place, phase in turns]
    course.names = [phase_name(name) for name in times]
    course.times = list(times.values())
    course.clocks = ["host"] * len(times)
    return course
