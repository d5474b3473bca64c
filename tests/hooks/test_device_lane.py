"""Which steps the device's lane times, what it costs, and what it leaves alone. Nothing here has a GPU."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from typing import Any

import pytest

from trainhooks.auto.models.update_checks import CHECKS_AGAIN, FIRST_CHECKS
from trainhooks.auto.steps.fast_path import MIN_INTERVAL
from trainhooks.device import cuda, device_sampling
from trainhooks.device.device_sampling import Sampling
from trainhooks.recording import facts
from trainhooks.recording.facts import Devices

from .conftest import Told, Trainings
from .test_gpu_clock import FAKE, gpu_times

MS = 1_000_000  # nanoseconds
COST = 450_000  # nanoseconds: a timed step on the machine that was measured


def timed(seconds: list[float], cost: int = COST) -> tuple[list[tuple[int, int]], float]:
    """The steps that are timed and what each stands for, of steps that take so long; and the share that goes on it."""
    lots, now, found = Sampling(), 1_000, []
    for number, each in enumerate(seconds):
        if lots.due(now):
            found.append((number, lots.begins(now)))
            now += cost
            lots.costs(cost)
        now += int(each * 1e9)
    return found, cost * len(found) / now


@pytest.mark.parametrize("step", [0.0002, 0.0005, 0.001, 0.01, 0.05, 0.1, 1.0])
def test_the_budget_holds_on_average(step: float) -> None:
    count = 20_000
    found, share = timed([step] * count)
    first = device_sampling.FIRST_STEPS * COST / (count * step * 1e9)
    assert share <= device_sampling.BUDGET + first
    # As many as it allows, by the safety factor; the blocks have 1,000 steps at most.
    assert share >= 0.8 * min(device_sampling.BUDGET, COST / (step * 1e9)) / device_sampling.COST_SAFETY_FACTOR
    if step >= 0.2:
        assert len(found) == count, "slow steps are all timed"


def test_one_step_of_each_block_is_timed_at_random() -> None:
    found, _ = timed([0.001] * 50_000)
    at = [number for number, _ in found]
    assert at[: device_sampling.FIRST_STEPS] == [0, 1, 2], "the first ones are all seen"
    apart = [b - a for a, b in pairwise(at[10:])]
    every = found[-1][1]
    assert len(set(apart)) > 50 and max(apart) < 2 * every and min(apart) < every / 2
    for period in (2, 5, 10, 20, 50):
        seen = {number % period for number in at[10:]}
        assert len(seen) > 0.9 * period, "a program that does something each 20th step is seen doing it"
    assert sum(every for _, every in found) == pytest.approx(50_000, rel=0.02), "each stands for its block"


def test_a_log_every_20th_step_is_timed_in_proportion() -> None:
    steps = [0.7 if number % 20 == 19 else 0.0015 for number in range(20_000)]
    found, share = timed(steps)
    assert share < device_sampling.BUDGET
    slow = sum(number % 20 == 19 for number, _ in found) / len(found)
    assert 0.02 < slow < 0.09


def test_sampling_adapts_to_steps_that_become_slower_or_faster() -> None:
    found, _ = timed([0.0005] * 5_000 + [2.0] * 100)
    assert len([number for number, _ in found if number >= 5_000]) > 80
    found, share = timed([60.0] + [0.001] * 60_000)
    assert share < device_sampling.BUDGET and len(found) < 1_000
    found, share = timed(([0.001] * 2_000 + [30.0]) * 10)
    assert share < device_sampling.BUDGET, "evaluations between"


def test_a_single_high_cost_is_forgotten() -> None:
    lots, now, count = Sampling(), 1, 0
    for number in range(40_000):
        if lots.due(now):
            lots.begins(now)
            lots.costs(500 * MS if number == 2 else COST)
            count += number > 20_000
        now += 10 * MS
    assert count > 900, "one in 18"


def test_two_processes_time_different_steps() -> None:
    one, other = ([number for number, _ in timed([0.001] * 20_000)[0]] for _ in range(2))
    assert len(set(one) & set(other)) < 0.3 * len(one)


# In a training

SAMPLED = (
    FAKE
    + """
from collections import deque
device_sampling.Sampling._block_size = lambda self, step: 1 if self._done < 3 else 10
plain = []
"""
)


def test_untimed_steps_put_straight_into_the_lane(train: Trainings) -> None:
    told = train(
        SAMPLED
        + """
