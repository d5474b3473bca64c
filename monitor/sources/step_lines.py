"""Lines of steps into blocks of columns: lines `steps` as they are, single `step` lines joined with their neighbors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from operator import attrgetter
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from monitor.arrays import FloatArray, IntArray, np
from monitor.sources import decode
from monitor.step_blocks import MetricColumn, PhasePattern, StepBlock, block_of
from trainhooks.protocol import encoding
from trainhooks.protocol.events import AMOUNTS, Event, Phase, Step, Steps
from trainhooks.protocol.limits import MAX_INTEGER, MAX_LINE

SINGLE = b'{"kind":"step",'  # the start of a single step's line from the hooks
_STEPS = re.compile(rb'\s*\{\s*"kind"\s*:\s*"steps"')
MIN_AT_ONCE = 8  # single steps up to which reading one by one is as fast
MAX_AT_ONCE = 700  # the objects made of them fit the cache of a core
INDEPENDENT = ("pulse", "frames")  # kinds of events that may be folded after the steps that follow them

_Time = Annotated[float, Meta(gt=-1e12, lt=1e12)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e12)]
_Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
_Phase = tuple[str, _Seconds, Literal["host", "cuda"], _Count]
_Value = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)] | float


class StepLine(msgspec.Struct, gc=False):
    """A plain step's line: done, timed, of the main loop, every number finite. Others are decoded as events."""

    kind: Literal["step"]
    producer: str
    seq: _Count
    t: _Time
    duration: Annotated[float, Meta(gt=0, lt=1e12)]
    index: _Count = 0
    start: _Time = 0.0
    phases: list[_Phase] = []
    tokens: _Count | None = None
    padded_tokens: _Count | None = None
    samples: _Count | None = None
    forwards: _Count | None = None
    uncounted: bool | None = None
    measured: bool | None = None
    lengths: tuple[float, float, float] | None = None
    metrics: dict[str, _Value] = {}
    status: Literal["ok"] = "ok"
    reason: None = None
    role: str | None = None
    stage: str | None = None
    epoch: _Value | None = None
    background: tuple[()] = ()
    thread: None = None

    @property
    def next_seq(self) -> int:
        return self.seq + 1


_lines = msgspec.json.Decoder(StepLine)

_PRODUCER, _ROLE, _STAGE, _MEASURED = map(attrgetter, ("producer", "role", "stage", "measured"))
_PHASES, _METRICS = attrgetter("phases"), attrgetter("metrics")

_NUMBERS = (*AMOUNTS, "uncounted", "epoch")
_FIELDS = attrgetter("index", "t", "start", "duration", "lengths", "phases", "metrics", *_NUMBERS)

PlainStep = StepLine | Steps


def decode_lines(lines: Sequence[bytes], decode_line: Callable[[bytes], Any]) -> list[Any]:
    """Return every line's event: a StepLine for most single steps, else the result of `decode_line`."""
    out: list[Any] = []
    are_single = [*(line.startswith(SINGLE) for line in lines), False]
    at = 0
    while at < len(lines):
        upto = are_single.index(False, at)
        out += _single_steps(lines[at:upto], decode_line)
        if upto < len(lines):
            out.append(decode_line(lines[upto]))
        at = upto + 1
    return out


def _single_steps(lines: Sequence[bytes], decode_line: Callable[[bytes], Any]) -> list[Any]:
    if len(lines) <= MIN_AT_ONCE:
        return [decode_line(line) for line in lines]
    if len(lines) > MAX_AT_ONCE:
        parts = [lines[at : at + MAX_AT_ONCE] for at in range(0, len(lines), MAX_AT_ONCE)]
        return [step for part in parts for step in _single_steps(part, decode_line)]
    if max(map(len, lines)) <= MAX_LINE:
        try:
            steps = _lines.decode_lines(b"\n".join(lines))
        except (ValueError, RecursionError, OverflowError):
            steps = []
        if len(steps) == len(lines) and _are_clean(steps):
            return steps
    half = len(lines) // 2
    return _single_steps(lines[:half], decode_line) + _single_steps(lines[half:], decode_line)


def _are_clean(steps: list[StepLine]) -> bool:
    """Return whether all texts are clean as they are. Those of phases are cleaned where they are gathered."""
    texts = set(map(_PRODUCER, steps)).union(map(_ROLE, steps), map(_STAGE, steps), *map(_METRICS, steps))
    return all(text is None or decode.clean_name(text) == text for text in texts)


