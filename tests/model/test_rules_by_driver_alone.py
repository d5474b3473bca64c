"""Loops on a GPU that look sick by the host's clock, by an empty queue or by utilization, and of which none decides."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.model.summary import slow_steps

from .conftest import Story, folded, judged, report_of
from .device_stories import (
    AT_WORK,
    GPT2,
    ITEM_EACH_STEP,
    NO_GPM,
    PRODUCTS,
    QUEUEING,
    OnDevice,
    hf_trainer,
    launching,
    looped,
)
from .test_gpu_idle_rules import WAITS, waiting
from .test_rules import codes
from .test_rules_by_gpu_clock import told_of

PRINTING = (("other", "train.py:83 (print) in <module>", 81), ("backward", "train.py:81 (.backward) in step", 20))
SAVING = (("other", "train.py:83 (torch.save) in save_checkpoint", 81), *PRINTING[1:])
UNNAMED = {"forward": 0.04, "backward": 0.07, "other": 0.08}  # a loss of one's own, in no phase
FP32 = {"autocast": "off", "torch": {"matmul_precision": "highest", "cuda": "13.0"}}


def alarms(story: Story) -> list[str]:
    return [finding.code for finding in judged(story, alive=False)[0] if finding.severity != "info"]


# The host's clock


@pytest.mark.parametrize("looks", [PRINTING, SAVING])
@pytest.mark.parametrize("reading", [AT_WORK, NO_GPM, None])
def test_a_line_that_waits_is_not_the_line_that_works(looks: Any, reading: Any) -> None:
    """A loss that is printed in each step: the looks find the host in print, where it waits for the GPU."""
    assert codes(hf_trainer(looks=looks, timed=False, reading=reading)) == []
    assert codes(hf_trainer(looks=looks, reading=reading)) == []


def test_a_working_line_is_reported_by_the_gpu_clock() -> None:
    found = told_of(
        looped({**GPT2, "other": 0.2}, queued=0.1, reading={**AT_WORK, "sm_active": 40.0}, looks=PRINTING),
        "logging-overhead",
    )
    assert found is not None and found.severity == "warning"


def with_long_batches(seconds: float, timed: bool = True) -> OnDevice:
    """Each 20th batch is long, and takes the device so long; the loss is read in the same step."""
    story = OnDevice(timed=timed)
    for i in range(300):
        long = i % 20 == 19
        host = {**QUEUEING, "other": 0.6938} if long else QUEUEING
        device = {**PRODUCTS, "backward": seconds} if long else PRODUCTS
        tokens = {"tokens": 25_000 if long else 1400, "padded_tokens": 32_000 if long else 1600}
        story.both(host, device, queued=0.95, samples=8, **tokens)
    return story


def test_long_batches_cost_what_the_device_says() -> None:
    """By the host's clock they take 96% of the time, for there it waits for all others, too."""
    for story in (with_long_batches(PRODUCTS["backward"]), with_long_batches(PRODUCTS["backward"], timed=False)):
        assert told_of(story, "length-outliers") is None


def test_long_batches_are_reported_where_both_clocks_agree() -> None:
    in_step = OnDevice()
    for i in range(300):
        long = i % 20 == 19
        took = {"forward": 0.4, "backward": 0.8} if long else {"forward": 0.02, "backward": 0.04}
        tokens = {"tokens": 25_000 if long else 1400, "padded_tokens": 32_000 if long else 1600}
        in_step.both(took, samples=8, **tokens)
    assert told_of(in_step, "length-outliers") is not None


def test_padding_gains_no_less_for_a_host_that_only_waits() -> None:
    padded = {"samples": 8, "tokens": 400, "padded_tokens": 1000}
    lost = [
        found.lost_fraction or 0.0
        for timed in (True, False)
        if (found := told_of(looped(ITEM_EACH_STEP, GPT2, timed=timed, step=padded), "padding-waste")) is not None
    ]
    assert len(lost) == 2 and lost[1] >= lost[0] > 0.5


def test_the_step_that_reads_the_loss_is_not_the_slow_one() -> None:
    story = OnDevice({**AT_WORK, "sm_active": 96.0}, every=20)
    for i in range(800):
        device = {**PRODUCTS, "forward": PRODUCTS["forward"] + (0.5 if i % 100 == 33 else 0.0)}
        story.both({**QUEUEING, "other": 0.69} if i % 20 == 19 else QUEUEING, device, queued=0.98)
    found = slow_steps(folded(story))
    assert len(found) >= 6
    assert all(each.steps > 1 and each.step <= at < each.step + each.steps for each, at in _nearest(found))


