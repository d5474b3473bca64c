"""Assemble a lane's entries by the batch: a whole step at once if it is like an earlier one.

Two kinds of steps are taken as a whole. A step of `th.steps` is several entries; for each order of entries that has
occurred a StepPlan says which interval belongs to which phase. The standard step of an unmodified loop is a single
entry with fixed places, so its event is written out here: through a plan it would take 1.7 times as long. Everything
else goes to the Assembler entry by entry, and makes the same events.
"""

from __future__ import annotations

from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from trainhooks.lane_entries import (
    CANCEL,
    COUNT,
    END,
    LOG,
    NEXT,
    QUIT,
    SPAN,
    STANDARD,
    STEP,
    Loop,
    PhaseMarker,
    StandardStep,
)
from trainhooks.protocol.vocabulary import LOSS
from trainhooks.recording.assembler import Assembler
from trainhooks.recording.step_annotations import StepAnnotations
from trainhooks.recording.step_blocks import UNITS, Mapping, PlainStep, StepShape, amount

MAX_PLANS = 256  # of a lane; a program whose steps keep changing is assembled entry by entry
MAX_PLAN_ENTRIES = 256  # of a step
STANDARD_COST = 5  # other entries that take as long as one standard step
STANDARD_SHAPE = StepShape(("data", "forward", "backward", "optimizer"), (1, 1, 1, 1))
UNCOUNTED_SHAPE = STANDARD_SHAPE._replace(uncounted=True)
STEP_BEGINS = frozenset((NEXT, STEP, STANDARD))
TIMED = frozenset((None, STEP, NEXT, END, QUIT, CANCEL, SPAN))  # and phases
MAX_MARKS = 100_000

Entry = Tuple[Any, ...]


class StepPlan:
    """Which intervals of a step belong to which phase. Entries are counted from the step's NEXT.

    Attributes:
        names, counts: its phases in the order of their first appearance, as they are sent; how often each is entered.
        intervals: (entry that begins it, entry that ends it, index of its phase); what lies in no phase is left out.
        item: the entry that says that the item has come.
        logs, amounts: the entries with metrics, and those with amounts of work.
    """

    __slots__ = ("_loop", "_shape", "amounts", "counts", "intervals", "item", "logs", "names")

    def __init__(self) -> None:
        self.names: Tuple[str, ...] = ()
        self.counts: Tuple[int, ...] = ()
        self._loop: Optional[Loop] = None  # of the last step
        self._shape: Optional[StepShape] = None
        self.intervals: List[Tuple[int, int, int]] = []
        self.item = 0
        self.logs: List[int] = []
        self.amounts: List[int] = []

    def shape(self, loop: Loop, annotations: StepAnnotations) -> StepShape:
        """Return the shape of a step of this loop."""
        if self._shape is None or self._loop is not loop:
            self._loop = loop
            self._shape = annotations.shape(self.names, self.counts, loop)
        return self._shape


class StepPlans:
    """The plans of a lane's steps, each made when its order of entries first occurs.

    Args:
        phase_name: returns a phase's name as it is sent.
    """

    def __init__(self, phase_name: Callable[[str], str]) -> None:
        self._phase_name = phase_name
        self._plans: Dict[Entry, Optional[StepPlan]] = {}

    def find(self, kinds: Entry) -> Optional[StepPlan]:
        """Return the plan for a step, or None where it is to be assembled entry by entry.

        Args:
            kinds: the first item of each of its entries, from a NEXT up to the next one.
        """
        try:
            return self._plans[kinds]
        except KeyError:
            if len(self._plans) >= MAX_PLANS or len(kinds) > MAX_PLAN_ENTRIES:
                return None
            plan = self._plans[kinds] = _make_plan(kinds, self._phase_name)
            return plan


