"""Rules on what the device does: each fires on its own pathology, and healthy loops on a GPU are left in peace.

Nothing here may rest on the host's clock alone: the healthy loops are those whose host looks sick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.model.report import Finding

from .conftest import Story, judged
from .device_stories import (
    AT_WORK,
    COPIED,
    COPYING,
    GIB,
    GPT2,
    ITEM_EACH_STEP,
    NO_GPM,
    OnDevice,
    evaluating,
    hf_trainer,
    just_in_time,
    launching,
    llama_sft,
    looped,
    matmul,
    optimizer,
    pageable_copies,
)
from .test_rules import codes

MIB = 2**20
LAUNCHED = {"flops_by_dtype": {"bfloat16": 10**12}, "launches": 1800}
WAITS = [{"place": "model.py:88", "call": ".item", "count": 24}]
WAITING = (("forward", "model.py:88 (.item) in forward", 70), ("backward", "train.py:40 (.backward) in step", 30))
HALF_IDLE = {**AT_WORK, "utilization": 80.0, "sm_active": 38.0}
CONVOLVED = {"count": 53, "share": 0.98, "channels_last": 0, "largest": "64x64x56x56 by 64x64x3x3"}
HALF_FORMAT, FULL_FORMAT = {"bfloat16": 10**12, "float32": 10**9}, {"float32": 10**12}


def allocator(peak: float, held: float, retries: int) -> dict[str, Any]:
    """What torch tells of the card's 80 GiB."""
    told = {"peak_allocated": int(peak * GIB), "peak_reserved": int(held * GIB), "retries": retries}
    return {"torch": {"gpu_memory": {"total": 80 * GIB, "ooms": 0, **told}}}


def tiny(samples: int = 2, tokens: int = 256, used: float = 6, sm: float = 12.0, queued: float = 0.05) -> OnDevice:
    """Steps of few samples on a card that is nearly empty."""
    reading = {**AT_WORK, "utilization": 90.0, "sm_active": sm, "memory_used": int(used * GIB)}
    return launching(reading, queued, step={"samples": samples, "tokens": tokens})


def waiting(
    sm: float | None = 38.0, queued: float = 0.3, syncs: Any = WAITS, looks: Any = WAITING, **more: Any
) -> OnDevice:
    """Values that are taken to the host in the midst of forward."""
    host = {"forward": 0.030, "backward": 0.012, "optimizer": 0.002}
    reading = {**AT_WORK, "sm_active": sm}
    return looped(host, queued=queued, reading=reading, looks=looks, ops={**LAUNCHED, "syncs": syncs}, **more)


def moving(into: float, back: float, sm: float = 40.0) -> OnDevice:
    """So many bytes a second into the device and back."""
    reading = {**AT_WORK, "sm_active": sm, "pcie_rx": into, "pcie_tx": back}
    device = {"forward": 0.050, "backward": 0.080, "optimizer": 0.003}
    return looped(device, queued=0.3, reading=reading)


def batched(size: int, pinned: bool, rate: float = 2e9) -> OnDevice:
    """Batches of so many bytes, and nobody saw the stack."""
    reading = {**HALF_IDLE, "pcie_rx": rate}
    return looped(COPYING, COPIED, queued=0.28, reading=reading, batch={"bytes": size, "pinned": pinned})


def shaped(share: float, **more: Any) -> OnDevice:
    ops = {**LAUNCHED, "misaligned": {"share": share, "shapes": ["24576x50257x768"]}}
    return hf_trainer(ops=ops, **more)


def convolving(conv: dict[str, Any] = CONVOLVED, formats: dict[str, int] = HALF_FORMAT, **more: Any) -> OnDevice:
    return hf_trainer(ops={"launches": 400, "conv": conv, "flops_by_dtype": formats}, **more)


def deterministic(on: bool = True, **more: Any) -> OnDevice:
    return hf_trainer(torch={"deterministic": on}, **more)


SICK: dict[str, Callable[[], Story]] = {
    "small-batch": tiny,
    "launch-bound": launching,
    "synchronizing": waiting,
    "offload": lambda: moving(12e9, 11e9),
    "pageable-copies": pageable_copies,
    "misaligned-shapes": lambda: shaped(0.8),
    "channels-last": convolving,
    "deterministic-mode": deterministic,
    "memory-fragmented": lambda: hf_trainer(**allocator(40, 76, 6)),
}

