"""What a training says of its memory, at its socket: real processes for the host, structures of torch for the GPU."""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainhooks.device import cuda
from trainhooks.protocol import control
from trainhooks.protocol.control import MemoryRequest
from trainhooks.recording import memory_growth, memory_holders
from trainhooks.recording.gc_room import forget_pause, no_collection
from trainhooks.recording.memory_holders import device_memory, process_memory

from .conftest import LIMIT, Told, Trainings, wait_for
from .test_control_socket import ended_well, started, train

__all__ = ["train"]  # a fixture

GIB, MIB = 1 << 30, 1 << 20

# Keeps 100 kB of text and a list with each step. `_tracemalloc` tells a process's own state, and changes nothing.
LEAKS = """
import _tracemalloc
kept = []
def remember(i):
    kept.append(['x' * 100_000 + str(i)])
open('go', 'w').close()
for i in th.steps(range(1_000_000)):
    sleep(0.02)
    remember(i)
    if not os.path.exists('go'): break
"""


def asked(path: Path, growth: bool = True, seconds: float = LIMIT) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as caller, control.address(path) as address:
        caller.settimeout(seconds)
        caller.connect(str(address))
        caller.sendall(MemoryRequest(growth).line())
        with caller.makefile("rb") as answer:
            return dict(json.loads(answer.readline()))


def test_growth_is_told_by_line_and_type(train: Trainings) -> None:
    process, path = started(train, LEAKS)
    wait_for(lambda: (train.work / "go").exists())
    told = asked(path)
    growth = told["growth"]
    assert told["status"] == "accepted" and told["resident"] > 10 * MIB and growth["steps"] >= 5
    place, size, count = growth["lines"][0]
    assert place == "train0.py:20" and size / growth["steps"] == pytest.approx(100_000, rel=0.25)
    assert count >= growth["steps"] - 1
    types = dict(growth["types"])
    assert types["list"] >= growth["steps"] and not any(name.startswith("trainhooks") for name in types)
    assert growth["before"] == pytest.approx(0.02, rel=1.0) and growth["during"] > 0 and not growth["programs"]
    ended_well(train, process)


def test_without_growth_nothing_runs_and_the_answer_comes_at_once(train: Trainings) -> None:
    process, path = started(train, LEAKS)
    told = asked(path, growth=False)
    assert told["growth"] is None and told["devices"] == [] and told["resident"] > 10 * MIB
    ended_well(train, process)
    journal = Told(train.state)
    assert [note["text"] for note in journal.kind("note") if note["code"] == "asked"] == [
        "asked for what holds its memory"
    ]
    assert not any(event.get("measured") for event in journal.events)


# Prints each change of tracemalloc, as the training's thread sees it.
TELLS = """
import _tracemalloc
open('go', 'w').close()
was = None
for i in th.steps(range(1_000_000)):
    sleep(0.01)
    if _tracemalloc.is_tracing() != was:
        was = _tracemalloc.is_tracing()
        print(was, flush=True)
        open('on' if was else 'off', 'w').close()
    if not os.path.exists('go'): break
"""


def test_tracemalloc_runs_for_its_caller_alone(train: Trainings) -> None:
    process, path = started(train, TELLS)
    off = train.work / "off"
    wait_for(off.exists)
    off.unlink()
    asked(path)
    wait_for(off.exists)
    with socket.socket(socket.AF_UNIX) as caller:  # one that leaves
        caller.connect(str(path))
        (train.work / "on").unlink()
        caller.sendall(MemoryRequest(True).line())
        second = asked(path, seconds=5.0)
        assert second == {"status": "refused", "reasons": [memory_growth.BUSY]}
        wait_for((train.work / "on").exists)
        off.unlink()
    wait_for(off.exists)
    (train.work / "go").unlink()
    out, err = process.communicate(timeout=LIMIT)
    assert (out.split(), err) == (["False", "True", "False", "True", "False"], "")
    told = Told(train.state)
    marked = [event for event in told.events if event.get("measured")]
    assert marked, "the steps that it made slower are marked, so that no baseline holds them"


@pytest.mark.long
def test_it_ends_where_no_step_does(train: Trainings, monkeypatch: pytest.MonkeyPatch) -> None:
    still = "with th.step(): pass\nopen('go', 'w').close()\nwhile os.path.exists('go'): sleep(0.01)"
    process, path = started(train, still)
    began = time.monotonic()
    growth = asked(path)["growth"]
    assert growth["steps"] == 0 and growth["before"] is None
    assert time.monotonic() - began < control.MAX_GROWTH_SECONDS + 5
    ended_well(train, process)


