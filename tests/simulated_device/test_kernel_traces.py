"""Traces of kernels against what the simulated device did; where none may be made; and what they must leave alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import pytest

from monitor.model.device.trace_report import TraceReport
from monitor.reports.run_text import text
from tests.hooks.conftest import Told
from tests.simulated_device import checks
from tests.simulated_device.device import Call, Piece
from tests.simulated_device.kineto import Session
from tests.simulated_device.plays import TRACING, Plays
from tests.simulated_device.workloads import WORKLOADS
from trainhooks.device import device_lane
from trainhooks.tracing import profiler, tracer
from trainhooks.tracing.trace_reading import kernel_name

STEPS = {"half-a-millisecond": 1000, "one-millisecond": 600, "never-reads": 120, "ten-milliseconds": 120}

# Steps told by the public calls: where a test says nothing else, step 13 is the one that is traced.
PRELUDE = """
import atexit, dataclasses, json, sys, threading, time
from tests.simulated_device import Device, begin
from tests.simulated_device.install import install_fake
from tests.simulated_device.workloads import KERNELS, breathe
device, clock = begin()
second = Device(clock, 1)
face = install_fake(device, second)
cuda = face.cuda
device.kernels = KERNELS
def tell():
    sessions = [dataclasses.astuple(each) for each in face.kineto.sessions]
    print(json.dumps([sorted(face.misdeeds), sessions, [*device.calls, *second.calls]]))
atexit.register(tell)
BEFORE
import trainhooks as th

def train(steps=30, breaths=(11, 13, 15, 17, 19)):
    for i in th.steps(range(steps)):
        device.step = second.step = i + 1
        if i in breaths: breathe()
        body(i)
    device.synchronize()
    breathe()

def work(name, count, seconds, host=0.0):
    with th.phase(name), device.phase(name):
        device.host(host)
        device.launch(count, seconds, name)
