"""How a run uses its GPUs: busy and idle as a range, what bounds it, and the driver's readings over the steps alone."""

from __future__ import annotations

import random
from dataclasses import astuple
from statistics import fmean
from typing import Any

import pytest

from monitor.diagnosis.diagnose import BY_CODE
from monitor.diagnosis.judge import GAIN_UNKNOWN, judge
from monitor.diagnosis.rule import Evidence
from monitor.model.device.device_report import Device
from monitor.model.device.device_use import MIN_MEASURED, MIN_STEADY_TIMED, bound_text, busy_text, device_use
from monitor.model.device.gpu_activity import MAX_READING_BUCKETS, Activity, Range
from monitor.model.report import Finding
from monitor.model.summary import make_report, open_work
from trainhooks.protocol.events import Facts, Gpu

from .conftest import Story, around, folded, folded_events, report_of
from .device_stories import (
    AT_WORK,
    CARD,
    COPYING,
    GPT2,
    ITEM_EACH_STEP,
    NO_GPM,
    SMALL,
    OnDevice,
    hf_trainer,
    just_in_time,
    launching,
    looped,
    matmul,
    pageable_copies,
)

WAITING = {"data": 0.060, "forward": 0.020, "backward": 0.030, "optimizer": 0.002}


def used(told: Story) -> Device:
    found = report_of(told).device
    assert found is not None
    return found


def reading(**more: Any) -> dict[str, Any]:
    return {**AT_WORK, **more}


# The range


def test_busy_is_at_least_what_the_queue_or_the_sms_say() -> None:
    for sm, queued, least in ((88.0, 0.5, 0.88), (40.0, 0.9, 0.9), (0.0, 0.0, 0.0)):
        found = used(looped(ITEM_EACH_STEP, GPT2, queued=queued, reading=reading(sm_active=sm)))
        assert found.busy_least == pytest.approx(least, abs=0.005), (sm, queued)
        assert found.busy_least <= (found.busy_most or 0.0)
        assert found.gain_limit is None if not least else found.gain_limit == pytest.approx(1 / least, rel=0.01)


def test_busy_is_at_most_all_but_what_is_known_to_be_idle() -> None:
    """In `data` the host starts no kernel: what is not queued then is idle."""
    found = used(looped(WAITING, queued=0.0, reading=None))
    assert found.busy_most == pytest.approx(1 - 60 / 112, abs=0.02)
    with_earlier_work = used(looped(WAITING, queued=0.8, reading=None))
    assert with_earlier_work.busy_most == pytest.approx(1 - 0.2 * 60 / 112, abs=0.02)


def test_utilization_is_never_less_than_the_truth() -> None:
    assert used(looped(SMALL, queued=0.05, reading=reading(sm_active=20.0, utilization=35.0))).busy_most == 0.35
    found = used(looped(SMALL, queued=0.9, reading=reading(sm_active=20.0, utilization=35.0)))
    assert found.busy_least == found.busy_most == pytest.approx(0.9), "the queue is certain: readings come late"


def test_where_nothing_tells_nothing_is_known() -> None:
    found = used(looped(ITEM_EACH_STEP, reading=None, timed=False))
    assert (found.busy_least, found.busy_most, found.gain_limit, found.bound, found.clock) == (None,) * 5
    assert busy_text(found) == "busy share unknown"
    assert bound_text(found) == "bottleneck unknown"
    before = used(looped(ITEM_EACH_STEP, reading=NO_GPM, timed=False))
    assert (before.busy_least, before.gain_limit) == (None, None) and before.busy_most == pytest.approx(0.97)


def test_no_device_is_no_account_of_one() -> None:
    assert report_of(Story().step(forward=1.0)).device is None


# What bounds the run


@pytest.mark.parametrize(
    ("told", "bound"),
    [
        (hf_trainer, "device"),
        (matmul, "device"),
        (just_in_time, "device"),
        (lambda: hf_trainer(reading=None), "device"),  # by the queue alone
        (lambda: hf_trainer(timed=False), "device"),  # by the SMs alone
        (launching, "host"),
        (pageable_copies, "host"),
        (lambda: looped(SMALL, queued=0.6, reading=reading(sm_active=20.0, utilization=30.0), timed=False), "host"),
        (lambda: looped(WAITING, queued=0.1, reading=reading(sm_active=30.0)), "data"),
        (lambda: looped(WAITING, queued=0.98, reading=reading(sm_active=90.0)), "device"),  # it had work meanwhile
        (lambda: looped(ITEM_EACH_STEP, GPT2, queued=0.6, reading=reading(sm_active=50.0)), None),
        (lambda: looped(ITEM_EACH_STEP, timed=False, reading=NO_GPM), None),
    ],
)
def test_what_sets_the_pace_is_said_where_something_decides_it(told: Any, bound: str | None) -> None:
    assert used(told()).bound == bound


