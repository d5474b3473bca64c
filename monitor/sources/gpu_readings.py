"""Read one GPU: most values every time, the rest rarely. A missing reading stays None."""

from __future__ import annotations

import os
from collections.abc import Set
from typing import Any

import pynvml

from monitor.sources.nvml import (
    ABSENT_SECONDS,
    MEMORY_TEMPERATURE,
    NVLINK_RX,
    NVLINK_TX,
    POWER_AVERAGE,
    POWER_INSTANT,
    POWER_POLICY,
    THERMAL_POLICY,
    Device,
    Driver,
    Field,
    Handle,
    field_value,
    find_instances,
    is_split,
    slowdown_counters,
)
from monitor.sources.polling import RARE_EVERY
from monitor.sources.process_tree import process_name, process_user
from trainhooks.protocol.events import Gpu, GpuProcess
from trainhooks.protocol.limits import MAX_GPU_PROCESSES, MAX_INTEGER, MAX_NAME, clean

# Processes on a GPU. The driver reports pids of the host, which differ inside a container.

_FIRST_PID_NAMESPACE = "pid:[4026531836]"  # the inode that Linux gives the host's pid namespace


def on_the_host() -> bool:
    """Return whether this process sees the pids of the host, as the driver does."""
    try:
        return os.readlink("/proc/self/ns/pid") == _FIRST_PID_NAMESPACE
    except OSError:
        return False


def gpu_processes(driver: Driver, handle: Handle, members: Set[int]) -> list[GpuProcess] | None:
    """Return the processes with a compute context on a device; None where the driver does not report them.

    Args:
        members: the pids of the run's process trees.
    """
    rows = driver.ask_now("nvmlDeviceGetComputeRunningProcesses", handle)
    if rows is None:
        return None
    host = on_the_host()
    rows_by_pid: dict[int, GpuProcess] = {}
    for row in rows[:MAX_GPU_PROCESSES]:
        pid = int(row.pid)
        ours = True if pid in members else False if host else None
        used = row.usedGpuMemory
        rows_by_pid[pid] = (pid, _process_name(driver, pid, host), None if used is None else int(used), ours)
    return list(rows_by_pid.values())


def _process_name(driver: Driver, pid: int, host: bool) -> str:
    name = process_name(pid) if host else None
    if name is None:
        name = driver.ask_now("nvmlSystemGetProcessName", pid)
        if isinstance(name, bytes):
            name = name.decode("utf-8", "replace")
        # Some drivers report the whole command line. Keep the first word; the rest may hold secrets.
        words = str(name or "").split()
        name = os.path.basename(words[0]) if words else ""
    return clean(name, MAX_NAME)


MAX_SHARE = 1.05  # of the time; a larger rate means that the field is not a counter of nanoseconds
SIMULATED = "SIMULATED"  # in the driver's version or a card's name: a simulated driver for tests and demos

_NOT_AVAILABLE = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)  # values that some cards return for "not available"


def read_gpu(driver: Driver, device: Device, version: str | None, members: Set[int], now: float) -> list[Gpu]:
    """Read a GPU and the MIG instances on it."""
    gpu = _new_reading(device, version, now)
    _read_fast(driver, device, gpu)
    _read_fields(driver, device, gpu, version)
    rare = now >= device.rare_due
    if rare:
        device.rare_due = now + RARE_EVERY
        _read_rare(driver, device, gpu, version)
        if gpu.mig or device.children:
            find_instances(driver, device)
        if not gpu.mig:
            _read_processes(driver, device, gpu, members)
    if device.gpm is not None:
        device.gpm.fill(gpu, now)
    else:
        _read_traffic(driver, device, gpu)
    instances = [_read_instance(driver, child, gpu, members, rare) for child in device.children]
    return [gpu, *instances]


def _new_reading(device: Device, version: str | None, now: float) -> Gpu:
    gpu = Gpu(producer="", seq=0, t=now, uuid=device.uuid, index=device.index, name=device.name)
    gpu.simulated = SIMULATED in (version or "") or SIMULATED in (device.name or "")
    return gpu


def _read_fast(driver: Driver, device: Device, gpu: Gpu) -> None:
    handle = device.handle
    rates = driver.ask("nvmlDeviceGetUtilizationRates", handle)
    if rates is not None:
        gpu.utilization, gpu.memory_utilization = _number(rates.gpu), _number(rates.memory)
    _read_memory(driver, handle, gpu)
    gpu.temperature = _number(driver.ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU))
    if driver.failure == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:  # later drivers may keep only this one
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
    if driver.failure == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:  # drivers before 535 have the older name
        gpu.reasons = driver.ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
    if gpu.reasons is not None:
        gpu.reasons &= MAX_INTEGER - 1