def without_first(steps: Steps, count: int) -> Steps:
    """Return the steps of a line without the first `count`."""

    def rest(column: Any) -> Any:
        return column[count:] if isinstance(column, list) else column

    return replace(
        steps,
        seq=steps.seq + count,
        index=steps.index + count,
        start=steps.start[count:],
        duration=steps.duration[count:],
        phases=[(name, seconds[count:], clock, entered) for name, seconds, clock, entered in steps.phases],
        metrics={name: column[count:] for name, column in steps.metrics.items()},
        **{name: rest(getattr(steps, name)) for name in AMOUNTS},
    )


def single_steps(steps: Steps) -> list[Step]:
    """Return the steps of a line as events of their own."""
    block = _Columns(steps)
    block.add([steps])
    return [replace(step, seq=steps.seq + place) for place, step in enumerate(block.block().steps())]


def single_step_lines(line: bytes) -> list[bytes]:
    """Return a line as the lines of single steps that it holds; any other line as it is."""
    event = decode.decode(line) if _STEPS.match(line) else None
    if type(event) is not Steps:
        return [line]
    encode = encoding.encoder()
    return [encode(encoding.to_dict(step)) for step in single_steps(event)]


def single_events(events: Iterable[Any]) -> Iterator[Any]:
    """Return the events with every step as an event of its own."""
    for event in events:
        if type(event) is Steps:
            yield from single_steps(event)
        elif type(event) is StepLine:
            yield _as_step(event)
        else:
            yield event


def _as_step(line: StepLine) -> Step:
    fields = {name: getattr(line, name) for name in StepLine.__struct_fields__ if name not in ("kind", "phases")}
    step = Step(**{**fields, "background": []})
    step.phases = [(decode.clean_name(name), seconds, clock, count) for name, seconds, clock, count in line.phases]
    return step


def step_blocks(events: Iterable[Any]) -> list[Event | StepBlock]:
    """Return the events in order, with consecutive steps of a process, role and stage as blocks of columns.

    Events between two such steps that are independent of steps come after them.
    """
    out: list[Event | StepBlock] = []
    gathered: _Gathered | None = None
    later: list[Event] = []
    for kind, group in groupby(events, type):
        if kind is StepLine or kind is Steps:
            for steps in _alike(list(group)):
                if gathered is None or not gathered.accepts(steps[0]):
                    out += _finished(gathered, later)
                    gathered, later = _Gathered(steps[0]), []
                gathered.add(steps)
            continue
        for event in group:
            if gathered is not None and event.kind in INDEPENDENT and event.producer == gathered.producer:
                later.append(event)
            elif kind is not Step or not _is_plain(event):
                out += _finished(gathered, later)
                gathered, later = None, []
                out.append(block_of(event) if kind is Step else event)
            else:
                if gathered is None or not gathered.accepts(event):
                    out += _finished(gathered, later)
                    gathered, later = _Gathered(event), []
                gathered.add([event])
    return [*out, *_finished(gathered, later)]


def _finished(gathered: _Gathered | None, later: list[Event]) -> list[Event | StepBlock]:
    return [] if gathered is None else [gathered.block(), *later]


def _is_plain(step: Step) -> bool:
    return (
        step.status == "ok"
        and step.thread is None
        and step.duration > 0.0
        and not step.background
        and step.odd_parts is None
        and not isinstance(step.epoch, str)
    )


def _alike(steps: list[Any]) -> Iterable[list[Any]]:
    """Return the steps in lists of consecutive ones of a process, role and stage. Usually all are."""
    if all(len(set(map(field, steps))) == 1 for field in (_PRODUCER, _ROLE, _STAGE, _MEASURED)):
        return [steps]
    return [list(group) for _, group in groupby(steps, attrgetter("producer", "role", "stage", "measured"))]


_NONFINITE = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


class _Runs:
    """A column of numbers that are often the same in many steps: what was given, and for how many steps."""

    def __init__(self) -> None:
        self._parts: list[tuple[Any, int]] = []

    def add(self, value: Any, steps: int) -> None:
        """Add one number for so many steps, or a list with one each; None: there is none."""
        if self._parts and not isinstance(value, list) and self._parts[-1][0] == value:
            steps += self._parts.pop()[1]
        self._parts.append((value, steps))

    def column(self) -> FloatArray | None:
        """Return the column, nan where there is no number; None where no step has one."""
        columns = []
        for value, steps in self._parts:
            column = np.array(value if isinstance(value, list) else [value], float)  # None becomes nan
            columns.append(column if isinstance(value, list) else column.repeat(steps))
        joined = np.concatenate(columns)
        return None if np.isnan(joined).all() else joined


