"""Decode many steps at once, with a decoder made for the fields of a program's own steps.

A program's steps look alike: the same phases, metrics, role. What has passed the gate of `decode` once is written into
a type, and msgspec then reads and checks whole batches of lines against it. A line that does not fit goes through the
gate by itself, and widens the type if it is a plain step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta

from monitor.sources.journal_reader import lines_of
from trainhooks.protocol.events import Step
from trainhooks.protocol.limits import MAX_INTEGER, MAX_LINE

WINDOW = MAX_LINE // 2  # a line that is too long contains at least one such window whole
FEW = 8  # lines up to which reading one by one is as fast
MAX_NAMES = 256  # of phases, metrics, roles...; with more, lines are read one by one

RARE = ("padded_tokens", "lengths", "forwards", "uncounted")  # fields that few programs report
STEP = b'{"kind":"step",'  # the start of a step's line from the hooks

_Time = Annotated[float, Meta(gt=-1e12, lt=1e12)]
_Seconds = Annotated[float, Meta(ge=0, lt=1e12)]
_Longer = Annotated[float, Meta(gt=0, lt=1e12)]
_Count = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
_Value = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)] | float
_Nothing = tuple[()]


class Row(msgspec.Struct, gc=False):
    """A plain step: done, timed, of the main loop, every number finite. A step's attributes, of leaner types."""

    ALIKE: ClassVar[bool] = False  # whether all of this type are of one producer, role and stage
    RARE: ClassVar[bool] = True  # whether some may have lengths, padding or forward counts

    kind: Literal["step"]
    producer: str
    seq: _Count
    t: _Time
    duration: _Longer  # a line without it is not a plain step
    index: _Count = 0
    start: _Time = 0.0
    phases: Any = ()
    tokens: _Count | None = None
    padded_tokens: _Count | None = None
    samples: _Count | None = None
    forwards: int | None = None
    uncounted: bool | None = None
    odd_parts: None = None
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
        """Return the same step as an event."""
        metrics = self.metrics
        values = [] if metrics is None else zip(metrics.NAMES, msgspec.structs.astuple(metrics), strict=True)
        return Step(
            producer=self.producer,
            seq=self.seq,
            t=self.t,
            index=self.index,
            start=self.start,
            duration=self.duration,
            phases=[msgspec.structs.astuple(phase) for phase in self.phases],
            tokens=self.tokens,
            padded_tokens=self.padded_tokens,
            samples=self.samples,
            forwards=self.forwards,
            uncounted=self.uncounted,
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
        """Return the phase as the tuple of a step event."""
        return iter(msgspec.structs.astuple(self))


class Phases(msgspec.Struct, gc=False, array_like=True, forbid_unknown_fields=True):
    """The phases of steps that all go through the same ones: names and clocks are checked while a line is read."""

    def __iter__(self) -> Iterator[Any]:
        return iter(msgspec.structs.astuple(self))


class Decoded(list[Any]):
    """Events of a batch of lines, its plain steps decoded at once; `again` makes these once more."""

    def __init__(self, events: Iterable[Any], again: Callable[[], list[Row]]) -> None:
        super().__init__(events)
        self.again = again


def _short_lines(block: bytes) -> bool:
    """Return whether no line is too long."""
    return all(block.find(b"\n", at, at + WINDOW) >= 0 for at in range(0, len(block) - WINDOW, WINDOW))


class StepSchema:
    """The fields of a journal's plain steps so far, and the decoder made for them."""

    def __init__(self) -> None:
        # Field -> the texts that were accepted.
        self._seen: dict[str, dict[Any, None]] = {
            name: {} for name in ("producer", "phases", "clock", "metrics", "role", "stage", "rare")
        }
        self._orders: set[tuple[tuple[str, str], ...]] = set()  # names and clocks of a step's phases; two say "several"
        self._decoder: msgspec.json.Decoder[Any] | None = None
        self._steps_only = False  # the previous block held only plain steps, so the next one may, too

    def read(self, block: bytes, decode: Callable[[bytes], Any]) -> list[Any]:
        """Return the events of a block of whole lines; fast where all are plain steps."""
        if self._steps_only and block.endswith(b"\n") and _short_lines(block):
            rows = self._decoded(block, block.count(b"\n"))
            if rows is not None:
                return rows
        events = self.events(lines_of(block), decode)
        self._steps_only = isinstance(events, Decoded) and all(isinstance(event, Row) for event in events)
        return events

    def events(self, lines: list[bytes], decode: Callable[[bytes], Any]) -> list[Any]:
        """Return every line's event: a Row for a plain step, else the result of `decode`."""
        steps = [line for line in lines if line.startswith(STEP)]
        if len(steps) <= FEW or max(map(len, steps)) > MAX_LINE:
            return [self._learned(decode(line)) for line in lines]
        rows = self.rows(steps, decode)
        if len(steps) == len(lines):
            return rows
        decoded = iter(rows)
        events = (next(decoded) if line.startswith(STEP) else decode(line) for line in lines)
        return Decoded(events, rows.again) if isinstance(rows, Decoded) else list(events)

    def rows(self, lines: Sequence[bytes], decode: Callable[[bytes], Any]) -> list[Any]:
        """Return the events of lines that begin as a step."""
        if len(lines) <= FEW:
            return [self._learned(decode(line)) for line in lines]
        rows = self._at_once(lines)
        if rows is not None:
            return rows
        half = len(lines) // 2
        return self.rows(lines[:half], decode) + self.rows(lines[half:], decode)

    def _at_once(self, lines: Sequence[bytes]) -> Decoded | None:
        return None if self.decoder() is None else self._decoded(b"\n".join(lines), len(lines))

    def decoder(self) -> msgspec.json.Decoder[Any] | None:
        """Return a decoder for the plain steps seen so far; None without any, or with too many kinds."""
        if self._decoder is None:
            if not self._seen["producer"] or any(len(texts) > MAX_NAMES for texts in self._seen.values()):
                return None
            self._decoder = self._made()
        return self._decoder

    def _decoded(self, block: bytes, count: int) -> Decoded | None:
        if self._decoder is None:
            return None
        again = partial(self._decoder.decode_lines, block)
        try:
            rows: list[Row] = again()
        except (ValueError, RecursionError, OverflowError):
            return None
        return Decoded(rows, again) if len(rows) == count else None

    def _learned(self, event: Any) -> Any:
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
        """Return the field of a row's phases."""
        if not names:
            return "phases", _Nothing, ()
        if len(self._orders) > 1:
            return "phases", tuple[_phase(names, clocks), ...], ()  # type: ignore[misc]
        (order,) = self._orders
        fields = [(f"p{place}", _phase((name,), (clock,))) for place, (name, clock) in enumerate(order)]
        return "phases", msgspec.defstruct(
            "Phases", fields, bases=(Phases,), gc=False, array_like=True, forbid_unknown_fields=True
        )


def _phase(names: tuple[str, ...], clocks: tuple[str, ...]) -> Any:
    fields = [("name", _one_of(names)), ("seconds", _Seconds), ("clock", _one_of(clocks))]
    return msgspec.defstruct("Phase", fields, bases=(_Phase,), gc=False, array_like=True, forbid_unknown_fields=True)


def _one_of(texts: tuple[Any, ...]) -> Any:
    return Literal[texts] if texts else None


def _default(texts: tuple[Any, ...]) -> tuple[None, ...]:
    """Return the default of a text field; a field that every step has had so far is required."""
    return () if len(texts) == 1 and texts[0] is not None else (None,)