def test_the_end_of_the_program_does_not_wait_for_it(train: Trainings) -> None:
    process, path = started(train, LEAKS)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(LIMIT)
        caller.connect(str(path))
        caller.sendall(MemoryRequest(True).line())
        time.sleep(0.3)
        ended_well(train, process)
        assert caller.recv(4096) == b""


def test_a_forked_child_is_not_traced(train: Trainings) -> None:
    process, path = started(
        train,
        """
        import _tracemalloc
        open('go', 'w').close()
        for i in th.steps(range(1_000_000)):
            sleep(0.02)
            if _tracemalloc.is_tracing() and not os.path.exists('child'):
                child = os.fork()
                if not child:
                    open('part', 'w').write(str(_tracemalloc.is_tracing())); os.rename('part', 'child'); os._exit(0)
                os.waitpid(child, 0)
            if not os.path.exists('go'): break
        """,
    )
    growth = asked(path)["growth"]
    assert growth["why"] is None and (train.work / "child").read_text() == "False"
    ended_well(train, process)


def test_the_program_s_tracemalloc_is_read_and_stays_on(train: Trainings) -> None:
    on = "import tracemalloc; tracemalloc.start()\n" + LEAKS + "print(tracemalloc.is_tracing())"
    process, path = started(train, on)
    growth = asked(path)["growth"]
    assert growth["programs"] and growth["lines"][0][0].startswith("train0.py:")
    (train.work / "go").unlink()
    assert process.communicate(timeout=LIMIT) == ("True\n", "")


def test_one_that_the_program_has_only_loaded_is_left_alone(train: Trainings) -> None:
    process, path = started(train, "import tracemalloc\n" + LEAKS)
    growth = asked(path)["growth"]
    assert growth["lines"] == [] and growth["why"] == memory_growth.LOADED
    assert dict(growth["types"])["list"] >= growth["steps"], "types are told nevertheless"
    ended_well(train, process)


def test_what_the_program_lets_go_of_ends_in_its_own_thread(train: Trainings) -> None:
    process, path = started(
        train,
        """
        import gc
        finalized = []
        class Cycle:
            def __init__(self): self.own = self
            def __del__(self): finalized.append(threading.get_ident())
        class Plain(list):
            def __del__(self): finalized.append(threading.get_ident())
        for _ in th.steps(range(20)): sleep(0.005)
        written(); finalized.clear()  # what the hooks import is there
        open('go', 'w').close()
        for i in th.steps(range(1_000_000)):
            for _ in range(50): Cycle(); Plain()
            sleep(0.0005)
            if not os.path.exists('go'): break
        print(len(finalized), sum(ident != threading.get_ident() for ident in finalized), gc.isenabled())
        """,
    )
    wait_for(lambda: (train.work / "go").exists())
    for _ in range(2):
        assert asked(path)["growth"]["steps"] > 5
    (train.work / "go").unlink()
    out, err = process.communicate(timeout=LIMIT)
    finalized, elsewhere, is_on = out.split()
    assert int(finalized) > 3000 and int(elsewhere) <= int(finalized) // 100 and (is_on, err) == ("True", "")


def test_a_child_forked_meanwhile_has_its_collector() -> None:
    with no_collection():
        child = os.fork()
        if not child:
            forget_pause()  # where another test has begun a session in this process, the fork has called it before
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0 and not gc.isenabled()
    assert gc.isenabled()


@pytest.mark.long
def test_tensors_on_the_host_count_with_their_bytes(train: Trainings) -> None:
    process, path = started(
        train,
        """
        import torch
        kept = []
        def collect():
            kept.append(torch.ones(4, 4).repeat(256, 64))
        open('go', 'w').close()
        for i in th.steps(range(1_000_000)):
            sleep(0.05)
            collect()
            if not os.path.exists('go'): break
        """,
    )
    growth = asked(path)["growth"]
    sizes, counts = (sum(row[at] for row in growth["tensors"]) for at in (1, 2))
    assert counts >= growth["steps"] - 1 and sizes == pytest.approx(growth["steps"] * MIB, rel=0.25)
    if sys.version_info[:2] != (3, 11):  # which finds no trace of objects with attributes
        assert growth["tensors"][0][0] == "train0.py:19"
    assert dict(growth["types"])["torch.Tensor"] >= growth["steps"]
    ended_well(train, process)


# The GPU: structures as torch documents them (`torch/cuda/memory.py`), of torch 2.11.


def frame(file: str, line: int, name: str) -> dict[str, Any]:
    return {"filename": file, "line": line, "name": name}


