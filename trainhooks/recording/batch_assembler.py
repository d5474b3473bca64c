"""Assemble a lane's entries by the batch: a whole step at once if it is like an earlier one.

Two kinds of steps are taken as a whole. A step of `th.steps` is several entries; for each order of entries that has
occurred a StepPlan says which interval belongs to which phase. The standard step of an unmodified loop is a single
entry with fixed places, so its event is written out here: through a plan it would take 1.7 times as long. Everything
else goes to the Assembler entry by entry, and makes the same events.
"""

from __future__ import annotations

from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from trainhooks.lane_entries import (
    AUTOMATIC,
    BACKWARD,
    COUNT,
    DATA,
    END,
    FORWARD,
    LOG,
    NANOSECOND,
    NEXT,
    NO_PHASE,
    OPTIMIZER,
    STANDARD,
    STEP,
    Loop,
)
from trainhooks.protocol.limits import MAX_INTEGER
from trainhooks.recording.assembler import AMOUNTS, Assembler
from trainhooks.recording.step_annotations import Mapping

MAX_PLANS = 256  # of a lane; a program whose steps keep changing is assembled entry by entry
MAX_PLAN_ENTRIES = 256  # of a step
STANDARD_COST = 5  # other entries that take as long as one standard step
COUNTED = ("tokens", "padded_tokens", "samples")  # in the order of a COUNT entry
STEP_BEGINS = frozenset((NEXT, STEP, STANDARD))

Entry = Tuple[Any, ...]


class StepPlan:
    """Which intervals of a step belong to which phase. Entries are counted from the step's NEXT.

    Attributes:
        names, counts: its phases in the order of their first appearance, as they are sent; how often each is entered.
        intervals: (entry that begins it, entry that ends it, index of its phase); what lies in no phase is left out.
        item: the entry that says that the item has come.
        logs, amounts: the entries with metrics, and those with amounts of work.
    """

    __slots__ = ("amounts", "clocks", "counts", "intervals", "item", "logs", "names")

    def __init__(self) -> None:
        self.names: List[str] = []
        self.counts: List[int] = []
        self.clocks: List[str] = []  # "host" for each phase
        self.intervals: List[Tuple[int, int, int]] = []
        self.item = 0
        self.logs: List[int] = []
        self.amounts: List[int] = []


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
    plan.names = [phase_name(name) for name in counts]
    plan.counts = list(counts.values())
    plan.clocks = ["host"] * len(counts)
    return plan


