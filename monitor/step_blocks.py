"""Consecutive steps as columns: the one form in which steps are read, folded and counted. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from monitor.arrays import BoolArray, FloatArray, IntArray, np
from trainhooks.protocol.events import AMOUNTS, Phase, Step

OTHER = "other"  # inside a step, in no phase
UNNAMED = "time in no named phase"  # the same in a sentence


@dataclass(slots=True)
class PhasePattern:
    """The steps of a block that went through the same phases in the same order."""

    names: tuple[str, ...]
    clocks: tuple[str, ...]
    seconds: FloatArray  # a row for each phase, a column for each step
    counts: IntArray  # how often each phase was entered, likewise
    at: IntArray | None = None  # the steps' places in the block, rising; None: all of it


@dataclass(slots=True)
class MetricColumn:
    """The values of a metric in the steps that have it."""

    values: FloatArray
    at: IntArray | None = None  # their places in the block, rising; None: all of it

    def beside(self, column: Any) -> Any:
        """Return what stands beside the values in a column of the whole block."""
        return column if self.at is None else column[self.at]


@dataclass(slots=True)
class StepBlock:
    """Consecutive steps of one process, role and stage. All columns have an item for each step.

    Steps that are not plain (skipped, untimed, of another thread...) come one by one: `odd` is that step. So does a
    plain one whose neighbors are of another kind.
    """

    producer: str
    role: str | None
    stage: str | None
    index: IntArray
    t: FloatArray
    start: FloatArray
    duration: FloatArray
    patterns: list[PhasePattern]
    amounts: dict[str, FloatArray] = field(default_factory=dict)  # tokens, samples...: nan where not counted
    metrics: dict[str, MetricColumn] = field(default_factory=dict)
    uncounted: BoolArray | None = None  # None: in no step
    lengths: FloatArray | None = None  # rows: minimum, mean, maximum; nan where not reported
    epoch: FloatArray | None = None  # nan where not reported
    measured: bool = False  # a trace made them longer
    odd: Step | None = None
    _parts: list[Parts] | None = None

    def __len__(self) -> int:
        return len(self.index)

    @property
    def end(self) -> FloatArray:
        return self.start + self.duration

    @property
    def thread(self) -> str | None:
        return None if self.odd is None else self.odd.thread

    @property
    def is_ok(self) -> bool:
        return self.odd is None or self.odd.status == "ok"

    @property
    def is_timed(self) -> bool:
        """Return whether the steps' times are known: all are, or the only one's is not."""
        return bool(self.duration[0] > 0.0)

    def steps(self, first: int = 0, end: int | None = None) -> Iterator[Step]:
        """Return the steps from one place up to another, as events."""
        if self.odd is not None:
            yield from [self.odd][first:end]
            return
        wanted = slice(first, end)
        rows = zip(
            self.index[wanted].tolist(), self.t[wanted].tolist(), self.start[wanted].tolist(),
            self.duration[wanted].tolist(), self._phases(first, end), strict=True,
        )  # fmt: skip
        steps = [
            Step(
                producer=self.producer,
                seq=0,
                t=t,
                index=index,
                start=start,
                duration=duration,
                phases=phases,
                role=self.role,
                stage=self.stage,
                measured=self.measured or None,
            )
            for index, t, start, duration, phases in rows
        ]
        self._add_numbers(steps, first)
        yield from steps

    def _phases(self, first: int, end: int | None) -> list[list[Phase]]:
        """Return the phases of these steps as they are in their events."""
        out: list[list[Phase]] = [[] for _ in range(len(self))[first:end]]
        for pattern in self.patterns:
            places = np.arange(len(self)) if pattern.at is None else pattern.at
            low, high = places.searchsorted((first, first + len(out))).tolist()
            seconds, counts = pattern.seconds[:, low:high].T.tolist(), pattern.counts[:, low:high].T.tolist()
            for place, row, times in zip(places[low:high].tolist(), seconds, counts, strict=True):
                out[place - first] = list(zip(pattern.names, row, pattern.clocks, times, strict=True))
        return out

    def _add_numbers(self, steps: list[Step], first: int) -> None:
        """Add what not every step has."""
        end = first + len(steps)
        for name, column in self.amounts.items():
            for step, amount in zip(steps, column[first:end].tolist(), strict=True):
                if amount == amount:
                    setattr(step, name, int(amount))
        for name, metric in self.metrics.items():
            places = np.arange(len(self)) if metric.at is None else metric.at
            low, high = places.searchsorted((first, end)).tolist()
            for place, value in zip(places[low:high].tolist(), metric.values[low:high].tolist(), strict=True):
                steps[place - first].metrics[name] = value if value - value == 0.0 else repr(value)
        if self.uncounted is not None:
            for step, uncounted in zip(steps, self.uncounted[first:end].tolist(), strict=True):
                step.uncounted = uncounted or None
        if self.lengths is not None:
            for step, (least, mean, most) in zip(steps, self.lengths[:, first:end].T.tolist(), strict=True):
                step.lengths = (least, mean, most) if mean == mean else None
        if self.epoch is not None:
            for step, epoch in zip(steps, self.epoch[first:end].tolist(), strict=True):
                step.epoch = epoch if epoch == epoch else None

    @property
    def parts(self) -> list[Parts]:
        """The parts of all the steps, pattern by pattern."""
        if self._parts is None:
            self._parts = [_parts(pattern, self.duration) for pattern in self.patterns]
        return self._parts

    def last(self, count: int) -> StepBlock:
        """Return the last steps, in arrays of their own: what comes before is not kept in memory for them."""
        first = len(self) - count

        def rest(column: Any) -> Any:
            return None if column is None else column[..., first:].copy()

        def placed(at: IntArray | None, *columns: Any) -> list[Any]:
            """Return columns that stand at these places, and the places, from the first step that is kept on."""
            begin = first if at is None else int(at.searchsorted(first))
            return [column[..., begin:].copy() for column in columns] + [None if at is None else at[begin:] - first]

        return replace(
            self,
            index=rest(self.index),
            t=rest(self.t),
            start=rest(self.start),
            duration=rest(self.duration),
            patterns=[
                PhasePattern(pattern.names, pattern.clocks, *placed(pattern.at, pattern.seconds, pattern.counts))
                for pattern in self.patterns
            ],
            amounts={name: rest(column) for name, column in self.amounts.items()},
            metrics={name: MetricColumn(*placed(metric.at, metric.values)) for name, metric in self.metrics.items()},
            uncounted=rest(self.uncounted),
            lengths=rest(self.lengths),
            epoch=rest(self.epoch),
            _parts=None,
        )

    def single_blocks(self) -> Iterator[StepBlock]:
        """Return the same, each step for itself: for where the order between columns matters."""
        return map(block_of, self.steps())


def _place_of(at: IntArray, place: int) -> int | None:
    """Return where a place stands among rising places; None: nowhere."""
    found = int(at.searchsorted(place))
    return found if found < len(at) and at[found] == place else None


def block_of(step: Step) -> StepBlock:
    """Return a block of one step."""
    names, seconds, clocks, counts = zip(*step.phases, strict=True) if step.phases else ((), (), (), ())
    one = np.float64
    known = {name: getattr(step, name) for name in AMOUNTS}
    pattern = PhasePattern(names, clocks, np.array(seconds, one)[:, None], np.array(counts, np.int64)[:, None])
    return StepBlock(
        producer=step.producer,
        role=step.role,
        stage=step.stage,
        index=np.array([step.index], np.int64),
        t=np.array([step.t], one),
        start=np.array([step.start], one),
        duration=np.array([step.duration], one),
        patterns=[pattern],
        amounts={name: np.array([amount], one) for name, amount in known.items() if amount is not None},
        metrics={name: MetricColumn(np.array([value], one)) for name, value in step.metrics.items()},
        uncounted=np.array([True]) if step.uncounted else None,
        lengths=None if step.lengths is None else np.array(step.lengths, one)[:, None],
        measured=bool(step.measured),
        odd=step,
    )


def sums(start: float, values: FloatArray) -> float:
    """Return the values added to `start`, one after the other: so blocks of any size give the same sum."""
    if not len(values):
        return start
    chain = values.copy()
    with np.errstate(all="ignore"):
        chain[0] += start
        return float(chain.cumsum()[-1])


# The phases of steps as parts that add up to each step.


@dataclass(slots=True)
class Parts:
    """The parts of those steps of a block that went through the same phases; `other` is one of them."""

    seconds: dict[str, FloatArray]  # in order of occurrence
    clocks: dict[str, str]
    at: IntArray | None  # the steps' places in the block, rising; None: all of it

    def row(self, place: int) -> dict[str, float] | None:
        """Return the parts of the step at a place of the block; None: it is not among these."""
        at = place if self.at is None else _place_of(self.at, place)
        return None if at is None else {name: float(column[at]) for name, column in self.seconds.items()}


def _parts(pattern: PhasePattern, durations: FloatArray) -> Parts:
    if pattern.at is not None:
        durations = durations[pattern.at]
    seconds: dict[str, FloatArray] = {}
    for name, column in zip(pattern.names, pattern.seconds, strict=True):
        seconds[name] = seconds[name] + column if name in seconds else column
    named = np.zeros(len(durations))
    for column in pattern.seconds:
        named = named + column
    if (named > durations).any():  # parts of some writer exceed the step: scale them down
        scale = np.divide(durations, named, out=np.ones(len(named)), where=named > durations)
        seconds = {name: column * scale for name, column in seconds.items()}
        named = np.minimum(named, durations)
    rest = durations - named
    seconds[OTHER] = rest + seconds[OTHER] if OTHER in seconds else rest
    return Parts(seconds, dict(zip(reversed(pattern.names), reversed(pattern.clocks), strict=True)), pattern.at)


def row_of(groups: Sequence[Parts], place: int) -> dict[str, float]:
    """Return the parts of one step of the block."""
    return next((row for group in groups if (row := group.row(place)) is not None), {})


def columns_of(groups: Sequence[Parts], index: IntArray) -> dict[str, tuple[IntArray, FloatArray]]:
    """Return the columns of every part: indices of steps and seconds, in the order of the steps."""
    if len(groups) == 1 and groups[0].at is None:
        return {name: (index, column) for name, column in groups[0].seconds.items()}
    found: dict[str, list[tuple[IntArray, FloatArray]]] = {}
    for group in groups:
        at = np.arange(len(index)) if group.at is None else group.at
        for name, column in group.seconds.items():
            found.setdefault(name, []).append((at, column))
    out = {}
    for name, columns in found.items():
        at = np.concatenate([places for places, _ in columns])
        seconds = np.concatenate([column for _, column in columns])
        order = at.argsort(kind="stable")
        out[name] = index[at[order]], seconds[order]
    return out


def dense_columns(groups: Sequence[Parts], steps: int) -> dict[str, FloatArray]:
    """Return the seconds of every part in each step of the block, 0 where a step lacks it."""
    if len(groups) == 1 and groups[0].at is None:
        return groups[0].seconds
    out: dict[str, FloatArray] = {}
    for group in groups:
        for name, column in group.seconds.items():
            out.setdefault(name, np.zeros(steps))[slice(None) if group.at is None else group.at] = column
    return out
