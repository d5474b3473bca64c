"""A training that waits for its own workers, and those that do not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from monitor.model.device.device_account import UNTIMED
from trainhooks.protocol.events import Frames

from .conftest import Story, assert_first_and_alone, judged, report_of
from .device_stories import AT_WORK, OnDevice, looped
from .test_rules import jitter

QUEUE = ("rl.py:41 (samples.get) in learn", "queue")
POOL = ("rl.py:50 (list) in score", "worker pool")


def waiting(part: float, *looks: tuple[str, str], where: str = "other", n: int = 60) -> Story:
    """Steps of a second with this share in no phase, and forty stack samples there."""
    told = Story()
    for _ in range(n):
        told.step(forward=jitter((1 - part) / 3), backward=jitter(2 * (1 - part) / 3), other=jitter(part))
    rows = [(where, line, 40 // len(looks)) for line, _ in looks]
    return told.tell(Frames, rows=rows, activities=[activity for _, activity in looks], begin=100.0)


SICK: dict[str, Callable[[], Story]] = {"worker-wait": lambda: waiting(0.6, QUEUE)}
INNOCENT: dict[str, list[Callable[[], Story]]] = {
    "worker-wait": [
        lambda: waiting(0.1, QUEUE),
        lambda: waiting(0.6, ("rl.py:60 (ast.parse) in score", "")),
        lambda: waiting(0.6, ("rl.py:61 (json.dumps) in log", "JSON"), ("rl.py:62 (sort) in auc", "")),
        lambda: waiting(0.6, QUEUE, n=3),
    ]
}


@pytest.mark.parametrize("look", [QUEUE, ("rl.py:9 (pipe.recv) in main", "wait for a process")])
def test_a_wait_for_workers_comes_first_and_alone(look: tuple[str, str]) -> None:
    assert_first_and_alone(waiting(0.6, look), "worker-wait")


def test_a_pool_is_information_as_it_may_be_all_there_is_to_do() -> None:
    found = judged(waiting(0.6, POOL), alive=False)[0]
    assert [(finding.code, finding.severity) for finding in found] == [("worker-wait", "info")]


def test_a_wait_by_samples_is_an_estimate() -> None:
    (finding,) = [each for each in judged(waiting(0.3, QUEUE))[0] if each.code == "worker-wait"]
    assert finding.severity == "warning" and finding.estimated and finding.lost_fraction == pytest.approx(0.3, rel=0.15)


# A queue that fills in bursts: a few long waits, in steps that the device's clock may never time.

TRAINED = {"forward": 0.004, "backward": 0.007, "optimizer": 0.001, "other": 0.001}
COMPUTED = ("rl.py:44 (loss.item) in learn", "tensor read")


def in_bursts(look: tuple[str, str], every: int = 8) -> Story:
    """On a GPU: 320 short steps, of which each 32nd takes half a second more, with stack samples every 0.1 s."""
    told = OnDevice({**AT_WORK, "utilization": 50.0, "sm_active": 40.0}, every)
    due = 0
    for index in range(320):
        due += index % 32 == 31
        waited = 0.0 if not due or told.is_timed_next else 0.5
        due -= waited > 0.0
        told.both({**TRAINED, "other": TRAINED["other"] + waited})
    rows = [("other", look[0], 50), ("other", COMPUTED[0], 10)]
    return told.tell(Frames, rows=rows, activities=[look[1], COMPUTED[1]], begin=100.0)


def test_a_wait_in_bursts_is_a_wait_though_the_device_s_clock_saw_none_of_it() -> None:
    (finding,) = judged(in_bursts(QUEUE), alive=False)[0]
    assert (finding.code, finding.severity) == ("worker-wait", "warning")
    # 5 of some 9.2 seconds: without them 2.2 times as fast; stack samples tell it to a tenth.
    assert finding.recoverable is not None and finding.recoverable == pytest.approx(5 / 9.2, rel=0.15)


def test_what_was_not_timed_is_in_the_account_and_in_no_part_that_is_certain() -> None:
    report = report_of(in_bursts(QUEUE))
    assert report.device is not None and report.device.busy_least == pytest.approx(0.9 * 4.2 / 9.2, rel=0.15)
    untimed = next(row for row in report.device.account if row.what == UNTIMED)
    assert untimed.least == 0.0 and untimed.most == pytest.approx(5 / 9.2, rel=0.15)
    assert sum(row.least or 0.0 for row in report.device.account) <= 1.0
    assert sum(row.most or 0.0 for row in report.device.account) >= 1.0


def test_steps_that_are_all_timed_leave_nothing_untimed() -> None:
    report = report_of(looped(TRAINED, every=8))
    assert report.device is not None and UNTIMED not in {row.what for row in report.device.account}


def test_slow_steps_that_wait_for_no_worker_stay_slow_steps() -> None:
    found = judged(in_bursts(("rl.py:70 (write_table) in report", "")), alive=False)[0]
    assert "slow-steps" in {finding.code for finding in found}
    assert "worker-wait" not in {finding.code for finding in found}


def test_single_slow_steps_with_a_short_wait_stay_slow_steps() -> None:
    """On a CPU: five steps wait, for a tenth of the time in all, too little to name the run by it."""
    told = Story()
    for index in range(100):
        told.step(forward=0.03, backward=0.06, other=0.01 + (0.6 if index in (20, 37, 41, 66, 92) else 0.0))
    told.tell(Frames, rows=[("other", QUEUE[0], 7), ("other", "rl.py:71 (sort) in rank", 33)], activities=["queue", ""])
    found = {finding.code for finding in judged(told, alive=False)[0]}
    assert "slow-steps" in found and "worker-wait" not in found


def test_on_a_cpu_a_wait_at_no_regular_distance_is_one_too() -> None:
    told = Story()
    for index in range(100):
        told.step(forward=0.03, backward=0.06, other=0.01 + (2.0 if index in (20, 37, 41, 66, 92) else 0.0))
    told.tell(Frames, rows=[("other", QUEUE[0], 90), ("other", "rl.py:71 (sort) in rank", 5)], activities=["queue", ""])
    found = judged(told, alive=False)[0]
    assert [finding.code for finding in found] == ["worker-wait"]