for i in th.steps(range(200)):
    with th.phase('forward'): work(0.001); sleep(0.001)
    plain.append(type(session.here.put.__self__) is deque)
    with th.step(): pass  # no step: a phase of the outer one
wait()
for i in range(100):
    with th.step():
        with th.phase('forward'): work(0.001); sleep(0.001)
        plain.append(type(session.here.put.__self__) is deque)
wait()
print(plain.count(False), Event.made < 40)
"""
    )
    times = gpu_times(told)
    assert told.out == f"{len(times)} True\n[]\n"
    assert 25 <= len(times) <= 40
    assert len({b - a for a, b in pairwise(sorted(times))}) > 5
    assert {event.get("every", 1) for event in times.values()} == {1, 10}
    assert all(name in ("data", "forward", "step") for event in times.values() for name, _ in event["phases"])


def test_stretches_add_up_to_what_the_device_took(train: Trainings) -> None:
    told = train(
        SAMPLED
        + """
work(2.0)  # so long the machine may hold the thread up
for i in th.steps(range(120)):
    work(0.004); sleep(0.001)
    if i == 70:
        try:
            with th.step(): raise ValueError
        except ValueError: pass
wait()
"""
    )
    times = gpu_times(told)
    order = sorted(times)
    for before, step in pairwise(order):
        assert times[step]["since"] == before
        assert times[step]["stretch"] == pytest.approx(0.004 * (step - before), abs=2e-4)
    assert "stretch" not in times[order[0]]


def test_stack_samples_are_sent_with_their_step(train: Trainings) -> None:
    """Behind a queue the host waits for the device; the same line with an empty queue leaves it idle."""
    told = train(
        FAKE
        + """
def reads(): wait()
def thinks(): sleep(0.5)
for i in th.steps(range(6)):
    with th.phase('forward'): work(0.5)
    reads()
    thinks()
"""
    )
    rows: dict[str, list[int]] = {}
    for event in gpu_times(told).values():
        for phase, place, looks, idle in event.get("looks", []):
            row = rows.setdefault(f"{phase} {place.rpartition(' ')[2]}", [0, 0])
            row[0], row[1] = row[0] + looks, row[1] + idle
    waited = [row for name, row in rows.items() if name in ("other wait", "other reads")]
    looks, idle = (sum(row[place] for row in waited) for place in (0, 1))
    assert looks > 8 and idle <= 2, rows
    looks, idle = rows["other thinks"]
    assert looks > 8 and idle >= looks - 1, rows


def test_a_capture_in_another_thread_stops_all_calls_to_cuda(train: Trainings) -> None:
    told = train(
        FAKE
        + """
class Tensor:
    is_cuda, is_cpu, dtype, device = True, False, 'f32', types.SimpleNamespace(index=0)
    def numel(self): return 1
    def detach(self): misdeeds.append('copied in a capture') if cuda.graphs else None; raise RuntimeError
graph = CUDAGraph()
def run(call):
    thread = threading.Thread(target=call); thread.start(); thread.join()
for i in th.steps(range(12)):
    if i == 4: run(graph.capture_begin); calls = Event.recorded, Event.made
    with th.phase('forward'): work(0.001); th.log(loss=Tensor())
    if i == 8:
        assert calls == (Event.recorded, Event.made)
        run(graph.capture_end)
    wait()
wait()
"""
    )
    assert set(gpu_times(told)) >= {1, 2, 3, 4, 11, 12} and not set(gpu_times(told)) & {5, 6, 7, 8, 9}


def test_a_child_forked_in_a_timed_step_times_nothing(train: Trainings) -> None:
    told = train(
        FAKE
        + """
for i in th.steps(range(3)):
    with th.phase('forward'): work(0.001)
    child = os.fork()
    if child == 0:
        th.log(a=1.0)
        assert not lane.watching and not lane.check_cuda() and not misdeeds
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
wait()
"""
    )
    assert list(gpu_times(told)) == [1, 2, 3]


def test_the_exit_reads_finished_events_without_waiting(train: Trainings) -> None:
    told = train(
        FAKE
        + """
for i in th.steps(range(5)):
    with th.phase('forward'): work(0.001 if i < 3 else 50)
    if i == 2: wait()