def _nearest(found: list[Any]) -> list[tuple[Any, int]]:
    """Each slow stretch, and the step of those that were long which lies nearest."""
    long = [at + 1 for at in range(800) if at % 100 == 33]
    return [(each, min(long, key=lambda at: abs(at - each.step - each.steps / 2))) for each in found]


def test_a_drift_is_seen_though_the_host_waits_in_one_step_of_many() -> None:
    story = OnDevice({**AT_WORK, "sm_active": 96.0}, timed=False)
    for i in range(1000):
        story.both({**QUEUEING, "other": 20 * (0.036 + 0.00005 * i)} if i % 20 == 19 else QUEUEING)
    assert told_of(story, "slow-drift") is not None


@pytest.mark.parametrize("every", [1, 20])
def test_evaluations_inside_a_step_are_neither_slow_steps_nor_a_drift(every: int) -> None:
    for first in (0, 25):  # of the last third, or of the first
        story = OnDevice(every=every)
        for i in range(400):
            more = {"eval": 2.0} if i % 50 == 49 - first else {}
            story.both({**ITEM_EACH_STEP, **more}, {**GPT2, **more})
        found = codes(story)
        assert "slow-drift" not in found and "slow-steps" not in found


# An empty queue, and a range that decides nothing


def test_time_in_no_phase_of_a_busy_device_is_no_alarm() -> None:
    for sm, queued in ((88.0, 0.8), (88.0, 0.05), (96.0, 0.05)):
        assert alarms(looped(UNNAMED, queued=queued, reading={**AT_WORK, "sm_active": sm})) == []
    idle = {"forward": 0.02, "backward": 0.04, "other": 0.12}
    assert alarms(looped(idle, queued=0.05, reading={**AT_WORK, "sm_active": 30.0})) == ["unaccounted-time"]


def test_a_wait_for_data_that_costs_a_tenth_is_not_critical() -> None:
    """Others keep the GPU busy, or the device works on what was queued before."""
    fetching = {"data": 0.08, "forward": 0.04, "backward": 0.07}
    found = told_of(looped(fetching, queued=0.1, reading={**AT_WORK, "sm_active": 90.0}), "input-bound")
    assert found is None or (found.severity == "info" and (found.recoverable or 0.0) <= 0.11)


def test_an_empty_queue_alone_proves_no_idle_gpu() -> None:
    """Before the H100: large kernels, launched just in time; busy between 5 and 97% is no answer."""
    for story in (
        looped(UNNAMED, queued=0.05, reading=NO_GPM),
        looped({"forward": 0.06, "backward": 0.09}, queued=0.3, reading=NO_GPM, ops={"syncs": WAITS}),
        launching(NO_GPM),
    ):
        assert alarms(story) == []
        assert all(each.recoverable is None for each in judged(story, alive=False)[0])
        device = report_of(story).device
        assert device is not None and device.gain_limit is None


def test_a_utilization_that_is_low_proves_one() -> None:
    fetching = {"data": 0.16, "forward": 0.01, "backward": 0.02, "optimizer": 0.01}
    low = {"utilization": 20.0}
    for timed in (True, False):
        assert alarms(looped(fetching, queued=0.05, timed=timed, reading=low)) == ["input-bound"]
    assert alarms(looped(fetching, timed=False, reading=NO_GPM)) == []


# Utilization


def test_exact_fp32_is_no_cause_where_the_host_sets_the_pace() -> None:
    """The driver calls a GPU busy 96% for kernels of microseconds."""
    assert alarms(launching(**FP32)) == ["launch-bound"]


def test_tensor_cores_that_are_at_work_are_used() -> None:
    for active, fires in ((0.0, True), (40.0, False)):
        found = codes(looped(ITEM_EACH_STEP, GPT2, reading={**AT_WORK, "tensor_active": active}, **FP32))
        assert ("fp32-matmul" in found) == fires
    assert "fp32-matmul" in codes(looped(ITEM_EACH_STEP, GPT2, reading=NO_GPM, **FP32))


def test_an_environment_on_the_host_is_not_slow_launches() -> None:
    reading = {**AT_WORK, "sm_active": 8.0, "utilization": 20.0}
    found = codes(looped({"rollout": 0.5, "forward": 0.05, "backward": 0.1}, seconds=20, queued=0.05, reading=reading))
    assert found[0] == "gpu-starved" and "launch-bound" not in found


def test_waits_are_reported_with_sm_activity() -> None:
    assert alarms(waiting()) == ["synchronizing"]
    assert alarms(waiting(sm=96.0)) == []