def test_few_timed_steps_decide_nothing() -> None:
    story = OnDevice(reading=None)
    for _ in range(3 + MIN_STEADY_TIMED - 1):
        story.both(SMALL, queued=0.0)
    assert used(story).queued is None and used(story).bound is None
    assert used(story.both(SMALL, queued=0.0)).bound == "host"


# Readings


def test_readings_before_and_after_the_steps_are_none_of_them() -> None:
    story = OnDevice(None)
    idle = {**CARD, "utilization": 0.0, "sm_active": 0.0}

    def read(**told: Any) -> None:
        story.tell(Gpu, uuid="GPU-1", **{**CARD, **told})

    for _ in range(10):
        story.wait(1.0)
        read(**idle)
    for _ in range(80):
        story.both(ITEM_EACH_STEP, GPT2)
        read(utilization=96.0, sm_active=88.0)
    for _ in range(30):
        story.wait(1.0)
        read(**idle)
    found = report_of(story)
    assert found.device is not None and found.device.sm_active == pytest.approx(0.88)
    (row,) = found.gpus
    assert row.utilization == pytest.approx(96.0), "a run that is over is told by means over its steps"
    assert (row.over_steps["utilization"].min, row.over_steps["utilization"].max) == (96.0, 96.0)
    (live,) = report_of(story, alive=True).gpus
    assert live.utilization == 0.0, "while it lives, the card is as it was read last"


def test_what_is_not_known_of_one_card_is_not_told_of_all() -> None:
    story = OnDevice(None)
    story.tell(Facts, facts={"devices": ["GPU-1", "GPU-2"]})
    for i in range(120):
        story.both(ITEM_EACH_STEP, GPT2)
        for uuid, told in (("GPU-1", {"sm_active": 80.0, "utilization": 90.0}), ("GPU-2", {"utilization": 70.0})):
            if i % 6 == 0:
                story.tell(Gpu, uuid=uuid, **{**CARD, **told})
    found = used(story)
    assert found.sm_active is None and found.utilization == pytest.approx(0.8)


def test_a_few_readings_are_no_figure_of_the_steps() -> None:
    few = used(looped(ITEM_EACH_STEP, GPT2, seconds=2.0))
    assert few.sm_active is None and few.readings < MIN_MEASURED


def test_a_card_s_readings_are_kept_in_bounded_memory() -> None:
    activity = Activity()
    for second in range(5 * MAX_READING_BUCKETS):
        activity.add(Gpu("r", second, float(second), uuid="GPU-1", utilization=100.0 if second % 2 else 50.0))
    assert len(activity.history) <= MAX_READING_BUCKETS and activity.history.width == 8
    found = activity.ranges_between(0.0, 1e9)["utilization"]
    assert (found.mean, found.min, found.max, found.readings) == (75.0, 50.0, 100.0, 5 * MAX_READING_BUCKETS)


def test_figures_are_those_of_all_readings_in_the_buckets() -> None:
    """However the readings come: late ones, a clock that begins again, buckets that are joined."""
    lots = random.Random(7)
    activity, now, readings = Activity(), 0.0, []

    def told(begin: float, end: float, without: list[tuple[float, float]]) -> list[float]:
        """The power in the buckets that lie wholly there, reading by reading."""
        width, found = activity.history.width, []
        for at, power in readings:
            since = int(at) // width * width
            left_out = any(since < until and first < since + width for first, until in without)
            if begin <= since and since + width <= end and not left_out:
                found.append(power)
        return found

    def assert_like(found: Range | None, truth: list[float]) -> None:
        assert found == (None if not truth else Range(pytest.approx(fmean(truth)), min(truth), max(truth), len(truth)))

    for number in range(3 * MAX_READING_BUCKETS):
        now += lots.choice((0.2, 1.0, 1.0, 3.0))
        at = now - lots.choice((0.0,) * 20 + (1.5, 40.0))
        readings.append((at, lots.random()))
        activity.add(Gpu("r", number, at, uuid="GPU-1", power=readings[-1][1], utilization=lots.choice((None, 50.0))))
        if number % 10:
            continue
        stops = [(float(begin), begin + 20.0) for begin in range(100, int(now), 700)]
        end = now - lots.choice((0.0, 0.0, 5.0, 200.0))
        assert_like(activity.ranges_between(10.0, end).get("power"), told(10.0, end, []))
        apart = told(10.0, end, stops)
        assert_like(activity.ranges_between(10.0, end, stops).get("power"), apart or told(10.0, end, []))
        within = [power for since, until in stops for power in told(since, until, [])]
        assert_like(activity.ranges_within(stops).get("power"), within)


def test_readings_of_a_stretch_lie_wholly_within_it() -> None:
    activity = Activity()
    for second in range(100):
        activity.add(Gpu("r", second, second + 0.5, uuid="GPU-1", power=float(second), sm_active=None))
    found = activity.ranges_between(10.2, 20.0)
    assert (found["power"].min, found["power"].max, found["power"].readings) == (11.0, 19.0, 9)
    assert (
        set(found) == {"power"}
        and activity.ranges_between(10.2, 10.9) == {}
        and activity.ranges_between(500.0, 600.0) == {}
    )