class BatchAssembler:
    """Take whole batches for an Assembler, at half the cost if steps are alike, as in a fast loop."""

    def __init__(self, assembler: Assembler) -> None:
        self.assembler = assembler
        self._process = assembler.process
        self._is_plain = assembler.annotations.is_plain
        self._plans = StepPlans(assembler.process.phase_name)
        self._next_step: Optional[Tuple[Loop, int]] = None  # whose begin ended the last step, and is still to be taken

    def digest(self, entries: Deque[Entry], limit: int) -> int:
        """Take `limit` entries and what is left of the last one's step, or as many standard steps as cost the same.

        An entry that cannot be read is counted as lost; those after it are taken.

        Returns:
            How many entries were taken.
        """
        if entries and entries[0][0] == STANDARD:
            return self._take_standard_steps(entries, limit)
        next_entry, take = entries.popleft, self.assembler.take
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
                    place = self._take_whole_steps(batch, kinds, place)
                    if place == length:
                        return length
                    self._next_step = None  # that begin is taken now
                if kinds[place] == STANDARD:
                    self._take_standard_step(batch[place])
                else:
                    take(batch[place])
            except Exception:  # a foreign object in an entry may raise anything
                self._process.lost += 1
            place += 1
        return length

    # Steps of several entries

    def _take_whole_steps(self, batch: List[Entry], kinds: List[Any], place: int) -> int:
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
            if not self._take_whole_step(plan, batch[place:end_place], end[1]):
                return place
            place = end_place
            if place == len(batch) - 1:
                self._next_step = loop, end[3]

    def _take_whole_step(self, plan: StepPlan, entries: List[Entry], ended: int) -> bool:
        """Take the step of these entries. Return False, with nothing taken, if an entry is not plain."""
        process, assembler = self._process, self.assembler
        event: Mapping = {"kind": "step"}
        for place in plan.logs:
            metrics = entries[place][1]
            if not self._is_plain(metrics):
                return False
            if "metrics" in event:
                event["metrics"].update(metrics)
            elif metrics:
                event["metrics"] = metrics  # made for this call alone, so it can be kept
        for place in plan.amounts:
            if not _add_plain_amounts(event, entries[place]):
                return False
        if process.primary is not assembler:
            event["thread"] = assembler.thread
        elif process.background or process.counts is not None:
            return False
        own = [0] * len(plan.names)
        for begin, end, phase in plan.intervals:
            passed = entries[end][1] - entries[begin][1]
            if passed < 0:
                return False  # entries out of order
            own[phase] += passed
        _, began, loop, _ = entries[0]
        event["t"] = ended / NANOSECOND
        event["index"] = process.steps + 1
        event["start"] = began / NANOSECOND
        event["duration"] = (ended - began) / NANOSECOND
        event["phases"] = list(zip(plan.names, [ns / NANOSECOND for ns in own], plan.clocks, plan.counts))
        event["status"] = "ok"
        if loop.labeled:
            assembler.annotations.label(event, loop)
        assembler.add_step(event, began, ended, ended - entries[plan.item][1])
        return True

    # Steps of a single entry

    def _take_standard_steps(self, entries: Deque[Entry], limit: int) -> int:
        """Take the standard steps that come first, as many as cost what `limit` entries do. Return how many."""
        limit = 1 + limit // STANDARD_COST
        taken = 0
        while taken < limit and entries and entries[0][0] == STANDARD:
            taken += 1
            try:
                self._take_standard_step(entries.popleft())
            except Exception:  # a foreign object as loss may raise anything
                self._process.lost += 1
        return taken

    def _take_standard_step(self, entry: Entry) -> None:
        (
            _,
            began,
            fetched,
            forward,
            forward_end,
            backward,
            backward_end,
            optimizer,
            optimizer_end,
            ended,
            loss,
            amounts,
        ) = entry
        process, assembler = self._process, self.assembler
        if (
            assembler.step is not None
            or process.primary is not assembler
            or process.background
            or process.counts is not None
            or began < assembler.accounted_until
            or (loss is not None and (type(loss) is not float or loss - loss != 0.0))
        ):
            for part in standard_step_entries(entry):
                assembler.take(part)
            return
        event: Mapping = {
            "kind": "step",
            "t": ended / NANOSECOND,
            "index": process.steps + 1,
            "start": began / NANOSECOND,
            "duration": (ended - began) / NANOSECOND,
            "phases": (
                ("data", (fetched - began) / NANOSECOND, "host", 1),
                ("forward", (forward_end - forward) / NANOSECOND, "host", 1),
                ("backward", (backward_end - backward) / NANOSECOND, "host", 1),
                ("optimizer", (optimizer_end - optimizer) / NANOSECOND, "host", 1),
            ),
            "status": "ok",
        }
        if amounts is not None:
            for name, amount in zip(COUNTED, amounts):
                if amount is not None and 0 < amount <= MAX_INTEGER:
                    event[name] = amount
        if AMOUNTS.isdisjoint(event):
            event["uncounted"] = True
        if loss is not None:
            event["metrics"] = {"loss": loss}
        assembler.add_step(event, began, ended, ended - began)


def standard_step_entries(entry: Entry) -> List[Entry]:
    """Return the entries that a standard step would have been one by one."""
    (
        _,
        began,
        fetched,
        forward,
        forward_end,
        backward,
        backward_end,
        optimizer,
        optimizer_end,
        ended,
        loss,
        amounts,
    ) = entry
    entries: List[Entry] = [(STEP, began, AUTOMATIC), (DATA, began), (NO_PHASE, fetched), (FORWARD, forward)]
    if amounts is not None:
        entries.append((COUNT, *amounts))
    entries += [
        (NO_PHASE, forward_end),
        (BACKWARD, backward),
        (NO_PHASE, backward_end),
        (OPTIMIZER, optimizer),
        (NO_PHASE, optimizer_end),
    ]
    if loss is not None:
        entries.append((LOG, {"loss": loss}))
    entries.append((END, ended, AUTOMATIC))
    return entries


def _add_plain_amounts(event: Mapping, entry: Entry) -> bool:
    """Add the amounts of a COUNT entry to a step's event. Return whether they are plain numbers."""
    for name, amount in zip(COUNTED, entry[1:]):
        if amount is not None:
            if type(amount) is not int or not 0 < amount <= MAX_INTEGER:
                return False
            event[name] = event.get(name, 0) + amount
    return len(entry) == 4
