"""The account of the GPU's time on the screen of phases."""

from __future__ import annotations

from dataclasses import replace

import pytest
from by_hand import text

from monitor.model.device.device_report import AccountRow, Device, OutsideRow
from monitor.model.device.trace_report import trace_report
from monitor.tui.drawing.rows import row_width
from monitor.tui.panels.phases_panel import account_rows
from trainhooks.protocol.events import Trace

DEVICE = Device(
    clock="cuda",
    timed_steps=80,
    account=[
        AccountRow("backward", "busy", 0.477, 0.554),
        AccountRow("forward", "busy", None, None),
        AccountRow("what the host did is not known, nor anything else of it", "idle", 0.01, 0.09),
        AccountRow("garbage collection", "idle", 0.0, 0.0002, by="host"),
    ],
    outside_steps=[OutsideRow("eval", 24.0, 0.28)],
)


def test_each_part_is_a_range_and_what_is_not_known_says_so() -> None:
    shown = text(account_rows(DEVICE, 100))
    lines = {line.split()[0]: line.split() for line in shown.split("\n") if line}
    assert lines["backward"][1:] == ["busy", "48%", "55%"]
    assert lines["forward"] == ["forward", "busy", "unknown", "unknown"]
    assert "garbage" not in lines, "less than a thousandth"
    assert "certain" in shown and "eval: 24.0 s, 28% of the run; GPU utilization unknown" in shown


def test_what_a_trace_measured_says_so() -> None:
    rows = [AccountRow("backward", "busy", 0.6, 0.6, "trace"), AccountRow("synchronizing", "idle", 0.4, 0.4, "trace")]
    trace = trace_report(Trace("p", 1, 1.0, device="cuda", steps=3, seconds=0.3, busy=0.18))
    shown = text(account_rows(replace(DEVICE, account=rows, trace=trace), 100))
    assert "measured in 3 traced steps" in shown and "certain" not in shown
    assert ["synchronizing", "idle", "40%", "40%"] in [line.split() for line in shown.split("\n")]


@pytest.mark.parametrize("width", [160, 100, 60, 50])
def test_it_keeps_to_its_width(width: int) -> None:
    told = account_rows(DEVICE, width)
    assert len(told) > 4 and all(row_width(row) <= width for row in told)


def test_where_there_is_no_room_or_no_account_there_is_nothing() -> None:
    assert account_rows(DEVICE, 30) == [] and account_rows(Device(), 100) == []
