"""Steps decoded many at once: a decoder made to the measure of a program's own steps.

A program's steps look alike: the same phases, metrics, role. What has passed the gate of `decode` once is written into
a type, and msgspec then reads and checks whole batches of lines against it. A line that does not fit goes through the
gate by itself, and widens the type if it is a plain step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from monitor.slab import Pattern, Slab
from monitor.sources.journal import lines_of
from trainhooks.events import MAX_INTEGER, MAX_LINE, Event, Step

WINDOW = MAX_LINE // 2  # a line that is too long contains at least one such window whole
FEW = 8  # lines that are as quickly read one by one
MAX_NAMES = 256  # of phases, metrics, roles...; with more each line is read by itself

_STEP = b'{"kind":"step",'  # how the hooks begin a step's line

_Time = Annotated[float, Meta(gt=-1e12, lt=1e12)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e12)]
_Longer = Annotated[float, Meta(gt=0, lt=1e12)]
_Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
_Value = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)] | float
_Nothing = tuple[()]


class Row(msgspec.Struct, gc=False):
    """A plain step: done, timed, of the main loop, every number finite. A step's attributes, of leaner types."""

    producer: str
    seq: _Count
    t: _Time
    duration: _Longer  # a line without it is no plain step
    index: _Count = 0
    start: _Time = 0.0
    phases: tuple[Any, ...] = ()
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


class Decoded(list[Any]):
    """Events of a batch of lines, its plain steps decoded at once; `again` makes these once more."""

    def __init__(self, events: Iterable[Any], again: Callable[[], list[Row]]) -> None:
        super().__init__(events)
        self.again = again


def _all_steps(block: bytes) -> bool:
    """Whether every line begins as a step does, and none is too long."""
    if not block.startswith(_STEP) or block.count(b"\n" + _STEP) != block.count(b"\n") - 1:
        return False
    return all(block.find(b"\n", at, at + WINDOW) >= 0 for at in range(0, len(block) - WINDOW, WINDOW))


class Shape:
    """What the plain steps of a journal have shown so far, and the decoder for steps like these."""

    def __init__(self) -> None:
        # By the field: the texts that have passed the gate.
        self._seen: dict[str, dict[Any, None]] = {
            name: {} for name in ("producer", "phases", "clock", "metrics", "role", "stage")
        }
        self._decoder: msgspec.json.Decoder[Any] | None = None

    def read(self, block: bytes, decode: Callable[[bytes], Any]) -> list[Any]:
        """The events of whole lines in one piece; the quick way where all are plain steps."""
        if self._decoder is not None and block.endswith(b"\n") and _all_steps(block):
            rows = self._decoded(block, block.count(b"\n"))
            if rows is not None:
                return rows
        return self.events(lines_of(block), decode)

    def events(self, lines: list[bytes], decode: Callable[[bytes], Any]) -> list[Any]:
        """Each line's event: a Row where it is a plain step, else what `decode` makes of it."""
        steps = [line for line in lines if line.startswith(_STEP)]
        if len(steps) <= FEW or max(map(len, steps)) > MAX_LINE:
            return [self._learnt(decode(line)) for line in lines]
        rows = self.rows(steps, decode)
        if len(steps) == len(lines):
            return rows
        found = iter(rows)
        events = (next(found) if line.startswith(_STEP) else decode(line) for line in lines)
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
        if self._decoder is None:
            if not self._seen["producer"] or any(len(each) > MAX_NAMES for each in self._seen.values()):
                return None
            self._decoder = self._made()
        return self._decoded(b"\n".join(lines), len(lines))

    def _decoded(self, block: bytes, count: int) -> Decoded | None:
        assert self._decoder is not None
        again = partial(self._decoder.decode_lines, block)
        try:
            found: list[Row] = again()
        except (ValueError, RecursionError, OverflowError):
            return None
        return Decoded(found, again) if len(found) == count else None

    def _learnt(self, event: Any) -> Any:
        if type(event) is Step and event.status == "ok" and event.thread is None and event.duration > 0:
            self._see("producer", (event.producer,))
            self._see("phases", (row[0] for row in event.phases))
            self._see("clock", (row[2] for row in event.phases))
            self._see("metrics", event.metrics)
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
        phase = msgspec.defstruct(
            "Phase",
            [("name", _one_of(seen["phases"])), ("seconds", _Seconds), ("clock", _one_of(seen["clock"]))],
            bases=(_Phase,),
            gc=False,
            array_like=True,
            forbid_unknown_fields=True,
        )
        metrics = msgspec.defstruct(
            "Metrics",
            [
                (f"m{place}", _Value | None, msgspec.field(default=None, name=name))
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
                ("phases", tuple[phase, ...] if seen["phases"] else _Nothing, ()),  # type: ignore[valid-type]
                ("metrics", metrics, None),
                ("role", _one_of(seen["role"]), None),
                ("stage", _one_of(seen["stage"]), None),
            ],
            bases=(Row,),
            gc=False,
        )
        return msgspec.json.Decoder(row)


def _one_of(texts: tuple[Any, ...]) -> Any:
    return Literal[texts] if texts else None


def slab_of(rows: Sequence[Row]) -> Slab:
    """Rows of one producer, role and stage as a slab."""
    tokens, samples = [row.tokens for row in rows], [row.samples for row in rows]
    return Slab(
        rows,
        _in_a_row([row.index for row in rows]),
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


def _in_a_row(numbers: list[int]) -> Sequence[int]:
    following = range(numbers[0], numbers[0] + len(numbers))
    return following if numbers == list(following) else numbers


def _tells_rare(rows: Sequence[Row]) -> bool:
    told = (row.padded_tokens is not None or row.lengths is not None or row.forwards is not None for row in rows)
    return any(told)


def _metrics(told: list[Any]) -> dict[str, Sequence[Any]]:
    """Metrics as columns, without those that no step tells."""
    some = next((each for each in told if each is not None), None)
    if some is None:
        return {}
    if None in told:
        empty = type(some)()
        told = [empty if each is None else each for each in told]
    columns = zip(some.NAMES, zip(*map(msgspec.structs.astuple, told), strict=True), strict=True)
    return {name: list(values) for name, values in columns if values.count(None) < len(values)}


def _patterns(steps: list[tuple[Any, ...]]) -> list[Pattern]:
    """The phases of steps as columns. Usually all went through the same ones."""
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
