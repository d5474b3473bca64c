"""What is recorded of a training's set-up: its optimizer, mixed precision, and the model run twice on one input."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainhooks.auto import instrumentation
from trainhooks.auto.models.model_calls import FIRST_CALLS_REPORT, RepeatedCalls
from trainhooks.recording import facts

from .watched import ROOT, both, long, watched

GIB = 2**30


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `Repeats` says."""
    said: list[dict[str, Any]] = []
    put: Callable[[Any], None] = lambda entry: said.append(entry[1]["facts"]["forwards"])  # noqa: E731
    monkeypatch.setattr(instrumentation.session, "quiet_put", lambda: put)
    return said


class Tensor:
    """Anything that can be referred to weakly."""


def calls(steps: int, of_a_step: Callable[[RepeatedCalls, int], None]) -> RepeatedCalls:
    counted = RepeatedCalls()
    for step in range(1, steps + 1):
        of_a_step(counted, step)
    return counted


def test_a_second_call_before_the_backward(recorded: list[dict[str, Any]]) -> None:
    def twice(counted: RepeatedCalls, step: int) -> None:
        batch = Tensor()
        counted.add_call(batch, {}, step, 0)
        counted.add_call(batch, {}, step, 0)

    assert calls(128, twice).times == 128
    assert recorded == [
        {"repeated": times * FIRST_CALLS_REPORT // 2, "calls": times * FIRST_CALLS_REPORT, "without_gradients": 0}
        for times in (1, 2, 4, 8)
    ]


def test_a_look_at_the_training_batch_without_gradients(recorded: list[dict[str, Any]]) -> None:
    def looked_at(counted: RepeatedCalls, step: int) -> None:
        batch = Tensor()
        counted.add_call_without_gradients(Tensor(), {})  # of another one, as a policy acts
        counted.add_call(batch, {}, step, 0)
        counted.add_call_without_gradients(batch, {})

    counted = calls(64, looked_at)
    assert (counted.times, counted.looks) == (0, 64)
    assert recorded[-1] == {"repeated": 0, "calls": 64, "without_gradients": 63}


def test_a_second_call_after_the_update(recorded: list[dict[str, Any]]) -> None:
    """It begins the next step, in which nothing is learned from it."""
    batches = [Tensor() for _ in range(50)]

    def once_more(counted: RepeatedCalls, step: int) -> None:
        if step > 1:
            counted.add_call(batches[step - 1], {}, step, 0)
        counted.add_call(batches[step], {}, step, 0)

    assert calls(49, once_more).times == 48
    assert recorded


def test_other_arguments_make_another_call(recorded: list[dict[str, Any]]) -> None:
    """`model(user, item)` and `model(user, other_item)`; labels that one of them leaves out change nothing."""

    def pairs(counted: RepeatedCalls, step: int, others: tuple[dict[Any, int], ...]) -> None:
        user = Tensor()
        for given in others:
            counted.add_call(user, {0: id(user), **given}, step, 0)

    assert calls(64, lambda counted, step: pairs(counted, step, ({1: 7}, {1: 8}))).times == 0
    assert calls(64, lambda counted, step: pairs(counted, step, ({"labels": 7}, {}))).times == 64


def views(counted: RepeatedCalls, step: int) -> None:
    kept = [Tensor(), Tensor()]
    for batch in kept:
        counted.add_call(batch, {}, step, 0)


def slices(counted: RepeatedCalls, step: int) -> None:
    for _ in range(8):
        counted.add_call(Tensor(), {}, step, 0)  # gone at once: the next one may lie in the same place


def twice_learned(counted: RepeatedCalls, step: int) -> None:
    batch = Tensor()
    counted.add_call(batch, {}, step, 0)
    counted.add_call(batch, {}, step, 1)


def epochs_of_one_batch(counted: RepeatedCalls, step: int, batch: Tensor = Tensor()) -> None:  # noqa: B008
    counted.add_call(batch, {}, step, 0)


@pytest.mark.parametrize("of_a_step", [views, slices, twice_learned, epochs_of_one_batch])
def test_no_repetition(recorded: list[dict[str, Any]], of_a_step: Callable[[RepeatedCalls, int], None]) -> None:
    assert calls(64, of_a_step).times == 0
    assert recorded == []


@pytest.mark.long
def test_an_unmodified_program(tmp_path: Path) -> None:
    run = both(tmp_path, "twice.py")
    facts = run.facts
    assert len(run.steps()) == 40
    assert facts["forwards"]["calls"] == 64 and facts["forwards"]["repeated"] >= 30
    assert facts["autocast"] == "bfloat16"
    assert facts["optimizer"]["class"] == "AdamW" and facts["optimizer"]["device"] == "cpu"
    assert (facts["optimizer"]["fused"], facts["optimizer"]["foreach"]) == (None, False)
    assert facts["optimizer"]["tensors"] == 4
    assert facts["model"]["class"] == "Classifier"
    assert "duplicate-forward" in [finding.code for finding in run.report.findings]


TRAINING = """
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(30):
    loss = model(torch.randn(4, 8)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("words", "tool"), [(("-m", "cProfile", "-o", "profile"), "profile"), long(("-X", "tracemalloc"), "tracemalloc")]
)
@pytest.mark.long
def test_tools_that_python_calls(tmp_path: Path, words: tuple[str, ...], tool: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    options = [str(tmp_path / word) if word == "profile" else word for word in words]
    seen = watched(tmp_path, *options, str(script))
    assert seen.facts["python"] == {tool: True}
    assert "debug-settings" in [finding.code for finding in seen.report.findings]


GRAPHS = """
import sys, torch
from trainhooks.auto import imports
{arm}
make = torch.amp.autocast_mode.autocast.__init__
def f(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return torch.mm(x, x)
x = torch.ones(4, 4)
print(torch.compile(f, fullgraph=True, backend="eager")(x).dtype, f(x).dtype)
scripted = torch.jit.script(torch.nn.Linear(4, 4))
print(torch.autocast("cpu", enabled=False).fast_dtype, scripted(x).shape)
now = torch.amp.autocast_mode.autocast.__init__
print(now is make, hasattr(now, "__wrapped__"), file=sys.stderr)
"""


@pytest.mark.long
def test_the_class_is_left_as_it_was_after_its_first_use() -> None:
    """And graphs hold the same before and after."""
    ended = [
        subprocess.run(
            [sys.executable, "-c", GRAPHS.format(arm=arm)], cwd=ROOT, capture_output=True, text=True, timeout=100
        )
        for arm in ("", "imports.install()")
    ]
    assert [each.returncode for each in ended] == [0, 0], ended[1].stderr
    assert ended[0].stdout == ended[1].stdout
    assert ended[0].stderr.split()[-2:] == ["True", "False"]
    assert ended[1].stderr.split()[-2:] == ["False", "False"]


def cuda(**stats: int) -> SimpleNamespace:
    def recorded(index: int) -> dict[str, Any]:
        peak = GIB * (index + 1)
        return {
            "allocated_bytes": {"all": {"peak": peak, "current": peak // 2 + 1}},
            "reserved_bytes": {"all": {"peak": 2 * peak, "current": 2 * peak}},
            "num_alloc_retries": stats.get("retries", 0),
            "num_ooms": 0,
        }

    return SimpleNamespace(
        is_initialized=lambda: True,
        device_count=lambda: 2,
        memory_stats_as_nested_dict=recorded,
        get_device_properties=lambda index: SimpleNamespace(total_memory=100 * GIB),
    )


def fake_torch(used: tuple[int, ...], **stats: int) -> Any:
    context = SimpleNamespace(_cuda_hasPrimaryContext=lambda index: index in used)
    return SimpleNamespace(cuda=cuda(**stats), version=SimpleNamespace(cuda="13.0"), _C=context)


def test_the_allocators_figures_are_of_the_device_in_use() -> None:
    assert facts._gpu_memory(fake_torch((1,)))["peak_allocated"] == 2 * GIB
    recorded = facts._gpu_memory(fake_torch((0,)))
    assert (recorded["peak_allocated"], recorded["peak_reserved"]) == (GIB, 2 * GIB)
    assert (recorded["allocated"], recorded["reserved"]) == (GIB // 2 + 1, 2 * GIB)
    assert facts._gpu_memory(fake_torch(())) == {}
    assert facts._gpu_memory(fake_torch((0,), retries=13))["retries"] == 8  # seldom news


def test_they_are_absent_where_nothing_was_started() -> None:
    assert "gpu_memory" not in facts.torch_flags()


def test_a_profiler_that_runs_in_another_thread_is_seen() -> None:
    """The hooks ask from a thread of their own, and torch's own question is about the thread that asks."""
    import torch

    with ThreadPoolExecutor(1) as other:
        assert other.submit(facts.torch_flags).result()["profiler"] is False
        with torch.profiler.profile():
            assert other.submit(facts.torch_flags).result()["profiler"] is True
        assert other.submit(facts.torch_flags).result()["profiler"] is False


def test_anomaly_detection_is_the_users_and_not_the_compilers() -> None:
    """While torch.compile traces a model it switches it on, without the search for nan that costs so much."""
    import torch
    from torch._dynamo.backends.common import aot_autograd

    seen = []

    def backend(graph: Any, _: Any) -> Any:
        seen.append(facts.torch_flags()["detect_anomaly"])
        return graph.forward

    compiled = torch.compile(torch.nn.Linear(2, 2), backend=aot_autograd(fw_compiler=backend))
    compiled(torch.zeros(1, 2)).sum().backward()
    with torch.autograd.detect_anomaly(check_nan=False):
        seen.append(facts.torch_flags()["detect_anomaly"])
    assert seen and not any(seen)
    with torch.autograd.detect_anomaly():
        assert facts.torch_flags()["detect_anomaly"] is True