NOT_IN_ZOO = dict.fromkeys(SICK, "it needs a GPU: make gpu-check plants it")
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "small-batch": [
        lambda: tiny(tokens=8192),  # one long sequence is as good as a batch
        lambda: tiny(used=70),  # no room for a larger one
        lambda: tiny(samples=256),
        lambda: tiny(sm=85.0),
        hf_trainer,
        lambda: launching(NO_GPM, step={"samples": 2, "tokens": 256}),  # without SM activity it is not known
    ],
    "launch-bound": [
        just_in_time,
        hf_trainer,
        matmul,
        lambda: looped({"forward": 0.002, "backward": 0.003, "rollouts": 0.030}, queued=0.05, reading=HALF_IDLE),
        waiting,  # what the host does meanwhile has a name
    ],
    "synchronizing": [
        lambda: waiting(sm=90.0, queued=0.9),  # the queue is full again in time
        lambda: waiting(syncs=[{"place": "train.py:50", "call": ".item", "count": 1}], looks=()),  # at the step's end
        lambda: waiting(syncs=[], looks=(("other", "train.py:50 (loss.item) in <module>", 90), *WAITING[1:])),
        lambda: waiting(sm=None, timed=False),  # how busy the GPU is, nobody knows
        hf_trainer,
        matmul,
    ],
    "offload": [
        lambda: moving(12e9, 1e8),  # data on its way in
        lambda: moving(2e8, 12e9),
        lambda: moving(5e7, 5e7),
        hf_trainer,
    ],
    "pageable-copies": [
        lambda: batched(150 * MIB, pinned=True),
        lambda: batched(40_000, pinned=False, rate=2e7),  # tokens
        lambda: moving(12e9, 11e9),  # told as what it is
        hf_trainer,
        lambda: looped(COPYING, COPIED, reading=HALF_IDLE, looks=(("other", "copies.py:86 (.to) in fetch", 63),)),
    ],
    "misaligned-shapes": [
        lambda: shaped(0.05),
        lambda: hf_trainer(ops=LAUNCHED),
        lambda: shaped(0.8, seconds=1.5),  # too few steps to judge
        hf_trainer,
    ],
    "channels-last": [
        lambda: convolving(formats=FULL_FORMAT),  # in fp32 the layout gains little
        lambda: convolving({**CONVOLVED, "channels_last": 53}),
        lambda: convolving({**CONVOLVED, "share": 0.1}),
        hf_trainer,
    ],
    "deterministic-mode": [
        lambda: deterministic(False),
        lambda: deterministic(seconds=1.5),
        hf_trainer,
    ],
    "memory-fragmented": [
        lambda: hf_trainer(**allocator(40, 76, 1)),  # the first long batch
        lambda: hf_trainer(**allocator(40, 76, 0)),  # the cache, as it should be
        lambda: hf_trainer(**allocator(72, 76, 3)),
        hf_trainer,
    ],
}

HEALTHY: dict[str, Callable[[], Story]] = {
    "a loss read in each step": hf_trainer,
    "the same, a few steps timed": lambda: hf_trainer(every=7),
    "the same, by the host's clock alone": lambda: hf_trainer(timed=False),
    "the same, before the H100": lambda: hf_trainer(reading=NO_GPM),
    "the same, and no driver": lambda: hf_trainer(reading=None),
    "the same, and nothing told": lambda: hf_trainer(timed=False, reading=None),
    "a loss read each 20th step": matmul,
    "the same, each 20th step timed": lambda: matmul(every=20),
    "the same, each 7th, by the clock alone": lambda: matmul(every=7),
    "the same, no step timed": lambda: matmul(timed=False),
    "evaluations between the steps": evaluating,
    "the same, one step in 20 timed": lambda: evaluating(every=20),
    "an empty queue and busy SMs": just_in_time,
    "one wait at the end of each step": lambda: looped(
        ITEM_EACH_STEP, GPT2, looks=(("other", "train.py:50 (loss.item) in <module>", 90),)
    ),
}


@pytest.mark.parametrize("case", HEALTHY)
def test_a_healthy_run_on_a_gpu_is_left_in_peace(case: str) -> None:
    found, _ = judged(HEALTHY[case](), alive=False)
    assert [each for each in found if each.severity != "info"] == []


# What a finding says


def one(told: Story, code: str) -> Finding:
    found, _ = judged(told, alive=False)
    return next(each for each in found if each.code == code)


def gain(finding: Finding) -> float:
    """Times as fast."""
    assert finding.recoverable is not None
    return 1 / (1 - finding.recoverable)


def test_without_sm_activity_what_a_graph_would_gain_is_not_known() -> None:
    told = one(launching(NO_GPM), "launch-bound")
    assert told.severity == "info" and told.lost_fraction is None and told.recoverable is None
    assert "active" not in told.title


def test_no_gain_is_beyond_the_time_in_which_the_sms_are_idle() -> None:
    assert gain(one(launching(), "launch-bound")) <= 1 / 0.09 + 0.01
    assert gain(one(waiting(), "synchronizing")) <= 1 / 0.38 + 0.01
    assert 2.0 <= gain(one(pageable_copies(), "pageable-copies")) <= 3.4