def test_readings_around_an_evaluation_are_none_of_the_steps() -> None:
    story = OnDevice({**AT_WORK, "sm_active": 90.0})
    for i in range(300):
        story.both(ITEM_EACH_STEP, GPT2)
        if i % 100 == 99:
            assert story.reading is not None
            story.reading["sm_active"] = 5.0
            story.stop("eval", 10.0)
            story.reading["sm_active"] = 90.0
    assert used(story).sm_active == pytest.approx(0.9)
    only = Activity()
    only.add(Gpu("r", 0, 5.0, uuid="GPU-1", power=100.0))
    assert only.ranges_between(0.0, 10.0, [(0.0, 10.0)])["power"].mean == 100.0, (
        "where no other remains, they are all there is"
    )


def test_the_order_in_which_readings_and_steps_come_changes_nothing() -> None:
    events = hf_trainer().events
    readings = [Gpu("node", *astuple(each)[1:]) for each in events if isinstance(each, Gpu)]
    others = [each for each in events if not isinstance(each, Gpu)]
    late, early = (folded_events(order) for order in ([*others, *readings], [*readings, *others]))
    assert device_use(late) == device_use(early) == report_of(hf_trainer()).device


# What keeping the device busy can gain


def bounded(told: Story, code: str = "input-bound", lost: float = 0.6) -> Finding | None:
    state = folded(told)
    about = around(state)
    known = make_report(state, about)
    evidence = Evidence(state, known, open_work(state, about, known.outcome))
    return judge(BY_CODE[code], Finding(code=code, title="a title", lost_fraction=lost), evidence)


def test_a_gain_is_no_more_than_the_idle_time() -> None:
    told = hf_trainer()
    found, stepping = bounded(told), report_of(told).wall
    assert found is not None and found.lost_fraction is not None and stepping.total
    assert found.lost_fraction == pytest.approx(0.12 * stepping.stepping / stepping.total, rel=0.02)
    assert any("88%" in line and "12%" in line for line in found.evidence), "the bound has its evidence"


def test_less_than_the_idle_time_stays_as_it_is() -> None:
    found = bounded(pageable_copies(), lost=0.2)
    assert found is not None and found.lost_fraction == 0.2 and found.evidence == []


def test_without_idle_time_there_is_no_finding() -> None:
    assert bounded(matmul()) is None


@pytest.mark.parametrize(("sm", "severity"), [(98.0, None), (92.0, "info"), (75.0, "warning"), (40.0, "critical")])
def test_what_can_gain_little_is_no_alarm(sm: float, severity: str | None) -> None:
    story = looped(ITEM_EACH_STEP, GPT2, queued=0.5, reading=reading(sm_active=sm))
    found = bounded(story, lost=0.7)
    assert (None if found is None else found.severity) == severity


def test_where_the_gain_is_not_known_an_alarm_needs_idle_time_that_is() -> None:
    busy, idle = (looped(ITEM_EACH_STEP, reading={"utilization": each}, timed=False) for each in (97.0, 30.0))
    assert [found.severity for story in (busy, idle) if (found := bounded(story)) is not None] == ["info", "warning"]


def test_where_the_idle_time_is_not_known_the_gain_is_not_either() -> None:
    found = bounded(looped(ITEM_EACH_STEP, reading=NO_GPM, timed=False))
    assert found is not None and found.lost_fraction is None and found.evidence == [GAIN_UNKNOWN]


def test_what_makes_the_computing_faster_is_not_bounded() -> None:
    for code in ("slow-attention", "fp32-matmul", "padding-waste", "pageable-copies", "eval-heavy"):
        found = bounded(matmul(), code)
        assert found is not None and (found.lost_fraction, found.evidence) == (0.6, [])


def test_a_run_without_a_device_is_left_alone() -> None:
    story = Story()
    for _ in range(60):
        story.step(**{name: seconds for name, seconds in COPYING.items() if name != "other"})
    found = bounded(story)
    assert found is not None and (found.lost_fraction, found.evidence) == (0.6, [])


def test_memory_at_the_peak_is_by_owner() -> None:
    memory = {"total": 80 * 2**30, "allocated": 2**30, "reserved": 4 * 2**30}
    memory |= {"peak_allocated": 3 * 2**30, "peak_reserved": 5 * 2**30}
    held = {"weights": 2**29, "gradients": 2**28, "optimizer": 2**30}
    story = hf_trainer().tell(Facts, facts={"torch": {"gpu_memory": memory}})
    unknown = report_of(story).device
    assert unknown is not None and unknown.memory is not None
    assert (unknown.memory.others, unknown.memory.cached) == (None, 2 * 2**30)
    told = report_of(story.tell(Facts, facts={"held": held})).device
    assert told is not None and told.memory is not None
    assert told.memory.others == 3 * 2**30 - sum(held.values())
