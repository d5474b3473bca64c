"""Decode and validate lines of journals and frames. All foreign text enters here.

Names and texts of decoded events are printable, numbers finite or marked as not finite, sizes within their limits.
"""

from __future__ import annotations

import dataclasses
import math
import re
from functools import cache
from typing import Any, get_type_hints

import msgspec

from trainhooks.protocol import events, limits
from trainhooks.protocol.events import Event
from trainhooks.protocol.limits import MAX_INTEGER, MAX_LINE, MAX_NAME, MAX_TEXT, Number, clean, number
from trainhooks.protocol.places import FROM, Line, Place

_KIND = re.compile(rb'^\s*\{\s*"kind"\s*:\s*"([a-z_]{1,32})"')
_DECODERS: dict[bytes, msgspec.json.Decoder[Any]] = {
    kind.encode(): msgspec.json.Decoder(cls) for kind, cls in events.KINDS.items()
}


class _KindOnly(msgspec.Struct):
    kind: str


_kind_only = msgspec.json.Decoder(_KindOnly)

UNKNOWN_KIND = object()
"""What `decode` returns for a well-formed line of an unknown kind, to be ignored."""


class Unknown(Event):
    """A numbered line of an unknown kind: it takes a number of its producer's sequence, so it leaves no gap."""


_bare = msgspec.json.Decoder(Event)


def decode_numbered(line: bytes) -> Event | object | None:
    """Decode as `decode` does, with an Unknown for a numbered line of an unknown kind, and UNKNOWN for a blank line."""
    event = decode(line)
    if event is None and not line.strip():
        return UNKNOWN_KIND
    if event is not UNKNOWN_KIND:
        return event
    try:
        bare = _bare.decode(line)
    except (ValueError, RecursionError, OverflowError):
        return UNKNOWN_KIND
    return Unknown(bare.producer, bare.seq, bare.t) if _is_valid(bare) else UNKNOWN_KIND


def decode(line: bytes) -> Event | object | None:
    """Return a line as an event; UNKNOWN for an unknown kind; None for an unreadable line."""
    if len(line) > MAX_LINE:
        return None
    event = _decode_line(line)
    if event is None and (other := fix_literals(line)) != line:
        event = _decode_line(other)
    return event


def _decode_line(line: bytes) -> Event | object | None:
    try:
        match = _KIND.match(line)
        decoder = _DECODERS.get(match.group(1) if match else _kind_only.decode(line).kind.encode())
        if decoder is None:
            _kind_only.decode(line)
            return UNKNOWN_KIND
        event: Event = _decode_as(line, decoder)
    # A ValueError covers msgspec's own errors and bad UTF-8; deep nesting ends in a RecursionError.
    except (ValueError, TypeError, RecursionError, OverflowError):
        return None
    return event if _is_valid(event) else None