"""
MS = 1_000_000


@dataclass
class Run:
    """What was told of a training, and what was true."""

    told: Told
    misdeeds: list[str]
    sessions: list[Session]
    calls: list[Call]

    @cached_property
    def traces(self) -> list[dict[str, Any]]:
        return self.told.kind("trace")

    @property
    def status(self) -> str:
        said = [event["facts"]["tracing"] for event in self.told.kind("facts") if "tracing" in event["facts"]]
        return str(said[-1])

    @property
    def report(self) -> TraceReport:
        device = self.told.report.device
        assert device is not None and device.trace is not None
        return device.trace

    def of(self, trace: dict[str, Any]) -> list[Call]:
        """What the program called in the steps that were traced."""
        return [call for call in self.calls if 0 <= call.step - trace["first"] < trace["steps"]]


def run(play: Plays, script: str, before: str = "", environment: dict[str, str] | None = None) -> Run:
    told = play.script(PRELUDE.replace("BEFORE", before) + script, True, **{**TRACING, **(environment or {})})
    misdeeds, sessions, calls = json.loads(told.out.splitlines()[-1])
    found = [Call._make([*call[:6], tuple(Piece(*piece) for piece in call[6])]) for call in calls]
    return Run(told, misdeeds, [Session(*each) for each in sessions], found)


def pieces(calls: Iterable[Call]) -> list[Piece]:
    return [piece for call in calls for piece in call.pieces]


def covered(ran: Iterable[Piece]) -> int:
    """Nanoseconds in which at least one of them ran."""
    edges = sorted([(one.start, 1) for one in ran] + [(one.end, -1) for one in ran])
    total = depth = 0
    for (at, change), (after, _) in pairwise(edges):
        depth += change
        total += (after - at) * (depth > 0)
    return total


def seconds(rows: list[list[Any]], place: int) -> dict[str, float]:
    """Seconds of rows by name (0) or phase (1)."""
    found: dict[str, float] = {}
    for row in rows:
        found[row[place]] = found.get(row[place], 0.0) + row[3]
    return found


def idle_by_kind(trace: dict[str, Any]) -> dict[str, float]:
    return seconds(trace.get("idle", []), 0)


def assert_true(found: Run, count: int = 1) -> dict[str, Any]:
    """Each trace is what the device did of its steps, to the nanosecond. Return the first one."""
    assert found.misdeeds == [] and len(found.traces) == count and found.status == tracer.ON
    for trace in found.traces:
        calls = found.of(trace)
        rows = Counter((kernel_name(one.name)[:128], call.label) for call in calls for one in call.pieces)
        assert {(name, phase): times for name, phase, times, _ in trace["rows"]} == rows
        true: dict[str, float] = {}
        for call in calls:
            for one in call.pieces:
                true[call.label] = true.get(call.label, 0.0) + (one.end - one.start) / 1e9
        assert seconds(trace["rows"], 1) == pytest.approx(true, abs=1e-8)
        assert trace["busy"] == pytest.approx(covered(pieces(calls)) / 1e9, abs=1e-8)
        assert trace["kernel_seconds"] == pytest.approx(sum(true.values()), abs=1e-8)
        assert trace["streams"] == len({one.stream for one in pieces(calls)})
        moved = {(one.name, call.label): 0 for call in calls for one in call.pieces if one.size}
        for call in calls:
            for one in call.pieces:
                if one.size:
                    moved[one.name, call.label] += one.size
        assert {(name, phase): size for name, phase, size in trace.get("bytes", [])} == moved
        launched = Counter(call.name for call in calls if "cudaEvent" not in call.name)
        told: Counter[str] = Counter()
        for name, _, times, _ in trace["calls"]:
            told[name] += times if "cudaEvent" not in name else 0
        told.pop("cudaEventRecord", None), told.pop("cudaEventQuery", None)
        assert +told == +launched
    return found.traces[0]


def assert_reported(found: Run) -> TraceReport:
    """The report tells the newest trace, by the step."""
    trace, report = found.traces[-1], found.report
    steps = trace["steps"]
    assert (report.first, report.steps, report.device, report.how) == (trace["first"], steps, "cuda", "traced")
    by_phase, total = seconds(trace["rows"], 1), sum(row[3] for row in trace["rows"])
    assert {row.name: row.share for row in report.phases} == pytest.approx(
        {name: each / total for name, each in by_phase.items()}
    )
    assert {row.name: row.seconds for row in report.phases} == pytest.approx(
        {name: each / steps for name, each in by_phase.items()}
    )
    calls = found.of(trace)
    assert report.launches == sum("Launch" in call.name for call in calls) / steps
    assert report.waits == sum("Synchronize" in call.name for call in calls) / steps
    assert report.busy is not None and report.copying is not None  # of a usual step, which a traced one is not
    assert 0.0 < report.busy + report.copying < 1.0 + 1e-6
    return report


# What they tell


@pytest.mark.long
@pytest.mark.parametrize("name", WORKLOADS)
def test_shares_of_phases_are_the_devices(play: Plays, name: str) -> None:
    """Within two points, of every workload."""
    played = play(name, changes={"steps": STEPS.get(name, 60), "evaluate_every": 20}, environment=TRACING)
    assert checks.traces(played) == []
    trace = played.told.report.device
    assert trace is not None and trace.trace is not None


def test_a_step_that_the_device_paces(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    work('forward', 10, 0.001)
    work('backward', 10, 0.002)
    with th.phase('loss'), device.phase('loss'): device.item()
train()
""",
    )
    trace = assert_true(found)
    assert (trace["first"], trace["steps"]) == (13, 1)
    assert seconds(trace["rows"], 1) == pytest.approx({"forward": 0.01, "backward": 0.02, "loss": 0.0})
    # Nothing is left over: the device worked or waited, from the step's begin to its end.
    assert trace["busy"] + sum(idle_by_kind(trace).values()) == pytest.approx(trace["seconds"], abs=2e-6)
    report = assert_reported(found)
    assert (report.launches, report.waits, report.streams) == (20, 1, 1)
    classes = {row.name.partition(",")[0] for row in report.classes}
    assert {"matrix product", "softmax", "convolution", "elementwise", "reduction"} <= classes