def _read_memory(driver: Driver, handle: Handle, gpu: Gpu) -> None:
    memory = driver.ask("nvmlDeviceGetMemoryInfo", handle, pynvml.nvmlMemory_v2)
    if memory is not None:
        gpu.memory_reserved = _whole(memory.reserved)
    else:  # before driver 510, where memory reserved by the driver counts as used
        memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    if memory is not None:
        gpu.memory_used, gpu.memory_total = _whole(memory.used), _whole(memory.total)


def _read_fields(driver: Driver, device: Device, gpu: Gpu, version: str | None) -> None:
    """Fill in the numbered fields, all in one query."""
    counted_reasons = slowdown_counters(version) or ()
    values = _field_values(
        driver,
        device,
        gpu.t,
        (
            MEMORY_TEMPERATURE,
            POWER_AVERAGE,
            POWER_INSTANT,
            POWER_POLICY,
            THERMAL_POLICY,
            NVLINK_TX,
            NVLINK_RX,
            *counted_reasons,
        ),
    )
    gpu.memory_temperature = _number(values.get(MEMORY_TEMPERATURE) or None)  # 0: no sensor
    gpu.power_average = _thousandth(values.get(POWER_AVERAGE) or None)
    gpu.power_instant = _thousandth(values.get(POWER_INSTANT) or None)

    def share(name: Field) -> float | None:
        grown = device.rate(f"field {name}", values.get(name), gpu.t)
        return None if grown is None or grown > MAX_SHARE * 1e9 else min(grown / 1e9, 1.0)

    software, hardware, brake = (share(name) for name in counted_reasons or (None, None, None))  # type: ignore[arg-type]
    policy = share(THERMAL_POLICY)
    thermal = [value for value in (software, hardware, policy) if value is not None]
    gpu.thermal_violation = max(thermal) if thermal else None  # they overlap, so the sum would be too large
    gpu.power_violation, gpu.brake_violation = share(POWER_POLICY), brake
    for name, field in (("nvlink_tx", NVLINK_TX), ("nvlink_rx", NVLINK_RX)):
        grown = device.rate(name, values.get(field), gpu.t)
        setattr(gpu, name, None if grown is None else 1024 * grown)


def _field_values(
    driver: Driver, device: Device, now: float, wanted: tuple[Field, ...]
) -> dict[Field | None, float | int]:
    asked = tuple(number for number in wanted if now >= device.absent_fields.get(number, now))
    answers = driver.ask("nvmlDeviceGetFieldValues", device.handle, asked) if asked else None
    values: dict[Field | None, float | int] = {}
    for name, answer in zip(asked, answers or (), strict=False):
        value = field_value(answer)
        if value is None or value in _NOT_AVAILABLE:
            device.absent_fields[name] = now + ABSENT_SECONDS
        else:
            values[name] = value
    return values


def _read_traffic(driver: Driver, device: Device, gpu: Gpu) -> None:
    """Fill in the PCIe traffic of a card without GPM counters: each query takes 20 ms, so they take turns."""
    for name, counter in (("pcie_tx", pynvml.NVML_PCIE_UTIL_TX_BYTES), ("pcie_rx", pynvml.NVML_PCIE_UTIL_RX_BYTES)):
        kilobytes = _number(driver.ask("nvmlDeviceGetPcieThroughput", device.handle, counter))
        setattr(gpu, name, None if kilobytes is None else 1024 * kilobytes)


def _read_rare(driver: Driver, device: Device, gpu: Gpu, version: str | None) -> None:
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


def _read_instance(driver: Driver, device: Device, parent: Gpu, members: Set[int], rare: bool) -> Gpu:
    """Read a MIG instance: memory, processes and counters; clocks, temperature and power are the card's."""
    gpu = Gpu(
        producer="",
        seq=0,
        t=parent.t,
        uuid=device.uuid,
        index=device.index,
        name=device.name,
        simulated=parent.simulated,
    )
    gpu.mig_of = parent.uuid
    _read_memory(driver, device.handle, gpu)
    if device.gpm is not None:
        device.gpm.fill(gpu, parent.t)
    if rare:
        _read_processes(driver, device, gpu, members)
    return gpu


def _read_processes(driver: Driver, device: Device, gpu: Gpu, members: Set[int]) -> None:
    gpu.processes = gpu_processes(driver, device.handle, members)
    if gpu.processes and on_the_host():  # else the driver's pids are not those seen here
        gpu.users = [clean(process_user(pid), MAX_NAME) for pid, *_ in gpu.processes]


def _number(value: Any) -> float | None:
    return None if value is None or value in _NOT_AVAILABLE else float(value)


def _whole(value: Any) -> int | None:
    return None if value is None or value in _NOT_AVAILABLE else int(value)


def _thousandth(value: Any) -> float | None:
    return None if value is None or value in _NOT_AVAILABLE else value / 1000