def _make_plan(kinds: Entry, phase_name: Callable[[str], str]) -> Optional[StepPlan]:
    """Return the plan, or None where the step holds a rare entry or a phase outlasts it."""
    plan = StepPlan()
    counts = {"data": 1}  # by phase, in the order of first appearance
    open_phases = ["data"]
    begin = 0
    for place, kind in enumerate(kinds[1:], 1):
        if kind == LOG:
            plan.logs.append(place)
            continue
        if kind == COUNT:
            plan.amounts.append(place)
            continue
        if open_phases:
            plan.intervals.append((begin, place, list(counts).index(open_phases[-1])))
        begin = place
        if kind is None and open_phases:
            open_phases.pop()
            if not open_phases and not plan.item:
                plan.item = place
        elif type(kind) is str:
            open_phases.append(kind)
            counts[kind] = counts.get(kind, 0) + 1
        else:
            return None
    if open_phases:
        return None
    plan.names = tuple([phase_name(name) for name in counts])
    plan.counts = tuple(counts.values())
    return plan


class BatchAssembler:
    """Take whole batches for an Assembler, at half the cost if steps are alike, as in a fast loop.

    Attributes:
        marks: where it is a list, entries are taken one by one, and it gets the time of each and what is open then.
    """

    def __init__(self, assembler: Assembler) -> None:
        self.assembler = assembler
        self._process = assembler.process
        self._is_plain = assembler.annotations.is_plain
        self.marks: Optional[List[Tuple[int, str]]] = None
        self._plans = StepPlans(assembler.process.phase_name)
        self._next_step: Optional[Tuple[Loop, int]] = None  # whose begin ended the last step, and is still to be taken

    def assemble(self, entries: Deque[Entry], limit: int) -> int:
        """Assemble `limit` entries and what is left of the last one's step, or as many standard steps as cost the same.

        An entry that cannot be read is counted as lost; those after it are taken.

        Returns:
            How many entries were taken.
        """
        if self.marks is not None:
            return self._add_and_mark(entries, limit, self.marks)
        if entries and entries[0][0] == STANDARD:
            return self._add_standard_steps(entries, limit)
        next_entry, add_entry = entries.popleft, self.assembler.add_entry
        batch = [next_entry() for _ in range(min(limit, len(entries)))]
        while entries and entries[0][0] not in STEP_BEGINS and len(batch) < limit + MAX_PLAN_ENTRIES:
            batch.append(next_entry())
        length = len(batch)
        if entries and entries[0][0] == NEXT:
            batch.append(entries[0])  # where the last step ends; it is taken the next time
        kinds = [entry[0] for entry in batch]
        place = 0
        while place < length:
            try:
                if kinds[place] == NEXT:
                    place = self._add_whole_steps(batch, kinds, place)
                    if place == length:
                        return length
                    self._next_step = None  # that begin is taken now
                if kinds[place] == STANDARD:
                    self._add_standard_step(batch[place])
                else:
                    add_entry(batch[place])
            except Exception:  # a foreign object in an entry may raise anything
                self._process.lost += 1
            place += 1
        return length

    def _add_and_mark(self, entries: Deque[Entry], limit: int, marks: List[Tuple[int, str]]) -> int:
        self._next_step = None
        added = min(limit, len(entries))
        for _ in range(added):
            entry = entries.popleft()
            parts = StandardStep._make(entry).entries() if entry[0] == STANDARD else [entry]
            for part in parts:
                try:
                    self.assembler.add_entry(part)
                except Exception:  # a foreign object in an entry may raise anything
                    self._process.lost += 1
                if (part[0] in TIMED or type(part[0]) in (str, PhaseMarker)) and len(marks) < MAX_MARKS:
                    marks.append((part[1], self.assembler.current_phase()))
        return added

    def _add_whole_steps(self, batch: List[Entry], kinds: List[Any], place: int) -> int:
        """Take the steps of one loop from the NEXT at `place` on, as long as they are whole and have a plan.

        Returns:
            The place of the NEXT that begins what is left.
        """
        begin = batch[place]
        loop = begin[2]
        assembler = self.assembler
        if self._next_step is not None:
            next_loop, number = self._next_step
            self._next_step = None
            if next_loop is loop and begin[3] > number:
                assembler.add_lost_steps(begin[3] - number)
        if self._process.primary is None or not assembler.end_previous_step(loop, begin[1], begin[3]):
            return place
        find_plan, find_kind = self._plans.find, kinds.index
        while True:
            try:
                end_place = find_kind(NEXT, place + 1)
            except ValueError:
                return place
            plan, begin, end = find_plan(tuple(kinds[place:end_place])), batch[place], batch[end_place]
            if plan is None or end[2] is not loop or end[3] != begin[3] + 1:
                return place
            if not self._add_whole_step(plan, batch[place:end_place], end[1]):
                return place
            place = end_place
            if place == len(batch) - 1:
                self._next_step = loop, end[3]

    def _add_whole_step(self, plan: StepPlan, entries: List[Entry], ended: int) -> bool:
        """Add the step of these entries. Return False, with nothing added, if an entry is not plain."""
        process, assembler = self._process, self.assembler
        if process.primary is not assembler or process.background or process.counts is not None:
            return False
        metrics: Optional[Mapping] = None
        for place in plan.logs:
            logged = entries[place][1]
            if not self._is_plain(logged):
                return False
            if metrics is None:
                metrics = logged  # made for this call alone, so it can be kept
            else:
                metrics.update(logged)
        amounts: Optional[List[Optional[int]]] = None
        for place in plan.amounts:
            amounts = _sums(amounts, entries[place])
            if amounts is None:
                return False
        phases = [0] * len(plan.names)
        for begin, end, phase in plan.intervals:
            seconds = entries[end][1] - entries[begin][1]
            if seconds < 0:
                return False  # entries out of order
            phases[phase] += seconds
        _, began, loop, _ = entries[0]
        step = PlainStep(
            plan.shape(loop, assembler.annotations), process.steps + 1, began, ended, phases, metrics, amounts
        )
        assembler.add_step(step, began, ended, ended - entries[plan.item][1])
        return True

    def _add_standard_steps(self, entries: Deque[Entry], limit: int) -> int:
        """Add the standard steps that come first, as many as cost what `limit` entries do. Return how many."""
        limit = 1 + limit // STANDARD_COST
        added = 0
        while added < limit and entries and entries[0][0] == STANDARD:
            added += 1
            try:
                self._add_standard_step(entries.popleft())
            except Exception:  # a foreign object as loss may raise anything
                self._process.lost += 1
        return added

    def _add_standard_step(self, entry: Entry) -> None:
        step = StandardStep._make(entry)
        process, assembler, loss = self._process, self.assembler, step.loss
        if (
            assembler.step is not None
            or process.primary is not assembler
            or process.background
            or process.counts is not None
            or step.began < assembler.accounted_until
            or (loss is not None and (type(loss) is not float or loss - loss != 0.0))
        ):
            for part in step.entries():
                assembler.add_entry(part)
            return
        phases = (
            step.fetched - step.began,
            step.forward_ended - step.forward,
            step.backward_ended - step.backward,
            step.optimizer_ended - step.optimizer,
        )
        amounts = step.amounts and [amount(value) for value in step.amounts]
        shape = STANDARD_SHAPE if amounts and any(amounts[:UNITS]) else UNCOUNTED_SHAPE
        metrics = None if loss is None else {LOSS: loss}
        plain = PlainStep(shape, process.steps + 1, step.began, step.ended, phases, metrics, amounts)
        assembler.add_step(plain, step.began, step.ended, step.ended - step.began)


def _sums(amounts: Optional[List[Optional[int]]], entry: Entry) -> Optional[List[Optional[int]]]:
    """Return the amounts with those of a COUNT entry added; None where they are not plain numbers."""
    if len(entry) != 1 + UNITS:
        return None
    more = [amount(value) for value in entry[1:]]
    if any(value is not None and known is None for value, known in zip(entry[1:], more)):
        return None
    if amounts is None:
        return more
    return [(one or 0) + (other or 0) or None for one, other in zip(amounts, more)]
