"""The account of the device's time: its parts hold what is true, and add up."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from monitor.model.device.account_table import gain_text, is_measured, outside_lines, table_notes, table_rows
from monitor.model.device.device_account import (
    GARBAGE,
    LAUNCHING,
    NOT_SEEN,
    WAITING_FOR_DATA,
    device_account,
    traced_account,
)
from monitor.model.device.device_report import AccountRow, Device
from monitor.model.device.device_steps import WARM_UP_STEPS, DeviceSums
from monitor.model.device.trace_report import trace_report
from monitor.reports.report_json import as_json
from trainhooks.protocol.events import Facts, Gpu, GpuTime, Trace

from .conftest import Story, report_of
from .device_stories import (
    AT_WORK,
    CARD,
    GPT2,
    ITEM_EACH_STEP,
    SMALL,
    OnDevice,
    evaluating,
    hf_trainer,
    launching,
    looped,
    matmul,
    pageable_copies,
)

WAITING = {"data": 0.060, "forward": 0.020, "backward": 0.030, "optimizer": 0.002}
CLOSE = 1e-9
ITEM = "train.py:107 (loss.item) in train"
TO = "data.py:86 (batch.to) in fetch"
PYTHON = "model.py:40 (self.norm) in forward"


def used(told: Story) -> Device:
    found = report_of(told).device
    assert found is not None
    return found


def by_name(account: list[AccountRow]) -> dict[str, AccountRow]:
    assert len({row.what for row in account}) == len(account)
    return {row.what: row for row in account}


def adds_up(account: list[AccountRow]) -> None:
    for row in account:
        assert row.least is None or 0.0 <= row.least <= (1.0 if row.most is None else row.most) + CLOSE, row
    assert sum(row.least or 0.0 for row in account) <= 1.0 + 1e-6
    assert sum(row.most or 0.0 for row in account) >= 1.0 - 1e-6


# A device whose truth is known

CERTAIN, UNSURE = True, False
Cell = tuple[str, bool, str, str]  # phase, whether in a certain stretch, kernel | copy | idle, what the host did


@dataclass
class Truth:
    """Seconds of a device, cut into cells, and what hooks and driver tell of them."""

    cells: dict[Cell, float] = field(default_factory=lambda: defaultdict(float))

    def share(self, **wanted: Any) -> float:
        names = ("phase", "certain", "what", "host")
        return sum(
            seconds
            for cell, seconds in self.cells.items()
            if all(cell[names.index(name)] == value for name, value in wanted.items())
        ) / sum(self.cells.values())

    def sums(self) -> DeviceSums:
        phases: dict[str, float] = defaultdict(float)
        busy: dict[str, float] = defaultdict(float)
        gc: dict[str, float] = defaultdict(float)
        for (phase, certain, _, host), seconds in self.cells.items():
            phases[phase] += seconds
            busy[phase] += seconds if certain else 0.0
            gc[phase] += seconds if host == GARBAGE and not certain else 0.0
        told = GpuTime("p", 1, 1.0, step=9, seconds=sum(phases.values()), phases=list(phases.items()), since=8)
        told.busy, told.busy_phases, told.gc_phases = sum(busy.values()), list(busy.items()), list(gc.items())
        told.gc = sum(seconds for cell, seconds in self.cells.items() if cell[3] == GARBAGE)
        sums = DeviceSums()
        sums.add(told)
        sums._add_garbage(told)
        return sums


def anything(lots: random.Random) -> Truth:
    """A device that does everything, at some time."""
    truth, size = Truth(), lambda: lots.choice((0.0, 0.0, 0.1, 1.0, 5.0)) * lots.random()
    truth.cells["backward", CERTAIN, "kernel", PYTHON] = 0.1
    truth.cells["forward", UNSURE, "idle", PYTHON] = 0.1
    for phase in ("forward", "backward", "other"):
        for host in (PYTHON, ITEM, TO, GARBAGE):
            for certain in (CERTAIN, UNSURE):
                for what in ("kernel", "copy", *(() if certain else ("idle",))):
                    if not (certain and host == TO):  # who copies from pageable memory has nothing behind it
                        truth.cells[phase, certain, what, host] += size()
    for host in (PYTHON, GARBAGE):
        truth.cells["data", UNSURE, "idle", host] += size()
        truth.cells["data", CERTAIN, "kernel", host] += size()
    return truth


LAUNCHED = ("forward", "backward", "other")


def outside_of(account: Mapping[str, AccountRow], truth: Truth) -> list[str]:
    """The rows whose range does not hold what is true."""
    true = {name: truth.share(phase=name) - truth.share(phase=name, what="idle") for name in LAUNCHED}
    true[GARBAGE] = truth.share(what="idle", host=GARBAGE)
    true["waiting for data"] = truth.share(phase="data", what="idle", host=PYTHON)
    true[NOT_SEEN] = truth.share(what="idle") - truth.share(phase="data", what="idle")
    wrong = []
    for name, share in true.items():
        row = account.get(name)
        if row is None:
            wrong += [name] if share > 0.005 else []
        elif not (row.least or 0.0) - 1e-6 <= share <= (1.0 if row.most is None else row.most) + 1e-6:
            wrong.append(f"{name}: {share:.3f}, told {row.least} to {row.most}")
    return wrong


def test_each_part_holds_the_truth_whatever_a_device_does() -> None:
    lots = random.Random("account")
    for _ in range(400):
        truth = anything(lots)
        told = device_account(truth.sums())
        adds_up(told)
        assert outside_of(by_name(told), truth) == []


def test_it_adds_up_in_any_run() -> None:
    for told in (hf_trainer(), looped(WAITING, queued=0.3), pageable_copies(), matmul(every=20), launching()):
        adds_up(used(told).account)
    for told in (hf_trainer(reading=None), looped(WAITING, queued=0.0, reading=None)):
        adds_up(used(told).account)
    idle = by_name(used(looped(WAITING, queued=0.3)).account)
    assert idle["waiting for data"].state == "idle" and idle["earlier work, during data"].state == "busy"
    assert [row.state for row in idle.values()] == ["busy"] * 5 + ["idle"] * 2


def test_without_a_trace_nobody_knows_what_the_host_did() -> None:
    story = OnDevice(None)
    for _ in range(100):
        story.both(ITEM_EACH_STEP, GPT2, queued=0.6)
    device = used(story)
    row = by_name(device.account)[NOT_SEEN]
    assert (row.state, row.least, row.most) == ("idle", 0.0, pytest.approx(0.4, abs=0.01))
    assert gain_text(device) is None and not is_measured(device), "the range is too wide"


# By a trace

KERNELS = [
    ("nvjet_hsh_128x256", "forward", 48, 0.02),
    ("flash_bwd", "backward", 24, 0.03),
    ("Memcpy HtoD (Pageable -> Device)", "data", 2, 0.008),
    ("Memcpy DtoH (Device -> Pinned)", "other", 2, 0.002),
]
GAPS = [
    ("python", "other", 9, 0.028), ("launching", "forward", 9, 0.002), ("synchronizing", "other", 2, 0.006),
    ("allocating", "forward", 2, 0.004),
]  # fmt: skip


def trace_of(**fields: Any) -> Trace:
    usual = {"steps": 2, "seconds": 0.1, "busy": 0.06, "kernel_seconds": 0.06, "rows": KERNELS, "idle": GAPS}
    return Trace(producer="p", seq=0, t=0.0, device="cuda", first=9, **{**usual, **fields})


def traced(known: list[AccountRow], **fields: Any) -> dict[str, AccountRow]:
    """The account of a trace of two steps of 50 ms: 25 ms kernels, 5 ms copies, 20 ms idle in each."""
    trace = trace_of(**fields)
    told = traced_account(trace, trace_report(trace), known)
    adds_up(told)
    return by_name(told)


def test_a_trace_measures_each_part() -> None:
    account = traced([])
    assert {(row.what, row.state): row.most for row in account.values()} == {
        ("backward", "busy"): pytest.approx(0.3),
        ("forward", "busy"): pytest.approx(0.2),
        ("copy to the device, pageable", "copy"): pytest.approx(0.08),
        ("copy from the device", "copy"): pytest.approx(0.02),
        (LAUNCHING, "idle"): pytest.approx(0.3),
        ("synchronizing", "idle"): pytest.approx(0.06),
        ("allocating memory", "idle"): pytest.approx(0.04),
    }
    assert all(row.least == row.most and row.by == "trace" for row in account.values())
    assert sum(row.most or 0.0 for row in account.values()) == pytest.approx(1.0)


def test_copies_beside_kernels_take_no_time_of_the_device() -> None:
    assert not [what for what in traced([], busy=0.05, kernel_seconds=0.07) if what.startswith("copy")]


def test_where_a_trace_shows_no_gap_the_idle_time_is_not_known() -> None:
    assert traced([], idle=[])[NOT_SEEN].most == pytest.approx(0.4)
    assert NOT_SEEN not in traced([], idle=[], busy=0.1, kernel_seconds=0.1)


def test_waiting_for_data_is_no_python() -> None:
    """A trace cannot tell the two apart, and events know it of all steps."""
    waiting = AccountRow(WAITING_FOR_DATA, "idle", 0.25, 0.25)
    account = traced([waiting, AccountRow(NOT_SEEN, "idle", 0.0, 0.4), AccountRow("forward", "busy", 0.1, 0.6)])
    assert account[WAITING_FOR_DATA] == waiting and account[LAUNCHING].most == pytest.approx(0.05)
    assert account["forward"].most == pytest.approx(0.2) and NOT_SEEN not in account
    too_much = traced([AccountRow(WAITING_FOR_DATA, "idle", 0.5, 0.5)])
    assert too_much[WAITING_FOR_DATA].least == pytest.approx(0.4) == too_much[WAITING_FOR_DATA].most
    assert LAUNCHING not in too_much and "synchronizing" not in too_much


def test_a_collection_is_idle_but_for_what_can_have_run_meanwhile() -> None:
    short = traced([AccountRow(GARBAGE, "idle", 0.0, 0.1, by="host")])
    assert (short[GARBAGE].least, short[GARBAGE].most) == (0.0, 0.1)
    assert short[LAUNCHING].most == pytest.approx(0.3)
    long = traced([AccountRow(GARBAGE, "idle", 0.0, 0.9, by="host")])
    assert (long[GARBAGE].least, long[GARBAGE].most) == (pytest.approx(0.3), pytest.approx(0.4))
    assert LAUNCHING not in long and long["synchronizing"].most == pytest.approx(0.06)


def test_a_run_with_a_trace_is_measured() -> None:
    """The trace decides how busy; what sets the pace does not change with how the account is told."""
    story, without = (looped(WAITING, queued=0.3, reading=None) for _ in range(2))
    step = sum(WAITING.values()) * 1.015
    rows = [("nvjet_hsh_128x256", "forward", 48, 0.4 * step)]
    story.tell(Trace, device="cuda", first=9, steps=1, seconds=step, busy=0.4 * step, rows=rows, idle=GAPS[:1])
    device = used(story)
    account = by_name(device.account)
    assert account["forward"].least == account["forward"].most == pytest.approx(device.busy_least)
    assert device.busy_least == device.busy_most
    assert account[WAITING_FOR_DATA].most == by_name(used(without).account)[WAITING_FOR_DATA].most
    assert device.bound == used(without).bound == "data"
    adds_up(device.account)
    assert table_notes(device) == ["measured in 1 traced step"]
    assert gain_text(device) == f"{1 / (device.busy_least or 1.0):.2f}x as fast without idle time"


def test_copies_are_gained_as_well() -> None:
    rows = [AccountRow("forward", "busy", 0.5, 0.5, by="trace"), AccountRow("copy to the device", "copy", 0.2, 0.2)]
    device = Device(account=rows, gain_limit=2.0)
    assert gain_text(device) == "2.00x as fast without idle time and copies"
    assert gain_text(Device(gain_limit=2.0)) == "at most 2.00x as fast without idle time"


def test_a_trace_of_unusual_steps_measures_nothing() -> None:
    """It saw less work than was certainly queued."""
    story = looped(ITEM_EACH_STEP, GPT2, queued=0.9)
    story.tell(Trace, device="cuda", first=9, steps=1, seconds=0.15, busy=0.01, rows=[("k", "forward", 1, 0.01)])
    device = used(story)
    assert device.trace is not None and not is_measured(device)
    assert gain_text(device) == f"at most {1 / (device.busy_least or 1.0):.2f}x as fast without idle time"


# Garbage collection


def collecting(gc: float | None, phases: list[tuple[str, float]] | None, times: Mapping[str, float]) -> Device:
    story = OnDevice(None)
    for _ in range(100):
        story.both(times, queued=0.5)
        told = story.events[-1]
        assert isinstance(told, GpuTime)
        told.gc, told.gc_phases = gc, phases
    return used(story)


def test_garbage_collection_is_at_most_what_it_took_the_host() -> None:
    account = by_name(collecting(0.004, [("forward", 0.003)], WAITING).account)
    row = account[GARBAGE]
    assert (row.state, row.by, row.least) == ("idle", "host", 0.0), "kernels launched before it may have run"
    assert row.most == pytest.approx(0.004 / 0.1137, rel=0.02)
    adds_up(list(account.values()))


def test_garbage_collection_while_a_batch_is_awaited_is_no_waiting_for_data() -> None:
    without = by_name(collecting(0.0, [], WAITING).account)
    device = collecting(0.02, [("data", 0.02)], WAITING)
    account = by_name(device.account)
    part = 0.02 / 0.1137
    assert account[GARBAGE].least == pytest.approx(part, rel=0.02) == account[GARBAGE].most
    before, after = without["waiting for data"], account["waiting for data"]
    assert before.most is not None and after.most == pytest.approx(before.most - part, abs=0.003) == after.least
    assert without[GARBAGE].most == 0.0 and device.busy_most == collecting(0.0, [], WAITING).busy_most
    adds_up(device.account)


def test_a_journal_that_tells_nothing_of_it_has_no_such_row() -> None:
    assert GARBAGE not in by_name(collecting(None, None, WAITING).account)


def test_collections_in_the_first_steps_are_left_out() -> None:
    story = OnDevice(None)
    for number in range(60):
        story.both(SMALL, queued=0.5)
        story.events[-1].gc = 5.0 if number <= WARM_UP_STEPS else 0.0  # type: ignore[attr-defined]
    assert by_name(used(story).account)[GARBAGE].most == 0.0


# Outside the steps


def test_evaluations_and_checkpoints_are_parts_of_the_run() -> None:
    told = evaluating(each=50, seconds=3.0)
    found = report_of(told)
    assert found.device is not None and found.wall.total is not None
    (row,) = found.device.outside_steps
    assert (row.what, row.seconds) == ("eval", pytest.approx(8 * 3.0))
    assert row.share == pytest.approx(24.0 / found.wall.total)
    assert (row.busy_least, row.busy_most) == (pytest.approx(0.88), pytest.approx(0.97))
    assert outside_lines(found.device) == [
        f"outside the steps, eval: 24.0 s, {100 * row.share:.0f}% of the run; GPU busy 88%-97%"
    ]


def test_how_busy_the_gpu_was_in_them_is_the_driver_s_to_tell() -> None:
    short = used(evaluating(each=50, seconds=0.3))
    (row,) = short.outside_steps
    assert (row.busy_least, row.busy_most) == (None, None), "no reading lies in one of them"
    assert outside_lines(short)[0].endswith("GPU utilization unknown")
    story = OnDevice({**AT_WORK})
    for number in range(200):
        story.both(ITEM_EACH_STEP, GPT2)
        if number % 50 == 49:
            assert story.reading is not None
            story.reading.update(sm_active=0.0, utilization=1.0)
            story.stop("checkpoint", 5.0)
            story.reading.update(AT_WORK)
    (row,) = used(story).outside_steps
    assert row.busy_most is not None and row.busy_most == pytest.approx(0.01) and row.busy_least == 0.0


# In words


def test_the_table_says_what_is_not_known_and_leaves_out_nothing_that_matters() -> None:
    device = used(hf_trainer())
    told = table_rows(device)
    assert told[0] == ["part", "state", "at least", "at most"]
    assert Counter(row[1] for row in told[1:]) == {"busy": 5, "idle": 1}, "none waits for data"
    assert by_name(device.account)["waiting for data"].most == pytest.approx(0.0, abs=0.001)
    assert table_notes(device)[0].startswith("8")
    assert table_rows(Device()) == table_notes(Device()) == outside_lines(Device()) == []


def test_journals_of_older_writers_are_read_as_before() -> None:
    """They tell neither busy parts nor looks nor collections."""
    story = OnDevice(None)
    for _ in range(40):
        story.both(WAITING)
        told = story.events[-1]
        assert isinstance(told, GpuTime)
        told.busy, told.busy_phases, told.lag = None, [], None
    story.tell(Facts)
    story.tell(Gpu, uuid="GPU-1", **CARD)
    account = by_name(used(story).account)
    assert set(account) == {"waiting for data", "forward", "backward", "optimizer", "other"}
    assert all(row.least is None for row in account.values())
    assert sum(row.most or 0.0 for row in account.values()) == pytest.approx(1.0)


def test_keys_of_the_json_stay() -> None:
    """Programs read them, though nothing fills them any more."""
    told = json.loads(as_json(report_of(hf_trainer())))["device"]
    assert told["idle_at"] == [] and {row["looks"] for row in told["account"]} == {None}
