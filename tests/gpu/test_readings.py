"""What is read of a GPU, through the real binding."""

from __future__ import annotations

import pytest

from tests.gpu.conftest import Stub, changed, scene

H200 = scene("h200x8")
LAPTOP = scene("laptop")


def test_a_card_that_tells_everything(stub: Stub) -> None:
    named = changed(H200, gpu3__name="Stub\x1b[31m H200")
    counted = changed(
        named,
        gpu__field__74="ull:500000000", gpu__field__269="ull:100000000", gpu__field__270="ull:250000000",
        gpu__field__138="ull:1000", gpu__field__139="ull:2000", gpu3__reasons="0x44",
    )  # fmt: skip
    first, second = stub.play((0, named), (1, counted))
    assert (first.trouble, second.trouble) == (None, None)
    assert [gpu["index"] for gpu in second.gpus] == list(range(8))
    assert first.gpus[0]["power_violation"] is None  # a rate has two ends
    gpu = second.gpus[3]
    rare = {"driver", "bus_id", "mig", "memory_clock_max", "power_limit_default", "temperature_limit"}
    rare |= {"temperature_max", "temperature_shutdown", "memory_temperature_max", "processes", "remapped_rows"}
    rare |= {"remap_pending", "remap_failed", "ecc_errors", "ecc_corrected"}
    rare |= {f"pcie_{name}" for name in ("gen", "gen_max", "width", "width_max")}
    assert {key for key, value in gpu.items() if value is None} == {*rare, "users", "ours", "mig_of", "xid"}
    told = {key: value for key, value in gpu.items() if value is not None}
    assert told == {
        "producer": "", "seq": 0, "t": 1, "uuid": "GPU-00000003-5eed-4000-8000-000000000003", "index": 3,
        "name": "Stub [31m H200", "utilization": 97.0, "memory_used": 96636764160, "memory_total": 150754820096,
        "temperature": 63.0, "power": 612.5, "power_limit": 700.0, "sm_clock": 1980, "sm_clock_max": 1980,
        "memory_clock": 3201, "reasons": 0x44, "simulated": True, "memory_utilization": 61.0,
        "memory_reserved": 629145600, "memory_temperature": 71.0, "temperature_margin": 24.0, "power_average": 611.0,
        "power_instant": 640.0, "energy": 918273.645, "pstate": 0, "thermal_violation": 0.25, "power_violation": 0.5,
        "brake_violation": 0.0, "pcie_tx": 120.0 * 2**20, "pcie_rx": 480.0 * 2**20, "nvlink_tx": 1024000.0,
        "nvlink_rx": 2048000.0, "sm_active": 91.5, "sm_occupancy": 38.25, "tensor_active": 43.5, "memory_active": 52.0,
        "delta": False, "unknown": [],
    }  # fmt: skip
    seldom = first.gpus[3]
    assert {key: seldom[key] for key in sorted(rare)} == {
        "driver": "580.95.05 SIMULATED", "bus_id": "00000000:4B:00.0", "mig": False, "memory_clock_max": 3201,
        "power_limit_default": 700.0, "temperature_limit": None, "temperature_max": None, "temperature_shutdown": None,
        "memory_temperature_max": None, "processes": [], "remapped_rows": 0, "remap_pending": False,
        "remap_failed": False, "ecc_errors": 0, "ecc_corrected": 0, "pcie_gen": 5, "pcie_gen_max": 5,
        "pcie_width": 16, "pcie_width_max": 16,
    }  # fmt: skip


def test_what_seldom_changes_is_read_seldom_and_again(stub: Stub) -> None:
    downtrained = changed(H200, gpu0__pcie_gen=3, gpu0__remapped_rows=2, gpu0__remap_pending=1)
    polls = stub.play((0, H200), (5, downtrained), (10.5, downtrained))
    assert [poll.gpus[0]["pcie_gen"] for poll in polls] == [5, None, 3]
    assert (polls[2].gpus[0]["remapped_rows"], polls[2].gpus[0]["remap_pending"]) == (2, True)


def test_a_laptop_that_lacks_half(stub: Stub) -> None:
    first, second, third = stub.play((0, LAPTOP), (1, LAPTOP), (7, LAPTOP))
    gpu = second.gpus[0]
    for name in ("power", "power_limit", "energy", "memory_reserved", "memory_temperature", "temperature_margin"):
        assert gpu[name] is None, name
    for name in ("power_average", "brake_violation", "nvlink_rx", "sm_active", "tensor_active"):
        assert gpu[name] is None, name
    assert (gpu["temperature"], gpu["sm_clock"], gpu["utilization"], gpu["reasons"]) == (86.0, 1605, 99.0, 0x20)
    assert (gpu["memory_used"], gpu["thermal_violation"]) == (12884901888, 0.0)
    assert (first.gpus[0]["temperature_limit"], first.gpus[0]["temperature_max"]) == (97.0, 87.0)
    assert (first.gpus[0]["ecc_errors"], first.gpus[0]["mig"], first.gpus[0]["processes"]) == (None, None, None)
    assert (first.gpus[0]["pcie_width"], first.gpus[0]["pcie_width_max"]) == (8, 16)
    # measured by the driver for 20 ms: in turns, so the first poll has none
    assert first.gpus[0]["pcie_rx"] is None
    assert third.gpus[0]["pcie_rx"] == 300_000 * 1024


