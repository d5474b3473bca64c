"""GPUs of the amdgpu driver, in a tree of files as the kernel's documents describe it. No real card was at hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from monitor.doctor import checks
from monitor.sources import amdgpu, gpu_source
from monitor.sources.amdgpu import AmdSource
from monitor.sources.gpu_source import GpuSource, Trouble

BUS = "0000:03:00.0"
DEVICE = {
    "vendor": "0x1002\n", "unique_id": "a1b2c3d4e5f60718\n", "product_name": "AMD Instinct MI210\n",
    "gpu_busy_percent": "87\n", "mem_busy_percent": "41\n",
    "mem_info_vram_total": f"{64 << 30}\n", "mem_info_vram_used": f"{10 << 30}\n",
    "pp_dpm_sclk": "0: 500Mhz\n1: 800Mhz *\n2: 1700Mhz\n", "pp_dpm_mclk": "0: 400Mhz\n1: 1600Mhz *\n",
    "current_link_speed": "8.0 GT/s PCIe\n", "max_link_speed": "16.0 GT/s PCIe\n",
    "current_link_width": "16\n", "max_link_width": "16\n", "power/runtime_status": "active\n",
}  # fmt: skip
SENSORS = {
    "temp1_label": "edge\n", "temp1_input": "61000\n", "temp1_crit": "100000\n", "temp1_emergency": "105000\n",
    "temp3_label": "mem\n", "temp3_input": "70000\n", "power1_average": "245000000\n", "power1_cap": "300000000\n",
    "power1_cap_default": "310000000\n", "freq1_label": "sclk\n", "freq1_input": "1650000000\n",
    "freq2_label": "mclk\n", "freq2_input": "1600000000\n",
}  # fmt: skip


def write(place: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)


def card(
    root: Path, number: int = 0, bus: str = BUS, device: dict[str, str] = DEVICE, sensors: dict[str, str] = SENSORS
) -> Path:
    """A card's files; return the directory of its PCI device."""
    place = root / "devices" / bus
    write(place, device)
    write(place / "hwmon" / "hwmon5", sensors)
    (root / "drm" / f"card{number}").mkdir(parents=True)
    (root / "drm" / f"card{number}" / "device").symlink_to(place)
    (root / "drm" / f"card{number}-DP-1").mkdir()  # a connector
    return place


def source(root: Path) -> AmdSource:
    return AmdSource(root / "drm", root / "proc")


def test_every_file_is_read_in_its_unit(tmp_path: Path) -> None:
    card(tmp_path)
    (gpu,) = source(tmp_path).read(1.0)
    assert (gpu.uuid, gpu.name, gpu.index) == ("amdgpu-a1b2c3d4e5f60718", "AMD Instinct MI210", 0)
    assert (gpu.utilization, gpu.memory_utilization) == (87.0, 41.0)
    assert (gpu.memory_used, gpu.memory_total) == (10 << 30, 64 << 30)
    assert (gpu.temperature, gpu.memory_temperature) == (61.0, 70.0)
    assert (gpu.temperature_limit, gpu.temperature_shutdown) == (100.0, 105.0)
    assert (gpu.power, gpu.power_limit, gpu.power_limit_default) == (245.0, 300.0, 310.0)
    assert (gpu.sm_clock, gpu.sm_clock_max, gpu.memory_clock, gpu.memory_clock_max) == (1650, 1700, 1600, 1600)
    assert (gpu.pcie_gen, gpu.pcie_gen_max, gpu.pcie_width, gpu.pcie_width_max) == (3, 4, 16, 16)
    assert gpu.bus_id == BUS and gpu.reasons is None and gpu.processes is None and not gpu.simulated


def test_what_has_no_file_is_unknown(tmp_path: Path) -> None:
    bare = {name: DEVICE[name] for name in ("vendor", "mem_info_vram_total")}
    card(tmp_path, device=bare, sensors={})
    (gpu,) = source(tmp_path).read(1.0)
    assert gpu.uuid == f"amdgpu-{BUS}" and gpu.memory_total == 64 << 30
    assert {gpu.utilization, gpu.memory_used, gpu.temperature, gpu.power, gpu.sm_clock, gpu.pcie_gen} == {None}