def test_a_step_that_the_host_paces(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    work('forward', 50, 2e-6, host=0.004)
    work('backward', 100, 2e-6)
train()
""",
    )
    trace = assert_true(found)
    idle = idle_by_kind(trace)
    assert trace["busy"] == pytest.approx(150 * 2e-6) and assert_reported(found).busy < 0.1  # type: ignore[operator]
    assert idle["launching"] == pytest.approx(149 * 6e-6, rel=0.5) and idle["python"] > 0.004
    assert trace["busy"] + sum(idle.values()) == pytest.approx(trace["seconds"], abs=2e-5), "the last kernel runs on"


def test_a_host_that_is_ahead_by_several_steps(play: Plays) -> None:
    """What runs meanwhile is of steps before, whose launches were not recorded; what is launched is of later ones."""
    found = run(
        play,
        """
def body(i):
    work('forward', 10, 0.001)
    work('backward', 20, 0.001)
    if i < 3: device.synchronize()
train(60)
""",
    )
    trace = assert_true(found)
    (session,) = found.sessions
    late = [one for one in pieces(found.of(trace)) if one.start > session.began + trace["seconds"] * 1e9]
    assert len(late) == 30, "all of it ran after the host's own step had ended"
    assert sum(call.began > session.began for call in found.calls) > 3 * 30, "and later steps lie in the session"
    assert trace["busy"] == pytest.approx(0.03) and trace.get("left_out") is None
    assert assert_reported(found).launches == 30


def test_a_step_shorter_than_the_begin_of_a_trace(play: Plays) -> None:
    """Half a millisecond; to begin a session takes six."""
    found = run(play, "def body(i): work('forward', 4, 0.0001); device.synchronize()\ntrain()")
    assert assert_true(found)["busy"] == pytest.approx(0.0004)


def test_a_loop_that_waits_for_the_device(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    with th.phase('forward'), device.phase('forward'):
        for _ in range(8):
            device.host(0.0005)
            device.launch(4, 20e-6, 'forward')
            device.item()
train()
""",
    )
    trace, report = assert_true(found), assert_reported(found)
    assert (report.waits, report.launches) == (8, 32)
    assert idle_by_kind(trace)["python"] > 7 * 0.0005, "in the first the profiler took longer"


def test_a_wait_for_data_is_idle_time(play: Plays) -> None:
    """It comes before the first kernel of the step: between two steps, so to speak."""
    found = run(
        play,
        """
def body(i):
    with th.phase('data'), device.phase('data'): device.host(0.05)
    work('forward', 10, 0.001)
    device.synchronize()
    with th.phase('logging'): device.host(0.02)
train()
""",
    )
    trace = assert_true(found)
    idle = {(kind, phase): each for kind, phase, _, each in trace["idle"] if each > 0.001}
    assert idle["python", "data"] == pytest.approx(0.05, rel=0.1)
    assert trace["busy"] + sum(idle_by_kind(trace).values()) == pytest.approx(trace["seconds"], abs=2e-6)
    ran = found.report.busy + found.report.copying  # type: ignore[operator]
    assert sum(row.share for row in found.report.idle) == pytest.approx(1 - ran, abs=1e-3)


def test_copies_of_pageable_memory(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    with th.phase('h2d'), device.phase('h2d'):
        device.copy(50e6, pageable=True)
        device.copy(25e6)
    work('forward', 10, 0.001)
    device.copy(1e6, pageable=True, back=True)
train()
""",
    )
    trace, report = assert_true(found), assert_reported(found)
    assert ["Memcpy HtoD (Pageable -> Device)", "h2d", 50_000_000] in trace["bytes"]
    assert seconds(trace["rows"], 0)["Memcpy HtoD (Pinned -> Device)"] == pytest.approx(0.001)
    assert {"copy to the device, pageable", "copy from the device, pageable"} <= {row.name for row in report.classes}


def test_two_streams(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    work('forward', 10, 0.001)
    with th.phase('h2d'), cuda.stream(side): device.copy(50e6, label='h2d')
    cuda.current_stream().wait_stream(side)
    work('backward', 10, 0.001)
    device.synchronize()
train()
""",
        before="side = cuda.Stream()",
    )
    trace, report = assert_true(found), assert_reported(found)
    assert (report.streams, trace["busy"]) == (2, pytest.approx(0.02, rel=0.01))
    assert report.overlap == pytest.approx(0.1, rel=0.05), "2 ms of copies beside 20 ms of kernels"


def test_memory_that_is_allocated(play: Plays) -> None:
    """The device waits while the driver gives memory."""
    found = run(
        play,
        """
def body(i):
    work('forward', 4, 0.0001)
    device.synchronize()
    with th.phase('grow'): device._allocates('malloc')
    work('backward', 4, 0.0001)
    device.synchronize()
train()
""",
    )
    trace = assert_true(found)
    assert idle_by_kind(trace)["allocating"] >= 0.0005