@pytest.mark.parametrize("mask", [0x0, *(1 << bit for bit in range(9)), 0x1FF, 0x24, 0x200, 0x8000000000000004])
def test_clock_event_reasons_pass_as_they_are(stub: Stub, mask: int) -> None:
    (poll,) = stub.play((0, changed(LAPTOP, gpu0__reasons=hex(mask))))
    assert poll.gpus[0]["reasons"] == mask & (2**53 - 1)  # what JSON readers can carry


def test_an_old_driver_knows_the_old_name_of_the_reasons(stub: Stub) -> None:
    old = changed(LAPTOP, **{"fail__nvmlDeviceGetCurrentClocksEventReasons": 13})
    first, second = stub.play((0, old), (1, old))
    assert (first.gpus[0]["reasons"], second.gpus[0]["reasons"]) == (0x20, 0x20)


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("550.54.14", (251, 252, 253)), ("580.65.06", (251, 252, 253)), ("580.82.07", (269, 270, 271)),
     ("580.95.05", (269, 270, 271)), ("590.10", (269, 270, 271))],
)  # fmt: skip
def test_the_slowdown_counters_go_by_the_drivers_version(
    stub: Stub, version: str, numbers: tuple[int, int, int]
) -> None:
    """Under the numbers of the other version stand things that grow otherwise."""

    def counters(*values: int) -> str:
        lines = {f"gpu0__field__{other}": f"ull:{values[0]}" for other in (251, 252, 253, 269, 270, 271)}
        lines |= {f"gpu0__field__{n}": f"ull:{v}" for n, v in zip(numbers, values[1:], strict=True)}
        return changed(LAPTOP, driver__version=version, **lines)

    _, poll = stub.play((0, counters(1, 0, 0, 0)), (2, counters(900_000_000, 200_000_000, 600_000_000, 1_000_000_000)))
    assert poll.gpus[0]["thermal_violation"] == pytest.approx(0.3)
    assert poll.gpus[0]["brake_violation"] == pytest.approx(0.5)


def test_without_a_version_no_number_is_trusted(stub: Stub) -> None:
    lines = {f"gpu0__field__{n}": "ull:{}" for n in (251, 252, 253, 269, 270, 271)}
    texts = [
        changed(LAPTOP, driver__version="?", **{key: line.format(value) for key, line in lines.items()})
        for value in (0, 500_000_000)
    ]
    _, poll = stub.play((0, texts[0]), (1, texts[1]))
    assert poll.gpus[0]["brake_violation"] is None
    assert poll.gpus[0]["thermal_violation"] == 0.0  # by the policy's counter, whose number never changed


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ("ull:0", "ull:1040000000", 1.0),  # a little late
        ("ull:0", "ull:1060000000", None),  # more than all of the time
        ("ull:900", "ull:0", None),  # backwards
        ("uint:0", "uint:400000000", 0.4),
        ("double:0", "double:3e8", 0.3),
        ("double:0", "double:nan", None),
        ("ull:0", "error:3", None),
        ("ull:0", "ull:18446744073709551615", None),  # "not available"
    ],
)
def test_a_share_of_time_is_one_or_nothing(stub: Stub, before: str, after: str, share: float | None) -> None:
    polls = stub.play((0, changed(H200, gpu__field__74=before)), (1, changed(H200, gpu__field__74=after)))
    assert polls[1].gpus[0]["power_violation"] == (None if share is None else pytest.approx(share))


def test_mig_instances_are_read_beside_their_card(stub: Stub) -> None:
    whole = scene("mig")
    fewer = changed(whole, gpu0__mig=1)
    none = changed(whole, gpu0__mig=0)
    first, second, third, fourth = stub.play((0, whole), (1, whole), (11, fewer), (22, none))
    card, one, other = second.gpus
    assert first.gpus[0]["mig"] is True
    assert (card["utilization"], card["sm_active"], card["temperature"]) == (None, None, 55.0)
    assert {one["mig_of"], other["mig_of"]} == {card["uuid"]}
    assert (one["uuid"], one["name"]) == (
        "MIG-11111111-5eed-4000-8000-000000000001",
        "NVIDIA H100 80GB HBM3 MIG 3g.40gb",
    )
    assert (one["memory_used"], one["memory_total"], one["sm_active"]) == (21474836480, 42144366592, 88.0)
    assert (other["memory_used"], other["sm_active"], one["temperature"]) == (0, 0.0, None)
    assert [process[:1] for process in first.gpus[1]["processes"]] == [[4242]]
    assert [gpu["uuid"][:4] for gpu in third.gpus] == ["GPU-", "MIG-"]
    assert [gpu["uuid"][:4] for gpu in fourth.gpus] == ["GPU-"]


def test_processes_of_the_run_and_foreign_ones(stub: Stub) -> None:
    busy = changed(
        H200, gpu0__processes="4000001:5368709120 4000002:unknown", process__4000001="/usr/bin/python train.py --key X",
        process__4000002="/opt/miner\x1b[2J",
    )  # fmt: skip
    ((poll),) = stub.play((0, busy), members=[4000001])
    ours, foreign = poll.gpus[0]["processes"]
    assert ours == [4000001, "python", 5368709120, True]
    assert foreign[:3] == [4000002, "miner [2J", None]
    assert foreign[3] is not True  # in a container pids do not match: unknown there, foreign on the host
    assert poll.gpus[1]["processes"] == []
