"""The device lane: what CUDA events told of a sample of the steps, made into sums, phases, paces and slow stretches."""

from __future__ import annotations

import dataclasses
from statistics import median
from typing import Any

import pytest

from monitor.model.device.device_steps import (
    MAX_ROW_NAMES,
    MAX_SLOW_STRETCHES,
    MIN_JUDGED_STRETCHES,
    STRETCH_WINDOW,
    UNKNOWN_PHASE,
    WARM_UP_STEPS,
    DeviceLane,
    HostContext,
)
from monitor.model.report import Report, SlowStep
from monitor.model.summary import make_report, slow_steps
from monitor.model.view import curve_arguments
from monitor.reports.report_json import as_json
from monitor.reports.run_text import text
from monitor.sources.decode import decode
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import GpuTime
from trainhooks.protocol.limits import OVERFLOW

from .conftest import Story, around, folded, folded_events, report_of
from .device_stories import GPT2, ITEM_EACH_STEP, QUEUEING, OnDevice, hf_trainer, matmul

ALONE = HostContext()


def timed(step: int, forward: float = 0.3, seconds: float = 0.5, **more: Any) -> GpuTime:
    known = {"phases": [("data", 0.05), ("forward", forward)], "busy": 0.8 * seconds, **more}
    return GpuTime("p", 100 + step, 1.0, step, seconds, **known)


def told(*times: GpuTime) -> Report:
    """The report of four steps of half a second by the host's clock, and of what the device took over some of them."""
    story = Story()
    for _ in range(4):
        story.step(data=0.1, forward=0.3, other=0.1)
    state = folded_events([*story.events, *times])
    return make_report(state, around(state))


def spiked(at: int, every: int = 1, seconds: float = 0.4, on_host: bool = True, n: int = 400) -> OnDevice:
    """A loop in which one step takes the device longer; whether the host waits in that step or in none."""
    told = OnDevice(every=every)
    for i in range(n):
        more = seconds if i == at else 0.0
        host = {**ITEM_EACH_STEP, "other": 0.114 + (more if on_host else 0.0)}
        told.both(host, {**GPT2, "forward": GPT2["forward"] + more})
    return told


def slow(story: Story) -> list[SlowStep]:
    return slow_steps(folded(story))


# Sums and phases


def test_the_device_s_phases_come_first_and_the_host_s_stand_beside_them() -> None:
    found = told(timed(1, 0.2), timed(2, 0.4), timed(3, 0.3, dropped=1))
    rows = {row.name: (round(row.mean, 9), row.clock) for row in found.phases}
    assert rows == {"data": (0.05, "cuda"), "forward": (0.3, "cuda"), "other": (0.15, "cuda")}
    assert sum(row.share for row in found.phases) == pytest.approx(1.0)
    assert {row.name: (round(row.mean, 9), row.clock) for row in found.host_phases} == {
        "data": (0.1, "host"), "forward": (0.3, "host"), "other": (0.1, "host"),
    }  # fmt: skip
    assert found.throughput.busy_share == pytest.approx(0.8)
    assert found.device is not None
    assert (found.device.clock, found.device.timed_steps, found.device.dropped) == ("cuda", 3, 1)
    assert "CUDA events in 3 steps" in text(found)


def test_without_a_device_nothing_is_said() -> None:
    found = told()
    assert found.device is None and found.throughput.busy_share is None and found.host_phases == []
    assert "GPU" not in text(found) and "CUDA events" not in text(found)
    assert '"busy_share": null' in as_json(found) and '"device": null' in as_json(found)


def test_steps_that_could_not_be_timed_are_told() -> None:
    found = told(GpuTime("p", 100, 1.0, 1, dropped=1), GpuTime("p", 101, 1.0, 2, dropped=2))
    assert found.throughput.busy_share is None
    assert [row.clock for row in found.phases] == ["host"] * 3


def test_a_timed_step_counts_for_as_many_as_it_stands_for() -> None:
    lane = DeviceLane()
    for step in range(1, 4):
        lane.add(timed(step, 0.9, 1.0, busy=1.0), ALONE)
    lane.add(timed(17, 0.1, 0.2, busy=0.1, every=20, since=3, stretch=3.4), ALONE)
    assert (lane.whole.timed, lane.whole.steps) == (4, 23)
    assert lane.whole.seconds == pytest.approx(3 * 1.0 + 20 * 0.2)
    assert lane.whole.busy_share() == pytest.approx((3 + 20 * 0.1) / 7)
    forward = lane.whole.phases["forward"]
    assert (forward.total, forward.steps) == (pytest.approx(3 * 0.9 + 20 * 0.1), 23)
    assert (lane.steady.timed, lane.steady.steps) == (1, 20), "the first steps are no measure of the others"