class _Places:
    """Rising places of steps in their block, as ranges."""

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []

    def add(self, begin: int, end: int) -> None:
        if self._ranges and self._ranges[-1][1] == begin:
            begin = self._ranges.pop()[0]
        self._ranges.append((begin, end))

    def array(self, steps: int) -> IntArray | None:
        """Return the places; None where they are all of so many steps."""
        if self._ranges == [(0, steps)]:
            return None
        return np.concatenate([np.arange(begin, end) for begin, end in self._ranges])


class _Group:
    """The phases of steps that went through the same ones."""

    def __init__(self, width: int) -> None:
        self.seconds: list[list[float]] = [[] for _ in range(width)]
        self.counts = [_Runs() for _ in range(width)]
        self.places = _Places()

    def pattern(self, names: tuple[str, ...], clocks: tuple[str, ...], steps: int) -> PhasePattern:
        at = self.places.array(steps)
        count = steps if at is None else len(at)
        seconds = np.array(self.seconds, float).reshape(len(names), count)
        counts = np.array([runs.column() for runs in self.counts], float).reshape(len(names), count)
        return PhasePattern(names, clocks, seconds, np.nan_to_num(counts).astype(np.int64), at)


class _Metric:
    def __init__(self) -> None:
        self.values: list[float] = []
        self.places = _Places()


class _Gathered:
    """The steps of one block while they are gathered."""

    def __init__(self, first: PlainStep | Step) -> None:
        self.producer = first.producer
        self._role, self._stage, self._measured = first.role, first.stage, first.measured
        self._parts: list[list[Any]] = []  # lines of several steps, or single ones

    def accepts(self, step: PlainStep | Step) -> bool:
        return (step.producer, step.role, step.stage, step.measured) == (
            self.producer,
            self._role,
            self._stage,
            self._measured,
        )

    def add(self, steps: list[Any]) -> None:
        """Add steps of one kind: lines of several, or single ones."""
        self._parts.append(steps)

    def block(self) -> StepBlock:
        if len(self._parts) == 1 and len(self._parts[0]) == 1 and type(self._parts[0][0]) is not Steps:
            (step,) = self._parts[0]
            return block_of(_as_step(step) if type(step) is StepLine else step)
        columns = _Columns(self._parts[0][0])
        for steps in self._parts:
            columns.add(steps)
        return columns.block()


