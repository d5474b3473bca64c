"""What the SMs, tensor cores, memory and links did: counters that Hopper and later cards keep between two samples."""

from __future__ import annotations

import math
import time
from typing import Any

import pynvml

from monitor.sources.gpu.driver import SLOW_CALL, Driver, Handle
from trainhooks.events import Gpu

MIB = 1 << 20
PAUSE = 10.0  # seconds between samples where taking one proved slow

# Metric -> field of the event, and what it is to be multiplied by.
METRICS = {
    pynvml.NVML_GPM_METRIC_SM_UTIL: ("sm_active", 1.0),
    pynvml.NVML_GPM_METRIC_SM_OCCUPANCY: ("sm_occupancy", 1.0),
    pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: ("tensor_active", 1.0),
    pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: ("memory_active", 1.0),
    pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC: ("pcie_tx", MIB),
    pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC: ("pcie_rx", MIB),
}


class Gpm:
    """Two samples of one device, taken in turns."""

    def __init__(self, driver: Driver, handle: Handle, instance: int | None, samples: list[Any]) -> None:
        self._driver = driver
        self._handle = handle
        self._instance = instance
        self._samples = samples
        self._has_one = False
        self._due = float("-inf")
        self._request = pynvml.c_nvmlGpmMetricsGet_t()
        self._request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        self._request.numMetrics = len(METRICS)

    @classmethod
    def of(cls, driver: Driver, handle: Handle, instance: int | None = None) -> Gpm | None:
        """The counters of a card, or of a MIG instance on it; None where there are none."""
        support = driver.ask("nvmlGpmQueryDeviceSupport", handle)
        if support is None or not support.isSupportedDevice:
            return None
        samples = [driver.ask_now("nvmlGpmSampleAlloc") for _ in range(2)]
        made = cls(driver, handle, instance, [sample for sample in samples if sample is not None])
        if len(made._samples) < 2:
            made.close()
            return None
        return made

    def fill(self, gpu: Gpu, now: float) -> None:
        """Write into `gpu` what happened since the sample before."""
        if now < self._due or not self._samples:
            return
        before, after = self._samples
        began = time.perf_counter()
        if self._instance is None:
            taken = self._driver.ask_now("nvmlGpmSampleGet", self._handle, after)
        else:
            taken = self._driver.ask_now("nvmlGpmMigSampleGet", self._handle, self._instance, after)
        if time.perf_counter() - began > SLOW_CALL:
            self._due = now + PAUSE
        if taken is None:
            self._has_one = False
            return
        self._samples = [after, before]
        if self._has_one:
            self._compare(gpu, before, after)
        self._has_one = True

    def _compare(self, gpu: Gpu, before: Any, after: Any) -> None:
        request = self._request
        request.sample1, request.sample2 = before, after
        for place, metric in enumerate(METRICS):
            request.metrics[place].metricId = metric
        if self._driver.ask_now("nvmlGpmMetricsGet", request) is None:
            return
        for place, (name, factor) in enumerate(METRICS.values()):
            found = request.metrics[place]
            if found.nvmlReturn != pynvml.NVML_SUCCESS or not math.isfinite(found.value) or found.value < 0:
                continue
            if factor == 1.0 and found.value > 105:  # percent; what is beyond is no measurement
                continue
            setattr(gpu, name, found.value * factor)

    def close(self) -> None:
        for sample in self._samples:
            self._driver.ask_now("nvmlGpmSampleFree", sample)
        self._samples = []
