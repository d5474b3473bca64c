"""`trainmon memory`: what holds the memory of real trainings, what it grows by, and who cannot be asked."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from monitor.model.process_memory import RankMemory
from monitor.reports import memory_text
from tests.launch.conftest import State, wait_for
from trainhooks.protocol.facts import Held
from trainhooks.protocol.memory import DeviceMemory, Growth, ProcessMemory

GIB, MIB = 1 << 30, 1 << 20

LEAKS = """
import time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
kept = []
def remember(step):
    kept.append(["x" * 200_000 + str(step)])
for step in range(100_000):
    optimizer.zero_grad(); model(torch.ones(2, 4)).sum().backward(); optimizer.step(); time.sleep(0.02)
    remember(step)
    if step == 8: print("THERE", flush=True)
"""


@pytest.fixture
def leaks(state: State, tmp_path: Path) -> str:
    (tmp_path / "train.py").write_text(LEAKS)
    front = state.start(sys.executable, "-u", str(tmp_path / "train.py"))
    assert front.stdout is not None and b"THERE" in front.stdout.readline()
    wait_for(lambda: list(state.only.glob("control-*.sock")))
    return state.only.name


@pytest.mark.long
def test_what_a_training_grows_by(state: State, leaks: str) -> None:
    done = state.call("memory", leaks, "--growth", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    ((rank,), run) = (json.loads(done.stdout)[name] for name in ("ranks", "run"))
    growth = rank["memory"]["growth"]
    assert (rank["rank"], run) == (0, leaks)
    place, size, _ = growth["lines"][0]
    assert place.endswith("train.py:8") and size / growth["steps"] == pytest.approx(200_000, rel=0.25)
    words = state.call("memory", leaks, "--growth").stdout.decode()
    assert "Grown per step (" in words and "train.py:8, " in words and "tracemalloc ran meanwhile: steps took" in words
    words = state.call("memory", leaks).stdout.decode()
    assert "resident" in words and f"trainmon memory {leaks} --growth" in words and "Grown" not in words


@pytest.mark.long
def test_a_process_that_does_not_answer_is_named(state: State, leaks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from monitor.running import memory_requests
    from trainhooks.protocol.control import MemoryRequest

    monkeypatch.setattr(memory_requests, "ANSWER_SECONDS", 0.5)
    pid = state.pid(state.only)
    os.kill(pid, signal.SIGSTOP)
    try:
        (rank,) = memory_requests.ranks_memory(state.only, MemoryRequest())
    finally:
        os.kill(pid, signal.SIGCONT)
    assert rank.memory is None and "something holds the interpreter" in rank.why
    assert "rank 0: no answer" in memory_text.text("run", [rank], Held())


@pytest.mark.long
def test_a_run_that_is_over_cannot_be_asked(state: State) -> None:
    assert state.run("true").returncode == 0
    done = state.call("memory")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"is not running" in done.stderr


def test_a_run_without_hooks_says_why(state: State) -> None:
    front = state.start("sleep", "1000")
    try:
        done = state.call("memory")
        assert done.returncode == 2 and b"cannot be asked for its memory" in done.stderr
    finally:
        front.kill()
        front.communicate()


def on_gpu(allocated: float, rank: int = 0, **more: object) -> RankMemory:
    device = DeviceMemory(0, 80 * GIB, int(allocated * GIB), 70 * GIB, **more)  # type: ignore[arg-type]
    return RankMemory(rank, ProcessMemory(resident=4 * GIB, devices=[device]))


def test_a_gpu_is_told_the_most_first() -> None:
    held = Held(weights=10 * GIB, gradients=10 * GIB, optimizer=20 * GIB)
    rows = [("train.py:88 in forward", 30 * GIB, 1204), ("", GIB, 1)]
    told = memory_text.text("run", [on_gpu(60, recorded=True, lines=rows, split=3 * GIB)], held)
    assert told.splitlines()[:8] == [
        "run: rank 0",
        "GPU 0: 60.0 of 80.0 GiB in tensors",
        "  optimizer's state 20.0 GiB, activations and all else at least 20.0 GiB, weights 10.0 GiB,"
        " gradients up to 10.0 GiB, cache 10.0 GiB",
        "  of the cache 3.0 GiB lie beside tensors, and cannot be given back",
        "  by line:",
        "    30.0 GiB  train.py:88 in forward, 1,204 blocks",
        "    1.0 GiB  line unknown, 1 block",
        "Host: 4.0 GiB resident",
    ]


def test_without_recorded_lines_it_says_how_to_get_them() -> None:
    told = memory_text.text("run", [on_gpu(60, sizes=[(MIB, 2000), (512, 3)])], Held())
    assert "  blocks: 2,000 of 1.0 MiB, 3 of 512 B\n" in told and "_record_memory_history" in told
    assert "  tensors 60.0 GiB, cache 10.0 GiB\n" in told


def test_of_many_ranks_the_one_that_holds_most_comes_first() -> None:
    ranks = [on_gpu(10 + rank, rank) for rank in range(20)]
    lines = memory_text.text("run", [*ranks, RankMemory(20, why="no answer")], Held()).splitlines()
    assert lines[0] == "run: rank 19" and lines[4] == "rank 18: GPU 0 28.0 GiB in tensors, host 4.0 GiB"
    assert "4 more ranks hold less" in lines and "rank 20: no answer" in lines


def test_growth_by_little_is_left_out_and_slowness_is_said() -> None:
    growth = Growth(
        seconds=1.0,
        steps=5,
        resident=50 * MIB,
        lines=[("a.py:1", 40 * MIB, 2), ("b.py:2", 2000, 1), ("c.py:3", 600, 5)],
        tensors=[("d.py:4", 45 * MIB, 5)],
        types=[("torch.Tensor", 5), ("list", 4)],
        before=0.1,
        during=0.35,
        held=0.2,
    )
    told = memory_text.text("run", [RankMemory(0, ProcessMemory(resident=GIB, growth=growth))], Held())
    assert told.splitlines()[2:] == [
        "Grown per step (5 steps in 1.00 s): +10.0 MiB resident",
        "  9.0 MiB  d.py:4, 1 tensor",
        "  8.0 MiB  a.py:1, 0.4 objects",
        "  120 B  c.py:3, 1 object",
        "  objects that hold others: 1 torch.Tensor more per step",
        "  tracemalloc ran meanwhile: steps took 350 ms, before 100 ms (3.50x)",
        "  a look took up to 200 ms of the interpreter",
    ]