class _Columns:
    """The columns of one block."""

    def __init__(self, first: PlainStep | Step) -> None:
        self._producer, self._role, self._stage = first.producer, first.role, first.stage
        self._measured = bool(first.measured)
        self._index: list[Any] = []
        self._ends: dict[int, Sequence[float]] = {}  # of single steps, which report it, by the place of the first
        self._start: list[float] = []
        self._duration: list[float] = []
        self._groups: dict[tuple[tuple[str, ...], tuple[str, ...]], _Group] = {}
        self._metrics: dict[str, _Metric] = {}
        self._numbers = {name: _Runs() for name in _NUMBERS}
        self._lengths: dict[int, tuple[float, float, float]] = {}

    def add(self, steps: list[Any]) -> None:
        """Add steps of one kind: lines of several, or single ones."""
        if type(steps[0]) is Steps:
            for line in steps:
                self._add_steps(line)
        else:
            self._add_rows(steps)

    def _group(self, names: tuple[str, ...], clocks: tuple[str, ...]) -> _Group:
        names = tuple(map(decode.clean_name, names))
        group = self._groups.get((names, clocks))
        if group is None:
            group = self._groups[names, clocks] = _Group(len(names))
        return group

    def _add_steps(self, steps: Steps) -> None:
        begin, count = len(self._start), len(steps)
        self._index.append(range(steps.index, steps.index + count))
        self._start += steps.start
        self._duration += steps.duration
        group = self._group(tuple([row[0] for row in steps.phases]), tuple([row[2] for row in steps.phases]))
        for seconds, counts, row in zip(group.seconds, group.counts, steps.phases, strict=True):
            seconds += row[1]
            counts.add(row[3], count)
        group.places.add(begin, begin + count)
        for name, runs in self._numbers.items():
            runs.add(getattr(steps, name), count)
        for metric, column in steps.metrics.items():
            self._add_metric(metric, column, begin)

    def _add_metric(self, name: str, column: Sequence[float | None], begin: int) -> None:
        """Add the values of consecutive steps; None: the step lacks it."""
        metric = self._metrics.get(name)
        if metric is None:
            metric = self._metrics[name] = _Metric()
        if None not in column:
            metric.values += column  # type: ignore[arg-type]
            metric.places.add(begin, begin + len(column))
            return
        for place, value in enumerate(column, begin):
            if value is not None:
                metric.values.append(value)
                metric.places.add(place, place + 1)

    def _add_rows(self, rows: list[Any]) -> None:
        """Add single steps: field by field, and phases as they follow each other."""
        begin = len(self._start)
        index, ends, start, duration, lengths, phases, metrics, *numbers = zip(*map(_FIELDS, rows), strict=True)
        self._index.append(index)
        self._ends[begin] = ends
        self._start += start
        self._duration += duration
        for runs, column in zip(self._numbers.values(), numbers, strict=True):
            runs.add(None if column.count(None) == len(column) else list(column), len(rows))
        if lengths.count(None) < len(lengths):
            self._lengths.update((place, row) for place, row in enumerate(lengths, begin) if row is not None)
        self._add_row_phases(phases, begin)
        for metric in dict.fromkeys(chain.from_iterable(metrics)):
            values = [row.get(metric) for row in metrics]
            self._add_metric(metric, list(map(_as_float, values)) if str in set(map(type, values)) else values, begin)

    def _add_row_phases(self, steps: Sequence[list[Phase]], begin: int) -> None:
        width = len(steps[0])
        if set(map(len, steps)) == {width}:
            columns = list(zip(*chain.from_iterable(steps), strict=True))
            if not width or (_repeats(columns[0], width) and _repeats(columns[2], width)):
                self._add_phases(columns, width, begin, len(steps))
                return
        for place, phases in enumerate(steps, begin):
            self._add_phases(list(zip(*phases, strict=True)), len(phases), place, 1)

    def _add_phases(self, columns: list[tuple[Any, ...]], width: int, begin: int, steps: int) -> None:
        """Add steps of the same phases: the names, seconds, clocks and counts of `width` phases, step by step."""
        names, all_seconds, clocks, all_counts = columns or ((), (), (), ())
        group = self._group(names[:width], clocks[:width])
        for place, (seconds, counts) in enumerate(zip(group.seconds, group.counts, strict=True)):
            seconds += all_seconds[place::width]
            column = all_counts[place::width]
            counts.add(column[0] if column.count(column[0]) == len(column) else list(column), steps)
        group.places.add(begin, begin + steps)

    def block(self) -> StepBlock:
        steps = len(self._start)
        start, duration = np.array(self._start, float), np.array(self._duration, float)
        t = start + duration
        for begin, ends in self._ends.items():
            t[begin : begin + len(ends)] = ends
        numbers = {name: runs.column() for name, runs in self._numbers.items()}
        uncounted, epoch = numbers.pop("uncounted"), numbers.pop("epoch")
        return StepBlock(
            producer=self._producer,
            role=self._role,
            stage=self._stage,
            index=np.concatenate([np.array(part, np.int64) for part in self._index]),
            t=t,
            start=start,
            duration=duration,
            patterns=[group.pattern(*key, steps) for key, group in self._groups.items()],
            amounts={name: column for name, column in numbers.items() if column is not None},
            metrics={
                name: MetricColumn(np.array(metric.values, float), metric.places.array(steps))
                for name, metric in self._metrics.items()
                if metric.values
            },
            uncounted=None if uncounted is None else uncounted == 1.0,
            lengths=self._lengths_column(steps),
            measured=self._measured,
            epoch=epoch,
        )

    def _lengths_column(self, steps: int) -> FloatArray | None:
        if not self._lengths:
            return None
        column = np.full((3, steps), np.nan)
        for place, lengths in self._lengths.items():
            column[:, place] = lengths
        return column


def _as_float(value: Any) -> float | None:
    """Return a metric as a number; "nan" and "inf" are such, other texts are none."""
    return _NONFINITE.get(value) if isinstance(value, str) else value


def _repeats(texts: tuple[str, ...], width: int) -> bool:
    return texts == texts[:width] * (len(texts) // width)
