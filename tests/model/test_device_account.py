"""The account of the device's time: its parts hold what is true, and add up."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from monitor.model.device.account_table import outside_lines, table_notes, table_rows
from monitor.model.device.device_account import (
    GARBAGE,
    LAUNCHING,
    MAX_PLACE_ROWS,
    NOT_SEEN,
    device_account,
    sampled_range,
)
from monitor.model.device.device_report import AccountRow, Device
from monitor.model.device.device_steps import WARM_UP_STEPS, DeviceSums
from monitor.sources.decode import place_of
from trainhooks.protocol.events import Facts, Gpu, GpuTime
from trainhooks.protocol.places import Place

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

    def looks(self, lots: random.Random, count: int) -> dict[str, dict[Place, list[int]]]:
        cells = [(cell, seconds) for cell, seconds in self.cells.items() if cell[3] != GARBAGE]
        found: dict[str, dict[Place, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
        for phase, certain, _, host in lots.choices(*zip(*cells, strict=True), k=count):
            row = found[phase][place_of(host, "")]
            row[0] += 1
            row[1] += not certain
        return found


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
HOST_ROWS = {LAUNCHING: PYTHON, "synchronizing at train.py:107": ITEM, "copying at data.py:86": TO}


def outside_of(account: Mapping[str, AccountRow], truth: Truth) -> list[str]:
    """The rows whose range does not hold what is true."""
    true = {name: truth.share(phase=name) - truth.share(phase=name, what="idle") for name in LAUNCHED}
    true[GARBAGE] = truth.share(what="idle", host=GARBAGE)
    true["waiting for data"] = truth.share(phase="data", what="idle", host=PYTHON)
    in_data = truth.share(phase="data", what="idle")
    for name, host in HOST_ROWS.items():
        true[name] = truth.share(what="idle", host=host) - (true["waiting for data"] if host == PYTHON else 0.0)
    assert in_data <= 1.0
    wrong = []
    for name, share in true.items():
        row = account.get(name)
        if row is None:
            wrong += [name] if share > 0.005 else []
        elif not (row.least or 0.0) - 1e-6 <= share <= (1.0 if row.most is None else row.most) + 1e-6:
            wrong.append(f"{name}: {share:.3f}, told {row.least} to {row.most}")
    return wrong


def test_each_part_holds_the_truth_whatever_a_device_does() -> None:
    """Ranges counted from looks may miss it in 5 of 100 cases, the others never."""
    lots, missed, of = random.Random("account"), 0, 0
    for _ in range(400):
        truth = anything(lots)
        told = device_account(truth.sums(), truth.looks(lots, 200))
        adds_up(told)
        wrong = outside_of(by_name(told), truth)
        assert [each for each in wrong if not each.startswith(tuple(HOST_ROWS))] == []
        missed, of = missed + len(wrong), of + len(HOST_ROWS)
    assert missed <= 0.05 * of


def test_what_the_range_of_a_count_holds() -> None:
    low, high = sampled_range(50, 100)
    assert (low, high) == pytest.approx((0.404, 0.596), abs=0.001), "100 looks are ten points"
    assert sampled_range(0, 10)[0] == 0.0 and sampled_range(0, 10)[1] == pytest.approx(0.278, abs=0.001)
    assert sampled_range(10, 10)[1] == 1.0
    lots = random.Random(1)
    held = 0
    for _ in range(2000):
        share = lots.random()
        low, high = sampled_range(sum(lots.random() < share for _ in range(40)), 40)
        held += low <= share <= high
    assert 0.93 < held / 2000 < 0.97


def test_it_adds_up_in_any_run() -> None:
    for told in (hf_trainer(), looped(WAITING, queued=0.3), pageable_copies(), matmul(every=20), launching()):
        adds_up(used(told).account)
    for told in (hf_trainer(reading=None), looped(WAITING, queued=0.0, reading=None)):
        adds_up(used(told).account)
    idle = by_name(used(looped(WAITING, queued=0.3)).account)
    assert idle["waiting for data"].state == "idle" and idle["earlier work, during data"].state == "busy"
    assert [row.state for row in idle.values()] == ["busy"] * 5 + ["idle"] * 2


# What the host did


def seen(looks: list[tuple[str, str, int, int]], reading: Mapping[str, Any] | None = None) -> dict[str, AccountRow]:
    story = OnDevice(reading)
    for _ in range(100):
        story.both(ITEM_EACH_STEP, GPT2, queued=0.6, looks=looks)
    return by_name(used(story).account)


def test_idle_time_is_told_by_what_the_host_did() -> None:
    account = seen([("forward", PYTHON, 2, 1), ("other", ITEM, 1, 1), ("other", TO, 3, 2), ("data", ITEM, 9, 9)])
    of = 4 * (100 - WARM_UP_STEPS)
    for name, share in ((LAUNCHING, 0.25), ("synchronizing at train.py:107", 0.25), ("copying at data.py:86", 0.5)):
        row, (_, high) = account[name], sampled_range(round(share * of), of)
        assert (row.state, row.by, row.looks) == ("idle", "looks", of), "those in data say nothing of launching"
        assert row.most == pytest.approx(0.4 * high, abs=0.002) and row.least == 0.0, "it may all be busy"
    assert NOT_SEEN not in account


def test_a_kind_of_many_places_is_a_few_rows() -> None:
    places = [("forward", f"model.py:{line} (x.item) in forward", 9 - line, 9 - line) for line in range(1, 9)]
    account = seen(places)
    found = [name for name in account if name.startswith("synchronizing")]
    assert sorted(found) == [
        *(f"synchronizing at model.py:{line}" for line in range(1, MAX_PLACE_ROWS + 1)),
        "synchronizing elsewhere",
    ]


@pytest.mark.parametrize(
    ("place", "what"),
    [
        ("train.py:9 (print) in train", "logging, in no phase"),
        ("train.py:9 (torch.save) in main", "checkpoint, in no phase"),
        ("train.py:9 (time.sleep) in main", "waiting at train.py:9"),
        ("transformers/trainer.py:38 (loss.item) in _inner, from t.py:8 (trainer.train) in main",
         "synchronizing at transformers/trainer.py:38"),
        ("model.py:4 in forward", LAUNCHING),
    ],
)  # fmt: skip
def test_what_a_place_says(place: str, what: str) -> None:
    assert what in seen([("other", place, 2, 2)])


def test_without_looks_nothing_is_made_up() -> None:
    account = seen([])
    assert account[NOT_SEEN].most == pytest.approx(0.4, abs=0.01) and account[NOT_SEEN].looks == 0


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
