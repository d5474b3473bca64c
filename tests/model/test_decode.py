"""The gate for foreign text: never raises, and what passes is clean, finite and bounded."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.model.summary import make_report
from monitor.model.view import curve_arguments
from monitor.sources.decode import UNKNOWN_KIND, decode
from monitor.sources.step_lines import single_events, step_blocks
from trainhooks.protocol import events
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import KINDS, Event
from trainhooks.protocol.limits import MAX_INTEGER, MAX_LINE, MAX_TEXT, clean
from trainhooks.protocol.places import Line, Place

from .conftest import around

encode = encoder()

FULL: dict[str, dict[str, Any]] = {
    "hello": {"wall": 1e9, "name": "n", "rank": 1, "world_size": 2, "facts": {"a": {"b": [1, None, True, "x"]}}},
    "facts": {"name": "n", "total_steps": 9, "start_step": 3, "facts": {"config": {"lr": 0.1}}},
    "step": {
        "index": 3, "start": 1.5, "duration": 0.5, "phases": [("data", 0.1, "host", 1), ("gen", 0.2, "cuda", 3)],
        "tokens": 5, "padded_tokens": 8, "samples": 2, "lengths": (1.0, 2.0, 3.0), "status": "skipped", "reason": "why",
        "metrics": {"loss": 0.5, "n": 3, "bad": "nan", "top": "inf"}, "role": "r", "stage": "s", "epoch": 0.5,
        "background": [("reward", 1.0, "host", 2)], "thread": "t",
    },
    "steps": {
        "index": 3, "start": [1.5, 2.25], "duration": [0.5, 0.25],
        "phases": [("data", [0.1, 0.0], "host", 1), ("gen", [0.2, 0.1], "cuda", 3)],
        "tokens": 5, "padded_tokens": [8, None], "samples": 2, "forwards": 1, "uncounted": True,
        "metrics": {"loss": [0.5, None], "n": [3, 2.5]}, "role": "r", "stage": "s", "epoch": 0.5,
    },
    "gpu_time": {"step": 3, "seconds": 0.5, "phases": [("forward", 0.1), ("other", 0.2)], "busy": 0.4, "dropped": 1,
                 "gc": 0.2, "gc_phases": [("forward", 0.1)]},
    "trace": {"device": "cuda", "first": 9, "steps": 2, "seconds": 0.5, "rows": [("gemm", "forward", 4, 0.25)],
              "calls": [("cudaLaunchKernel", "forward", 4, 0.01)], "bytes": [("Memcpy", "data", 512)], "busy": 0.25,
              "shapes": [("aten::mm", "2x3 3x4")], "idle": [("launching", "other", 3, 0.1)], "streams": 1},
    "span": {"name": "load", "start": 1.0, "duration": 2.0, "own": 0.0, "step": 3, "thread": "t", "detail": "d"},
    "metrics": {"values": {"a": 1.5, "b": "-inf"}, "step": 4, "role": "r"},
    "pulse": {"step": 1, "step_open": 2.0, "phase": "p", "phase_open": 1.0, "spans": [("a", 3.0)], "dropped": 2,
              "frame": "train.py:3 in load", "activity": "fsync"},
    "frames": {"rows": [("other", Place("train.py", 3, "load", "", "fsync", Line("json/encoder.py", 9)), 12)]},
    "collectives": {"first": 8, "steps": 2, "begin": 1.5, "seconds": [("backward", 0.5)],
                    "kinds": [("g", "all_reduce", "backward", 4000)], "calls": [(0, 7, 8, 100, 250)]},
    "note": {"text": "words", "level": "warning", "code": "c"},
    "bye": {"error": "E: x", "dropped": 1},
    "gpu": {"uuid": "u", "index": 1, "utilization": 50.0, "memory_used": 5, "reasons": 4, "simulated": True},
    "host": {"cores": 2, "cpu": 50.0, "note": "no driver", "tree_rss": 7},
    "exit": {"exit_code": -15, "signal": 15},
}  # fmt: skip


def every_event() -> list[Event]:
    return [KINDS[kind]("p", 7, 2.5, **fields) for kind, fields in FULL.items()]


def texts_and_numbers(value: Any) -> Iterator[str | float]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from (key, *texts_and_numbers(each))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from texts_and_numbers(each)
    elif value is not None:
        yield value


def check(line: bytes) -> None:
    """Whatever the line: no exception, neither here nor where it is folded and reported."""
    event = decode(line)
    if event is None or event is UNKNOWN_KIND:
        return
    assert isinstance(event, Event)
    for each in texts_and_numbers(dataclasses.asdict(event)):
        if isinstance(each, str):
            assert clean(each) == each
        else:
            assert math.isfinite(each)
            assert isinstance(each, float) or abs(each) <= MAX_INTEGER
    state = RunState()
    for each in [*step_blocks([event, event]), *single_events([event])]:
        fold(state, each)
    known = make_report(state, around(state))
    curve_arguments(state)
    json.dumps(dataclasses.asdict(known), allow_nan=False)


@pytest.mark.parametrize("event", every_event(), ids=lambda event: event.kind)
def test_every_kind_survives_the_journey(event: Event) -> None:
    assert decode(encode(to_dict(event))) == event
    bare = type(event)("p", 0, 0.0)
    without = event.kind in ("steps", "trace")  # steps, and none of them
    assert decode(encode(to_dict(bare))) == (None if without else bare)


def evil(value: Any) -> Any:
    """The same with control characters in every text."""
    if isinstance(value, dict):
        return {evil(name): evil(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [evil(each) for each in value]
    return f"{value}\x1b[2J\u2066\x9b31m" if isinstance(value, str) else value


@pytest.mark.parametrize("event", every_event(), ids=lambda event: event.kind)
def test_each_text_of_each_kind_is_cleaned(event: Event) -> None:
    told = to_dict(event)
    for name, value in told.items():
        if name not in ("kind", "producer") and any(isinstance(each, str) for each in texts_and_numbers(value)):
            check(encode({**told, name: evil(value)}))


def test_every_kind_is_in_the_table() -> None:
    assert set(FULL) == set(KINDS)


@given(st.binary(max_size=300))
def test_any_bytes(line: bytes) -> None:
    check(line)
    check(b'{"kind":"step",' + line)


@given(st.sampled_from(every_event()), st.data())
def test_valid_lines_cut_and_damaged(event: Event, data: st.DataObject) -> None:
    line = encode(to_dict(event))
    at = data.draw(st.integers(0, len(line) - 1))
    assert decode(line[:at]) is None
    check(line[:at] + data.draw(st.binary(max_size=4)) + line[at + data.draw(st.integers(0, 4)) :])


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=9),
        st.sampled_from(
            ["nan", "\x1b[2J", "\u202e", "x" * 9000, 2**53 + 1, 2**63, 10**400, -(10**400), 1e308, -1e308, -1]
        ),
    ),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=4,
)


@given(st.sampled_from(every_event()), st.data())
def test_any_value_in_any_field(event: Event, data: st.DataObject) -> None:
    mapping = to_dict(event)
    for name in data.draw(st.sets(st.sampled_from([f.name for f in dataclasses.fields(event)]), max_size=2)):
        if name in ("metrics", "values") and data.draw(st.booleans()):
            mapping[name] = data.draw(st.dictionaries(st.text(max_size=5), JSON, max_size=3))
        else:
            mapping[name] = data.draw(JSON)
    check(json.dumps(mapping).encode())


@pytest.mark.parametrize("name", ["metrics", "values", "facts"])
@pytest.mark.parametrize("value", [10**400, -(10**400), 2**70, 2**53 + 1, 1e308, "NaN", "-nan", "\x1b[2J"], ids=str)
def test_odd_numbers_by_name(name: str, value: Any) -> None:
    kind = {"metrics": "step", "values": "metrics", "facts": "facts"}[name]
    line = {**to_dict(next(event for event in every_event() if event.kind == kind)), name: {"a": value, "b": 0.5}}
    found = decode(json.dumps(line).encode())
    assert getattr(found, name)["b"] == 0.5, "one odd value must not cost the others"
    check(json.dumps(line).encode())


HEAD = b'"producer":"p","seq":1,"t":1'


@pytest.mark.parametrize(
    "line",
    [
        b"", b" ", b"\xff\xfe", b"null", b"[]", b"{}", b'{"kind":5}', b'{"kind":"step"}', b'{"kind":"note"',
        b'{"kind":"note",' + HEAD + b',"text":"\xff"}',
        b'{"kind":"facts",' + HEAD + b',"facts":' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}",
        b"[" * 60_000, b'{"kind":"mystery","x":' + b"[" * 60_000,
        b'{"kind":"note",' + HEAD + b',"text":"' + b"x" * MAX_LINE + b'"}',
        b'{"kind":"note","producer":"p","seq":-1,"t":1}', b'{"kind":"note","producer":"p","seq":1,"t":1e300}',
        b'{"kind":"step",' + HEAD + b',"index":1,"duration":-1}',
        b'{"kind":"hello",' + HEAD + b',"rank":-1}',
    ],
    ids=range(18),
)  # fmt: skip
def test_lines_that_cannot_be_read(line: bytes) -> None:
    assert decode(line) is None


def test_unknown_kinds_and_fields_are_passed_over() -> None:
    assert decode(b'{"kind":"novelty",' + HEAD + b',"x":[1]}') is UNKNOWN_KIND
    note = decode(b'{"future":{"a":[1]},"kind":"note",' + HEAD + b',"text":"x","more":null}')
    assert note == events.Note("p", 1, 1.0, text="x")


@given(st.text(), st.integers(0, 300))
@example("a\ud800b", 5)
def test_clean_text_is_printable_short_and_stays_so(text: str, limit: int) -> None:
    found = clean(text, limit)
    assert len(found) <= limit <= MAX_TEXT
    assert clean(found, limit) == found
    assert not any(ord(c) < 32 or 127 <= ord(c) < 160 or 0xD800 <= ord(c) < 0xE000 for c in found)
    found.encode()


def test_one_odd_value_costs_no_step() -> None:
    line = {**to_dict(next(event for event in every_event() if event.kind == "step")), "index": 3.0, "tokens": 512.0}
    line |= {"samples": "many", "metrics": {"loss": None, "reward": 0.5}, "phases": [["data", 0.1], ["gen", 1, "cuda"]]}
    found = decode(json.dumps(line).encode())
    assert isinstance(found, events.Step)
    assert (found.index, found.tokens, found.samples, found.metrics) == (3, 512, None, {"reward": 0.5})
    assert found.phases == [("data", 0.1, "host", 1), ("gen", 1.0, "cuda", 1)]
    for name, odd in (("index", 1.5), ("duration", "long"), ("seq", None), ("phases", [["data"]])):
        assert decode(json.dumps({**line, name: odd}).encode()) is None, name


@pytest.mark.parametrize("odd", [None, False, True])
def test_a_null_or_a_yes_or_no_in_a_number_s_place_is_as_if_left_out(odd: bool | None) -> None:
    line = {**to_dict(next(event for event in every_event() if event.kind == "step")), "metrics": {"a": 0.5, "b": odd}}
    found = decode(json.dumps({**line, "tokens": odd}).encode())
    assert isinstance(found, events.Step) and (found.metrics, found.tokens) == ({"a": 0.5}, None)
    found = decode(json.dumps({**line, "metrics": odd, "status": None}).encode())
    assert isinstance(found, events.Step) and (found.metrics, found.status) == ({}, "ok")
    hello = {"kind": "hello", "producer": "p", "seq": 0, "t": 1.0, "pid": 5}
    names = ("wall", "world_size", "local_rank", "restart", "rank", "facts")
    told = decode(json.dumps({**hello, "source": None, **dict.fromkeys(names, odd)}).encode())
    assert told == events.Hello("p", 0, 1.0, pid=5)
    gpu = decode(json.dumps({**hello, "kind": "gpu", "simulated": odd, "index": odd}).encode())
    assert isinstance(gpu, events.Gpu) and gpu.simulated is bool(odd), "where it is one that is expected, it counts"


def test_half_a_surrogate_pair_costs_its_character() -> None:
    line = rb'{"kind":"note",' + HEAD + rb',"text":"\ud83d\ude00 a\ud800 \udc00 \\ud800 \ud800"}'
    found = decode(line)
    assert isinstance(found, events.Note) and found.text == "\U0001f600 a\ufffd \ufffd \\ud800 \ufffd"


@pytest.mark.parametrize(
    ("bare", "told"),
    [
        ("nan", "nan"), ("-nan", "nan"), ("NaN", "nan"), ("-inf", "-inf"), ("Infinity", "inf"), ("1e999", "inf"),
        ("-1.5E+400", "-inf"),
    ],
)  # fmt: skip
def test_a_number_that_is_none_as_printf_writes_it(bare: str, told: str) -> None:
    """The one step that must not be lost."""
    line = f'{{"kind":"step","producer":"p","seq":1,"t":2.0,"index":1,"duration":1,"metrics":{{"a": {bare},"b":1}}}}'
    found = decode(line.encode())
    assert isinstance(found, events.Step) and found.metrics == {"a": told, "b": 1}
    assert decode(line.replace('"duration":1', f'"duration":{bare}').encode()) is None
    assert decode(line[:-3].encode()) is None


def test_a_step_with_an_odd_part_is_kept_and_the_part_counted() -> None:
    state = RunState()
    hello = b'{"kind":"hello","producer":"p","seq":0,"t":0,"source":"hooks"}'
    lines = [
        b'{"kind":"step","producer":"p","seq":%d,"t":%d,"index":%d,"start":%d,"duration":1,"phases":%s}'
        % (n, n + 1, n, n, b'[["a",-0.5,"host",1],["b",0.5,"host",1]]' if n == 3 else b'[["b",0.5,"host",1]]')
        for n in range(1, 5)
    ]
    for line in (hello, *lines):
        event = decode(line)
        assert isinstance(event, Event)
        fold(state, event)
    assert state.main.steps_ok == 4
    assert state.main.odd_parts == 1
    assert set(state.main.phases) == {"b", "other"}
