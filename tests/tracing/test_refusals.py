"""What forbids a trace that a person asks for, what only has to be agreed to, and what is written of it.

The device is a stand-in: what is asked of it, and when, is the tracer's own.
"""

from __future__ import annotations

import io
import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from monitor.reports import perfetto
from monitor.reports.perfetto import Unreadable
from trainhooks.device import cuda
from trainhooks.lane_entries import Lane
from trainhooks.protocol.events import Trace
from trainhooks.protocol.limits import MAX_NAME
from trainhooks.protocol.traced_events import events_path
from trainhooks.recording import traced_file
from trainhooks.tracing import profiler, tracer
from trainhooks.tracing.profiler import OLD_CUDA, OTHER, PRINTS, STAYS, Recorded, Session
from trainhooks.tracing.tracer import (
    CANCELLED,
    CAPTURING,
    COMPILING,
    FORKED,
    GRAPHS,
    NO_MEMORY,
    OFF,
    PROGRAM,
    Asked,
    Tracer,
)

HERE: Any = types.SimpleNamespace(stream=lambda torch_cuda: types.SimpleNamespace(device=0))


class Device:
    """A torch with CUDA 12.6, and what the tests change of it."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        core = types.SimpleNamespace(
            _autograd=types.SimpleNamespace(_prepare_profiler=0, _enable_profiler=0, _disable_profiler=0)
        )
        self.version = types.SimpleNamespace(cuda="12.6")
        self.in_use = self.compiling = self.capturing = False
        self.free = 0.5
        patch.setitem(sys.modules, "torch", types.SimpleNamespace(_C=core, version=self.version))
        patch.setattr(cuda, "captured", False)
        patch.setattr(cuda, "is_quiet", lambda: not self.capturing)
        patch.setattr(cuda, "free_memory", lambda device: self.free)
        patch.setattr(cuda, "compiling_check", lambda: lambda: self.compiling)
        patch.setattr(cuda, "make_event", lambda: types.SimpleNamespace(record=lambda stream: None, query=lambda: True))
        patch.setattr(cuda, "is_profiled", lambda: self.in_use)
        ended = types.SimpleNamespace(_C=types.SimpleNamespace(_autograd=types.SimpleNamespace(_disable_profiler=list)))
        patch.setattr(profiler, "begin", lambda on_cuda: Session(ended, 0))
        for name in (*profiler.OTHER_PROFILERS, "TRAINMON_TRACE"):
            patch.delenv(name, raising=False)
        patch.setenv(profiler.LOG_VARIABLE, "6")
        patch.setenv(profiler.DETACH_VARIABLE, "1")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    return Device(monkeypatch)


def asked(steps: int = 3, anyway: bool = False, of: Tracer | None = None) -> Tracer:
    """A tracer that was asked for a trace, at the boundary where it may begin."""
    asked_of, lane = of or Tracer(), Lane()
    asked_of.ask(lane, True, Asked(steps, anyway))
    asked_of.at_boundary(lane, HERE)
    return asked_of


def test_a_trace_that_nothing_forbids_begins_and_ends_after_its_steps(device: Device) -> None:
    lane, begun = Lane(), Tracer()
    assert begun.why_refused(True) is None and begun.doubts(Lane(), True) == []
    assert begun.ask(lane, True, Asked(3, False)) == 3
    for _ in range(4):
        assert begun.wanted and begun.finished is None
        begun.at_boundary(lane, HERE)
    assert begun.finished is not None and begun.finished.by_request and begun.refusal is None and not begun.wanted


@pytest.mark.parametrize(("name", "value", "why"), [("TRAINMON_TRACE", "0", OFF), ("KINETO_USE_DAEMON", "1", OTHER)])
def test_variables_that_forbid_it(
    device: Device, monkeypatch: pytest.MonkeyPatch, name: str, value: str, why: str
) -> None:
    monkeypatch.setenv(name, value)
    assert Tracer().why_refused(True) == why


def test_an_old_cuda_forbids_it(device: Device) -> None:
    device.version.cuda = "12.4"
    assert Tracer().why_refused(True) == OLD_CUDA and Tracer().why_refused(False) is None


def test_a_fork_and_a_profiler_of_the_program_s_forbid_it_for_good(device: Device) -> None:
    forked, yielded = Tracer(), Tracer()
    forked.forget()
    yielded.yield_to_program()
    assert (forked.why_refused(True), yielded.why_refused(True)) == (FORKED, PROGRAM)
    device.in_use = True
    refused = asked(anyway=True)
    assert (refused.refusal, refused.wanted, refused.why_refused(True)) == (PROGRAM, False, PROGRAM)


@pytest.mark.parametrize(
    ("what", "value", "why"),
    [("capturing", True, CAPTURING), ("compiling", True, COMPILING), ("free", 0.05, NO_MEMORY)],
)
def test_what_goes_on_forbids_it_for_now(device: Device, what: str, value: object, why: str) -> None:
    usual = getattr(device, what)
    setattr(device, what, value)
    refused = asked(anyway=True)
    assert (refused.refusal, refused.wanted) == (why, False)
    setattr(device, what, usual)
    assert refused.why_refused(True) is None and asked(of=refused).has_begun


def test_one_that_nobody_waits_for_does_not_begin(device: Device) -> None:
    lane, left = Lane(), Tracer()
    left.ask(lane, True, Asked(3, False))
    left.cancel()
    left.at_boundary(lane, HERE)
    assert (left.refusal, left.has_begun) == (CANCELLED, False)


def test_what_is_only_to_be_agreed_to(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(profiler.LOG_VARIABLE, "2")
    monkeypatch.delenv(profiler.DETACH_VARIABLE)
    monkeypatch.setattr(cuda, "captured", True)
    assert Tracer().why_refused(True) is None
    assert Tracer().doubts(Lane(), True) == [PRINTS, STAYS, GRAPHS]
    assert Tracer().doubts(Lane(), False) == [PRINTS]
    assert asked().refusal == GRAPHS  # captured since the question
    assert asked(anyway=True).has_begun


def test_traces_that_ended_by_themselves_can_still_be_asked_for(device: Device) -> None:
    ended = Tracer()
    ended.turn_off(tracer.EXPENSIVE)
    assert ended.why_refused(True) is None
    assert asked(of=ended).has_begun


def test_a_program_that_records_much_gets_fewer_steps(device: Device) -> None:
    busy = asked(steps=1)
    busy.at_boundary(busy._lane, HERE)  # type: ignore[arg-type]
    assert busy.finished is not None
    busy.learn(busy.finished, 1, tracer.MAX_ASKED_EVENTS // 4)
    busy.finished = None
    assert busy.ask(Lane(), True, Asked(10, False)) == 4


# What is written


def finished() -> tracer.Finished:
    return tracer.Finished(Session(None, 0), None, False, 1_000, 1_000, False, 9_000, 9_100, 0)


def recorded(count: int, name: str = "aten::mm") -> list[Recorded]:
    return [Recorded(name, 1_000 + place, 1_500 + place, False, 7, place, 0, None) for place in range(count)]


def written(directory: Path, events: list[Recorded]) -> tuple[Path, Trace]:
    path = events_path(directory, "abc")
    about = {"producer": "abc", "asked": 2, "device": "cpu", "first": 5}
    marks = [(500, "data"), (2_000, "forward"), (3_000, "other"), (99_000, "data")]
    traced_file.write_events(path, about, finished(), events, marks, lambda: None)
    return path, Trace(producer="abc", seq=0, t=0.0, asked=2)


def converted(path: Path, trace: Trace) -> tuple[list[dict[str, Any]], tuple[int, int]]:
    target = io.BytesIO()
    counts = perfetto.write(path, trace, target)
    return [row for row in json.loads(target.getvalue())["traceEvents"] if row["ph"] == "X"], counts


def test_the_file_has_clean_names_times_and_phases(tmp_path: Path) -> None:
    path, trace = written(tmp_path, recorded(2, "evil\x1b[31m" + "x" * 500))
    rows, counts = converted(path, trace)
    assert counts == (2, 0)
    phases = [(row["name"], row["ts"], row["dur"]) for row in rows if row["pid"] == perfetto.PHASES]
    assert phases == [("data", 0.0, 1.0), ("forward", 1.0, 1.0)]
    one, other = (row for row in rows if row["pid"] == perfetto.HOST)
    assert (one["ts"], one["dur"], one["tid"], other["ts"]) == (0.0, 0.5, 7, 0.001)
    assert one["name"].startswith("evil [31mxxx") and len(one["name"]) == MAX_NAME


def test_the_file_is_bounded_and_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced_file, "MAX_FILE", 2_000)
    path, trace = written(tmp_path, recorded(1_000))
    assert path.stat().st_size <= 2_000
    rows, (count, left_out) = converted(path, trace)
    assert count + left_out == 1_000 and 0 < count == sum(row["pid"] == perfetto.HOST for row in rows)


def test_a_file_of_another_trace_or_a_broken_one_is_not_shown(tmp_path: Path) -> None:
    path, trace = written(tmp_path, recorded(3))
    whole = path.read_bytes()
    other = Trace(producer="abc", seq=0, t=0.0, asked=1)
    broken = {
        "of another trace": (whole, other),
        "its end is missing": (whole[: whole.rindex(b"{")], trace),
        "its first line is missing": (b"", trace),
        "no JSON": (whole.replace(b"[0,0,", b"[0,0;", 1), trace),
        "without a name": (whole.replace(b"[0,0,", b"[9,0,", 1), trace),
        "a number that is none": (whole.replace(b"[0,0,", b"[0,1e3,", 1), trace),
        "no event": (whole.replace(b"[0,0,", b"[0,", 1), trace),
    }
    for why, (content, of) in broken.items():
        path.write_bytes(content)
        with pytest.raises(Unreadable, match=why):
            converted(path, of)
    path.unlink()
    with pytest.raises(Unreadable, match="could not be written"):
        converted(path, trace)


def test_a_directory_that_is_gone_costs_the_file_alone(tmp_path: Path) -> None:
    written(tmp_path / "gone", recorded(3))
    assert not list(tmp_path.iterdir())