def test_of_a_small_batch_and_its_launches_one_is_the_cause() -> None:
    found = {finding.code: finding.severity for finding in judged(tiny(), alive=False)[0]}
    assert found["small-batch"] == "warning" and found["launch-bound"] == "info"
    full_queue = one(tiny(queued=0.95), "small-batch")  # work enough, and each kernel too small
    assert full_queue.severity == "warning" and "2 samples, 256 tokens" in full_queue.title


def test_a_wait_is_reported_with_line_and_count() -> None:
    told = one(waiting(), "synchronizing")
    assert any("24 at model.py:88" in line for line in told.evidence)
    seen = one(waiting(syncs=[]), "synchronizing")
    assert any("most at model.py:88 (.item) in forward" in line for line in seen.evidence)


def test_a_wait_that_was_counted_and_never_seen_is_none() -> None:
    """Hundreds of looks, none at a wait, and the time is spent in no forward pass: they are so quick."""
    rows = (("backward", "train.py:40 (.backward) in step", 300),)
    device = {"forward": 0.002, "backward": 0.040, "optimizer": 0.002}
    reading = {**AT_WORK, "sm_active": 38.0}
    ops = {**LAUNCHED, "syncs": WAITS}
    assert "synchronizing" not in codes(looped(device, queued=0.3, reading=reading, looks=rows, ops=ops))


def test_what_the_waits_explain_has_no_second_name() -> None:
    host = {"forward": 0.030, "backward": 0.008, "other": 0.030}
    reading = {**AT_WORK, "utilization": 30.0, "sm_active": 20.0}
    told = looped(host, queued=0.2, reading=reading, looks=WAITING, ops={**LAUNCHED, "syncs": WAITS})
    assert [finding.code for finding in judged(told, alive=False)[0] if finding.severity != "info"] == ["synchronizing"]


def test_copies_beside_the_computing_are_information() -> None:
    assert one(moving(12e9, 11e9, sm=85.0), "offload").severity == "info"
    assert one(moving(12e9, 11e9), "offload").severity == "warning"


def test_a_batch_in_pageable_memory_is_reported_by_its_size() -> None:
    told = one(batched(150 * MIB, pinned=False), "pageable-copies")
    assert told.severity == "warning" and "150 MiB" in told.evidence[0]
    assert one(batched(30 * MIB, pinned=False), "pageable-copies").severity == "info"


def test_copies_as_fast_as_the_link_are_not_slow_for_their_memory() -> None:
    link = {"pcie_gen": 4, "pcie_gen_max": 4, "pcie_width": 8, "pcie_width_max": 8}  # 13 GB/s, in practice
    reading = {**HALF_IDLE, **link, "pcie_rx": 6e9}
    looks = (("other", "copies.py:86 (.to) in fetch", 80), ("forward", "copies.py:90 (net) in step", 20))
    assert "pageable-copies" not in codes(looped(COPYING, COPIED, queued=0.3, reading=reading, looks=looks))


@pytest.mark.parametrize(("part", "severity"), [(0.25, "info"), (0.8, "warning")])
def test_a_vocabulary_of_odd_size_alone_is_a_word_and_no_alarm(part: float, severity: str) -> None:
    assert one(shaped(part), "misaligned-shapes").severity == severity
    assert one(shaped(part), "misaligned-shapes").lost_fraction is None


def test_shapes_and_layouts_are_no_alarm_where_the_host_sets_the_pace() -> None:
    slow_host = {**AT_WORK, "sm_active": 30.0}
    for code, ops in (
        ("misaligned-shapes", {"misaligned": {"share": 0.8, "shapes": []}}),
        ("channels-last", {"conv": CONVOLVED, "flops_by_dtype": HALF_FORMAT}),
    ):
        assert one(launching(slow_host, ops=ops), code).severity == "info"


def test_fragmented_memory_is_not_reported_as_full() -> None:
    assert "oom-risk" not in codes(hf_trainer(**allocator(40, 76, 6)))
    assert "oom-risk" in codes(hf_trainer(**allocator(74, 79, 6)))


def test_another_program_on_the_card_is_named() -> None:
    for told in (llama_sft(), llama_sft(timed=True)):
        found = [each for each in judged(told, alive=False)[0] if each.severity != "info"]
        assert [finding.code for finding in found] == ["gpu-shared"] and "python3 (4.6 GiB)" in found[0].title


def test_an_optimizer_of_many_small_steps_is_reported_by_the_device() -> None:
    host = {"forward": 0.030, "backward": 0.040, "optimizer": 0.060}
    device = {"forward": 0.050, "backward": 0.070, "optimizer": 0.003}
    known = {"optimizer": optimizer(foreach=False, fused=None)}
    assert "unfused-optimizer" not in codes(looped(host, device, **known))
    assert "unfused-optimizer" not in codes(looped(host, timed=False, **known))
    assert one(looped(device, host, **known), "unfused-optimizer").severity == "warning"
