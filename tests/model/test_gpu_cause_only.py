"""Of a sick run on a GPU the planted cause comes first, also where a symptom of it looks larger, or steps are few."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from monitor.model.report import Finding
from trainhooks.protocol.events import Host

from .conftest import Story, judged
from .device_stories import AT_WORK, GIB, GPT2, ITEM_EACH_STEP, OnDevice, looped, optimizer

LAUNCHING = {"forward": 0.012, "backward": 0.016, "optimizer": 0.002, "other": 0.0003}
SLOW_HOST = {**AT_WORK, "utilization": 45.0, "sm_active": 30.0, "tensor_active": 5.0}
BUSY = {**AT_WORK, "utilization": 99.0, "sm_active": 95.0, "tensor_active": 0.1}
FP32: dict[str, Any] = {"autocast": "off", "torch": {"matmul_precision": "highest", "cuda": "13.0"}}
MOE = {"flops_forward": 6 * 10**12, "flops_backward": 12 * 10**12, "flops_by_dtype": {"float32": 1}, "batch": 64}
GRAPH = {**MOE, "flops_forward": 26 * 10**9, "flops_backward": 52 * 10**9}
METRICS = (("other", "train.py:60 (v.item) in report", 60), ("other", "train.py:62 (histc.tolist) in report", 30))
DECODING = (("other", "train.py:17 (model) in decode", 150), ("other", "train.py:18 (torch.cat) in decode", 20))


def found_in(story: Story) -> list[Finding]:
    return judged(story, alive=False)[0]


def loud(story: Story) -> list[str]:
    return [finding.code for finding in found_in(story) if finding.severity != "info"]


def one(story: Story, code: str) -> Finding:
    return next(each for each in found_in(story) if each.code == code)


def steps(
    n: int,
    host: Mapping[str, float],
    device: Mapping[str, float] | None = None,
    queued: float = 0.9,
    reading: Mapping[str, Any] = BUSY,
    looks: tuple[tuple[str, str, int], ...] = (),
    step: Mapping[str, Any] | None = None,
    **known: Any,
) -> OnDevice:
    told = OnDevice(reading, **known)
    for _ in range(n):
        told.both(host, device, queued, **(step or {"samples": 64}))
    return told.look(*looks) if looks else told


def launching(**known: Any) -> OnDevice:
    return looped(LAUNCHING, queued=0.1, reading=SLOW_HOST, step={"samples": 64}, **known)


def compiling(times: int, seconds: float, later: int = 0, fallback: bool = False) -> OnDevice:
    """Each of the first steps compiles; then there may be others."""
    facts = {"recompiles": times, "seconds": times * seconds, "reasons": ["size mismatch"], "fallback": fallback}
    told = OnDevice(SLOW_HOST, compile=facts)
    for _ in range(times + 1):
        told.both({"forward": seconds, "backward": 0.3 * seconds}, queued=0.01, samples=64)
    for _ in range(later):
        told.both(LAUNCHING, queued=0.1, samples=64)
    return told


def generating(n: int, calls: float = 16.0) -> OnDevice:
    told = OnDevice({**SLOW_HOST, "sm_active": 9.0})
    for _ in range(n):
        metrics = {"generate_calls": calls, "generate_batch": 1.0}
        told.both({"generation": 4.0, "forward": 0.02, "backward": 0.02}, queued=0.05, samples=16, metrics=metrics)
    return told


def allocator(peak: float, held: float, retries: int) -> dict[str, Any]:
    told = {"total": 80 * GIB, "peak_allocated": int(peak * GIB), "peak_reserved": int(held * GIB), "ooms": 0}
    return {"torch": {"gpu_memory": {**told, "retries": retries}}}


def crowded(waits: float) -> OnDevice:
    told = OnDevice({**SLOW_HOST, "sm_active": 10.0}, cpus=16, config={"num_workers": 64})
    for _ in range(200):
        told.both({**LAUNCHING, "data": waits}, queued=0.05, samples=64)
    return told.tell(Host, cores=16, tree_workers=64)  # type: ignore[return-value]


CAUSES: dict[str, tuple[str, Callable[[], Story]]] = {
    "launches that are waited for": (
        "debug-settings",
        lambda: launching(environment={"CUDA_LAUNCH_BLOCKING": "1"}),
    ),
    "a profiler": ("debug-settings", lambda: launching(torch={"profiler": True})),
    "an optimizer that is most of the host's time": (
        "unfused-optimizer",
        lambda: looped(
            {**LAUNCHING, "optimizer": 0.06}, queued=0.05, reading=SLOW_HOST, step={"samples": 1024},
            optimizer=optimizer(foreach=False, fused=None, tensors=602),
        ),
    ),
    "a compiler, until it gave up": ("recompiling", lambda: compiling(7, 5.0, later=400, fallback=True)),
    "a compiler in each of eight steps": ("recompiling", lambda: compiling(7, 5.0)),
    "an allocator that starts over": (
        "memory-fragmented",
        lambda: launching(**allocator(4.4, 5.0, 200)),
    ),
    "values for a log": (
        "synchronizing",
        lambda: looped(
            {**LAUNCHING, "other": 0.03}, queued=0.15, reading=SLOW_HOST, looks=METRICS, step={"samples": 64}
        ),
    ),
    "a decoder of one's own": (
        "launch-bound",
        lambda: looped(
            {"forward": 0.006, "backward": 0.008, "optimizer": 0.001, "other": 0.9}, queued=0.05,
            reading={**SLOW_HOST, "sm_active": 10.0}, looks=DECODING, step={"samples": 16}, seconds=20.0,
            ops={"launches": 100},
        ),
    ),
    "texts one by one, in four long steps": ("sequential-generation", lambda: generating(4)),
    "workers that are too many, and data that is late": ("oversubscribed", lambda: crowded(0.1)),
    "another program on the card, within twelve seconds, and a format besides": (
        "gpu-shared",
        lambda: looped(
            ITEM_EACH_STEP, GPT2, reading={**BUSY, "processes": [(7, "python3", 5 * GIB, False)]}, **FP32
        ),
    ),
    "exact fp32 in eight long steps": (
        "fp32-matmul",
        lambda: steps(8, {"forward": 1.0, "backward": 2.0}, queued=0.95, ops=MOE, **FP32),
    ),
    "values in the midst of ten long steps": (
        "synchronizing",
        lambda: steps(
            10, {"forward": 1.0, "backward": 0.6}, queued=0.2, reading=SLOW_HOST,
            looks=(("forward", "m.py:2 (.item) in forward", 80), ("backward", "t.py:3 (loss.backward) in f", 60)),
        ),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CAUSES)
def test_the_cause_comes_first(case: str) -> None:
    code, story = CAUSES[case]
    found = found_in(story())
    assert found and (found[0].code, found[0].severity != "info") == (code, True), found
    assert not {"launch-bound", "gpu-starved", "small-batch"} & set(loud(story())) - {code}


INNOCENT: dict[str, tuple[str, Callable[[], Story]]] = {
    "launches that are many, and an optimizer that is a part of them": (
        "unfused-optimizer",
        lambda: launching(optimizer=optimizer(foreach=False, fused=None, tensors=300)),
    ),
    "one wait for workers that start": ("input-bound", lambda: started_late()),
    "a network on a graph, with hardly a matrix product": (
        "fp32-matmul",
        lambda: looped(ITEM_EACH_STEP, GPT2, reading={**BUSY, "sm_active": 75.0}, ops=GRAPH, **FP32),
    ),
    "the same, and another format": (
        "no-mixed-precision",
        lambda: looped(ITEM_EACH_STEP, GPT2, reading={**BUSY, "sm_active": 75.0}, ops=GRAPH, **FP32),
    ),
    "convolutions, which have a setting of their own": (
        "fp32-matmul",
        lambda: looped(
            ITEM_EACH_STEP, GPT2, reading=BUSY, ops={"conv": {"count": 53, "share": 0.99, "tf32": True}}, **FP32
        ),
    ),
    "a value or two among hundreds of launches": (
        "synchronizing",
        lambda: launching(ops={"launches": 300, "syncs": [{"place": "mask.py:9", "call": ".all", "count": 2}]}),
    ),
    "a loss that is read in each short step": (
        "synchronizing",
        lambda: looped(
            {"forward": 0.0003, "backward": 0.0004, "optimizer": 0.0003, "other": 0.0001}, queued=0.03,
            reading={**SLOW_HOST, "sm_active": 9.0}, seconds=6.0, step={"samples": 512},
            looks=(("other", "t.py:30 (loss.item) in <module>", 60),),
        ),
    ),
    "a world of its own between the calls of a policy": (
        "launch-bound",
        lambda: looped(
            {"forward": 0.02, "backward": 0.02, "optimizer": 0.005, "other": 0.4}, queued=0.05, seconds=20.0,
            reading={**SLOW_HOST, "sm_active": 4.0}, step={"samples": 64},
            looks=(("other", "ppo.py:200 (envs.step) in <module>", 90), ("other", "ppo.py:190 (agent) in act", 40)),
        ),
    ),
    "memory that is nearly full, and not in pieces": ("memory-fragmented", lambda: launching(**allocator(78, 79, 20))),
}  # fmt: skip


@pytest.mark.parametrize("case", INNOCENT)
def test_it_is_silent_in_near_cases(case: str) -> None:
    code, story = INNOCENT[case]
    assert code not in loud(story())[:1]
    if code != "unfused-optimizer":
        assert code not in loud(story())


def started_late() -> OnDevice:
    told = OnDevice(SLOW_HOST)
    told.both({"data": 12.0, "forward": 0.3, "backward": 0.2}, queued=0.05, samples=64)
    for _ in range(500):
        told.both({**LAUNCHING, "data": 0.0003}, queued=0.1, samples=64)
    return told


def test_tf32_that_is_allowed_is_a_choice_and_no_alarm() -> None:
    tf32: dict[str, Any] = {**FP32, "torch": {"matmul_precision": "high"}}
    told = one(looped(ITEM_EACH_STEP, GPT2, reading={**BUSY, "tensor_active": 60.0}, **tf32), "no-mixed-precision")
    assert told.severity == "info"


def test_memory_that_grows_is_reported_within_ten_seconds() -> None:
    story = OnDevice({**BUSY, "tensor_active": 30.0})
    begin = story.now
    while story.now < begin + 11.0:
        assert story.reading is not None
        story.reading["memory_used"] = int((5 + 2.2 * (story.now - begin)) * GIB)
        story.both({"forward": 0.002, "backward": 0.003}, queued=0.95, samples=64)
    assert found_in(story)[0].code == "memory-leak"


# What is promised


def gain(finding: Finding) -> float:
    assert finding.recoverable is not None
    return 1 / (1 - finding.recoverable)


def test_a_format_gains_no_more_than_its_peaks_differ_by() -> None:
    """Of the time since the first step, and not of all that has passed."""
    story = OnDevice(BUSY, **FP32)
    story.wait(30.0)
    for _ in range(120):
        story.both({"forward": 0.07, "backward": 0.14}, queued=0.95, samples=64)
    assert 4.0 < gain(one(story, "fp32-matmul")) < 495 / 67


@pytest.mark.parametrize("card", ["NVIDIA H100 80GB HBM3", "NVIDIA H200"])
def test_written_out_attention_gains_what_its_matrix_takes(card: str) -> None:
    """Eight layers of 4 x 12 heads, 2,048 positions, four fp32 tensors of scores each: three quarters of a step on an
    H100, half of it on an H200; and the first step is long."""
    written = {"count": 8, "bytes": 26 * 10**9, "length": 2048, "place": "attention.py:14"}
    device = {"forward": 0.024, "backward": 0.038, "optimizer": 0.002}
    ops = {"launches": 400, "batch": 4, "attention_written_out": written}
    story = looped(device, step={"samples": 4, "tokens": 8192}, reading={**AT_WORK, "name": card}, ops=ops)
    assert 1.5 < gain(one(story, "slow-attention")) < 5.0


def test_what_a_larger_batch_gains_is_not_known() -> None:
    """It shares out what a step costs whatever its size: eleven times the samples a second beside 28% of busy SMs."""
    reading = {**SLOW_HOST, "sm_active": 28.0, "memory_used": 8 * GIB}
    story = looped(LAUNCHING, queued=0.1, reading=reading, step={"samples": 1, "tokens": 256})
    told = one(story, "small-batch")
    assert told.severity == "warning" and told.recoverable is None


def test_calls_are_counted_by_their_samples_where_no_setting_tells() -> None:
    """Thirty-two passes of one sample a step: launches enough to take the host's time."""
    ops = {"launches": 300, "batch": 1}
    host = {"forward": 0.25, "backward": 0.3, "optimizer": 0.01}
    reading = {**SLOW_HOST, "utilization": 50.0}
    story = looped(host, queued=0.1, reading=reading, step={"samples": 32, "tokens": 8192}, ops=ops, seconds=20.0)
    assert "gpu-starved" not in loud(story) and "launch-bound" in loud(story)
