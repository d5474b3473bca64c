"""The cards, and the MIG instances on them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pynvml

from monitor.sources.gpu.driver import LOST, Driver, Handle
from monitor.sources.gpu.fields import Field
from monitor.sources.gpu.gpm import Gpm
from monitor.sources.rates import Rate
from trainhooks.events import MAX_NAME, clean


@dataclass
class Device:
    """One GPU or MIG instance: what of it never changes, and what its rates need of the reading before."""

    handle: Handle
    index: int
    uuid: str
    name: str | None
    bus_id: str | None = None
    parent: Device | None = None  # of a MIG instance
    instance: int | None = None  # of a MIG instance: the id of its GPU instance
    children: list[Device] = field(default_factory=list)
    gpm: Gpm | None = None
    rates: dict[str, Rate] = field(default_factory=dict)
    absent_fields: dict[Field, float] = field(default_factory=dict)  # until when they are not asked for
    rare_due: float = float("-inf")

    def rate(self, name: str, total: float | None, now: float) -> float | None:
        return self.rates.setdefault(name, Rate())(total, now)


def find(driver: Driver) -> tuple[list[Device], list[int]]:
    """The cards that answer, and the indices of those that the driver has lost."""
    found, lost = [], []
    for index in range(driver.ask("nvmlDeviceGetCount") or 0):
        driver.failures.clear()
        handle = driver.ask("nvmlDeviceGetHandleByIndex", index)
        device = None if handle is None else _card(driver, Handle.of(handle), index)
        if driver.failures & LOST:
            lost.append(index)
        elif device is not None:
            found.append(device)
    return found, lost


def _card(driver: Driver, handle: Handle, index: int) -> Device:
    device = _device(driver, handle, index)
    bus = driver.ask("nvmlDeviceGetPciInfo", handle)
    device.bus_id = _text(bus.busId) if bus is not None else None
    if is_split(driver, device):
        find_instances(driver, device)
    else:
        device.gpm = Gpm.of(driver, handle)  # a card in instances is measured by instance
    return device


def is_split(driver: Driver, device: Device) -> bool | None:
    """Whether a card works in MIG instances; None where it cannot."""
    modes = driver.ask("nvmlDeviceGetMigMode", device.handle)
    return None if modes is None else modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def find_instances(driver: Driver, device: Device) -> None:
    """Bring a card's MIG instances up to date: they come and go while the driver runs."""
    known = {child.uuid: child for child in device.children}
    found = []
    for place in range(driver.ask("nvmlDeviceGetMaxMigDeviceCount", device.handle) or 0):
        given = driver.ask_now("nvmlDeviceGetMigDeviceHandleByIndex", device.handle, place)
        if given is None:
            continue
        handle = Handle.of(given)
        child = _device(driver, handle, device.index)
        old = known.pop(child.uuid, None)
        if old is not None:
            old.handle = handle  # an instance that was made anew in the same place has a new one
            child = old
        else:
            child.parent = device
            child.instance = driver.ask_now("nvmlDeviceGetGpuInstanceId", handle)
            if child.instance is not None:
                child.gpm = Gpm.of(driver, device.handle, child.instance)
        found.append(child)
    for gone in known.values():
        if gone.gpm is not None:
            gone.gpm.close()
    device.children = found


def _device(driver: Driver, handle: Handle, index: int) -> Device:
    uuid = _text(driver.ask_now("nvmlDeviceGetUUID", handle))
    name = _text(driver.ask_now("nvmlDeviceGetName", handle))
    return Device(handle, index, uuid or f"index-{index}", name)


def _text(given: Any) -> str | None:
    if isinstance(given, bytes):
        given = given.decode("utf-8", "replace")
    return clean(given, MAX_NAME) or None if given else None
