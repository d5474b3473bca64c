"""The simulated device itself: it queues, blocks, rounds and breaks as CUDA does. No hooks here."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.hooks.conftest import ROOT
from tests.simulated_device.clock import Clock
from tests.simulated_device.cuda import Face
from tests.simulated_device.device import LATENCY, QUEUE, CostTable, Device, DeviceError
from tests.simulated_device.kineto import BUFFERS, CUDA, ON_DEVICE, Kineto
from tests.simulated_device.ledger import COPY, FOREIGN, KERNEL, Ledger, Work

US, MS = 1_000, 1_000_000


def device(**options: Any) -> Device:
    return Device(Clock(10**12), **options)


def as_hooks(source: str, **names: Any) -> Any:
    """Run a line as if it stood in a file of the hooks."""
    exec(compile(source, str(ROOT / "trainhooks" / "nowhere.py"), "exec"), names)
    return names.get("result")


def test_the_host_runs_ahead_and_waits_where_it_synchronizes() -> None:
    one = device()
    one.launch(10, 0.001, "forward")
    assert one.clock.elapsed == 10 * one.costs.launch, "launching is all that the host did"
    one.synchronize()
    assert one.clock.elapsed == one.costs.launch + LATENCY + 10 * MS
    assert one.ledger.seconds_by_label() == {"forward": pytest.approx(0.01)}
    assert one.ledger.work == [Work(10**12 + 12 * US, 10**12 + 12 * US + 10 * MS, "forward", KERNEL, 0, 0.9)]


def test_kernels_shorter_than_their_launches_leave_it_idle() -> None:
    one = device()
    one.launch(100, 2e-6)
    one.synchronize()
    assert one.ledger.busy(10**12, one.clock.now) / one.clock.elapsed == pytest.approx(2 / 8, abs=0.01)


def test_a_full_queue_holds_the_host() -> None:
    one = device()
    one.launch(QUEUE, 0.1)
    assert one.blocked == 0
    first = one.ledger.work[0].start
    one.launch(1, 0.1)
    assert one.blocked > 0 and one.clock.now == first + 100 * MS, "until the oldest is done"
    one.launch(100, 0.1)
    assert one.clock.now == first + 101 * 100 * MS, "and from then on at the device's pace"
    one.mark(one.compute)
    assert one.clock.now == first + 102 * 100 * MS, "an event takes a place, too"


def test_streams_work_beside_each_other_and_wait_where_told() -> None:
    one = device()
    one.launch(1, 0.010, "forward")
    one.collective(0.004, late=0.002, label="reduce")
    one.launch(1, 0.001, "backward")
    one.wait_stream(one.communication)
    one.launch(1, 0.001, "optimizer")
    forward, reduce, backward, optimizer = one.ledger.work
    assert reduce.start == backward.start == forward.end, "one after the first, and both at once"
    assert reduce.end - reduce.start == 6 * MS and optimizer.start == reduce.end


def test_copies_from_pageable_memory_hold_the_host_and_pinned_ones_do_not() -> None:
    one = device()
    one.launch(1, 0.010)
    before = one.clock.now
    one.copy(25e6, label="pinned")
    assert one.clock.now - before == one.costs.copy
    one.copy(51e6, pageable=True, label="pageable")
    kernel, pinned, pageable = one.ledger.work
    assert pinned.kind == pageable.kind == COPY and pinned.start == kernel.end
    assert pinned.end - pinned.start == MS and pageable.end - pageable.start == 10 * MS
    assert one.clock.now == pageable.end


def test_event_times_are_the_devices_own_and_rounded() -> None:
    one = device(drift=100e-6)
    first = one.mark(one.compute)
    one.launch(1, 1.0)
    last = one.mark(one.compute)
    told = one.milliseconds(first, last)
    true = (last.at - first.at) / 1e6
    assert told == struct.unpack("f", struct.pack("f", told))[0], "a float of 32 bits"
    assert told == pytest.approx(true * (1 + 100e-6), abs=0.0006) and told != pytest.approx(true, abs=0.05)
    one.launch(1, 300e-9)
    assert one.milliseconds(last, one.mark(one.compute)) * 1000 % 0.5 == pytest.approx(0.0, abs=1e-4)


def test_another_process_takes_turns() -> None:
    one = device(foreign=(0.010, 0.4))
    one.launch(1, 0.030, "forward")
    one.synchronize()
    one.finish()
    assert one.ledger.seconds_by_label() == {"forward": pytest.approx(0.030)}
    assert 0.045 < one.clock.elapsed / 1e9 < 0.055, "six tenths of the time are left to us"
    ours = sorted(each for each in one.ledger.work if each.kind == KERNEL)
    theirs = sorted(each for each in one.ledger.work if each.kind == FOREIGN)
    assert not any(a.start < b.end and b.start < a.end for a in ours for b in theirs)


def test_readings_are_means_over_their_windows() -> None:
    ledger = Ledger()
    second = 1_000_000_000
    ledger.add(Work(0, second // 2, "forward", KERNEL, 1, 0.5))
    ledger.add(Work(second // 4, second // 2, "reduce", KERNEL, 1, 0.1))
    ledger.add(Work(second // 2, second * 3 // 2, "other", COPY, 1, 0.0, link=5e9))
    ledger.add(Work(second * 3 // 2, 2 * second, "", FOREIGN, 0, 1.0))
    first, last = ledger.readings(0, 2 * second, second)
    assert first["utilization"] == pytest.approx(50.0) and first["sm_active"] == pytest.approx(27.5)
    assert last["utilization"] == pytest.approx(50.0) and last["sm_active"] == pytest.approx(50.0)
    assert first["copying"] == last["copying"] == 50.0 and first["pcie_rx"] == last["pcie_rx"] == pytest.approx(2.5e9)
    assert ledger.busy(0, 2 * second) == second * 3 // 2, "what runs at once counts once; a stranger's does not"


def test_a_graph_is_one_launch() -> None:
    one = device()
    graph = Face(one).CUDAGraph()
    graph.capture_begin()
    one.launch(50, 0.0001, "forward")
    graph.capture_end()
    assert one.ledger.work == []
    before = one.clock.now
    graph.replay()
    assert one.clock.now - before == one.costs.launch
    assert one.ledger.seconds_by_label() == {"forward": pytest.approx(0.005)}


BREAKING = ("Event().query()", "Event(enable_timing=True).record()", "synchronize()")


@pytest.mark.parametrize("call", BREAKING)
def test_a_capture_is_broken_by_any_thread(call: str) -> None:
    one = device()
    face = Face(one)
    graph = face.CUDAGraph()
    graph.capture_begin()
    thread = threading.Thread(target=lambda: eval(f"cuda.{call}", {"cuda": face.cuda}))
    thread.start()
    thread.join()
    with pytest.raises(DeviceError, match="previous error during capture"):
        graph.capture_end()
    assert face.misdeeds == [], "what a program does is its own affair"


def test_an_event_captured_cannot_be_asked() -> None:
    face = Face(device())
    event, graph = face.cuda.Event(enable_timing=True), face.CUDAGraph()
    graph.capture_begin()
    event.record()
    graph.capture_end()
    with pytest.raises(DeviceError, match="capturing stream"):
        event.query()


def test_an_error_stays() -> None:
    one = device()
    face = Face(one)
    event = face.cuda.Event()
    one.error = "an illegal memory access was encountered"
    calls: list[Callable[[], Any]] = [event.query, event.record, one.synchronize, lambda: one.launch(1, 0.1)]
    for call in calls * 2:
        with pytest.raises(DeviceError, match="illegal memory access"):
            call()


def test_each_thread_has_its_own_device() -> None:
    clock = Clock(0)
    face = Face(Device(clock), Device(clock, 1))
    seen: list[int] = []
    face.cuda.set_device(1)
    thread = threading.Thread(target=lambda: seen.append(face.cuda.current_stream().device_index))
    thread.start()
    thread.join()
    assert seen == [0] and face.cuda.current_stream().device_index == 1
    side = face.cuda.Stream(device=0)
    with face.cuda.stream(side):
        assert face.cuda.current_stream() == side and face.cuda.current_device() == 0
    assert face.cuda.current_device() == 1


MISDEEDS = {
    "cuda.synchronize()": "synchronize",
    "event.synchronize()": "synchronize",
    "cuda.current_stream().synchronize()": "synchronize",
    "other.query()": "Event.query from another thread than the one that recorded it",
    "timed.record(comm)": "a timed event on a stream of communication",
    "captured.capture_begin(); event.query()": "Event.query in a capture",
    "face.initialized = False; event.query()": "Event.query before CUDA was started",
    "face._pid = 0; event.query()": "Event.query in a child",
}


@pytest.mark.parametrize("line", MISDEEDS)
def test_what_hooks_must_not_do_is_seen(line: str) -> None:
    one = device()
    face = Face(one)
    event, other, timed = face.cuda.Event(), face.cuda.Event(), face.cuda.Event(enable_timing=True)
    event.record()
    thread = threading.Thread(target=other.record)
    thread.start()
    thread.join()
    names = {"cuda": face.cuda, "face": face, "event": event, "other": other, "timed": timed}
    as_hooks(line, comm=face.seen(one.communication), captured=face.CUDAGraph(), **names)
    assert face.misdeeds == [MISDEEDS[line]]


def test_what_hooks_may_do_is_charged_to_them() -> None:
    costs = CostTable(record=7 * US, query=3 * US)
    one = device(costs=costs)
    face = Face(one)
    event = face.cuda.Event(enable_timing=True)
    event.record()
    assert face.hooks_cost == 0 and face.calls == {}
    as_hooks("event.record(); event.query(); cuda.is_current_stream_capturing()", event=event, cuda=face.cuda)
    assert face.hooks_cost == 10 * US + costs.is_capturing and face.misdeeds == []
    assert face.calls == {"Event.record": 1, "Event.query": 1, "is_current_stream_capturing": 1}


def test_events_are_read_only_when_the_device_has_passed_them() -> None:
    one = device()
    face = Face(one)
    first, last = face.cuda.Event(enable_timing=True), face.cuda.Event(enable_timing=True)
    first.record()
    one.launch(1, 0.005)
    last.record()
    assert first.query() and not last.query()
    with pytest.raises(DeviceError, match="not ready"):
        first.elapsed_time(last)
    last.synchronize()
    assert first.elapsed_time(last) == pytest.approx(5.0 + one.costs.launch / MS, abs=0.07)


def test_a_rank_that_comes_late_is_waited_for_on_the_device() -> None:
    one = device()
    one.launch(1, 0.001, "backward")
    one.collective(0.001, late=0.020, label="reduce")
    one.wait_stream(one.communication)
    one.launch(1, 0.001, "optimizer")
    host = one.clock.elapsed
    one.synchronize()
    assert host < 100 * US and 0.022 < one.clock.elapsed / 1e9 < 0.024


# Sessions of the profiler


def profiled(**costs: int) -> tuple[Device, Face, Kineto]:
    one = device(costs=CostTable(**{"buffer": 0, "traced": 0, **costs}))
    face = Face(one)
    face.kineto = Kineto(face)
    return one, face, face.kineto


def told(result: Any) -> tuple[list[tuple[str, int]], list[tuple[str, int, int]]]:
    """Calls and what ran for them: names with correlation numbers, and how long these ran."""
    calls = [(one.name(), one.correlation_id()) for one in result.events() if one.device_type() != ON_DEVICE]
    ran = [one for one in result.events() if one.device_type() == ON_DEVICE]
    calls = [(name, number) for name, number in calls if name.startswith("cuda")]
    return calls, [(one.name(), one.correlation_id(), one.duration_ns()) for one in ran]


def test_a_session_tells_of_calls_and_of_what_ran_for_them() -> None:
    one, _, kineto = profiled()
    one.launch(1, 0.01, name="before")
    kineto.enable(None, {CUDA})
    one.launch(1, 0.02, name="inside")
    one.copy(5.1e6, pageable=True)
    one.launch(1, 0.04, name="not done")
    calls, ran = told(kineto.disable())
    assert [name for name, _ in calls] == ["cudaLaunchKernel", "cudaMemcpyAsync", "cudaLaunchKernel"]
    numbers = dict(calls)
    assert [(name, duration) for name, _, duration in ran] == [
        ("inside", 20 * MS),
        ("Memcpy HtoD (Pageable -> Device)", MS),
    ]
    assert ran[1][1] == numbers["cudaMemcpyAsync"] and ran[0][1] in [number for _, number in calls]


def test_what_was_launched_before_a_session_has_no_call_in_it() -> None:
    one, _, kineto = profiled()
    one.launch(3, 0.01, name="before")
    kineto.enable(None, {CUDA})
    one.synchronize()
    calls, ran = told(kineto.disable())
    assert [name for name, _ in calls] == ["cudaDeviceSynchronize"] and len(ran) == 2, "and one had begun before"
    assert not {number for _, number, _ in ran} & {number for _, number in calls}


def test_a_graph_is_one_call_for_many_kernels() -> None:
    one, face, kineto = profiled()
    graph = face.CUDAGraph()
    graph.capture_begin()
    one.launch(5, 0.001)
    graph.capture_end()
    kineto.enable(None, {CUDA})
    graph.replay()
    one.synchronize()
    calls, ran = told(kineto.disable())
    assert calls[0][0] == "cudaGraphLaunch" and [number for _, number, _ in ran] == 5 * [calls[0][1]]


def test_sessions_cost_time() -> None:
    one, _, kineto = profiled(session=5 * MS, session_end=7 * MS, event=10 * US)
    kineto.enable(None, {CUDA})
    assert one.clock.elapsed == 5 * MS
    one.launch(100, 1e-6)
    one.synchronize()
    before = one.clock.now
    kineto.disable()
    assert one.clock.now == before + 7 * MS + (201 + BUFFERS) * 10 * US
    one, _, kineto = profiled(traced=2 * US, buffer=MS)
    kineto.enable(None, {CUDA})
    before = one.clock.now
    one.launch(100, 1e-6)
    assert one.clock.now == before + 100 * (one.costs.launch + 2 * US) + 2 * MS


def test_a_session_takes_that_of_another_thread_over() -> None:
    one, face, kineto = profiled()
    aside = threading.Thread(target=kineto.enable, args=(None, {CUDA}))
    aside.start()
    aside.join()
    with pytest.raises(RuntimeError, match="not running"):
        kineto.disable()
    as_hooks("enable(None, {'cuda'})", enable=kineto.enable)
    assert face.misdeeds == ["a session in place of the program's"]
    with pytest.raises(RuntimeError, match="already enabled"):
        kineto.enable(None, {CUDA})
    one.launch(1, 0.001)
    one.synchronize()
    assert kineto.enabled() and told(kineto.disable())[1] == [] and not kineto.enabled()


def test_a_session_that_begins_before_the_last_one_is_let_go_of_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEARDOWN_CUPTI", "1")
    one, _, kineto = profiled(detach=30 * MS)

    def seen(wait: float) -> int:
        one.host(wait)
        one.launch(1, 0.001)  # a call, in which it is let go of
        kineto.enable(None, {CUDA})
        one.launch(4, 0.001)
        one.synchronize()
        return sum(name == "cudaLaunchKernel" for name, _ in told(kineto.disable())[0])

    assert [seen(0.0), seen(0.01), seen(0.04), seen(0.04)] == [4, 0, 4, 4]


def test_what_hooks_may_not_do_with_sessions_is_taken_down() -> None:
    one, face, kineto = profiled()
    one.capture = graph = face.CUDAGraph().graph
    as_hooks("enable(None, {'cuda'})", enable=kineto.enable)
    one.capture, face.captured = None, True
    assert graph.broken and face.misdeeds == ["_enable_profiler in a capture"]

    def end() -> None:
        with pytest.raises(RuntimeError):
            as_hooks("disable()", disable=kineto.disable)

    aside = threading.Thread(target=end)
    aside.start()
    aside.join()
    assert face.misdeeds[1:] == ["a session ended on another thread, or twice"]
    as_hooks("disable()", disable=kineto.disable)
    as_hooks("enable(None, {'cuda'})", enable=kineto.enable)
    assert face.misdeeds[2:] == ["a session after a graph was captured"]
