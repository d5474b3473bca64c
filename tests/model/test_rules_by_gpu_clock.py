"""Rules that held before GPUs were timed: on a GPU by the device's clock and the driver, never by the host's alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from monitor.diagnosis.judge import GAIN_UNKNOWN
from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.rules.regression import regressed
from monitor.model.comparison.compare import Side
from monitor.model.comparison.loop_pace import loop_time
from monitor.model.report import Finding
from monitor.model.summary import make_report, open_work
from trainhooks.protocol.events import Facts, Host

from .conftest import Story, around, folded, judged
from .device_stories import (
    AT_WORK,
    GIB,
    GPT2,
    ITEM_EACH_STEP,
    NO_GPM,
    PRODUCTS,
    QUEUEING,
    OnDevice,
    hf_trainer,
    launching,
    looped,
    matmul,
)
from .test_rules import codes

FETCHING = {"data": 0.060, "forward": 0.020, "backward": 0.030, "optimizer": 0.002}
HALF_IDLE = {**AT_WORK, "utilization": 50.0, "sm_active": 40.0}


def told_of(story: Story, code: str) -> Finding | None:
    found, _ = judged(story, alive=False)
    return next((each for each in found if each.code == code), None)


def growing(
    seconds: Callable[[int], float], of_device: bool = True, host: dict[str, float] = ITEM_EACH_STEP, n: int = 400
) -> OnDevice:
    """A phase that takes the device (or the host alone) so much more from step to step."""
    story = OnDevice()
    for i in range(n):
        more = seconds(i)
        device = {**GPT2, "backward": GPT2["backward"] + (more if of_device else 0.0)}
        story.both({**host, "other": host["other"] + more}, device)
    return story


# Waiting


def test_a_wait_for_data_counts_where_the_device_waits() -> None:
    found = told_of(looped(FETCHING, queued=0.1, reading=HALF_IDLE), "input-bound")
    assert found is not None and found.severity == "critical" and found.recoverable is not None
    assert 1 / (1 - found.recoverable) <= 1 / 0.40 + 0.01


def test_a_wait_of_the_host_s_beside_a_busy_device_is_none() -> None:
    """A loader that is slower than Python, and faster than the GPU."""
    device = {"data": 0.0003, "forward": 0.040, "backward": 0.070, "optimizer": 0.002}
    for more in ({}, {"reading": NO_GPM}, {"timed": False}, {"timed": False, "reading": NO_GPM}):
        assert [finding.severity for finding in judged(looped(FETCHING, device, **more), alive=False)[0]] == []


def test_without_device_times_sms_that_are_idle_let_the_host_speak() -> None:
    idle = looped(FETCHING, timed=False, reading=HALF_IDLE)
    found = told_of(idle, "input-bound")
    assert found is not None and found.recoverable is not None and found.recoverable <= 0.61


def test_time_in_no_phase_is_the_device_s() -> None:
    assert "unaccounted-time" not in codes(looped(ITEM_EACH_STEP, timed=False, reading=HALF_IDLE))
    assert "unaccounted-time" not in codes(hf_trainer())
    found = told_of(looped({**GPT2, "other": 0.15}, queued=0.2, reading=HALF_IDLE), "unaccounted-time")
    assert found is not None and found.severity == "warning"
    assert found.recoverable is not None and found.recoverable <= 0.61


def test_an_idle_gpu_has_a_gain_only_where_it_is_known() -> None:
    idle = {"utilization": 20.0}
    host = {"forward": 0.02, "backward": 0.03, "reward": 0.15}
    found = told_of(looped(host, timed=False, reading=idle), "gpu-starved")
    assert found is not None and found.severity == "warning" and found.lost_fraction is None
    assert found.evidence[-1] == GAIN_UNKNOWN
    known = told_of(looped(host, timed=False, reading={**idle, "sm_active": 12.0}), "gpu-starved")
    assert known is not None and known.lost_fraction is not None
    assert told_of(looped(host, queued=0.95, reading=idle), "gpu-starved") is None, "its queue was full"


# Steps


def test_slow_steps_are_the_device_s() -> None:
    def spikes(of_device: bool) -> OnDevice:
        return growing(lambda i: 1.0 if i % 40 == 39 else 0.0, of_device)

    found = told_of(spikes(True), "slow-steps")
    assert found is not None and found.culprit == "backward" and found.severity == "warning"
    assert told_of(spikes(False), "slow-steps") is None
    assert told_of(matmul(), "slow-steps") is None and told_of(matmul(timed=False), "slow-steps") is None


def test_a_drift_is_the_device_s() -> None:
    found = told_of(growing(lambda i: 0.0005 * i), "slow-drift")
    assert found is not None and found.culprit == "backward"
    for story in (hf_trainer(), matmul(), matmul(timed=False), matmul(every=20)):
        assert told_of(story, "slow-drift") is None


def test_without_device_times_the_run_s_pace_tells_of_a_drift() -> None:
    story = OnDevice(timed=False)
    for i in range(400):
        story.both({**ITEM_EACH_STEP, "other": 0.114 + 0.0005 * i})
    found = told_of(story, "slow-drift")
    assert found is not None and found.culprit is None, "which phase of the device's grew is not known"


@pytest.mark.parametrize("timed", [True, False])
def test_a_run_that_regressed_did_so_by_the_device_s_clock(timed: bool) -> None:
    """The host queues as fast as before, and the device takes half as long again."""

    def run(seconds: float) -> OnDevice:
        story = OnDevice(timed=timed)
        for i in range(600):
            wait = {**QUEUEING, "other": 20 * seconds} if i % 20 == 19 else QUEUEING
            story.both(wait, {**PRODUCTS, "backward": seconds - 0.0125}, samples=512)
        return story

    found = regression_of(run(0.036), run(0.054))
    assert found is not None and "1.5x slower" in found.title
    assert regression_of(run(0.036), run(0.036)) is None


def regression_of(before: Story, after: Story) -> Finding | None:
    states = [folded(each) for each in (before, after)]
    abouts = [around(state, id=name, command=["t.py"]) for state, name in zip(states, ("one", "two"), strict=True)]
    one, two = (make_report(state, about) for state, about in zip(states, abouts, strict=True))
    first = Side(one, loop_time(states[0], one))
    return regressed(Evidence(states[1], two, open_work(states[1], abouts[1], two.outcome), first))


# What needs no clock


def attending(size: float, **more: Any) -> OnDevice:
    written = {"count": 12, "bytes": int(size * GIB), "length": 4096, "place": "model.py:31"}
    return hf_trainer(ops={"launches": 900, "attention_written_out": written}, **more)


def test_written_out_attention_is_reported_with_its_line() -> None:
    found = told_of(attending(20.0), "slow-attention")
    assert found is not None and found.severity == "warning" and "model.py:31" in found.evidence[0]
    assert found.recoverable is not None and found.recoverable < 0.5
    assert told_of(attending(1.0), "slow-attention") is None, "it is a small part of the step"
    host_bound = launching(ops={"attention_written_out": {"count": 12, "bytes": 20 * GIB, "length": 4096}})
    assert told_of(host_bound, "slow-attention") is None
    assert told_of(hf_trainer(ops={"sdpa": 12}), "slow-attention") is None


@pytest.mark.parametrize(
    ("steps", "times", "fires"), [(4, 3, True), (4, 2, True), (5, 1, False), (60, 4, False), (60, 5, True)]
)
def test_compiling_in_each_of_a_few_steps_is_compiling_again(steps: int, times: int, fires: bool) -> None:
    story = OnDevice(compile={"recompiles": times, "seconds": 9.0, "reasons": ["size of L['x']"]})
    for _ in range(steps):
        story.both({**ITEM_EACH_STEP, "forward": 3.0})
    assert (told_of(story, "recompiling") is not None) == fires


def loading(workers: int, cores: int, start: float, steps: int = 0, data: float = 0.0003) -> OnDevice:
    story = OnDevice(cpus=cores, config={"num_workers": workers})
    for _ in range(int(start)):
        story.wait(1.0).tell(Host, cores=cores, tree_workers=workers)
    for _ in range(steps):
        story.both({**GPT2, "data": data}, queued=0.1)
    return story


def test_too_many_workers_are_reported_before_the_first_step_comes() -> None:
    found = told_of(loading(64, 16, 40), "oversubscribed")
    assert found is not None and "64 DataLoader workers" in found.title
    assert found.lost_fraction == 1.0 and not found.over
    for story in (
        loading(16, 16, 40),
        loading(64, 16, 5),  # it starts soon enough
    ):
        assert told_of(story, "oversubscribed") is None


def test_what_too_many_workers_cost_once_is_paid_back() -> None:
    """They started at last, and nothing waits: much of a short run, and little of a long one."""
    short, long = (told_of(loading(64, 16, 40, steps=steps), "oversubscribed") for steps in (60, 2000))
    assert short is not None and short.severity == "warning" and "41.0 s" in short.evidence[1]
    assert long is not None and long.severity == "info" and long.over and short.over


def test_too_many_workers_are_reported_where_the_device_waits_for_them() -> None:
    assert told_of(loading(64, 16, 5, steps=60, data=0.1), "oversubscribed") is not None
    assert told_of(loading(16, 16, 5, steps=60, data=0.1), "oversubscribed") is None


def test_memory_that_is_given_back_in_each_step() -> None:
    def emptying(looks: int) -> OnDevice:
        rows = (
            ("other", "train.py:60 (torch.cuda.empty_cache) in step", looks),
            ("other", "train.py:62 (loss.item) in step", 100 - looks),
        )
        return hf_trainer(looks=rows)

    found = told_of(emptying(10), "debug-settings")
    assert found is not None and "train.py:60" in found.evidence[0]
    assert told_of(emptying(2), "debug-settings") is None


def held(used: Callable[[float], float], seconds: float = 40.0) -> OnDevice:
    """GiB in use on the card by seconds since the begin."""
    story = OnDevice()
    begin = story.now
    while story.now < begin + seconds:
        assert story.reading is not None
        story.reading["memory_used"] = int(used(story.now - begin) * GIB)
        story.both(ITEM_EACH_STEP, GPT2)
    return story


def test_memory_that_grows_on_the_device_is_reported_before_it_is_full() -> None:
    found = told_of(held(lambda t: 10 + t), "memory-leak")
    assert found is not None and found.severity == "warning" and "are full in" in found.evidence[1]
    for used in (
        lambda t: 10 + min(t, 6),  # the allocator's first growth
        lambda t: 10 + 0.05 * t,
        lambda t: 10 if t < 20 else 30,  # an evaluation's model stays loaded
        lambda t: 10 + 5 * (t % 8 < 4),
    ):
        assert told_of(held(used), "memory-leak") is None


@pytest.mark.parametrize(("size", "fires"), [(4.6e9, True), (0.4e9, True), (0.2e9, False), (None, True)])
def test_other_programs_on_the_card_count_from_a_context_on(size: float | None, fires: bool) -> None:
    others = [(7, "python3", None if size is None else int(size), False), (8, "python", 9 * GIB, True)]
    found = told_of(hf_trainer(reading={**AT_WORK, "processes": others}, seconds=40.0), "gpu-shared")
    assert (found is not None) == fires


def test_the_optimizer_s_facts_show_that_a_gpu_is_used() -> None:
    """No driver is read, and no event was recorded: the host's clock alone decides nothing all the same."""
    story = Story()
    story.tell(Facts, facts={"optimizer": {"class": "AdamW", "device": "cuda:0", "tensors": 80}})
    for _ in range(60):
        story.step(**ITEM_EACH_STEP)
    found, said = judged(story, alive=False)
    assert found == [] and "host clock only" in said.title
