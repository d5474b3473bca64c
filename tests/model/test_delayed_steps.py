"""How busy usual steps are, by steps before which the device was held up."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.model.device.device_report import Estimate
from monitor.model.device.device_steps import (
    MAX_DELAYED,
    MIN_DELAYED_STEPS,
    DelayedSteps,
    DeviceLane,
    HostContext,
    narrow,
)
from monitor.sources.decode import decode
from trainhooks.device.device_sampling import (
    DELAY_FACTOR,
    EXTRA_DELAY_NS,
    MAX_DELAY_NS,
    Delay,
    Sampling,
    Work,
    required_delay,
)
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import GpuTime

ALONE = HostContext()


def delayed(step: int = 9, unsure: float = 0.0, **busy: float) -> GpuTime:
    told: dict[str, Any] = {"delayed": 0.005, "busy": sum(busy.values()), "busy_phases": list(busy.items())}
    return GpuTime("p", step, 1.0, step, unsure=[("other", unsure)] if unsure else [], **told)


def estimate(usual: float, *steps: GpuTime) -> Estimate:
    known = DelayedSteps()
    for each in steps:
        known.add(each)
    found = known.estimate(usual)
    assert found is not None
    return found


def test_what_was_worked_in_them_over_what_a_usual_step_takes() -> None:
    found = estimate(0.1, *(delayed(forward=each, backward=0.03) for each in (0.01, 0.02, 0.03)))
    assert (found.steps, found.void) == (3, 0) and found.delay_seconds == pytest.approx(0.015)
    assert found.busy_least == found.busy_most == pytest.approx(0.5)
    assert found.phases == pytest.approx({"forward": 0.2, "backward": 0.3})
    assert (found.range_least, found.range_most) == (pytest.approx(0.38), pytest.approx(0.62)), "steps differ"


def test_what_is_unsure_widens_it_or_makes_it_void() -> None:
    found = estimate(0.1, *[delayed(unsure=0.005, forward=0.04)] * 3)
    assert (found.busy_least, found.busy_most) == (pytest.approx(0.4), pytest.approx(0.45))
    void = estimate(0.1, *[delayed(unsure=0.02, forward=0.04)] * 5)
    assert (void.steps, void.void, void.busy_least, void.range_most) == (0, 5, None, None)


@pytest.mark.parametrize(("sure", "void"), [(MIN_DELAYED_STEPS - 1, 0), (MIN_DELAYED_STEPS, MIN_DELAYED_STEPS + 1)])
def test_too_few_tell_nothing(sure: int, void: int) -> None:
    found = estimate(0.1, *[delayed(forward=0.04)] * sure, *[delayed(unsure=0.05)] * void)
    assert (found.steps, found.void, found.busy_least) == (sure, void, None)


def test_there_is_none_without_a_delay_or_a_usual_step() -> None:
    known = DelayedSteps()
    assert known.estimate(0.1) is None
    known.add(delayed(forward=0.1))
    assert known.estimate(0.0) is None


def test_what_is_kept_is_bounded() -> None:
    known = DelayedSteps()
    for step in range(1000):
        known.add(GpuTime("p", step, 1.0, step, delayed=0.1, busy_phases=[(f"phase {i}", 0.1) for i in range(500)]))
    assert len(known.steps) == MAX_DELAYED and all(len(each.busy) <= 201 for each in known.steps)
    assert sum(known.steps[-1].busy.values()) == pytest.approx(50.0)


@pytest.mark.parametrize(
    ("known", "told", "wanted"),
    [
        ((0.1, 0.9), (0.4, 0.5), (0.4, 0.5)),
        ((0.45, 0.9), (0.4, 0.5), (0.45, 0.5)),
        ((None, None), (0.4, 0.5), (0.4, 0.5)),
        ((0.6, 0.9), (0.4, 0.5), (0.6, 0.9)),  # they contradict each other: neither is preferred
        ((0.1, 0.9), (None, None), (0.1, 0.9)),
    ],
)
def test_a_range_is_narrowed_where_both_agree(known: Any, told: Any, wanted: Any) -> None:
    assert narrow(*known, Estimate(range_least=told[0], range_most=told[1])) == wanted
    assert narrow(*known, None) == known


def test_such_a_step_enters_no_other_figure() -> None:
    lane = DeviceLane()
    for step in range(1, 40):
        lane.add(GpuTime("p", step, 1.0, step, 0.1, since=step - 1 or None, stretch=0.1), ALONE)
    before = (lane.whole.steps, lane.whole.seconds, lane.stretches, len(lane.window), lane.newest_step, lane.slow_count)
    lane.add(delayed(40, forward=0.04), ALONE)
    after = (lane.whole.steps, lane.whole.seconds, lane.stretches, len(lane.window), lane.newest_step, lane.slow_count)
    assert before == after and len(lane.delayed.steps) == 1
    lane.add(GpuTime("p", 41, 1.0, 41, 5.0), ALONE)  # the first after it: a stretch of it alone is none
    assert lane.slow_count == 0 and lane.stretches == before[2]


def test_it_has_no_seconds_so_that_who_does_not_know_it_counts_it_for_nothing() -> None:
    """A reader from before delays takes it for a step that could not be timed."""
    line = encoder()(to_dict(delayed(unsure=0.001, forward=0.04)))
    assert b'"seconds"' not in line and b'"phases"' not in line.replace(b'"busy_phases"', b"")
    told = decode(line)
    assert isinstance(told, GpuTime) and told.delayed == 0.005 and told.unsure == [("other", 0.001)]
    assert decode(line.replace(b"0.001", b"-0.001")) is None
    odd = decode(line.replace(b'"delayed":0.005', b'"delayed":-1'))
    assert isinstance(odd, GpuTime) and odd.delayed is None


def test_no_step_is_timed_until_the_device_has_made_up_for_it() -> None:
    sampling, now = Sampling(), 0
    for _ in range(50):
        now += 100_000_000
        if sampling.due(now):
            sampling.begins(now)
            sampling.add_cost(1000)
    sampling.settle(2_000_000_000)
    began = now
    while not sampling.due(now):
        now += 100_000_000
    assert 1_900_000_000 <= now - began <= 2_200_000_000


# How long a delay is wanted


def test_the_host_has_to_be_ahead_at_each_mark() -> None:
    """Of work that is certain the device's own time counts; else all that the host takes."""
    host, device = [0, 4_000_000, 9_000_000], [0, 4_000_000, 9_000_000]
    assert required_delay(host, device, Work([], 0, [])) == 9_000_000
    assert required_delay(host, device, Work([(0, 3_000_000)], 0, [])) == 6_000_000


@pytest.mark.parametrize(
    ("each", "wanted"), [(8_000_000, True), (int((MAX_DELAY_NS - EXTRA_DELAY_NS) / DELAY_FACTOR) + 9, False)]
)
def test_a_delay_is_as_long_as_the_host_takes_or_none(each: int, wanted: bool) -> None:
    delay = Delay()
    assert not delay.due(1)
    for _ in range(20):
        delay.learn([0, each], [0, each], Work([], 0, []), device_sets_pace=False)
    assert not delay.due(4_000_000_000), "five seconds apart"
    assert not delay.due(9_000_000_000), "and a thousandth of the time"
    assert delay.due(12_000_000_000) is wanted