"""
    )
    assert list(gpu_times(told)) == [1, 2, 3]


# Captures


def test_captures_are_counted_however_they_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class CUDAGraph:
        fails = False

        def capture_begin(self, pool: Any = None) -> None:
            if self.fails:
                raise RuntimeError("no capture today")

        def capture_end(self) -> None:
            if self.fails:
                raise RuntimeError("broken")

    class Torch:
        class cuda:
            pass

    Torch.cuda.CUDAGraph = CUDAGraph  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", Torch)
    for _ in range(3):
        cuda.watch_captures()
    graph = CUDAGraph()
    graph.capture_begin(pool=1)
    other = CUDAGraph()
    other.capture_begin()
    assert len(cuda.captures) == 2 and not cuda.is_quiet()
    del other
    assert len(cuda.captures) == 1, "one that was dropped does not silence us for ever"
    graph.fails = True
    with pytest.raises(RuntimeError, match="broken"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="no capture"):
        graph.capture_begin()
    assert not cuda.captures


def test_graphs_of_any_accelerator_are_captures_too(monkeypatch: pytest.MonkeyPatch) -> None:
    class Graph:
        def capture_begin(self) -> None: ...
        def capture_end(self) -> None: ...

    class Torch:
        class cuda: ...

        class accelerator: ...

    Torch.accelerator.Graph = Graph  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", Torch)
    cuda.watch_captures()
    graph = Graph()
    graph.capture_begin()
    assert len(cuda.captures) == 1
    graph.capture_end()
    assert not cuda.captures


def test_the_background_thread_makes_no_call_in_a_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("asked")

    monkeypatch.setitem(cuda.captures, 1, True)
    monkeypatch.setattr(facts, "_gpu_memory_figures", {"total": 1})
    monkeypatch.setitem(sys.modules, "torch", Torch())
    assert facts._gpu_memory(Torch()) == {"total": 1}
    assert Devices().in_use(1e9) == []


# Losses and the usual step, on the real torch with a simulated device


def simulated(train: Trainings, workload: str, steps: int) -> tuple[Told, dict[str, float]]:
    told = train(
        f"""
        import dataclasses, json, sys
        from tests.simulated_device import begin
        device, clock = begin()
        from tests.simulated_device.install import install
        face = install(device)
        from trainhooks.auto import imports
        imports.install()
        from tests.simulated_device.workloads import WORKLOADS, train
        from trainhooks.auto.steps.fast_path import FastPath
        end, ends = FastPath.end_step, []
        FastPath.end_step = lambda *args: (ends.append(1), end(*args))
        began = clock.now
        train(device, dataclasses.replace(WORKLOADS[{workload!r}], steps={steps}))
        seconds = (clock.now - began) / 1e9
        print(json.dumps(dict(face.calls, fast=len(ends), seconds=seconds, cost=face.hooks_cost / 1e9)))
        print(sorted(face.misdeeds))
        """,
        plain=True,
        quiet=False,
    )
    return told, json.loads(told.out.splitlines()[0])


def test_untimed_steps_stay_on_the_fast_path_and_losses_are_taken_at_intervals(train: Trainings) -> None:
    told, counted = simulated(train, "one-millisecond", 1500)
    assert told.out.endswith("[]\n")
    times = {event["step"]: event for event in told.kind("gpu_time")}
    assert 3 <= len(times) < 150 and told.indices == list(range(1, 1501))
    # A timed step leaves the fast path for itself alone, and so do the steps that are checked.
    checked = FIRST_CHECKS + (CHECKS_AGAIN + 1) * counted["seconds"] * 1e9 / MIN_INTERVAL
    assert counted["fast"] > 1500 - 3 * len(times) - 10 - checked > 1200
    assert counted["cost"] < 0.01 * counted["seconds"], "all calls of the hooks to the device, by the measured table"
    assert 5 <= counted["copy_"] <= 10 * counted["seconds"] + 2
    assert counted["pinned memory"] <= 20, "places are used again"
    losses = [step for step in told.steps if "loss" in step.get("metrics", {})]
    late = [event for event in told.kind("metrics") if "loss" in event["values"]]
    assert abs(len(losses) + len(late) - counted["copy_"]) <= 2


def test_slow_steps_are_all_timed_and_have_a_loss(train: Trainings) -> None:
    told, counted = simulated(train, "hundred-milliseconds", 60)
    assert told.out.endswith("[]\n")
    times = {event["step"] for event in told.kind("gpu_time") if "seconds" in event}
    assert len(times) >= 25
    assert counted["copy_"] >= 55
