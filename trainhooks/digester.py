"""Entries digested by the batch: whole steps at once where they take a known course, one by one otherwise."""

from __future__ import annotations

from typing import Any, Deque, List, Optional, Tuple

from trainhooks.assembler import Mapping
from trainhooks.clocks import NANOSECOND
from trainhooks.course import MAX_LENGTH, Course, Courses
from trainhooks.entries import NEXT, STEP, USUAL, Loop
from trainhooks.events import MAX_INTEGER
from trainhooks.open_work import Shared
from trainhooks.usual_steps import UsualSteps

Entries = List[Tuple[Any, ...]]
BEGINS = frozenset((NEXT, STEP, USUAL))  # of a step


class Digester(UsualSteps):
    """An assembler that makes the same events at half the price where steps are alike, as they are in a quick loop."""

    def __init__(self, shared: Shared, thread: str, is_main: bool) -> None:
        super().__init__(shared, thread, is_main)
        self._courses = Courses(shared.phase_name)
        self._awaited: Optional[Tuple[Loop, int]] = None  # the step whose begin has ended the last one

    def digest(self, entries: Deque[Tuple[Any, ...]], most: int) -> int:
        """Take `most` entries, and those that are left of the last one's step; or as many whole steps as cost the same.

        An odd value in one must not cost those after it: it is counted as lost.

        Returns:
            How many entries were taken.
        """
        if entries and entries[0][0] == USUAL:
            return self.take_several(entries, most)
        next_entry, take = entries.popleft, self.take
        batch = [next_entry() for _ in range(min(most, len(entries)))]
        while entries and entries[0][0] not in BEGINS and len(batch) < most + MAX_LENGTH:
            batch.append(next_entry())
        length = len(batch)
        if entries and entries[0][0] == NEXT:
            batch.append(entries[0])  # where the last step ends; it is taken the next time
        whats = [entry[0] for entry in batch]
        at = 0
        while at < length:
            try:
                if whats[at] == NEXT:
                    at = self._whole_steps(batch, whats, at)
                    if at == length:
                        return length
                    self._awaited = None  # that begin is taken now
                if whats[at] == USUAL:
                    self.take_usual(batch[at])
                else:
                    take(batch[at])
            except Exception:  # a foreign object in an entry may raise anything
                self.shared.lost += 1
            at += 1
        return length

    def _whole_steps(self, batch: Entries, whats: List[Any], at: int) -> int:
        """Take the steps of one loop from a place of `batch` on, as long as they are whole and their course is known.

        Returns:
            The place of the NEXT that begins what is left.
        """
        loop = batch[at][2]
        shared, step = self.shared, self.step
        if self._awaited is not None:
            awaited, number = self._awaited
            self._awaited = None
            if awaited is loop and batch[at][3] > number:
                self._steps_lost(batch[at][3] - number)
        if shared.primary is None or (step is not None and (step.loop is not loop or self._nested is not None)):
            return at
        find, next_begin = self._courses.find, whats.index
        while True:
            begin = batch[at]
            if step is not None:
                self._close_previous(step, begin[1], begin[3])
                step = None
            elif self._held is not None:
                self.release_held()
            try:
                to = next_begin(NEXT, at + 1)
            except ValueError:
                return at
            course, end = find(tuple(whats[at:to])), batch[to]
            if course is None or end[2] is not loop or end[3] != begin[3] + 1:
                return at
            event = self._whole_step(course, batch, at, end[1])
            if event is None:
                return at
            self.events.append(event)
            at = to
            if at == len(batch) - 1:
                self._awaited = loop, end[3]

    def _whole_step(self, course: Course, batch: Entries, at: int, t: int) -> Optional[Mapping]:
        """The event of the step that begins at a place of `batch` and lasts until `t`; None: it holds something odd."""
        shared = self.shared
        event: Mapping = {"kind": "step"}
        for place in course.logs:
            if not self._plain(batch[at + place][1], event):
                return None
        for place in course.counts:
            if not _counted(batch[at + place], event):
                return None
        if shared.primary is not self:
            event["thread"] = self.thread
        elif shared.background or shared.counts is not None:
            return None
        began = mark = batch[at][1]
        own = [0] * (len(course.names) + 1)
        for place, phase in course.turns:
            now = batch[at + place][1]
            own[phase] += now - mark
            mark = now
        seconds = [ns / NANOSECOND for ns in own]
        self.accounted += t - began
        self.claimed = t
        self._body = t - batch[at + course.item][1]
        shared.steps += 1
        event["t"] = t / NANOSECOND
        event["index"] = shared.steps
        event["start"] = began / NANOSECOND
        event["duration"] = (t - began) / NANOSECOND
        event["phases"] = list(zip(course.names, seconds, course.clocks, course.times))
        event["status"] = "ok"
        loop = batch[at][2]
        if loop.labelled:
            self._label(event, loop)
        return event

    def _plain(self, metrics: Mapping, event: Mapping) -> bool:
        """Put metrics into `event` that need no cleaning. Whether they are such."""
        if tuple(metrics) not in self.shared.plain_names:
            return False
        for value in metrics.values():
            if type(value) is float:
                if value - value != 0.0:
                    return False
            elif type(value) is not int or not -MAX_INTEGER <= value <= MAX_INTEGER:
                return False
        if "metrics" in event:
            event["metrics"].update(metrics)
        elif metrics:
            event["metrics"] = metrics  # made for this call alone, so it is ours
        return True


def _counted(entry: Tuple[Any, ...], event: Mapping) -> bool:
    """Add amounts to `event`. Whether they are plain numbers."""
    for name, amount in zip(("tokens", "padded_tokens", "samples"), entry[1:]):
        if amount is not None:
            if type(amount) is not int or not 0 < amount <= MAX_INTEGER:
                return False
            event[name] = event.get(name, 0) + amount
    return len(entry) == 4
