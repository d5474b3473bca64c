"""Read AMD GPUs from the files of the kernel's amdgpu driver. Untested on hardware, written after its documents.

What the driver has no file for stays None: why clocks are lowered, for one, so throttling is not told.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from monitor.gpu_lines import AMD
from monitor.sources.polling import RARE_EVERY, text_of
from monitor.sources.process_tree import process_name, process_user
from trainhooks.protocol.events import Gpu, GpuProcess
from trainhooks.protocol.limits import MAX_GPU_PROCESSES, MAX_NAME, clean

DRM = Path("/sys/class/drm")
PROC = Path("/proc")
VENDOR = "0x1002"
SEARCH_SECONDS = 0.05  # for the processes on all GPUs; the run's own come first
UNTESTED = "untested on hardware"

_GENERATIONS = {"2.5": 1, "5.0": 2, "8.0": 3, "16.0": 4, "32.0": 5, "64.0": 6}  # GT/s of a lane
_LEVEL = re.compile(r"(\d+)\s*mhz", re.IGNORECASE)
_VRAM = re.compile(r"^drm-(?:memory|resident|total)-vram:\s*(\d+)\s*(KiB|MiB|GiB)?", re.MULTILINE)
_KEY = re.compile(r"^(drm-pdev|drm-client-id):\s*(\S+)", re.MULTILINE)
_UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass
class Card:
    """A GPU, and where its files are."""

    index: int
    device: Path  # its PCI device
    hwmon: Path | None
    bus_id: str
    uuid: str
    name: str | None
    rare_due: float = float("-inf")


class AmdSource:
    """Read all GPUs of the amdgpu driver."""

    def __init__(self, drm: Path = DRM, proc: Path = PROC) -> None:
        self._proc = proc
        self.cards = list(_cards(drm))

    def read(self, now: float, members: Set[int] = frozenset(), whole: bool = False) -> list[Gpu]:
        """Read every GPU; the arguments are those of `GpuSource.read`."""
        gpus = []
        due = [card for card in self.cards if whole or now >= card.rare_due]
        users = _gpu_processes(self._proc, members) if due else {}
        for card in self.cards:
            gpu = Gpu(producer="", seq=0, t=now, uuid=card.uuid, index=card.index, name=card.name)
            if (text_of(f"{card.device}/power/runtime_status") or "").strip() != "suspended":  # a look would wake it
                _read_fast(card, gpu)
            if card in due:
                card.rare_due = now + RARE_EVERY
                _read_rare(card, gpu)
                gpu.processes = users.get(card.bus_id)  # those of others can be invisible, so none is unknown
                gpu.users = [clean(process_user(pid), MAX_NAME) for pid, *_ in gpu.processes or ()] or None
            gpus.append(gpu)
        return gpus


def _cards(drm: Path) -> Iterator[Card]:
    found = [path for path in drm.glob("card*") if re.fullmatch(r"card\d+", path.name)]
    index = 0
    for path in sorted(found, key=lambda path: int(path.name[4:])):
        device = path / "device"
        if (text_of(f"{device}/vendor") or "").strip() != VENDOR or _number(device, "mem_info_vram_total") is None:
            continue
        bus_id = os.path.basename(os.path.realpath(device))
        unique = (text_of(f"{device}/unique_id") or "").strip()
        name = clean((text_of(f"{device}/product_name") or "").strip(), MAX_NAME)
        hwmon = next(iter(sorted((device / "hwmon").glob("hwmon*"))), None)
        uuid = f"{AMD}{clean(unique or bus_id, 64)}"
        yield Card(index, device, hwmon, bus_id, uuid, name or f"AMD GPU {bus_id}")
        index += 1


def _read_fast(card: Card, gpu: Gpu) -> None:
    gpu.utilization = _share(card.device, "gpu_busy_percent")
    gpu.memory_utilization = _share(card.device, "mem_busy_percent")
    gpu.memory_used = _number(card.device, "mem_info_vram_used")
    gpu.memory_total = _number(card.device, "mem_info_vram_total")
    if card.hwmon is None:
        return
    sensor = _sensor(card.hwmon, "temp", "edge", "junction")
    gpu.temperature = _scaled(card.hwmon, f"{sensor}_input", 1e3)
    gpu.memory_temperature = _scaled(card.hwmon, f"{_sensor(card.hwmon, 'temp', 'mem')}_input", 1e3)
    gpu.power = _scaled(card.hwmon, "power1_average", 1e6)
    if gpu.power is None:  # newer cards have only this one
        gpu.power = _scaled(card.hwmon, "power1_input", 1e6)
    gpu.power_limit = _scaled(card.hwmon, "power1_cap", 1e6)
    gpu.sm_clock = _megahertz(card.hwmon, _sensor(card.hwmon, "freq", "sclk"))
    gpu.memory_clock = _megahertz(card.hwmon, _sensor(card.hwmon, "freq", "mclk"))
    gpu.sm_clock_max = _highest(card.device, "pp_dpm_sclk")


def _read_rare(card: Card, gpu: Gpu) -> None:
    gpu.driver, gpu.bus_id = f"amdgpu, {UNTESTED}", card.bus_id
    gpu.memory_clock_max = _highest(card.device, "pp_dpm_mclk")
    gpu.pcie_gen = _generation(card.device, "current_link_speed")
    gpu.pcie_gen_max = _generation(card.device, "max_link_speed")
    gpu.pcie_width = _number(card.device, "current_link_width")
    gpu.pcie_width_max = _number(card.device, "max_link_width")
    if card.hwmon is not None:
        sensor = _sensor(card.hwmon, "temp", "edge", "junction")
        gpu.power_limit_default = _scaled(card.hwmon, "power1_cap_default", 1e6)
        gpu.temperature_limit = _scaled(card.hwmon, f"{sensor}_crit", 1e3)
        gpu.temperature_shutdown = _scaled(card.hwmon, f"{sensor}_emergency", 1e3)


def _number(directory: Path, name: str) -> int | None:
    text = (text_of(f"{directory}/{name}") or "").strip()
    return int(text) if text.isascii() and text.isdigit() else None


def _share(directory: Path, name: str) -> float | None:
    percent = _number(directory, name)
    return float(percent) if percent is not None and percent <= 100 else None


def _scaled(directory: Path, name: str, unit: float) -> float | None:
    value = _number(directory, name)
    return None if value is None else value / unit


def _megahertz(directory: Path, sensor: str) -> int | None:
    hertz = _number(directory, f"{sensor}_input")
    return None if hertz is None else hertz // 1_000_000


def _sensor(hwmon: Path, kind: str, *labels: str) -> str:
    """Return the sensor with the first of these labels that is there, such as `temp2`; without labels, the first."""
    known = {(text_of(str(path)) or "").strip(): path.name[:-6] for path in hwmon.glob(f"{kind}*_label")}
    for label in labels:
        if label in known:
            return known[label]
    return f"{kind}1" if not known and labels[0] in ("edge", "sclk") else "absent"


def _highest(device: Path, name: str) -> int | None:
    """Return the highest of the clocks that the driver lists, one a line, in MHz."""
    levels = _LEVEL.findall(text_of(f"{device}/{name}") or "")
    return max(map(int, levels), default=None)


def _generation(device: Path, name: str) -> int | None:
    return _GENERATIONS.get((text_of(f"{device}/{name}") or "").partition(" ")[0])


def _gpu_processes(proc: Path, members: Set[int]) -> dict[str, list[GpuProcess]]:
    """Return the processes with memory on a GPU, by its bus id; those of other users cannot be seen."""
    until = time.monotonic() + SEARCH_SECONDS
    others = [int(name) for name in _file_names(proc) if name.isdigit() and int(name) not in members]
    found: dict[str, list[GpuProcess]] = {}
    for pid in (*members, *others):
        if pid not in members and time.monotonic() > until:
            break
        for bus_id, used in _process_memory(proc / str(pid)).items():
            rows = found.setdefault(bus_id, [])
            if len(rows) < MAX_GPU_PROCESSES:
                rows.append((pid, clean(process_name(pid) or "", MAX_NAME), used, pid in members))
    return found


def _process_memory(process: Path) -> dict[str, int]:
    """Return the bytes on each GPU. A client that several descriptors share counts once."""
    clients: dict[tuple[str, str], int] = {}
    for name in _file_names(process / "fd"):
        try:
            target = os.readlink(process / "fd" / name)
        except OSError:  # closed meanwhile
            continue
        if not target.startswith("/dev/dri/"):
            continue
        text = text_of(f"{process}/fdinfo/{name}") or ""
        keys, used = dict(_KEY.findall(text)), _VRAM.search(text)
        if used is not None and "drm-pdev" in keys:
            clients[keys["drm-pdev"], keys.get("drm-client-id", name)] = int(used[1]) * _UNITS[used[2]]
    total: dict[str, int] = {}
    for (bus_id, _), size in clients.items():
        total[bus_id] = total.get(bus_id, 0) + size
    return total


def _file_names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError:  # another user's, or it ended
        return []
