"""Blocks of steps: consecutive plain steps of one shape, written as columns in one line.

A plain step is a tuple until its block is closed: that is cheap to make, and a block of tuples turns into columns at
once. Everything that a line `steps` cannot hold (a skipped step, a loss that is not finite, another thread's step) is
an event of its own.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple, Union

from trainhooks.lane_entries import NANOSECOND
from trainhooks.protocol.encoding import fitting_line
from trainhooks.protocol.events import AMOUNTS
from trainhooks.protocol.limits import MAX_INTEGER, MAX_LINE, Number

Mapping = Dict[str, Any]

MAX_BLOCK_STEPS = 64
MAX_BLOCK_BYTES = MAX_LINE // 2
UNITS = 3  # so many of AMOUNTS are amounts of work; a COUNT entry has them in this order


class StepShape(NamedTuple):
    """What the steps of a block have in common."""

    names: Tuple[str, ...]  # of the phases, in order
    counts: Tuple[int, ...]  # how often each was entered
    role: Optional[str] = None
    stage: Optional[str] = None
    epoch: Optional[Number] = None
    uncounted: bool = False
    measured: bool = False


class PlainStep(NamedTuple):
    """A step that can be a part of a block. Times are nanoseconds of the host clock."""

    shape: StepShape
    number: int  # the step's index
    began: int
    ended: int
    phases: Sequence[int]  # nanoseconds of each phase
    metrics: Optional[Mapping]  # finite numbers
    amounts: Optional[Sequence[Optional[int]]]  # AMOUNTS or the first of them

    def as_event(self) -> Mapping:
        """Return the step as the mapping of a line of its own."""
        shape = self.shape
        phases = [
            (name, ns / NANOSECOND, "host", count) for name, ns, count in zip(shape.names, self.phases, shape.counts)
        ]
        event: Mapping = {
            "kind": "step",
            "t": self.ended / NANOSECOND,
            "index": self.number,
            "start": self.began / NANOSECOND,
            "duration": (self.ended - self.began) / NANOSECOND,
            "phases": phases,
            "status": "ok",
        }
        for name, amount in zip(AMOUNTS, self.amounts or ()):
            if amount is not None:
                event[name] = amount
        if self.metrics:
            event["metrics"] = self.metrics
        _label(event, shape)
        return event


StepEvent = Union[PlainStep, Mapping]


class StepTimes(NamedTuple):
    """What others ask of a step, whatever its form. Times are seconds of the host clock."""

    number: int  # its index
    start: float
    duration: float
    in_main_loop: bool


def step_times(event: StepEvent) -> Optional[StepTimes]:
    """Return the times of an event; None where it is no step."""
    if type(event) is PlainStep:
        return StepTimes(
            event.number, event.began / NANOSECOND, (event.ended - event.began) / NANOSECOND, in_main_loop=True
        )
    if event["kind"] != "step":  # type: ignore[call-overload]
        return None
    return StepTimes(event["index"], event["start"], event.get("duration", 0.0), "thread" not in event)  # type: ignore


def amounts_of(counts: Optional[Mapping]) -> Optional[List[Optional[int]]]:
    """Return counted work in the order of AMOUNTS; None where nothing was counted."""
    if not counts:
        return None
    amounts = [counts.get(name) or None for name in AMOUNTS]
    return amounts if any(amounts) else None


def are_plain(metrics: Mapping) -> bool:
    """Return whether all values, which are as they are sent, are finite."""
    return str not in set(map(type, metrics.values()))


class OpenBlock:
    """The plain steps that wait to be written together."""

    def __init__(self) -> None:
        self._steps: List[PlainStep] = []

    def __len__(self) -> int:
        return len(self._steps)

    def accepts(self, step: PlainStep) -> bool:
        """Return whether this step continues the block."""
        steps = self._steps
        if not steps:
            return True
        last = steps[-1]
        return len(steps) < MAX_BLOCK_STEPS and step.shape == last.shape and step.number == last.number + 1

    def add(self, step: PlainStep) -> None:
        self._steps.append(step)

    def add_late(self, event: Mapping) -> bool:
        """Add metrics that became readable after their step's end. Return whether that step waits in this block."""
        steps, values = self._steps, event.get("values") or {}
        place = event.get("step", -1) - steps[0].number if steps else -1
        if not 0 <= place < len(steps) or event.get("role") != steps[place].shape.role or not are_plain(values):
            return False
        steps[place] = steps[place]._replace(metrics={**(steps[place].metrics or {}), **values})
        return True

    def close(self, seq: int, producer: str, encode: Callable[[List[Mapping]], bytes]) -> bytes:
        """Return the steps as lines, numbered from `seq` on, and begin anew."""
        steps, self._steps = self._steps, []
        return _lines(steps, seq, producer, encode)


def _lines(steps: List[PlainStep], seq: int, producer: str, encode: Callable[[List[Mapping]], bytes]) -> bytes:
    event = steps[0].as_event() if len(steps) == 1 else block_event(steps)
    event["producer"], event["seq"] = producer, seq
    if len(steps) == 1:
        return fitting_line(event, encode)
    line = encode([event])
    if len(line) <= MAX_BLOCK_BYTES:
        return line
    half = len(steps) // 2
    return _lines(steps[:half], seq, producer, encode) + _lines(steps[half:], seq + half, producer, encode)


def block_event(steps: Sequence[PlainStep]) -> Mapping:
    """Return consecutive steps of one shape as the mapping of a line `steps`."""
    _, numbers, begans, endeds, phases, metrics, amounts = zip(*steps)
    shape = steps[0].shape
    columns = zip(shape.names, zip(*phases), shape.counts)
    event: Mapping = {
        "kind": "steps",
        "t": endeds[-1] / NANOSECOND,
        "index": numbers[0],
        "start": [ns / NANOSECOND for ns in begans],
        "duration": [(ended - began) / NANOSECOND for began, ended in zip(begans, endeds)],
        "phases": [(name, [ns / NANOSECOND for ns in column], "host", count) for name, column, count in columns],
    }
    _add_amounts(event, amounts)
    _add_metrics(event, metrics)
    _label(event, shape)
    return event


def _add_amounts(event: Mapping, amounts: Sequence[Optional[Sequence[Optional[int]]]]) -> None:
    """Add each kind of work as one number where it is the same in all steps, else as a column."""
    if amounts.count(None) == len(amounts):
        return
    for place, name in enumerate(AMOUNTS):
        column = [row[place] if row is not None and place < len(row) else None for row in amounts]
        if column.count(column[0]) < len(column):
            event[name] = column
        elif column[0] is not None:
            event[name] = column[0]


def _add_metrics(event: Mapping, metrics: Sequence[Optional[Mapping]]) -> None:
    first = metrics[0] or {}
    if all(row is not None and row.keys() == first.keys() for row in metrics):
        names: Iterable[str] = first
    else:
        names = dict.fromkeys(name for row in metrics if row for name in row)
    columns = {name: [row.get(name) if row else None for row in metrics] for name in names}
    if columns:
        event["metrics"] = columns


def _label(event: Mapping, shape: StepShape) -> None:
    if shape.role is not None:
        event["role"] = shape.role
    if shape.stage is not None:
        event["stage"] = shape.stage
    if shape.epoch is not None:
        event["epoch"] = shape.epoch
    if shape.uncounted:
        event["uncounted"] = True
    if shape.measured:
        event["measured"] = True


def amount(value: Any) -> Optional[int]:
    """Return a counted amount as a step has it: a whole number above 0, or None."""
    return value if type(value) is int and 0 < value <= MAX_INTEGER else None
