"""A line of a journal or a frame, made into an event; anything else into None. The gate for foreign text.

Every name and text that passes is printable, every number finite or said to be not, every size within its limit.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import msgspec

from monitor.sources.salvage import mended, salvaged
from trainhooks import events
from trainhooks.events import MAX_INTEGER, MAX_LINE, MAX_NAME, MAX_TEXT, Event, Number, clean, number

_KIND = re.compile(rb'^\s*\{\s*"kind"\s*:\s*"([a-z_]{1,32})"')
_DECODERS: dict[bytes, msgspec.json.Decoder[Any]] = {
    kind.encode(): msgspec.json.Decoder(cls) for kind, cls in events.KINDS.items()
}


plain_steps: Callable[[bytes], list[events.Step]] = _DECODERS[b"step"].decode_lines
"""Lines that are known to be sound steps, decoded and not looked at again."""


class _KindOnly(msgspec.Struct):
    kind: str


_kind_only = msgspec.json.Decoder(_KindOnly)

UNKNOWN = object()
"""What `decode` gives for a well-formed line of a kind that this version does not know: to be passed over."""


class Unknown(Event):
    """Of a line of a kind that this version does not know: its place in its producer's sequence, which is no gap."""


_bare = msgspec.json.Decoder(Event)


def numbered(line: bytes) -> Event | object | None:
    """As `decode`, with an Unknown for a kind to be passed over that tells its number; a blank line is passed over."""
    found = decode(line)
    if found is None and not line.strip():
        return UNKNOWN
    if found is not UNKNOWN:
        return found
    try:
        event = _bare.decode(line)
    except (ValueError, RecursionError, OverflowError):
        return UNKNOWN
    return Unknown(event.producer, event.seq, event.t) if _sane(event) else UNKNOWN


def decode(line: bytes) -> Event | object | None:
    """One line as an event; UNKNOWN for a kind to be passed over; None for a line that cannot be read."""
    if len(line) > MAX_LINE:
        return None
    event = _decoded(line)
    if event is None and (other := mended(line)) != line:
        event = _decoded(other)
    return event


def _decoded(line: bytes) -> Event | object | None:
    try:
        found = _KIND.match(line)
        decoder = _DECODERS.get(found.group(1) if found else _kind_only.decode(line).kind.encode())
        if decoder is None:
            _kind_only.decode(line)
            return UNKNOWN
        event: Event = _read(line, decoder)
    # A ValueError covers msgspec's own errors and bad UTF-8; deep nesting ends in a RecursionError.
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None
    return event if _sane(event) else None