def test_shares_and_means_do_not_depend_on_how_many_steps_are_timed() -> None:
    whole, sampled = report_of(matmul()), report_of(matmul(every=20))
    assert sampled.device is not None and whole.device is not None
    assert sampled.device.timed_steps < 0.08 * whole.device.timed_steps
    pairs = zip(whole.phases, sampled.phases, strict=True)
    assert all(one.name == two.name and one.share == pytest.approx(two.share, abs=0.02) for one, two in pairs)
    assert sampled.device.seconds == pytest.approx(whole.device.seconds, rel=0.02)


def test_the_first_steps_are_no_part_of_what_a_run_is_judged_by() -> None:
    story = OnDevice()
    for i in range(30):
        slow_start = {"forward": 5.0} if i < WARM_UP_STEPS else {}
        story.both({**ITEM_EACH_STEP, **slow_start}, {**GPT2, **slow_start}, queued=0.0 if i < WARM_UP_STEPS else 0.9)
    found = report_of(story)
    assert found.device is not None and found.device.queued == pytest.approx(0.9)
    assert found.phases[1].share > 0.7, "they count in the sums of the run"


def test_names_are_bounded() -> None:
    lane = DeviceLane()
    for step in range(1000):
        lane.add(GpuTime("p", step, 1.0, step, 1.0, [(f"phase {step}", 0.5)]), ALONE)
    for names in (lane.phases, lane.whole.phases):
        assert len(names) <= MAX_ROW_NAMES + 1 and OVERFLOW in names
    assert lane.whole.phases[OVERFLOW].steps > 0
    assert len(lane.window) <= STRETCH_WINDOW


def test_what_cannot_be_true_does_not_pass() -> None:
    encode = encoder()
    good = to_dict(timed(1, 0.2))
    assert decode(encode(good)) == timed(1, 0.2)
    for field, value in (("seconds", -1.0), ("seconds", 1e13), ("phases", [["a", -1.0]]), ("phases", [["a"]])):
        assert decode(encode({**good, field: value})) is None
    odd = decode(encode({**good, "phases": [["a\x1b[31m", 0.1]], "busy": -1.0}))
    assert isinstance(odd, GpuTime) and odd.phases == [("a [31m", 0.1)] and odd.busy is None


def test_more_busy_time_than_time_is_no_more_than_the_time() -> None:
    lane = DeviceLane()
    lane.add(timed(9, 0.3, 0.5, busy=3.0, busy_phases=[("forward", 2.0)]), ALONE)
    assert lane.whole.busy_share() == 1.0 and lane.whole.phases["forward"].busy == 0.3


def test_a_step_that_older_hooks_delayed_is_part_of_no_figure() -> None:
    """They held the device up before it. Its line has no seconds."""
    lane = DeviceLane()
    for step in range(1, 40):
        lane.add(timed(step, 0.1, since=step - 1 or None, stretch=0.1), ALONE)
    stretches, before = lane.stretches, repr(lane)
    line = (
        b'{"kind":"gpu_time","producer":"p","seq":40,"t":1.0,"step":40,"busy":0.04,"busy_phases":[["forward",0.04]],'
        b'"delayed":0.005,"unsure":[["other",0.001]]}'
    )
    delayed = decode(line)
    assert isinstance(delayed, GpuTime) and delayed.delayed == 0.005
    lane.add(delayed, ALONE)
    assert lane.has_delayed and repr(dataclasses.replace(lane, has_delayed=False)) == before
    lane.add(timed(41, 5.0), ALONE)  # the first after it: a stretch of it alone is none
    assert lane.slow_count == 0 and lane.stretches == stretches
    odd = decode(line.replace(b'"delayed":0.005', b'"delayed":-1'))
    assert isinstance(odd, GpuTime) and odd.delayed is None


# Stretches and slow steps


def test_a_long_step_of_the_device_is_named_with_its_phase() -> None:
    (found,) = slow(spiked(200))
    assert (found.step, found.steps, found.culprit) == (201, 1, "forward")
    assert found.seconds - found.baseline == pytest.approx(0.4, rel=0.1)


def test_a_spike_within_a_stretch_is_named_by_the_host_s_long_step() -> None:
    (found,) = slow(spiked(200, every=20))
    assert (found.step, found.steps, found.culprit) == (201, 1, UNKNOWN_PHASE)
    assert found.seconds - found.baseline == pytest.approx(0.4, rel=0.2)
    assert str(found).startswith("Slow step 201 (")


