"""NVIDIA GPUs, read through the driver's own library. Every reading is optional: many cards lack many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from trainhooks import events
from trainhooks.events import clean

RETRY_SECONDS = 30.0  # between attempts to reach a driver that is missing or went away

_GONE = (pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

_WHY_NOT = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver: libnvidia-ml.so.1 not found",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA library and the loaded driver differ in version; a reboot or a driver reload mends it"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission to ask the NVIDIA driver",
}


@dataclass
class _Device:
    """One GPU, and what of it never changes."""

    handle: Any
    index: int
    uuid: str
    name: str | None
    sm_clock_max: int | None
    lost: bool = False


class NvmlSource:
    """Reads all GPUs; finds the driver again when it comes back."""

    def __init__(self) -> None:
        self._devices: list[_Device] | None = None  # None: the driver is not reached
        self._note: str | None = None
        self._retry_at = float("-inf")
        self._failure: int | None = None  # the driver's code, when the last question got no answer

    def read(self, now: float) -> tuple[list[events.Gpu], str | None]:
        """A reading of each GPU, and one line about what cannot be read."""
        if self._devices is None and now >= self._retry_at:
            self._retry_at = now + RETRY_SECONDS
            self._open()
        found = []
        lost = []
        for device in self._devices or ():
            rates = self._ask("nvmlDeviceGetUtilizationRates", device.handle)
            if self._failure in _GONE:
                return [], self._close(now)
            device.lost |= self._failure == pynvml.NVML_ERROR_GPU_IS_LOST
            if device.lost:
                lost.append(str(device.index))
            else:
                found.append(self._reading(device, rates, now))
        if lost:
            return found, f"GPU {', '.join(lost)} is lost: the driver cannot reach it (a reset or a reboot is needed)"
        return found, self._note

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Ask the driver; None where it, or this card, has no answer. Every query passes through here."""
        function: Callable[..., Any] | None = getattr(pynvml, name, None)
        self._failure = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
        if function is None:
            return None
        try:
            answer = function(*arguments)
        except pynvml.NVMLError as error:
            self._failure = getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN)
            return None
        except UnicodeDecodeError:
            self._failure = pynvml.NVML_ERROR_UNKNOWN
            return None
        self._failure = None
        return answer

    def _open(self) -> None:
        self._ask("nvmlInit")
        if self._failure is not None:
            self._note = _WHY_NOT.get(self._failure) or f"NVML does not start: {pynvml.NVMLError(self._failure)}"
            return
        count = self._ask("nvmlDeviceGetCount")
        self._devices = [device for index in range(count or 0) if (device := self._device(index)) is not None]
        self._note = None if self._devices else "the NVIDIA driver shows no GPU"

    def _close(self, now: float) -> str:
        self._note = _WHY_NOT.get(self._failure or 0, "the NVIDIA driver went away")
        self._ask("nvmlShutdown")
        self._devices, self._retry_at = None, now + RETRY_SECONDS
        return self._note

    def _device(self, index: int) -> _Device | None:
        handle = self._ask("nvmlDeviceGetHandleByIndex", index)
        if handle is None:
            return None
        uuid = self._ask("nvmlDeviceGetUUID", handle)
        name = self._ask("nvmlDeviceGetName", handle)
        return _Device(
            handle=handle,
            index=index,
            uuid=clean(uuid, 128) if uuid else f"index-{index}",
            name=clean(name, 128) if name else None,
            sm_clock_max=self._ask("nvmlDeviceGetMaxClockInfo", handle, pynvml.NVML_CLOCK_SM),
        )

    def _reading(self, device: _Device, rates: Any, now: float) -> events.Gpu:
        gpu = events.Gpu("", 0, now, device.uuid, device.index, device.name)
        handle = device.handle
        gpu.sm_clock_max = device.sm_clock_max
        gpu.utilization = None if rates is None else float(rates.gpu)
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        if memory is not None:
            gpu.memory_used, gpu.memory_total = int(memory.used), int(memory.total)
        gpu.temperature = _float(self._ask("nvmlDeviceGetTemperature", handle, pynvml.NVML_TEMPERATURE_GPU))
        gpu.power = _watts(self._ask("nvmlDeviceGetPowerUsage", handle))
        limit = self._ask("nvmlDeviceGetEnforcedPowerLimit", handle)
        gpu.power_limit = _watts(limit or self._ask("nvmlDeviceGetPowerManagementLimit", handle))
        gpu.sm_clock = self._ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_SM)
        gpu.memory_clock = self._ask("nvmlDeviceGetClockInfo", handle, pynvml.NVML_CLOCK_MEM)
        gpu.reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if self._failure == pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:  # drivers before 535 know the older name
            gpu.reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        return gpu


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _watts(milliwatts: Any) -> float | None:
    return None if milliwatts is None else milliwatts / 1000