def _decode_as(line: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        return decode_leniently(line, decoder.type)


def _is_valid(event: Event) -> bool:
    """Clean the event's texts in place. Return False where its numbers are invalid."""
    event.producer = clean_name(event.producer)
    if not (0 <= event.seq <= MAX_INTEGER and _is_time(event.t)):
        return False
    if type(event) not in (events.Step, Event) and not _check_integers(event):
        return False
    tidy = _TIDY.get(type(event))
    return tidy is None or tidy(event)


# The integer fields of each kind, and whether they are optional.
_WHOLE: dict[type, list[tuple[str, bool]]] = {
    cls: [(f.name, f.type != "int") for f in dataclasses.fields(cls) if f.type in ("int", "Optional[int]")]
    for cls in events.KINDS.values()
}


def _check_integers(event: Event) -> bool:
    """Return whether the integers are within their limits. An optional one that is not becomes None."""
    for name, optional in _WHOLE[type(event)]:
        value = getattr(event, name)
        if value is not None and not (-MAX_INTEGER if name == "exit_code" else 0) <= value <= MAX_INTEGER:
            if not optional:
                return False
            setattr(event, name, None)
    return True


def _is_time(value: float) -> bool:
    return -1e12 < value < 1e12  # false for nan, too


_clean_names: set[str] = set()  # names known to be clean: the same few occur in every step


def clean_name(text: str) -> str:
    """Return a name as it may be kept and shown."""
    if text in _clean_names:
        return text
    known = clean(text, MAX_NAME)
    if known == text and len(_clean_names) < 10_000:
        _clean_names.add(text)
    return known


def _clean_optional(text: str | None) -> str | None:
    return None if text is None else clean_name(text)


def _clean_phases(rows: list[events.Phase]) -> list[events.Phase]:
    """Return phases with clean names, without those whose time or count is none: the step is known all the same."""
    tidy = True
    for name, seconds, clock, times in rows:
        if not (0 <= seconds < 1e12 and 0 <= times <= MAX_INTEGER):
            return _clean_phases([row for row in rows if 0 <= row[1] < 1e12 and 0 <= row[3] <= MAX_INTEGER])
        if name not in _clean_names or clock != "host":
            tidy = False
    if tidy:
        return rows
    return [(clean_name(name), seconds, "cuda" if clock == "cuda" else "host", n) for name, seconds, clock, n in rows]


def _tidy_step(step: events.Step) -> bool:
    phases = _clean_phases(step.phases)
    background = _clean_phases(step.background) if step.background else step.background
    if not (_is_time(step.start) and 0 <= step.duration < 1e12 and 0 <= step.index <= MAX_INTEGER):
        return False
    step.odd_parts = len(step.phases) - len(phases) + len(step.background) - len(background) or None
    step.phases = phases
    step.background = background
    step.tokens = _clean_count(step.tokens)
    step.padded_tokens = _clean_count(step.padded_tokens)
    step.samples = _clean_count(step.samples)
    step.forwards = _clean_count(step.forwards)
    step.metrics = _clean_numbers(step.metrics)
    if step.status != "ok":
        step.status = "skipped"
    if step.reason is not None:
        step.reason = clean(step.reason)
    step.role = _clean_optional(step.role)
    step.stage = _clean_optional(step.stage)
    step.thread = _clean_optional(step.thread)
    step.epoch = None if step.epoch is None else _clean_number(step.epoch)
    return True


def _tidy_steps(steps: events.Steps) -> bool:
    count = len(steps)
    if not count or len(steps.duration) != count or steps.index < 0 or steps.index + count > MAX_INTEGER:
        return False
    if not (_is_time(min(steps.start)) and _is_time(max(steps.start))):
        return False
    if not (min(steps.duration) > 0.0 and max(steps.duration) < 1e12):
        return False
    # What does not fit is left out: the steps are known all the same.
    steps.phases = [
        (clean_name(name), seconds, "cuda" if clock == "cuda" else "host", entered)
        for name, seconds, clock, entered in steps.phases
        if len(seconds) == count and min(seconds) >= 0.0 and max(seconds) < 1e12 and 0 <= entered <= MAX_INTEGER
    ]
    for name in events.AMOUNTS:
        setattr(steps, name, _clean_counts(getattr(steps, name), count))
    steps.metrics = {
        clean_name(name): column if _PLAIN_TYPES.issuperset(map(type, column)) else list(map(_finite, column))
        for name, column in steps.metrics.items()
        if len(column) == count
    }
    steps.role = _clean_optional(steps.role)
    steps.stage = _clean_optional(steps.stage)
    steps.epoch = None if steps.epoch is None else _finite(_clean_number(steps.epoch))
    return True


_PLAIN_TYPES = frozenset((float, type(None)))


def _clean_counts(column: events.StepColumn, count: int) -> events.StepColumn:
    if not isinstance(column, list):
        return _clean_count(column)
    return list(map(_clean_count, column)) if len(column) == count else None


def _finite(value: Number | None) -> float | None:
    number_ = None if value is None else number(value)
    return None if isinstance(number_, str) else number_


def _clean_numbers(values: dict[str, Number]) -> dict[str, Number]:
    for value in values.values():
        if type(value) is not float and (type(value) is not int or not -MAX_INTEGER <= value <= MAX_INTEGER):
            break
    else:
        if _clean_names.issuperset(values):
            return values
    tidy = ((name, _clean_number(value)) for name, value in values.items())
    return {clean_name(name): value for name, value in tidy if value is not None}


def _clean_number(value: Number) -> Number | None:
    if isinstance(value, str):
        return value if value in ("nan", "inf", "-inf") else None
    return number(value)


def _clean_count(value: int | None) -> int | None:
    return value if value is not None and 0 <= value <= MAX_INTEGER else None


MAX_CODE_LINE = 10**9  # no file has as many lines


def _clean_place(place: Place) -> Place:
    library = None if place.library is None else _clean_line(place.library)
    return Place(*_clean_line(place.users), clean_name(place.activity), library).fitted()


def _clean_line(line: Line) -> Line:
    number = line.line if 0 < line.line < MAX_CODE_LINE else 0
    return Line(clean_name(line.file), number, clean_name(line.function), clean_name(line.call))


def _tidy_gpu_time(gpu_time: events.GpuTime) -> bool:
    timed = (*gpu_time.phases, *gpu_time.busy_phases)
    if not 0 <= gpu_time.seconds < 1e12 or any(not 0 <= seconds < 1e12 for _, seconds in timed):
        return False
    gpu_time.phases = [(clean_name(name), seconds) for name, seconds in gpu_time.phases]
    gpu_time.busy_phases = [(clean_name(name), seconds) for name, seconds in gpu_time.busy_phases]
    gpu_time.busy, gpu_time.lag, gpu_time.stretch = _age(gpu_time.busy), _age(gpu_time.lag), _age(gpu_time.stretch)
    gpu_time.delayed = _age(gpu_time.delayed)
    gpu_time.gc = _age(gpu_time.gc)
    if gpu_time.gc_phases is not None:
        gpu_time.gc_phases = [
            (clean_name(name), seconds) for name, seconds in gpu_time.gc_phases if 0 <= seconds < 1e12
        ]
    gpu_time.every = gpu_time.every if 1 <= gpu_time.every <= MAX_INTEGER else 1
    gpu_time.since = _clean_count(gpu_time.since)
    return True


MAX_TRACE_ROWS = 300  # of a table; the hooks send 200 and one a phase


def _tidy_trace(trace: events.Trace) -> bool:
    trace.parts = [
        (clean_name(name), times, seconds)
        for name, times, seconds in trace.parts[:MAX_TRACE_ROWS]
        if 0 <= times <= MAX_INTEGER and 0 < seconds < 1e12
    ]
    least = 0 if trace.parts else 1  # steps
    if not (0 <= trace.seconds < 1e12 and least <= trace.steps <= MAX_INTEGER and 0 <= trace.pause < 1e12):
        return False
    trace.device = "cuda" if trace.device == "cuda" else "cpu"
    trace.rows, trace.calls, trace.idle = map(_trace_rows, (trace.rows, trace.calls, trace.idle))
    trace.bytes = [
        (clean_name(name), clean_name(phase), size)
        for name, phase, size in trace.bytes[:MAX_TRACE_ROWS]
        if 0 <= size <= MAX_INTEGER
    ]
    trace.shapes = [(clean_name(name), clean_name(shapes)) for name, shapes in trace.shapes[:MAX_TRACE_ROWS]]
    trace.busy, trace.kernel_seconds, trace.exposed = map(_age, (trace.busy, trace.kernel_seconds, trace.exposed))
    trace.left_out = None if trace.left_out is None else clean(trace.left_out)
    return True


def _trace_rows(rows: list[events.TraceRow]) -> list[events.TraceRow]:
    return [
        (clean_name(name), clean_name(phase), count, seconds)
        for name, phase, count, seconds in rows[:MAX_TRACE_ROWS]
        if 0 < count <= MAX_INTEGER and 0 <= seconds < 1e12
    ]


def _tidy_span(span: events.Span) -> bool:
    span.name = clean_name(span.name)
    span.thread = _clean_optional(span.thread)
    span.detail = _clean_optional(span.detail)
    if span.own is not None and not 0 <= span.own < 1e12:
        return False
    return _is_time(span.start) and 0 <= span.duration < 1e12


def _tidy_hello(hello: events.Hello) -> bool:
    hello.source = clean_name(hello.source)
    hello.name = _clean_optional(hello.name)
    hello.host = _clean_optional(hello.host)
    hello.role = _clean_optional(hello.role)
    hello.facts = tidy_facts(hello.facts)
    if hello.process_started is not None and not _is_time(hello.process_started):
        hello.process_started = None
    return 0 <= hello.rank < 2**20 and _is_time(hello.wall)


def _tidy_facts(facts: events.Facts) -> bool:
    facts.name = _clean_optional(facts.name)
    facts.facts = tidy_facts(facts.facts)
    return all(step is None or 0 <= step <= MAX_INTEGER for step in (facts.total_steps, facts.start_step))


def _tidy_metrics(metrics: events.Metrics) -> bool:
    metrics.values = _clean_numbers(metrics.values)
    metrics.role = _clean_optional(metrics.role)
    return True


MAX_CALL_PHASES = 200  # in a window of steps
MAX_FRAMES_SECONDS = 86_400.0  # that stack samples of one line cover; writers report far more often


def _tidy_frames(frames: events.Frames) -> bool:
    kept = [row for row in frames.rows if 0 < row[2] < 1e9][:500]
    frames.rows = [(clean_name(where), _clean_place(place), samples) for where, place, samples in kept]
    if frames.begin is not None and not 0 <= frames.t - frames.begin <= MAX_FRAMES_SECONDS:
        frames.begin = None
    return True


def _tidy_collectives(told: events.Collectives) -> bool:
    told.kinds = [
        (clean_name(group), clean_name(call), clean_name(phase), size)
        for group, call, phase, size in told.kinds
        if 0 <= size <= MAX_INTEGER
    ]
    known = [row for row in told.calls[: limits.MAX_CALLS] if all(0 <= number <= MAX_INTEGER for number in row)]
    told.calls = [row for row in known if row[0] < len(told.kinds)]
    told.seconds = [
        (clean_name(phase), seconds) for phase, seconds in told.seconds[:MAX_CALL_PHASES] if _age(seconds) is not None
    ]
    return 0 <= told.steps <= MAX_INTEGER and 0 <= told.first <= MAX_INTEGER


def _tidy_pulse(pulse: events.Pulse) -> bool:
    pulse.phase = _clean_optional(pulse.phase)
    pulse.role = _clean_optional(pulse.role)
    pulse.stage = _clean_optional(pulse.stage)
    pulse.frame = None if pulse.frame is None else clean(pulse.frame, 512)
    pulse.activity = _clean_optional(pulse.activity)
    pulse.busy = _age(pulse.busy)
    if pulse.threads is not None:
        known = pulse.threads[: limits.MAX_OTHER_THREADS]
        pulse.threads = [(clean_name(name), clean(place, 512), clean_name(does)) for name, place, does in known]
    if pulse.collectives is not None:
        called = pulse.collectives[: limits.MAX_COLLECTIVES]
        pulse.collectives = [(clean_name(group), count, clean_name(call)) for group, count, call in called]
    pulse.step_open = _age(pulse.step_open)
    pulse.phase_open = _age(pulse.phase_open)
    pulse.spans = [(clean_name(name), seconds) for name, seconds in pulse.spans if _age(seconds) is not None]
    return True


def _age(value: float | None) -> float | None:
    return value if value is not None and 0 <= value < 1e12 else None


def _tidy_note(note: events.Note) -> bool:
    note.text = clean(note.text)
    note.level = "warning" if note.level == "warning" else "info"
    note.code = _clean_optional(note.code)
    return True


def _tidy_bye(bye: events.Bye) -> bool:
    bye.error = None if bye.error is None else clean(bye.error)
    bye.place = None if bye.place is None else clean(bye.place, limits.MAX_NAME)
    return True


def _tidy_exit(exit_: events.Exit) -> bool:
    exit_.error = None if exit_.error is None else clean(exit_.error)
    exit_.place = None if exit_.place is None else clean(exit_.place, limits.MAX_NAME)
    exit_.oom_kills = _clean_count(exit_.oom_kills)
    return True


MAX_UNKNOWN = 100  # a reading has fewer fields


def _tidy_gpu(gpu: events.Gpu) -> bool:
    gpu.uuid = clean_name(gpu.uuid)
    gpu.name = _clean_optional(gpu.name)
    gpu.mig_of = _clean_optional(gpu.mig_of)
    gpu.driver = _clean_optional(gpu.driver)
    gpu.bus_id = _clean_optional(gpu.bus_id)
    gpu.unknown = [clean_name(name) for name in gpu.unknown[:MAX_UNKNOWN]]
    if gpu.processes is not None:
        known = gpu.processes[: limits.MAX_GPU_PROCESSES]
        gpu.processes = [(pid, clean_name(name), _clean_count(used), ours) for pid, name, used, ours in known]
    if gpu.users is not None:
        gpu.users = [clean_name(name) for name in gpu.users[: limits.MAX_GPU_PROCESSES]]
    return True


def _tidy_host(host: events.Host) -> bool:
    host.note = None if host.note is None else clean(host.note)
    host.tree_busiest_name = _clean_optional(host.tree_busiest_name)
    host.others_busiest_name = _clean_optional(host.others_busiest_name)
    host.tree_ended_by = _clean_optional(host.tree_ended_by)
    return True


_TIDY: dict[type, Any] = {
    events.Hello: _tidy_hello,
    events.Facts: _tidy_facts,
    events.Step: _tidy_step,
    events.Steps: _tidy_steps,
    events.GpuTime: _tidy_gpu_time,
    events.Trace: _tidy_trace,
    events.Span: _tidy_span,
    events.Metrics: _tidy_metrics,
    events.Pulse: _tidy_pulse,
    events.Frames: _tidy_frames,
    events.Collectives: _tidy_collectives,
    events.Note: _tidy_note,
    events.Bye: _tidy_bye,
    events.Exit: _tidy_exit,
    events.Gpu: _tidy_gpu,
    events.Host: _tidy_host,
}


def tidy_facts(facts: dict[str, Any], depth: int = 4) -> dict[str, Any]:
    """Return facts with every key and text cleaned, nesting and length limited."""
    return {clean_name(key): _tidy_value(value, depth) for key, value in list(facts.items())[:500]}


def _tidy_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return clean(value, MAX_TEXT)
    if isinstance(value, dict):
        return tidy_facts(value, depth - 1) if depth > 0 else None
    if isinstance(value, list):
        return [_tidy_value(item, depth - 1) for item in value[:500]] if depth > 0 else None
    return number(value) if type(value) is int else value


# Lenient decoding, for writers with looser types: 512.0 tokens, a loss that is null, a phase without its clock.
#
# One bad value must not cost the whole step. An optional field of the wrong type becomes unknown; a required one makes
# the line unreadable.

_any = msgspec.json.Decoder()
_BARE = re.compile(
    rb"(?<=[:,\[])(\s*)(-?)(nan|inf(?:inity)?|[0-9]+(?:\.[0-9]+)?e\+?[0-9]{3,})(?=\s*[,}\]])", re.IGNORECASE
)
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE = re.compile(rb"%s%s|(%s|%s)|\\." % (_HIGH, _LOW, _HIGH, _LOW), re.DOTALL)


@cache
def _types(kind: type) -> dict[str, Any]:
    return {name: hint for name, hint in get_type_hints(kind).items() if name != "kind"}


def decode_leniently(line: bytes, kind: type) -> Event:
    """Return the event of a line that does not fit its type; raise a ValueError where that is impossible."""
    fields = _any.decode(line)
    if not isinstance(fields, dict):
        raise ValueError("no event")
    kept = {}
    for name, hint in _types(kind).items():
        value = _whole_number(fields.get(name))
        if value is None or (isinstance(value, bool) and bool not in (hint, *_union_members(hint))):
            continue
        if name == "metrics" and kind is events.Steps and isinstance(value, dict):
            columns = {metric: column for metric, column in value.items() if isinstance(column, list)}
            value = {metric: list(map(_number_or_none, column)) for metric, column in columns.items()}
        elif name in ("metrics", "values") and isinstance(value, dict):
            value = {metric: number for metric, number in value.items() if _is_number(number)}
        elif kind is events.Step and name in ("phases", "background") and isinstance(value, list):
            value = [_whole_phase(row) for row in value]
        elif kind is events.Frames and name == "rows" and isinstance(value, list):
            value = _with_places(value, fields.get("activities"))
        try:
            kept[name] = msgspec.convert(value, hint)
        except msgspec.ValidationError:
            if type(None) not in _union_members(hint):
                raise
    event: Event = kind(**kept)  # a TypeError where the producer, the number or the time is missing
    return event


_LINE_TEXT = re.compile(r"(.+?):([0-9]{1,9})(?: \(([\w.]+)\))?(?: in (.+))?")


def _with_places(rows: list[Any], activities: Any) -> list[Any]:
    """Return rows with places where they have texts, as in a journal of 0.2.0: activities are in a list beside them."""
    known = activities if isinstance(activities, list) and len(activities) == len(rows) else [""] * len(rows)
    return [
        [row[0], place_of(row[1], activity), *row[2:]]
        if isinstance(row, list) and len(row) > 2 and isinstance(row[1], str)
        else row
        for row, activity in zip(rows, known, strict=True)
    ]


def place_of(text: str, activity: str) -> Place:
    """Return the place of a text: `transformers/trainer.py:9 (loss.item) in train, from train.py:83 in main`."""
    library, _, users = clean(text, MAX_NAME).rpartition(FROM)
    return Place(*_line_of(users), activity, _line_of(library) if library else None)


def _line_of(text: str) -> Line:
    match = _LINE_TEXT.fullmatch(text)
    line = Line(text, 0) if match is None else Line(match[1], int(match[2]), match[4] or "", match[3] or "")
    return line if str(line) == text else Line(text, 0)  # a text that was cut ends anywhere


def _union_members(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__args__", ())


def fix_literals(line: bytes) -> bytes:
    """Return the line with non-finite numbers in quotes: printf writes `nan`, Python `NaN`, JSON has neither. A number
    too large for a float becomes infinite. Half of a surrogate pair, as at the end of a cut text, is replaced.
    """
    return _ESCAPE.sub(lambda match: rb"\ufffd" if match[1] else match[0], _BARE.sub(_quoted, line))


def _quoted(match: re.Match[bytes]) -> bytes:
    space, sign, word = match.groups()
    if math.isfinite(float(word)):
        return match[0]
    return space + (b'"nan"' if word.lower() == b"nan" else b'"' + sign + b'inf"')


def _whole_number(value: Any) -> Any:
    """Return a whole number written as 512.0 as an integer, which float fields accept, too; else the value."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INTEGER else value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | str) and not isinstance(value, bool)


def _number_or_none(value: Any) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _whole_phase(row: Any) -> Any:
    """Return a phase row with its defaults filled in: clock `host`, entered once. The count may be written as 1.0."""
    if not isinstance(row, list) or not 2 <= len(row) <= 4:
        return row
    return [*row[:3], *([] if len(row) > 2 else ["host"]), _whole_number(row[3]) if len(row) > 3 else 1]