def test_else_the_whole_stretch_is_told() -> None:
    (found,) = slow(spiked(200, every=20, on_host=False))
    assert found.steps > 1 and found.step <= 201 < found.step + found.steps
    assert found.seconds - found.baseline == pytest.approx(0.4, rel=0.2)
    assert str(found).startswith(f"Slow steps {found.step} to {found.step + found.steps - 1} (")


def test_a_long_step_of_the_host_in_a_usual_stretch_is_nothing() -> None:
    """It has waited for a full queue."""
    for every in (1, 7, 20):
        assert slow(matmul(every=every)) == []
    story = OnDevice(every=20)
    for i in range(400):
        story.both({**QUEUEING, "other": 2.0} if i == 300 else QUEUEING, GPT2)
    assert slow(story) == [] and report_of(story).alerts == []


@pytest.mark.parametrize("every", [1, 20])
@pytest.mark.parametrize("name", ["eval", "checkpoint"])
def test_evaluations_between_the_steps_make_none_of_them_slow(every: int, name: str) -> None:
    story = OnDevice(every=every)
    for i in range(400):
        story.both(ITEM_EACH_STEP, GPT2)
        if i % 50 == 49:
            story.stop(name, 3.0)
    state = folded(story)
    assert slow_steps(state) == []
    assert max(curve_arguments(state)["step_seconds"].high[5:]) < 0.2


def test_a_few_stretches_tell_no_usual_one() -> None:
    assert slow(spiked(WARM_UP_STEPS + MIN_JUDGED_STRETCHES - 1, n=40)) == []
    assert slow(spiked(WARM_UP_STEPS + MIN_JUDGED_STRETCHES + 5, n=40)) != []


def test_a_little_more_is_no_slow_step() -> None:
    assert slow(spiked(200, seconds=0.015)) == []
    assert slow(spiked(200, every=20, seconds=0.05)) == [], "half a step, at least"


def test_slow_steps_are_bounded_and_counted() -> None:
    lane = DeviceLane()
    for step in range(1, 20 * MAX_SLOW_STRETCHES):
        lane.add(timed(step, 0.1, 1.5 if step % 15 == 14 else 0.1 + 0.0001 * (step % 3)), ALONE)
    assert len(lane.slow_steps) == MAX_SLOW_STRETCHES and lane.slow_count > MAX_SLOW_STRETCHES
    assert lane.slow_excess == pytest.approx(1.4 * lane.slow_count, rel=0.01)


def test_a_writer_that_tells_no_stretches_is_judged_step_by_step() -> None:
    """Journals of the time when each step was timed."""
    lane = DeviceLane()
    for step in range(1, 100):
        lane.add(timed(step, 0.9 if step == 80 else 0.1, 1.2 if step == 80 else 0.4 + 0.001 * (step % 5)), ALONE)
    (found,) = lane.slow_steps
    assert (found.step, found.steps, found.culprit) == (80, 1, "forward")


def test_a_slow_step_by_the_device_s_clock_is_an_alert_and_one_by_the_host_s_is_none() -> None:
    (alert,) = [each for each in report_of(spiked(200)).alerts if each.code == "slow-steps"]
    assert alert.text.startswith("Slow step 201 (") and alert.time is not None
    assert folded(matmul(every=20)).main.alerts, "the host's own are kept where no device is used"
    assert report_of(matmul(every=20)).alerts == []
    without = Story()
    for i in range(60):
        without.step(forward=3.0 if i == 50 else 0.3)
    assert [each.code for each in report_of(without).alerts] == ["slow-steps"]


# Curves


def test_a_curve_of_steps_is_the_device_s() -> None:
    for every in (1, 20):
        seconds = curve_arguments(folded(matmul(every=every)))["step_seconds"]
        assert all(mean == pytest.approx(0.037, rel=0.05) for mean in seconds.mean if mean == mean)


def test_of_steps_that_nobody_timed_the_pace_is_told() -> None:
    """Twenty steps are queued in no time, and the host waits for all of them in one."""
    shown = curve_arguments(folded(matmul(timed=False)))
    means = list(shown["step_seconds"].mean)
    assert median(means) == pytest.approx(0.037, rel=0.1) and min(means) > 0.02, "no stretch without a wait"
    assert max(shown["host_step_seconds"].high) > 0.6, "the host's own stay beside it"


def test_phases_have_the_device_s_curves_beside_the_host_s() -> None:
    shown = curve_arguments(folded(hf_trainer(every=7)))
    assert shown["phase_seconds"]["forward"].mean[-1] == pytest.approx(0.059, rel=0.05)
    assert shown["host_phase_seconds"]["forward"].mean[-1] == pytest.approx(0.0173, rel=0.05)
