"""What is made of the lane: the journals of a whole run folded as a report folds them, against the ledger."""

from __future__ import annotations

import pytest

from monitor.model.report import Device, Report
from tests.simulated_device import checks
from tests.simulated_device.plays import Played, Plays
from tests.simulated_device.workloads import DATA, DEVICE, HOST, WORKLOADS

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