@pytest.mark.parametrize("text", ["", "-5", "n/a", "87%", "9" * 30, "\x00", "²"])
def test_what_is_no_percentage_is_unknown(tmp_path: Path, text: str) -> None:
    card(tmp_path, device={**DEVICE, "gpu_busy_percent": text})
    assert source(tmp_path).read(1.0)[0].utilization is None


def test_newer_cards(tmp_path: Path) -> None:
    """They have no edge sensor, and the power of the moment only."""
    sensors = {"temp2_label": "junction\n", "temp2_input": "55000\n", "power1_input": "120000000\n"}
    card(tmp_path, sensors=sensors)
    (gpu,) = source(tmp_path).read(1.0)
    assert (gpu.temperature, gpu.memory_temperature, gpu.power) == (55.0, None, 120.0)


def test_a_card_that_sleeps_is_not_woken(tmp_path: Path) -> None:
    card(tmp_path, device={**DEVICE, "power/runtime_status": "suspended\n"})
    (gpu,) = source(tmp_path).read(1.0)
    assert gpu.name == "AMD Instinct MI210" and gpu.utilization is None and gpu.power is None


def test_cards_are_counted_in_order_and_others_left_out(tmp_path: Path) -> None:
    for number, bus in ((10, "0000:0a:00.0"), (2, "0000:02:00.0")):
        card(tmp_path, number, bus, {**DEVICE, "unique_id": ""})
    card(tmp_path, 0, "0000:01:00.0", {**DEVICE, "vendor": "0x8086\n"})
    known = source(tmp_path).read(1.0)
    assert [(gpu.index, gpu.bus_id) for gpu in known] == [(0, "0000:02:00.0"), (1, "0000:0a:00.0")]


def test_memory_by_process(tmp_path: Path) -> None:
    card(tmp_path)
    client = "pos:\t0\ndrm-driver:\tamdgpu\ndrm-pdev:\t{bus}\ndrm-client-id:\t{id}\ndrm-memory-vram:\t{kib} KiB\n"
    rows = {(41, "3"): (7, 1024), (41, "4"): (7, 1024), (41, "5"): (8, 512), (42, "9"): (9, 2048)}
    for (pid, name), (number, kib) in rows.items():
        write(tmp_path / "proc" / str(pid) / "fdinfo", {name: client.format(bus=BUS, id=number, kib=kib)})
        (tmp_path / "proc" / str(pid) / "fd").mkdir(exist_ok=True)
        (tmp_path / "proc" / str(pid) / "fd" / name).symlink_to("/dev/dri/renderD128")
    os.mkdir(tmp_path / "proc" / "self")
    (gpu,) = source(tmp_path).read(1.0, members={41})
    assert [(row[0], row[2], row[3]) for row in gpu.processes or ()] == [(41, 1536 << 10, True), (42, 2 << 20, False)]


def test_what_seldom_changes_is_read_seldom(tmp_path: Path) -> None:
    card(tmp_path)
    cards = source(tmp_path)
    assert [cards.read(now)[0].bus_id for now in (0.0, 1.0, 10.0)] == [BUS, None, BUS]
    assert cards.read(11.0, whole=True)[0].bus_id == BUS


@pytest.fixture
def without_nvidia(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: GpuSource, now: float) -> None:
        self._trouble, self._retry_at = Trouble("not-found", "no NVIDIA driver"), now + 30

    monkeypatch.setattr(GpuSource, "_connect", fail)


def test_they_are_read_where_there_is_no_nvidia_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_nvidia: None
) -> None:
    card(tmp_path)
    monkeypatch.setattr(gpu_source, "AmdSource", lambda: source(tmp_path))
    reading = GpuSource().read(1.0)
    assert [gpu.name for gpu in reading.gpus] == ["AMD Instinct MI210"] and reading.trouble is None
    driver, cards = checks.gpu_checks(sleep=lambda _: None)
    assert driver.state == "limited" and amdgpu.UNTESTED in driver.text
    assert cards.state == "limited" and "Throttling" in (cards.advice or "")


def test_without_any_gpu_the_trouble_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without_nvidia: None
) -> None:
    monkeypatch.setattr(gpu_source, "AmdSource", lambda: source(tmp_path))
    reading = GpuSource().read(1.0)
    assert reading.gpus == [] and reading.trouble is not None and reading.trouble.code == "not-found"