def test_a_graph_is_one_launch_of_many_kernels(play: Plays) -> None:
    """The hooks trace no program that captures; one whose capture they did not see has a session all the same."""
    found = run(
        play,
        """
def body(i):
    with th.phase('forward'), device.phase('forward'): graph.replay(); device.synchronize()
train()
""",
        before="""
graph = cuda.CUDAGraph()
graph.capture_begin(); device.launch(10, 0.001, 'backward'); graph.capture_end()
face.captured = False
""",
    )
    trace = assert_true(found)
    assert (assert_reported(found).launches, trace["busy"]) == (1, pytest.approx(0.01))
    assert sum(row[2] for row in trace["rows"]) == 10


@pytest.mark.long
def test_a_program_of_the_real_torch(play: Plays) -> None:
    """Attention written out: its kernels are those of the operations that torch itself makes."""
    played = play.program("attention-written-out", environment=TRACING)
    device = played.told.report.device
    assert played.truth["misdeeds"] == [] and device is not None and device.trace is not None
    classes = {row.name: row.share for row in device.trace.classes}
    assert {"softmax", "elementwise", "optimizer"} <= set(classes) and classes["matrix product, bf16"] < 0.5
    assert {row.name for row in device.trace.phases} >= {"forward", "backward", "optimizer"}


# Where they may not be


REFUSED = {
    "without KINETO_LOG_LEVEL": ("", {"KINETO_LOG_LEVEL": "0"}, profiler.PRINTS),
    "at a level that prints errors": ("", {"KINETO_LOG_LEVEL": "5"}, profiler.PRINTS),
    "without TEARDOWN_CUPTI": ("", {"TEARDOWN_CUPTI": "0"}, profiler.STAYS),
    "a runtime older than 12.6": ("sys.modules['torch'].version.cuda = '12.4'", {}, profiler.OLD_CUDA),
    "a torch without a profiler": ("del sys.modules['torch']._C._autograd._prepare_profiler", {}, profiler.MISSING),
    "little free memory": ("cuda.mem_get_info = lambda *_: (7 * 2**30, 80 * 2**30)", {}, tracer.NO_MEMORY),
    "another rank": ("", {"RANK": "1", "WORLD_SIZE": "2"}, tracer.OTHER_RANK),
    "without the GPU's clock": ("", {"TRAINMON_GPU_CLOCK": "0"}, device_lane.OFF),
    "by setting": ("", {"TRAINMON_TRACE": "0"}, tracer.OFF),
    **{f"with {name}": ("", {name: "1"}, profiler.OTHER) for name in profiler.OTHER_PROFILERS},
}


@pytest.mark.parametrize("case", REFUSED)
def test_where_none_may_be_made_it_is_said_so(play: Plays, case: str) -> None:
    before, environment, why = REFUSED[case]
    script = "def body(i): work('forward', 4, 0.001); device.synchronize()\ntrain(); device.host(2.0); breathe()"
    found = run(play, script, before, environment)
    assert (found.sessions, found.traces, found.status, found.misdeeds) == ([], [], why, [])


def test_a_program_that_captures_is_not_traced(play: Plays) -> None:
    played = play("reads-each-20th", way="graph", changes={"steps": 200}, environment=TRACING)
    assert played.truth["sessions"] == [] == played.truth["misdeeds"]
    assert {"tracing": tracer.GRAPHS}.items() <= played.told.kind("facts")[-1]["facts"].items()


