"""Which steps the device's lane times, what it costs, and what it leaves alone. Nothing here has a GPU."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Any

import pytest

from trainhooks.device import cuda, device_sampling
from trainhooks.device.device_sampling import Sampling
from trainhooks.recording import facts
from trainhooks.recording.facts import Devices

from .conftest import Trainings

MS = 1_000_000  # nanoseconds
COST = 450_000  # nanoseconds: a timed step on the machine that was measured


def timed(seconds: list[float], cost: int = COST) -> tuple[list[tuple[int, int]], float]:
    """The steps that are timed and what each stands for, of steps that take so long; and the share that goes on it."""
    lots, now, found = Sampling(), 1_000, []
    for number, each in enumerate(seconds):
        if lots.due(now):
            found.append((number, lots.begins(now)))
            now += cost
            lots.add_cost(cost)
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
            lots.add_cost(500 * MS if number == 2 else COST)
            count += number > 20_000
        now += 10 * MS
    assert count > 900, "one in 18"


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


@pytest.mark.long
def test_a_torch_without_a_gpu_is_not_changed(train: Trainings) -> None:
    """The real one: same graphs, no note, no times."""
    script = """
        import torch
        graphs = []
        def backend(graph, _):
            graphs.append(graph)
            return graph
        model = torch.nn.Linear(4, 4)
        @torch.compile(backend=backend)
        def loss(x):
            return model(x).relu().sum()
        for i in th.steps(range(4)):
            with th.phase('forward'): value = loss(torch.ones(2, 4))
            with th.phase('backward'): value.backward()
        print(len(graphs), torch.cuda.is_initialized())
    """
    told = train(script)
    assert told.out == "1 False\n"
    assert told.kind("gpu_time") == told.kind("note") == []
