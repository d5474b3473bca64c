"""Automatic steps that came as one entry each: an event at once, where nothing else is to be told with it."""

from __future__ import annotations

from typing import Any, Deque, List, Optional, Tuple

from trainhooks.assembler import Assembler, Mapping
from trainhooks.clocks import NANOSECOND
from trainhooks.entries import (
    AUTOMATIC,
    BACKWARD,
    COUNT,
    DATA,
    END,
    FORWARD,
    LOG,
    NOTHING,
    OPTIMIZER,
    STEP,
    USUAL,
    Lane,
)
from trainhooks.events import MAX_INTEGER, Pulse

COUNTED = ("tokens", "padded_tokens", "samples")
ENTRIES = 5  # that one of these costs as much as


class UsualSteps(Assembler):
    """An assembler that takes them. What is under way in a step that is told at its end only, its lane knows."""

    lane: Optional[Lane] = None

    def take_several(self, entries: Deque[Tuple[Any, ...]], most: int) -> int:
        """Take those that come next, as many as cost what `most` entries do. Returns how many that were."""
        most = 1 + most // ENTRIES
        taken = 0
        while taken < most and entries and entries[0][0] == USUAL:
            taken += 1
            try:
                self.take_usual(entries.popleft())
            except Exception:  # a foreign object as loss may raise anything
                self.shared.lost += 1
        return taken

    def take_usual(self, entry: Tuple[Any, ...]) -> None:
        """Take one."""
        if self.step is not None or not self._at_once(entry):
            for each in _spelt_out(entry):
                self.take(each)

    def _at_once(self, entry: Tuple[Any, ...]) -> bool:
        """Tell the step, where it is as plain as that. Whether it was."""
        _, began, fetched, called, learning, learnt, stepping, stepped, ended, loss, counts = entry
        shared = self.shared
        if shared.primary is not self or shared.background or shared.counts is not None or began < self.claimed:
            return False
        if loss is not None and (type(loss) is not float or loss - loss != 0.0):
            return False
        if self._held is not None:
            self.release_held()
        event: Mapping = {
            "kind": "step",
            "t": ended / NANOSECOND,
            "index": shared.steps + 1,
            "start": began / NANOSECOND,
            "duration": (ended - began) / NANOSECOND,
            "phases": (
                ("data", (fetched - began) / NANOSECOND, "host", 1),
                ("forward", (learning - called) / NANOSECOND, "host", 1),
                ("backward", (learnt - learning) / NANOSECOND, "host", 1),
                ("optimizer", (stepped - stepping) / NANOSECOND, "host", 1),
            ),
            "status": "ok",
        }
        if counts is not None:
            for name, amount in zip(COUNTED, counts):
                if amount is not None and 0 < amount <= MAX_INTEGER:
                    event[name] = amount
        if loss is not None:
            event["metrics"] = {"loss": loss}
        shared.steps += 1
        self.accounted += ended - began
        self.claimed = ended
        self._body = ended - began
        self.events.append(event)
        return True

    # What is open

    def _live(self) -> Optional[Tuple[int, Optional[str], int]]:
        live = self.lane.live if self.lane is not None else None
        return None if live is None or self.step is not None else live.open()

    def where(self) -> str:
        """What is open: a phase's or a span's name, `other` in a step without one, `between steps`."""
        live = self._live()
        return super().where() if live is None else live[1] or "other"

    def pulse(self, t: int) -> Pulse:
        """What is open at `t`, for those who watch."""
        pulse = super().pulse(t)
        live = self._live()
        if live is not None:
            began, pulse.phase, since = live
            pulse.step = self.shared.steps + 1
            pulse.step_open = max(0, t - began) / NANOSECOND
            if pulse.phase is not None:
                pulse.phase_open = max(0, t - since) / NANOSECOND
        return pulse


def _spelt_out(entry: Tuple[Any, ...]) -> List[Tuple[Any, ...]]:
    """The same step as the entries that it would have been one by one."""
    _, began, fetched, called, learning, learnt, stepping, stepped, ended, loss, counts = entry
    entries: List[Tuple[Any, ...]] = [(STEP, began, AUTOMATIC), (DATA, began), (NOTHING, fetched), (FORWARD, called)]
    if counts is not None:
        entries.append((COUNT, *counts))
    entries += [(BACKWARD, learning), (NOTHING, learnt), (OPTIMIZER, stepping), (NOTHING, stepped)]
    if loss is not None:
        entries.append((LOG, {"loss": loss}))
    entries.append((END, ended, AUTOMATIC))
    return entries