def _read(line: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        return salvaged(line, decoder.type)


def _sane(event: Event) -> bool:
    """Clean the event's texts in place; False where its numbers cannot be true."""
    event.producer = _name(event.producer)
    if not (0 <= event.seq <= MAX_INTEGER and _time(event.t)):
        return False
    if type(event) not in (events.Step, Event) and not _sized(event):
        return False
    tidy = _TIDY.get(type(event))
    return tidy is None or tidy(event)


# The whole numbers of each kind, and whether each may be absent.
_WHOLE: dict[type, list[tuple[str, bool]]] = {
    cls: [(f.name, f.type != "int") for f in dataclasses.fields(cls) if f.type in ("int", "Optional[int]")]
    for cls in events.KINDS.values()
}


def _sized(event: Event) -> bool:
    """Whether the whole numbers lie within their limits; one that does not and may be absent is made so."""
    for name, optional in _WHOLE[type(event)]:
        value = getattr(event, name)
        if value is not None and not (-MAX_INTEGER if name == "exit_code" else 0) <= value <= MAX_INTEGER:
            if not optional:
                return False
            setattr(event, name, None)
    return True


def _time(value: float) -> bool:
    return -1e12 < value < 1e12  # false for nan, too


_clean_names: set[str] = set()  # names that were looked at and found to be clean: the same few come with every step


def _name(text: str) -> str:
    if text in _clean_names:
        return text
    known = clean(text, MAX_NAME)
    if known == text and len(_clean_names) < 10_000:
        _clean_names.add(text)
    return known


def _optional(text: str | None) -> str | None:
    return None if text is None else _name(text)


def _phases(rows: list[events.Phase]) -> list[events.Phase] | None:
    tidy = True
    for name, seconds, clock, times in rows:
        if not (0 <= seconds < 1e12 and 0 <= times <= MAX_INTEGER):
            return None
        if name not in _clean_names or clock != "host":
            tidy = False
    if tidy:
        return rows
    return [(_name(name), seconds, "cuda" if clock == "cuda" else "host", n) for name, seconds, clock, n in rows]


def _tidy_step(step: events.Step) -> bool:
    phases = _phases(step.phases)
    background = _phases(step.background) if step.background else step.background
    if phases is None or background is None or not (_time(step.start) and 0 <= step.duration < 1e12):
        return False
    if not 0 <= step.index <= MAX_INTEGER:
        return False
    step.phases = phases
    step.background = background
    step.tokens = _counted(step.tokens)
    step.padded_tokens = _counted(step.padded_tokens)
    step.samples = _counted(step.samples)
    step.forwards = _counted(step.forwards)
    step.metrics = _numbers(step.metrics)
    if step.status != "ok":
        step.status = "skipped"
    if step.reason is not None:
        step.reason = clean(step.reason)
    step.role = _optional(step.role)
    step.stage = _optional(step.stage)
    step.thread = _optional(step.thread)
    step.epoch = None if step.epoch is None else _number(step.epoch)
    return True


def _numbers(values: dict[str, Number]) -> dict[str, Number]:
    for value in values.values():
        if type(value) is not float and (type(value) is not int or not -MAX_INTEGER <= value <= MAX_INTEGER):
            break
    else:
        if _clean_names.issuperset(values):
            return values
    tidy = ((name, _number(value)) for name, value in values.items())
    return {_name(name): value for name, value in tidy if value is not None}


def _number(value: Number) -> Number | None:
    if isinstance(value, str):
        return value if value in ("nan", "inf", "-inf") else None
    return number(value)


def _counted(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= MAX_INTEGER else None


MAX_LOOKS = 64  # places of one step; the hooks look ten times a second


def _tidy_gpu_time(told: events.GpuTime) -> bool:
    timed = (*told.phases, *told.busy_phases, *told.unsure)
    if not 0 <= told.seconds < 1e12 or any(not 0 <= seconds < 1e12 for _, seconds in timed):
        return False
    told.phases = [(_name(name), seconds) for name, seconds in told.phases]
    told.busy_phases = [(_name(name), seconds) for name, seconds in told.busy_phases]
    told.unsure = [(_name(name), seconds) for name, seconds in told.unsure]
    told.busy, told.lag, told.stretch = _age(told.busy), _age(told.lag), _age(told.stretch)
    told.delayed = _age(told.delayed)
    told.gc = _age(told.gc)
    if told.gc_phases is not None:
        told.gc_phases = [(_name(name), seconds) for name, seconds in told.gc_phases if 0 <= seconds < 1e12]
    told.every = told.every if 1 <= told.every <= MAX_INTEGER else 1
    told.since = _counted(told.since)
    told.looks = [
        (_name(phase), _name(place), looks, min(idle, looks))
        for phase, place, looks, idle in told.looks[:MAX_LOOKS]
        if 0 < looks <= MAX_INTEGER and idle >= 0
    ]
    return True


def _tidy_span(span: events.Span) -> bool:
    span.name = _name(span.name)
    span.thread = _optional(span.thread)
    span.detail = _optional(span.detail)
    if span.own is not None and not 0 <= span.own < 1e12:
        return False
    return _time(span.start) and 0 <= span.duration < 1e12


def _tidy_hello(hello: events.Hello) -> bool:
    hello.source = _name(hello.source)
    hello.name = _optional(hello.name)
    hello.host = _optional(hello.host)
    hello.facts = tidy_facts(hello.facts)
    if hello.process_started is not None and not _time(hello.process_started):
        hello.process_started = None
    return 0 <= hello.rank < 2**20 and _time(hello.wall)


def _tidy_facts(facts: events.Facts) -> bool:
    facts.name = _optional(facts.name)
    facts.facts = tidy_facts(facts.facts)
    return all(each is None or 0 <= each <= MAX_INTEGER for each in (facts.total_steps, facts.start_step))


def _tidy_metrics(metrics: events.Metrics) -> bool:
    metrics.values = _numbers(metrics.values)
    metrics.role = _optional(metrics.role)
    return True


def _tidy_frames(frames: events.Frames) -> bool:
    frames.rows = [(_name(where), _name(place), looks) for where, place, looks in frames.rows[:500] if 0 < looks < 1e9]
    return True


def _tidy_pulse(pulse: events.Pulse) -> bool:
    pulse.phase = _optional(pulse.phase)
    pulse.role = _optional(pulse.role)
    pulse.stage = _optional(pulse.stage)
    pulse.frame = None if pulse.frame is None else clean(pulse.frame, 512)
    pulse.step_open = _age(pulse.step_open)
    pulse.phase_open = _age(pulse.phase_open)
    pulse.spans = [(_name(name), seconds) for name, seconds in pulse.spans if _age(seconds) is not None]
    return True


def _age(value: float | None) -> float | None:
    return value if value is not None and 0 <= value < 1e12 else None


def _tidy_note(note: events.Note) -> bool:
    note.text = clean(note.text)
    note.level = "warning" if note.level == "warning" else "info"
    note.code = _optional(note.code)
    return True


def _tidy_bye(bye: events.Bye) -> bool:
    bye.error = None if bye.error is None else clean(bye.error)
    return True


MAX_UNKNOWN = 100  # a reading has fewer fields


def _tidy_gpu(gpu: events.Gpu) -> bool:
    gpu.uuid = _name(gpu.uuid)
    gpu.name = _optional(gpu.name)
    gpu.mig_of = _optional(gpu.mig_of)
    gpu.driver = _optional(gpu.driver)
    gpu.bus_id = _optional(gpu.bus_id)
    gpu.unknown = [_name(name) for name in gpu.unknown[:MAX_UNKNOWN]]
    if gpu.processes is not None:
        known = gpu.processes[: events.MAX_GPU_PROCESSES]
        gpu.processes = [(pid, _name(name), _counted(used), ours) for pid, name, used, ours in known]
    return True


def _tidy_host(host: events.Host) -> bool:
    host.note = None if host.note is None else clean(host.note)
    host.tree_busiest_name = _optional(host.tree_busiest_name)
    return True


_TIDY: dict[type, Any] = {
    events.Hello: _tidy_hello,
    events.Facts: _tidy_facts,
    events.Step: _tidy_step,
    events.GpuTime: _tidy_gpu_time,
    events.Span: _tidy_span,
    events.Metrics: _tidy_metrics,
    events.Pulse: _tidy_pulse,
    events.Frames: _tidy_frames,
    events.Note: _tidy_note,
    events.Bye: _tidy_bye,
    events.Gpu: _tidy_gpu,
    events.Host: _tidy_host,
}


def tidy_facts(facts: dict[str, Any], depth: int = 4) -> dict[str, Any]:
    """Facts with every key and text cleaned, nesting and length limited."""
    return {_name(key): _tidy_value(value, depth) for key, value in list(facts.items())[:500]}


def _tidy_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if isinstance(value, dict):
        return tidy_facts(value, depth - 1) if depth > 0 else None
    if isinstance(value, list):
        return [_tidy_value(item, depth - 1) for item in value[:500]] if depth > 0 else None
    return number(value) if type(value) is int else value
