"""A driver that is missing, old, slow, or goes away; and cards that fall off the bus."""

from __future__ import annotations

import os

import pytest

from tests.gpu.conftest import ROOT, Stub, changed, scene

H200 = scene("h200x8")


@pytest.mark.parametrize(
    ("failure", "trouble"),
    [(9, "not-loaded"), (18, "version-mismatch"), (4, "no-permission"), (999, "init-failed")],
)
def test_a_driver_that_does_not_start_is_tried_again(stub: Stub, failure: int, trouble: str) -> None:
    broken = changed(H200, driver__init=failure)
    polls = stub.play((0, broken), (1, H200), (29, H200), (31, H200))
    for poll in polls[:3]:
        assert (poll.gpus, poll.trouble) == ([], trouble)
    assert (len(polls[3].gpus), polls[3].trouble) == (8, None)


def test_no_driver(stub: Stub) -> None:
    code = """
import json
from monitor.sources.gpu_source import GpuSource
found = GpuSource().read(0.0)
print(json.dumps([len(found.gpus), found.trouble and found.trouble.code]))
"""
    bare = Stub.__new__(Stub)
    bare.environment = {**os.environ, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": "/nonexistent"}
    gpus, trouble = bare.python(code)
    assert gpus or trouble  # a real one, on a machine that has it


def test_a_machine_without_cards(stub: Stub) -> None:
    polls = stub.play((0, changed(H200, driver__count=0)), (1, changed(H200, driver__count=0)))
    assert [(poll.gpus, poll.trouble) for poll in polls] == [([], "no-gpu")] * 2


def test_a_card_that_is_lost_leaves_the_others_and_may_come_back(stub: Stub) -> None:
    lost = changed(H200, gpu3__lost=1)
    polls = stub.play((0, H200), (1, lost), (2, lost), (20, H200), (33, lost), (36, lost), (70, H200), (72, H200))
    for poll in polls[1:6]:
        assert [gpu["index"] for gpu in poll.gpus] == [0, 1, 2, 4, 5, 6, 7]
        assert poll.trouble == "gpu-lost"
    assert (len(polls[7].gpus), polls[7].trouble) == (8, None)


def test_a_card_that_was_lost_before_we_came(stub: Stub) -> None:
    lost = changed(H200, gpu3__lost=1, gpu4__lost=1)
    (poll,) = stub.play((0, lost))
    assert [gpu["index"] for gpu in poll.gpus] == [0, 1, 2, 5, 6, 7]
    assert poll.trouble == "gpu-lost"


def test_a_driver_that_goes_away_and_returns(stub: Stub) -> None:
    gone = changed(H200, driver__gone=1)
    polls = stub.play((0, H200), (1, gone), (2, H200), (32, gone), (40, H200), (75, H200), (76, H200))
    assert (polls[1].gpus, polls[1].trouble) == ([], "driver-gone")
    assert polls[2].gpus == []
    assert len(polls[6].gpus) == 8 and polls[6].trouble is None
    assert polls[6].gpus[0]["power_violation"] == 0.0


def test_a_missing_reading_that_comes_is_seen_within_a_minute(stub: Stub) -> None:
    hidden = changed(H200, fail__nvmlDeviceGetPowerUsage=3, gpu__field__82="error:3")
    polls = stub.play((0, hidden), (30, H200), (61, H200))
    assert [poll.gpus[0]["power"] for poll in polls] == [None, None, 612.5]
    assert [poll.gpus[0]["memory_temperature"] for poll in polls] == [None, None, 71.0]


def test_a_passing_failure_costs_one_reading(stub: Stub) -> None:
    polls = stub.play((0, H200), (1, changed(H200, fail__nvmlDeviceGetPowerUsage=999)), (2, H200))
    assert [poll.gpus[0]["power"] for poll in polls] == [612.5, None, 612.5]


def test_a_slow_query_does_not_delay_the_rest(stub: Stub) -> None:
    """200 ms a call, on eight cards: one call a round, each card's in turn, and the answer is kept meanwhile."""
    slow = changed(H200, slow__nvmlDeviceGetPowerUsage=200)
    polls = stub.play(*((moment, slow) for moment in range(12)))
    for poll in polls:
        assert len(poll.gpus) == 8
        assert poll.took < 8 * 0.2  # all of them at once would take at least that
        assert all(gpu["sm_clock"] == 1980 for gpu in poll.gpus)
    assert all(gpu["power"] == 612.5 for gpu in polls[-1].gpus)


def test_a_query_that_was_slow_once_is_asked_as_before(stub: Stub) -> None:
    waking = changed(H200, slow__nvmlDeviceGetPowerUsage=200)
    later = changed(H200, gpu__power=500000)
    polls = stub.play((0, waking), (1, H200), (2, later), (3, later))
    assert all(gpu["power"] == 500.0 for gpu in polls[3].gpus)


def test_critical_errors_come_by_a_thread_of_their_own(stub: Stub) -> None:
    code = """
import json, os, sys, time
from monitor.sources.gpu_source import GpuSource
base, lost = json.load(sys.stdin)
def show(text):
    with open(os.environ["NVML_STUB"] + ".new", "w") as new: new.write(text)
    os.replace(new.name, os.environ["NVML_STUB"])
show(base)
source = GpuSource()
source.read(0.0)
show(lost)
until, moment = time.monotonic() + 20, 1.0
while time.monotonic() < until:
    found = source.read(moment)
    if found.notes: break
    moment += 0.001
    time.sleep(0.02)
source.close()
print(json.dumps([[(n.text, n.level, n.code) for n in found.notes], [(g.index, g.xid, g.power) for g in found.gpus]]))
"""
    notes, gpus = stub.python(code, [H200, changed(H200, gpu2__xid=79, gpu2__lost=1)])
    ((text, level, name),) = notes
    assert text.startswith("GPU 2 reports XID 79: the GPU has fallen off the bus")
    assert (level, name) == ("warning", "gpu-error")
    assert [2, 79, None] in gpus  # lost, so nothing else is known of it
    assert all(xid is None for index, xid, _ in gpus if index != 2)


def test_one_slow_call_alone_changes_nothing(stub: Stub) -> None:
    """One card, where nobody else asks: what a busy machine delays once is asked again at once."""
    one = changed(H200, driver__count=1)
    hiccup = changed(one, slow__nvmlDeviceGetPowerUsage=50)
    polls = stub.play((0, one), (1, hiccup), (2, changed(one, gpu__power=500000)), (3, one))
    assert [poll.gpus[0]["power"] for poll in polls] == [612.5, 612.5, 500.0, 612.5]