LAYER = "/opt/env/lib/python3.12/site-packages/torch/nn/modules/linear.py"
FRAMES = [
    frame("/pytorch/c10/cuda/CUDACachingAllocator.cpp", 0, "c10::cuda::malloc"),
    frame("??", 0, "PyEval_EvalFrame"),
    frame(LAYER, 125, "forward"),
    frame("/home/me/train.py", 88, "forward"),
    frame("/home/me/train.py", 120, "main"),
]


def block(size: int, state: str = "active_allocated", **more: Any) -> dict[str, Any]:
    return {"address": 1, "size": size, "requested_size": size - 12, "state": state, **more}


def segment(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    return {"device": device, "address": 1, "total_size": 1, "stream": 0, "blocks": list(blocks)}


def pools(current: int) -> dict[str, Any]:
    return {kind: {"current": current, "peak": current, "allocated": 0, "freed": 0} for kind in ("all", "large_pool")}


STATS = {
    "allocated_bytes": pools(60 * GIB),
    "reserved_bytes": pools(70 * GIB),
    "inactive_split_bytes": pools(3 * GIB),
    "segment": pools(12),
    "num_ooms": 0,
}


def test_blocks_that_the_program_records_are_told_by_its_own_lines() -> None:
    told = device_memory(
        0,
        STATS,
        [
            segment(block(2 * GIB, frames=FRAMES), block(MIB, "inactive", frames=[])),
            segment(block(GIB, frames=FRAMES), block(4 * GIB, "active_awaiting_free", frames=FRAMES)),
            segment(block(5 * GIB, frames=[frame(LAYER, 9, "init")])),  # no line of the program's
            segment(block(MIB, frames=FRAMES[:2])),  # of C++ alone
            segment(block(9 * GIB, frames=FRAMES), device=1),
        ],
    )
    assert (told.allocated, told.reserved, told.split, told.recorded) == (60 * GIB, 70 * GIB, 3 * GIB, True)
    assert told.lines == [
        ("modules/linear.py:9 in init", 5 * GIB, 1),
        ("me/train.py:88 in forward", 3 * GIB, 2),
        ("", MIB, 1),
    ]


def test_blocks_without_lines_are_told_by_size_the_most_in_sum_first() -> None:
    told = device_memory(0, STATS, [segment(*[block(MIB, frames=[])] * 2000, block(GIB, frames=[]), block(512))])
    assert not told.recorded and told.lines == []
    assert told.sizes == [(2 * 1000 * MIB // 2000, 2000), (GIB, 1), (512, 1)]


def test_an_older_torch_has_frames_in_a_history_and_no_split_bytes() -> None:
    stats = {key: value for key, value in STATS.items() if key != "inactive_split_bytes"}
    told = device_memory(0, stats, [segment(block(GIB, history=[{"addr": 1, "real_size": GIB, "frames": FRAMES}]))])
    assert told.split is None and told.lines == [("me/train.py:88 in forward", GIB, 1)]


class FakeCuda:
    """torch.cuda with one device; notes what is called."""

    def __init__(self, has_option: bool = True) -> None:
        self.calls: list[str] = []
        self._has_option = has_option

    def __getattr__(self, name: str) -> Any:
        def called(*args: Any, **options: Any) -> Any:
            if name == "memory_snapshot" and options and not self._has_option:
                raise TypeError("memory_snapshot() got an unexpected keyword argument")
            self.calls.append(name)
            answers: dict[str, Any] = {
                "is_initialized": True,
                "device_count": 1,
                "memory_stats_as_nested_dict": STATS,
                "memory_snapshot": [segment(block(GIB, frames=FRAMES))],
                "get_device_properties": SimpleNamespace(total_memory=80 * GIB),
            }
            return answers[name]

        return called


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    made = FakeCuda()
    torch = SimpleNamespace(cuda=made, version=SimpleNamespace(cuda="13.0"))
    monkeypatch.setitem(sys.modules, "torch", torch)  # type: ignore[arg-type]
    yield made


@pytest.mark.parametrize("has_option", [True, False])
def test_nothing_is_turned_on_in_torch(fake: FakeCuda, has_option: bool) -> None:
    fake._has_option = has_option
    told = process_memory()
    assert told.why is None
    (device,) = told.devices
    assert (device.total, device.recorded) == (80 * GIB, True)
    assert set(fake.calls) == {
        "is_initialized",
        "device_count",
        "memory_stats_as_nested_dict",
        "memory_snapshot",
        "get_device_properties",
    }


def test_no_call_reaches_cuda_while_a_graph_is_captured(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cuda.captures, 1, True)
    told = process_memory()
    assert (told.devices, told.why, fake.calls) == ([], memory_holders.CAPTURING, ["is_initialized"])


def test_an_allocator_without_statistics_is_no_error(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STATS, "segment", {})
    told = process_memory()
    assert told.devices == [] and told.why == "torch does not say: KeyError"
