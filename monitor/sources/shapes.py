"""Steps decoded many at once: a decoder made to the measure of a program's own steps.

A program's steps look alike: the same phases, metrics, role. What has passed the gate of `decode` once is written into
a type, and msgspec then reads and checks whole batches of lines against it. A line that does not fit goes through the
gate by itself, and widens the type if it is a plain step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, takewhile
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from monitor import columns
from monitor.slab import Pattern, Slab
from monitor.sources.journal import lines_of
from trainhooks.events import MAX_INTEGER, MAX_LINE, Event, Step

WINDOW = MAX_LINE // 2  # a line that is too long contains at least one such window whole
FEW = 8  # lines that are as quickly read one by one
MAX_NAMES = 256  # of phases, metrics, roles...; with more each line is read by itself

RARE = ("padded_tokens", "lengths", "forwards")  # what few programs tell
STEP = b'{"kind":"step",'  # how the hooks begin a step's line

_Time = Annotated[float, Meta(gt=-1e12, lt=1e12)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e12)]
_Longer = Annotated[float, Meta(gt=0, lt=1e12)]
_Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
_Value = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)] | float
_Nothing = tuple[()]


class Row(msgspec.Struct, gc=False):
    """A plain step: done, timed, of the main loop, every number finite. A step's attributes, of leaner types."""

    ALIKE: ClassVar[bool] = False  # whether all of this type are of one producer, role and stage
    RARE: ClassVar[bool] = True  # whether some may tell lengths, padding or calls of the model

    kind: Literal["step"]
    producer: str
    seq: _Count
    t: _Time
    duration: _Longer  # a line without it is no plain step
    index: _Count = 0
    start: _Time = 0.0
    phases: Any = ()
    tokens: _Count | None = None
    padded_tokens: _Count | None = None
    samples: _Count | None = None
    forwards: int | None = None
    lengths: tuple[float, float, float] | None = None
    metrics: Any = None
    status: Literal["ok"] = "ok"
    reason: None = None
    role: str | None = None
    stage: str | None = None
    epoch: _Value | None = None
    background: _Nothing = ()
    thread: None = None

    def step(self) -> Step:
        """The same as an event."""
        found = self.metrics
        values = [] if found is None else zip(found.NAMES, msgspec.structs.astuple(found), strict=True)
        return Step(
            self.producer,
            self.seq,
            self.t,
            index=self.index,
            start=self.start,
            duration=self.duration,
            phases=[msgspec.structs.astuple(each) for each in self.phases],
            tokens=self.tokens,
            padded_tokens=self.padded_tokens,
            samples=self.samples,
            forwards=self.forwards,
            lengths=self.lengths,
            metrics={name: value for name, value in values if value is not None},
            role=self.role,
            stage=self.stage,
            epoch=self.epoch,
        )


class _Phase(msgspec.Struct, gc=False, array_like=True, forbid_unknown_fields=True):
    name: str
    seconds: _Seconds
    clock: str
    times: _Count

    def __iter__(self) -> Iterator[Any]:
        """As the tuple that a step's event has in its place."""
        return iter(msgspec.structs.astuple(self))


class _Phases(msgspec.Struct, gc=False, array_like=True, forbid_unknown_fields=True):
    """The phases of steps that all go through the same ones: names and clocks are checked while a line is read."""

    def __iter__(self) -> Iterator[Any]:
        return iter(msgspec.structs.astuple(self))


class Decoded(list[Any]):
    """Events of a batch of lines, its plain steps decoded at once; `again` makes these once more."""

    def __init__(self, events: Iterable[Any], again: Callable[[], list[Row]]) -> None:
        super().__init__(events)
        self.again = again


def _short_lines(block: bytes) -> bool:
    """Whether no line is too long."""
    return all(block.find(b"\n", at, at + WINDOW) >= 0 for at in range(0, len(block) - WINDOW, WINDOW))


