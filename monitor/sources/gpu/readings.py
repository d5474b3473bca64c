"""What is asked of a GPU: most of it each time, the rest rarely. A reading that is missing stays None."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import pynvml

from monitor.sources.gpu import fields
from monitor.sources.gpu.device import Device, find_instances, is_split
from monitor.sources.gpu.driver import ABSENT_SECONDS, Driver, Handle
from monitor.sources.gpu.fields import Field
from monitor.sources.gpu.processes import processes
from trainhooks.events import MAX_INTEGER, Gpu

RARE_EVERY = 10.0  # seconds between readings of what seldom changes
MOST_SHARE = 1.05  # of the time, by a counter of nanoseconds: what is beyond was no such counter
SIMULATED = "SIMULATED"  # in the driver's version or a card's name: a stand-in for tests and demonstrations

_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # what some cards answer where they have no answer


def read(driver: Driver, device: Device, version: str | None, members: Set[int], now: float) -> list[Gpu]:
    """A reading of a GPU and of each MIG instance on it."""
    gpu = _begin(device, version, now)
    _fast(driver, device, gpu)
    _counted(driver, device, gpu, version)
    rare = now >= device.rare_due
    if rare:
        device.rare_due = now + RARE_EVERY
        _rare(driver, device, gpu, version)
        if gpu.mig or device.children:
            find_instances(driver, device)
        if not gpu.mig:
            gpu.processes = processes(driver, device.handle, members)
    if device.gpm is not None:
        device.gpm.fill(gpu, now)
    else:
        _traffic(driver, device, gpu)
    instances = [_instance(driver, child, gpu, members, rare) for child in device.children]
    return [gpu, *instances]


def _begin(device: Device, version: str | None, now: float) -> Gpu:
    gpu = Gpu("", 0, now, device.uuid, device.index, device.name)
    gpu.simulated = SIMULATED in (version or "") or SIMULATED in (device.name or "")
    return gpu


def _fast(driver: Driver, device: Device, gpu: Gpu) -> None:
    handle = device.handle
    rates = driver.ask("nvmlDeviceGetUtilizationRates", handle)
    if rates is not None:
        gpu.utilization, gpu.memory_utilization = _number(rates.gpu), _number(rates.memory)
    _memory(driver, handle, gpu)
    gpu.temperature = _number(driver.ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU))
    if driver.failure == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:  # what drivers to come may keep of the two
        gpu.temperature = _number(driver.ask("nvmlDeviceGetTemperatureV", handle, pynvml.NVML_TEMPERATURE_GPU))
    gpu.temperature_margin = _number(driver.ask("nvmlDeviceGetMarginTemperature", handle))
    gpu.power = _thousandth(driver.ask("nvmlDeviceGetPowerUsage", handle))
    limit = driver.ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    gpu.power_limit = _thousandth(limit or driver.ask("nvmlDeviceGetPowerManagementLimit", handle))
    gpu.energy = _thousandth(driver.ask("nvmlDeviceGetTotalEnergyConsumption", handle))
    gpu.sm_clock = _whole(driver.ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM))
    gpu.sm_clock_max = _whole(driver.ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM))
    gpu.memory_clock = _whole(driver.ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM))
    pstate = driver.ask("nvmlDeviceGetPerformanceState", handle)
    gpu.pstate = pstate if pstate is not None and 0 <= pstate <= 15 else None  # 32 is "unknown"
    gpu.reasons = driver.ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    if driver.failure == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:  # drivers before 535 know the older name
        gpu.reasons = driver.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if gpu.reasons is not None:
        gpu.reasons &= MAX_INTEGER - 1


def _memory(driver: Driver, handle: Handle, gpu: Gpu) -> None:
    memory = driver.ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    if memory is not None:
        gpu.memory_reserved = _whole(memory.reserved)
    else:  # before driver 510; there, what the driver keeps for itself counts as used
        memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    if memory is not None:
        gpu.memory_used, gpu.memory_total = _whole(memory.used), _whole(memory.total)


def _counted(driver: Driver, device: Device, gpu: Gpu, version: str | None) -> None:
    """The readings that go by number: all in one question."""
    slowdowns = fields.slowdowns(version) or ()
    found = _field_values(
        driver,
        device,
        gpu.t,
        (
            fields.MEMORY_TEMPERATURE,
            fields.POWER_AVERAGE,
            fields.POWER_INSTANT,
            fields.POWER_POLICY,
            fields.THERMAL_POLICY,
            fields.NVLINK_TX,
            fields.NVLINK_RX,
            *slowdowns,
        ),
    )
    gpu.memory_temperature = _number(found.get(fields.MEMORY_TEMPERATURE) or None)  # 0: no sensor
    gpu.power_average = _thousandth(found.get(fields.POWER_AVERAGE) or None)
    gpu.power_instant = _thousandth(found.get(fields.POWER_INSTANT) or None)

    def share(name: Field) -> float | None:
        grown = device.rate(f"field {name}", found.get(name), gpu.t)
        return None if grown is None or grown > MOST_SHARE * 1e9 else min(grown / 1e9, 1.0)

    software, hardware, brake = (share(name) for name in slowdowns or (None, None, None))  # type: ignore[arg-type]
    policy = share(fields.THERMAL_POLICY)
    thermal = [each for each in (software, hardware, policy) if each is not None]
    gpu.thermal_violation = max(thermal) if thermal else None  # they overlap, so their sum would be too much
    gpu.power_violation, gpu.brake_violation = share(fields.POWER_POLICY), brake
    for name, field in (("nvlink_tx", fields.NVLINK_TX), ("nvlink_rx", fields.NVLINK_RX)):
        grown = device.rate(name, found.get(field), gpu.t)
        setattr(gpu, name, None if grown is None else 1024 * grown)


def _field_values(
    driver: Driver, device: Device, now: float, wanted: tuple[Field, ...]
) -> dict[Field | None, float | int]:
    asked = tuple(each for each in wanted if now >= device.absent_fields.get(each, now))
    answers = driver.ask("nvmlDeviceGetFieldValues", device.handle, asked) if asked else None
    found: dict[Field | None, float | int] = {}
    for name, answer in zip(asked, answers or (), strict=False):
        value = fields.value(answer)
        if value is None or value in _NOT_AVAILABLE:
            device.absent_fields[name] = now + ABSENT_SECONDS
        else:
            found[name] = value
    return found


def _traffic(driver: Driver, device: Device, gpu: Gpu) -> None:
    """PCIe traffic of a card without its own counters: measured by the driver for 20 ms, so in turns."""
    for name, counter in (("pcie_tx", pynvml.NVML_PCIE_UTIL_TX_BYTES), ("pcie_rx", pynvml.NVML_PCIE_UTIL_RX_BYTES)):
        kilobytes = _number(driver.ask("nvmlDeviceGetPcieThroughput", device.handle, counter))
        setattr(gpu, name, None if kilobytes is None else 1024 * kilobytes)


def _rare(driver: Driver, device: Device, gpu: Gpu, version: str | None) -> None:
    handle = device.handle

    def limit(which: int) -> float | None:
        return _number(driver.ask("nvmlDeviceGetTemperatureThreshold", handle, which) or None)  # 0: not set

    gpu.driver, gpu.bus_id = version, device.bus_id
    gpu.mig = is_split(driver, device)
    gpu.memory_clock_max = _whole(driver.ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_MEM))
    gpu.power_limit_default = _thousandth(driver.ask("nvmlDeviceGetPowerManagementDefaultLimit", handle))
    gpu.temperature_limit = limit(pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN)
    gpu.temperature_max = limit(pynvml.NVML_TEMPERATURE_THRESHOLD_GPU_MAX)
    gpu.temperature_shutdown = limit(pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN)
    gpu.memory_temperature_max = limit(pynvml.NVML_TEMPERATURE_THRESHOLD_MEM_MAX)
    gpu.pcie_gen = _whole(driver.ask("nvmlDeviceGetCurrPcieLinkGeneration", handle))
    gpu.pcie_gen_max = _whole(driver.ask("nvmlDeviceGetMaxPcieLinkGeneration", handle))
    gpu.pcie_width = _whole(driver.ask("nvmlDeviceGetCurrPcieLinkWidth", handle))
    gpu.pcie_width_max = _whole(driver.ask("nvmlDeviceGetMaxPcieLinkWidth", handle))
    volatile = pynvml.NVML_VOLATILE_ECC
    corrected, uncorrected = pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    gpu.ecc_corrected = _whole(driver.ask("nvmlDeviceGetTotalEccErrors", handle, corrected, volatile))
    gpu.ecc_errors = _whole(driver.ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile))
    remapped = driver.ask("nvmlDeviceGetRemappedRows", handle)
    if remapped is not None:
        gpu.remapped_rows = remapped[0] + remapped[1]
        gpu.remap_pending, gpu.remap_failed = bool(remapped[2]), bool(remapped[3])


def _instance(driver: Driver, device: Device, parent: Gpu, members: Set[int], rare: bool) -> Gpu:
    """A MIG instance has memory, processes and counters of its own; clocks, heat and power are the card's."""
    gpu = Gpu("", 0, parent.t, device.uuid, device.index, device.name, simulated=parent.simulated)
    gpu.mig_of = parent.uuid
    _memory(driver, device.handle, gpu)
    if device.gpm is not None:
        device.gpm.fill(gpu, parent.t)
    if rare:
        gpu.processes = processes(driver, device.handle, members)
    return gpu


def _number(value: Any) -> float | None:
    return None if value is None or value in _NOT_AVAILABLE else float(value)


def _whole(value: Any) -> int | None:
    return None if value is None or value in _NOT_AVAILABLE else int(value)


def _thousandth(value: Any) -> float | None:
    return None if value is None or value in _NOT_AVAILABLE else value / 1000
