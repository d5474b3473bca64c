"""What is made of the lane: the journals of a whole run folded as a report folds them, against the ledger."""

from __future__ import annotations

import pytest

from monitor.model.device.device_report import AccountRow, Device
from monitor.model.device.device_steps import WARM_UP_STEPS
from monitor.model.report import Report
from tests.simulated_device import checks
from tests.simulated_device.plays import Played, Plays
from tests.simulated_device.test_safety import PRELUDE
from tests.simulated_device.workloads import DATA, DEVICE, FOREIGN, HOST, WORKLOADS

TOLD = {DEVICE: "device", HOST: "host", DATA: "data"}
# Bound by the device in truth, and nothing that events or the driver tell decides it: queues shorter than the marks
# are apart, or a host that is ahead in one half of the step and behind in the other.
OPEN = ("mixed", "half-a-millisecond", "one-millisecond")
ADDED_UP = 0.005


def report_of(played: Played) -> tuple[Report, Device]:
    report = played.told.report
    assert report.device is not None
    return report, report.device


def true_busy(played: Played) -> tuple[float, float]:
    """Of the timed steps: the share in which kernels ran, and that in which anything did."""
    total, _, _ = checks.sums(played, weighted=False)
    true = checks.true_phases(played, timed_only=True)
    kernels = sum(seconds for name, seconds in true.items() if name != "other")
    return kernels / total, sum(true.values()) / total


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, each in WORKLOADS.items() if each.bound in TOLD])
def test_what_bounds_it(play: Plays, name: str) -> None:
    _, device = report_of(play(name))
    wanted = TOLD[WORKLOADS[name].bound]
    assert device.bound in ((wanted, None) if name in OPEN else (wanted,))


@pytest.mark.parametrize("name", [name for name, each in WORKLOADS.items() if each.bound in TOLD])
def test_the_range_of_busy_holds_the_truth(play: Plays, name: str) -> None:
    _, device = report_of(play(name))
    kernels, anything = true_busy(play(name))
    assert device.busy_least is not None and device.busy_least <= anything + checks.POINTS
    assert device.busy_most is not None
    if not WORKLOADS[name].checkpoint_every:  # readings of the driver tell of all the time, checkpoints' included
        assert device.busy_most >= kernels - checks.POINTS
    if device.gain_limit is not None:
        assert device.gain_limit >= 1.0 / (anything + checks.POINTS), "no less than there is to gain"


def shares(played: Played) -> tuple[dict[str, float], float]:
    """Of the time in the steps that the account is of: kernels and copies by phase, and neither."""
    timed = sorted(played.timed)
    steady = [played.timed[step] for step in timed if step >= timed[0] + WARM_UP_STEPS]
    total, busy = 0.0, dict[str, float]()
    for event in steady:
        weight = event.get("every", 1)
        total += weight * event["seconds"]
        for name, seconds in played.true_steps.get(event["step"], {}).items():
            if name != "eval":
                busy[name] = busy.get(name, 0.0) + weight * seconds
    return {name: seconds / total for name, seconds in busy.items()}, 1.0 - sum(busy.values()) / total


@pytest.mark.parametrize("name", [name for name, each in WORKLOADS.items() if each.bound != FOREIGN])
def test_the_account_holds_the_truth_and_adds_up(play: Plays, name: str) -> None:
    """Kernels and copies of each phase, and idle time, each within its range or two points of it."""
    _, device = report_of(play(name))
    busy, idle = shares(play(name))
    rows = {row.what: row for row in device.account}
    for what, share in busy.items():
        row = rows.get(what, AccountRow(what, "busy", 0.0, 0.0))
        assert (row.least or 0.0) - checks.POINTS <= share, (row, share)
        assert row.most is not None and share <= row.most + checks.POINTS, (row, share)
    told = [row for row in device.account if row.state == "idle"]
    assert sum(row.least or 0.0 for row in told) - checks.POINTS <= idle, told
    assert idle <= sum(row.most or 0.0 for row in told) + checks.POINTS, told
    assert sum(row.least or 0.0 for row in device.account) <= 1.0 + ADDED_UP
    assert sum(row.most or 0.0 for row in device.account) >= 1.0 - ADDED_UP


def test_waiting_for_batches_is_told_as_long_as_it_is(play: Plays) -> None:
    _, device = report_of(play("waits-for-data"))
    row = next(row for row in device.account if row.what == "waiting for data")
    assert row.least == row.most == pytest.approx(shares(play("waits-for-data"))[1], abs=checks.POINTS)


COLLECTING = """
import gc
gc.disable()

class Slow:
    def __del__(self): device.host(0.2)

def collect():
    slow = Slow()
    slow.itself = slow
    del slow
    gc.collect()

for number, each in enumerate(th.steps(range(40))):
    device.step = number + 1
    if number < 3: breathe()
    forward(seconds=0.1)
    if number % 4 == 0:
        {before}
        collect()
    backward()
    finish()
    if number % 10 == 0: breathe()
breathe()
"""


@pytest.mark.parametrize(("before", "idle"), [("finish()", 0.2), ("", 0.1)])
def test_garbage_collection_is_told_as_long_as_it_is(play: Plays, before: str, idle: float) -> None:
    """A fifth of a second in each fourth step; of that the device is idle for what is not queued when it begins."""
    told = play.script(PRELUDE + COLLECTING.format(before=before))
    device = told.report.device
    assert device is not None and len(told.kind("gpu_time")) == 40
    row = next(row for row in device.account if row.what == "garbage collection")
    share = idle / 4 / (0.1 + 0.1 + idle / 4)
    assert row.state == "idle" and row.most == pytest.approx(share, abs=checks.POINTS)
    assert (row.least or 0.0) <= share
    seconds = sum(part for event in told.kind("gpu_time") for _, part in event.get("gc_phases", ()))
    assert seconds == pytest.approx(10 * idle, abs=0.01 + 10 * 0.0004), "without what was certainly queued"


@pytest.mark.parametrize("name", [name for name, each in WORKLOADS.items() if each.bound == DEVICE and name != "mixed"])
def test_shares_of_phases_are_the_devices(play: Plays, name: str) -> None:
    """Within two points of the ledger's, and they add up; the host's clock would have it all in `other`."""
    report, _ = report_of(play(name))
    told = {row.name: row.share for row in report.phases}
    true = checks.true_phases(play(name), timed_only=False)
    whole = sum(true.values())
    assert {row.clock for row in report.phases} == {"cuda"}
    assert sum(told.values()) == pytest.approx(1.0, abs=ADDED_UP)
    for phase in ("forward", "backward", "optimizer"):
        assert told[phase] == pytest.approx(true[phase] / whole, abs=checks.POINTS + (0.01 if name in OPEN else 0.0))


@pytest.mark.parametrize("name", [name for name, each in WORKLOADS.items() if each.healthy])
def test_nothing_loud_is_said_of_a_healthy_one(play: Plays, name: str) -> None:
    report, _ = report_of(play(name))
    loud = [each.code for each in report.findings if each.severity != "info"]
    # Half a second of each five on a slow disk is worth saying.
    assert loud in ([], ["checkpoint-stall"] if WORKLOADS[name].checkpoint_every else [])


@pytest.mark.parametrize("name", [name for name, each in WORKLOADS.items() if each.cause])
def test_the_cause_comes_first(play: Plays, name: str) -> None:
    report, _ = report_of(play(name))
    assert [each.code for each in report.findings][:1] == [WORKLOADS[name].cause]