class Shape:
    """What the plain steps of a journal have shown so far, and the decoder for steps like these."""

    def __init__(self) -> None:
        # By the field: the texts that have passed the gate.
        self._seen: dict[str, dict[Any, None]] = {
            name: {} for name in ("producer", "phases", "clock", "metrics", "role", "stage", "rare")
        }
        self._orders: set[tuple[tuple[str, str], ...]] = set()  # names and clocks of a step's phases; two say "several"
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._steps_only = False  # nothing but plain steps in the block before: then perhaps in the next one

    def read(self, block: bytes, decode: Callable[[bytes], Any]) -> list[Any]:
        """The events of whole lines in one piece; the quick way where all are plain steps."""
        if self._steps_only and block.endswith(b"\n") and _short_lines(block):
            rows = self._decoded(block, block.count(b"\n"))
            if rows is not None:
                return rows
        found = self.events(lines_of(block), decode)
        self._steps_only = isinstance(found, Decoded) and all(isinstance(each, Row) for each in found)
        return found

    def events(self, lines: list[bytes], decode: Callable[[bytes], Any]) -> list[Any]:
        """Each line's event: a Row where it is a plain step, else what `decode` makes of it."""
        steps = [line for line in lines if line.startswith(STEP)]
        if len(steps) <= FEW or max(map(len, steps)) > MAX_LINE:
            return [self._learnt(decode(line)) for line in lines]
        rows = self.rows(steps, decode)
        if len(steps) == len(lines):
            return rows
        found = iter(rows)
        events = (next(found) if line.startswith(STEP) else decode(line) for line in lines)
        return Decoded(events, rows.again) if isinstance(rows, Decoded) else list(events)

    def rows(self, lines: Sequence[bytes], decode: Callable[[bytes], Any]) -> list[Any]:
        """The events of lines that begin as a step."""
        if len(lines) <= FEW:
            return [self._learnt(decode(line)) for line in lines]
        found = self._at_once(lines)
        if found is not None:
            return found
        half = len(lines) // 2
        return self.rows(lines[:half], decode) + self.rows(lines[half:], decode)

    def _at_once(self, lines: Sequence[bytes]) -> Decoded | None:
        return None if self.decoder() is None else self._decoded(b"\n".join(lines), len(lines))

    def decoder(self) -> msgspec.json.Decoder[Any] | None:
        """For plain steps such as have been seen; None where none were, or too many kinds."""
        if self._decoder is None:
            if not self._seen["producer"] or any(len(each) > MAX_NAMES for each in self._seen.values()):
                return None
            self._decoder = self._made()
        return self._decoder

    def _decoded(self, block: bytes, count: int) -> Decoded | None:
        if self._decoder is None:
            return None
        again = partial(self._decoder.decode_lines, block)
        try:
            found: list[Row] = again()
        except (ValueError, RecursionError, OverflowError):
            return None
        return Decoded(found, again) if len(found) == count else None

    def _learnt(self, event: Any) -> Any:
        if type(event) is Step and event.status == "ok" and event.thread is None and event.duration > 0:
            self._see("producer", (event.producer,))
            order = tuple([(row[0], row[2]) for row in event.phases])
            self._see("phases", (name for name, _ in order))
            self._see("clock", (clock for _, clock in order))
            if order not in self._orders and len(self._orders) < 2:
                self._orders.add(order)
                self._decoder = None
            self._see("metrics", event.metrics)
            self._see("rare", [name for name in RARE if getattr(event, name) is not None])
            self._see("role", (event.role,))
            self._see("stage", (event.stage,))
        return event

    def _see(self, field: str, texts: Any) -> None:
        table = self._seen[field]
        for text in texts:
            if text not in table and len(table) <= MAX_NAMES:
                table[text] = None
                self._decoder = None

    def _made(self) -> msgspec.json.Decoder[Any]:
        seen = {name: tuple(texts) for name, texts in self._seen.items()}
        metrics = msgspec.defstruct(
            "Metrics",
            [
                (f"m{place}", _Value, msgspec.field(default=None, name=name))
                for place, name in enumerate(seen["metrics"])
            ],
            namespace={"NAMES": seen["metrics"]},
            gc=False,
            forbid_unknown_fields=True,
        )
        row = msgspec.defstruct(
            "Row",
            [
                ("producer", _one_of(seen["producer"])),
                self._phases(seen["phases"], seen["clock"]),
                ("metrics", metrics, None),
                ("role", _one_of(seen["role"]), *_default(seen["role"])),
                ("stage", _one_of(seen["stage"]), *_default(seen["stage"])),
                *[(name, None, None) for name in RARE if name not in seen["rare"]],
            ],
            bases=(Row,),
            namespace={
                "ALIKE": all(len(seen[name]) == 1 for name in ("producer", "role", "stage")),
                "RARE": bool(seen["rare"]),
            },
            gc=False,
            kw_only=True,
        )
        return msgspec.json.Decoder(row)

    def _phases(self, names: tuple[str, ...], clocks: tuple[str, ...]) -> tuple[Any, ...]:
        """The field of a row's phases."""
        if not names:
            return "phases", _Nothing, ()
        if len(self._orders) > 1:
            return "phases", tuple[_phase(names, clocks), ...], ()  # type: ignore[misc]
        (order,) = self._orders
        fields = [(f"p{place}", _phase((name,), (clock,))) for place, (name, clock) in enumerate(order)]
        return "phases", msgspec.defstruct(
            "Phases", fields, bases=(_Phases,), gc=False, array_like=True, forbid_unknown_fields=True
        )


def _phase(names: tuple[str, ...], clocks: tuple[str, ...]) -> Any:
    fields = [("name", _one_of(names)), ("seconds", _Seconds), ("clock", _one_of(clocks))]
    return msgspec.defstruct("Phase", fields, bases=(_Phase,), gc=False, array_like=True, forbid_unknown_fields=True)


def _one_of(texts: tuple[Any, ...]) -> Any:
    return Literal[texts] if texts else None