def test_memory_may_be_free_later(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    if i == 20: left[0] = 40; device.host(2.0)
    work('forward', 4, 0.001)
    device.synchronize()
train(40, (11, 13, 15, 21, 23, 25))
""",
        before="left = [7]; cuda.mem_get_info = lambda *_: (left[0] * 2**30, 80 * 2**30)",
    )
    assert assert_true(found)["first"] > 20


CAPTURED_MEANWHILE = """
graph = cuda.CUDAGraph()
def aside(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
def body(i):
    work('forward', 4, 0.001)
    if i == 12: aside(lambda: (cuda.set_device(1), graph.capture_begin()))
    if i == 15: aside(lambda: (cuda.set_device(1), graph.capture_end()))
    device.synchronize()
train()
"""


def test_a_capture_that_begins_in_a_traced_step_is_left_alone(play: Plays) -> None:
    """Any call of ours would break it, the end of the trace included: that comes after."""
    found = run(play, CAPTURED_MEANWHILE)
    assert found.misdeeds == [] and len(found.sessions) == 1 and found.sessions[0].ended
    (trace,) = found.traces
    assert trace["first"] == 13 and trace.get("left_out") in (None, tracer.LATE)


def test_a_device_that_the_program_does_not_use_gets_no_context(play: Plays) -> None:
    """`model.to("cuda:1")`, and no `set_device`."""
    before = """
record, left = face.Event.record, cuda.mem_get_info
def recorded(self, stream=None):
    if (stream.device_index if stream else cuda.current_device()) != 1: face.misdeed('a context on device 0')
    record(self, stream)
def memory(device=None):
    if getattr(device, 'index', device) != 1: face.misdeed('a context on device 0')
    return left()
face.Event.record, cuda.mem_get_info = recorded, memory
sys.modules['torch']._C._cuda_hasPrimaryContext = lambda index: index == 1
second.kernels = KERNELS
"""
    found = run(
        play,
        """
from trainhooks import session
session.device.place.works_on(1)
def body(i):
    with th.phase('forward'): second.launch(4, 0.001, 'forward')
    second.synchronize()
train()
""",
        before,
    )
    assert assert_true(found)["busy"] == pytest.approx(0.004)


# What they cost


@pytest.mark.long
def test_the_first_is_of_one_step_and_the_others_within_a_thousandth_of_the_time(play: Plays) -> None:
    found = run(
        play,
        """
from trainhooks.tracing import tracer
tracer.MIN_PACE_CHANGE = 1e12  # steps in between are not played: their pace is none
def body(i):
    work('forward', 10, 0.001, host=0.28)
    device.synchronize()
train(7000, (1, 11, 13, 15, *range(200, 600, 50), *range(6000, 7000, 50)))
""",
    )
    assert_true(found, 3)
    # The trace of one step stops the training for over 20 ms. So the 60 ms of a later one hold two, and then three.
    assert [trace["steps"] for trace in found.traces] == [1, 2, 3]
    _, second, third = found.traces
    spent, began = 0.0, found.told.events[0]["t"]
    for trace in (second, third):
        spent += trace["pause"]
        assert spent <= tracer.MAX_SHARE * (trace["t"] - began)
    for trace, session in zip(found.traces, found.sessions, strict=True):
        assert 0.021 < trace["pause"] < 0.03 < (session.ended - session.began) / 1e9
    assert third["t"] - second["t"] >= tracer.SPACING_NS / 1e9


def test_one_that_takes_a_second_says_what_is_missing(play: Plays) -> None:
    """The device is more than a second behind."""
    found = run(
        play,
        """
def body(i):
    work('forward', 10, 0.07, host=0.2)
    if i < 11: device.synchronize()
train(30)
""",
    )
    (trace,), (session,) = found.traces, found.sessions
    assert trace["left_out"] == tracer.LATE and found.misdeeds == []
    assert 1.0 <= (session.ended - session.began) / 1e9 < 1.3
    done = [one for one in pieces(found.of(trace)) if one.end <= session.ended]
    assert sum(row[2] for row in trace["rows"]) == len(done) and 0 < len(done) < 10
    assert (trace.get("busy"), trace.get("idle")) == (None, None), "not known"
    assert found.report.left_out == tracer.LATE and tracer.LATE in text(found.told.report)


def test_one_that_costs_too_much_is_the_last(play: Plays) -> None:
    found = run(
        play,
        """
def body(i):
    work('forward', 100, 0.0001)
    device.synchronize()
    if i == 16: device.host(200.0)
train()
""",
        before="device.costs.session_end = 400_000_000",
    )
    assert len(found.sessions) == len(found.traces) == 1 and found.status == tracer.EXPENSIVE


def test_steps_that_one_made_longer_are_marked(play: Plays) -> None:
    found = run(play, "def body(i): work('forward', 10, 0.001); device.synchronize()\ntrain()")
    assert_true(found)
    measured = {step["index"]: step["duration"] for step in found.told.steps if step.get("measured")}
    others = [step["duration"] for step in found.told.steps if step["index"] > 5 and not step.get("measured")]
    timed = {event["step"] for event in found.told.kind("gpu_time")}
    assert set(measured) == {12, 13, 14} and timed, "it begins in the first and ends in the last"
    assert max(others) < 0.0115 < min(measured.values()), "10 ms each, but for what the clock's marks take"
    assert max(measured.values()) > 0.0215


# What they leave alone


REAL = """
import atexit, random, time
from tests.simulated_device import begin
from tests.simulated_device.beat import Beat
from tests.simulated_device.install import install
device, clock = begin()
face = install(device)
atexit.register(lambda: print(face.misdeeds, len(face.kineto.sessions)))
import torch
from tests.simulated_device.layers import Batches, Model, Optimizer
from trainhooks.auto import imports
imports.install()
Beat(clock).install()
torch.set_num_threads(1); random.seed(7); torch.manual_seed(7)
model, losses, kineto = Model(device, 2, (40, 4e-6), (40, 4e-6), False, 0.001), [], face.kineto
optimizer = Optimizer(model.parameters(), device, (4, 4e-6))
"""
LOOP = """
for i, batch in enumerate(torch.utils.data.DataLoader(Batches(device, 100, 0.0001), batch_size=None)):
    BEFORE
    loss = model(torch.nn.functional.dropout(batch))
    AMONG
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for each in model.parameters(): each -= 1e-5 * each.grad
    optimizer.zero_grad()
    losses.append(loss.item())
"""


def real(
    play: Plays, first: str = "", before: str = "pass", among: str = "pass", after: str = "", **environment: str
) -> Told:
    loop = first + LOOP.replace("BEFORE", before).replace("AMONG", among)
    after += "print(losses, torch.rand(4).tolist(), random.random(), [each.item() for each in model.parameters()])\n"
    return play.script(REAL + loop + after, True, **{**TRACING, **environment})


def test_losses_and_random_numbers_are_as_without(play: Plays) -> None:
    plain, traced = real(play, TRAINMON_TRACE="0"), real(play)
    assert [told.out.splitlines()[-1] for told in (plain, traced)] == ["[] 0", "[] 1"]
    assert plain.out.splitlines()[0] == traced.out.splitlines()[0] and "nan" not in plain.out
    assert (len(plain.kind("trace")), len(traced.kind("trace"))) == (0, 1)


# A profiler of the program's, around two forward passes of 40 kernels each, sees them all.
THEIRS = "theirs = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]); theirs.start()"
SEEN = """kinds = [each.device_type() for each in theirs.profiler.kineto_results.events()]
        print('seen', kinds.count(torch.autograd.DeviceType.CUDA))"""
PROFILED = {
    "before ours": "i == 5",
    "while ours is on": "theirs is None and kineto.sessions and not kineto.sessions[0].ended",
    "right after ours": "theirs is None and kineto.sessions and kineto.sessions[0].ended",
}


@pytest.mark.parametrize("when", PROFILED)
def test_a_profiler_of_the_programs_sees_its_own_session_whole(play: Plays, when: str) -> None:
    begin = f"if {PROFILED[when]}:\n        {THEIRS}\n        model(batch)"
    end = f"if theirs:\n        theirs.stop()\n        {SEEN}\n        theirs = 0"
    told = real(play, before="theirs = globals().get('theirs')\n    " + begin, among=end)
    assert [line for line in told.out.splitlines() if line.startswith("seen")] == ["seen 80"], told.out
    assert told.out.splitlines()[-1] == f"[] {1 if when == 'before ours' else 2}"
    said = [event["facts"]["tracing"] for event in told.kind("facts") if "tracing" in event["facts"]]
    assert said[-1] == tracer.PROGRAM


def test_a_profiler_of_another_thread_waits_for_ours_to_end(play: Plays) -> None:
    """It would take ours over without a word."""
    begin = """if other is None and kineto.sessions and not kineto.sessions[0].ended:
        other = threading.Thread(target=profile)
        other.start()
    time.sleep(0.003)"""
    theirs = """import threading
other = None
def profile():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen: time.sleep(0.1)
    kinds = [each.device_type() for each in seen.profiler.kineto_results.events()]
    print('seen', torch.autograd.DeviceType.CUDA in kinds)
"""
    told = real(play, theirs, begin, after="if other is not None: other.join()\n")
    assert "seen True" in told.out.splitlines() and told.out.splitlines()[-1] == "[] 2"