def _default(texts: tuple[Any, ...]) -> tuple[None, ...]:
    """A text that every step has told so far must be told."""
    return () if len(texts) == 1 and texts[0] is not None else (None,)


def slab_of(rows: Sequence[Row]) -> Slab:
    """Rows of one producer, role and stage as a slab."""
    tokens, samples = [row.tokens for row in rows], [row.samples for row in rows]
    return Slab(
        rows,
        columns.in_a_row([row.index for row in rows]),
        [row.t for row in rows],
        [row.start for row in rows],
        [row.duration for row in rows],
        _patterns([row.phases for row in rows]),
        tokens if tokens.count(None) < len(rows) else None,
        samples if samples.count(None) < len(rows) else None,
        _metrics([row.metrics for row in rows]),
        _tells_rare(rows),
        Row.step,
    )


def _tells_rare(rows: Sequence[Row]) -> bool:
    return rows[0].RARE and any(getattr(row, name) is not None for row in rows for name in RARE)


def _metrics(told: list[Any]) -> dict[str, Sequence[Any]]:
    """Metrics as columns, without those that no step tells."""
    some = next((each for each in told if each is not None), None)
    if some is None:
        return {}
    if None in told:
        empty = type(some)()
        told = [empty if each is None else each for each in told]
    columns = [list(map(attrgetter(field), told)) for field in some.__struct_fields__]
    return {name: each for name, each in zip(some.NAMES, columns, strict=True) if each.count(None) < len(each)}


def _patterns(steps: list[Any]) -> list[Pattern]:
    """The phases of steps as columns. Usually all went through the same ones."""
    if isinstance(steps[0], _Phases):
        first = tuple(steps[0])
        told = zip(*map(msgspec.structs.astuple, steps), strict=True)
        alike: list[Sequence[float]] = [[each.seconds for each in column] for column in told]
        return [Pattern(tuple([each.name for each in first]), tuple([each.clock for each in first]), alike)]
    flat = list(chain.from_iterable(steps))
    names, clocks = [each.name for each in flat], [each.clock for each in flat]
    wide = len(steps[0])
    if len(flat) == wide * len(steps) and _repeats(names, wide) and _repeats(clocks, wide):
        seconds = [each.seconds for each in flat]
        columns: list[Sequence[float]] = [seconds[place::wide] for place in range(wide)]
        return [Pattern(tuple(names[:wide]), tuple(clocks[:wide]), columns)]
    groups: dict[Any, list[int]] = {}
    for at, phases in enumerate(steps):
        groups.setdefault(tuple([(each.name, each.clock) for each in phases]), []).append(at)
    out = []
    for kind, places in groups.items():
        columns = [[steps[at][place].seconds for at in places] for place in range(len(kind))]
        out.append(Pattern(tuple([name for name, _ in kind]), tuple([clock for _, clock in kind]), columns, places))
    return out


def _repeats(texts: list[str], wide: int) -> bool:
    return texts == texts[:wide] * (len(texts) // wide) if wide else not texts


# What may be told between two steps, and changes nothing of what steps change: it may as well come after them.
BESIDE = ("pulse", "frames")


def slabs(events: Sequence[Any]) -> list[Event | Slab]:
    """Events in order, with rows of plain steps put together; what does not touch steps comes after these."""
    return _one_slab(events) or _several_slabs(events)


def _one_slab(events: Sequence[Any]) -> list[Event | Slab] | None:
    """The same where its steps make one slab by the look of their type alone, as they nearly always do."""
    kinds = set(map(type, events))
    found = next((kind for kind in kinds if issubclass(kind, Row)), Row)
    if not found.ALIKE:
        return None
    rows = events if len(kinds) == 1 else [each for each in events if type(each) is found]
    others = [] if len(kinds) == 1 else [each for each in events if type(each) is not found]
    if any(isinstance(each, Row) or each.kind not in BESIDE or each.producer != rows[0].producer for each in others):
        return None
    slab = slab_of(rows)
    slab.again = getattr(events, "again", None)
    before = len(list(takewhile(lambda each: type(each) is not found, events)))
    return [*others[:before], slab, *others[before:]]


def _several_slabs(events: Sequence[Any]) -> list[Event | Slab]:
    again = getattr(events, "again", None)
    plain = sum(isinstance(each, Row) for each in events) if again is not None else 0
    out: list[Event | Slab] = []
    rows: list[Row] = []
    beside: list[Event] = []
    kind: Any = None

    def put() -> None:
        if rows:
            slab = slab_of(rows)
            if len(slab) == plain:
                slab.again = again
            out.append(slab)
        out.extend(beside)

    for event in events:
        if isinstance(event, Row):
            like = (type(event), event.producer, event.role, event.stage)
            if like != kind and (rows or beside):
                put()
                rows, beside = [], []
            kind = like
            rows.append(event)
        elif event.kind in BESIDE and rows and event.producer == rows[0].producer:
            beside.append(event)
        else:
            put()
            rows, beside, kind = [], [], None
            out.append(event)
    put()
    return out
