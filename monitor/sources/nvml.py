"""The NVIDIA driver's library: queries that may fail or be slow, numbered fields, cards and MIG instances.

Every query passes through `query`, and no error leaves it. Every reading is optional: many cards lack many of them.
"""

from __future__ import annotations

import ctypes
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pynvml

from monitor.sources.polling import Rate
from trainhooks.protocol.events import Gpu
from trainhooks.protocol.limits import MAX_NAME, clean

ABSENT_SECONDS = 60.0  # before an unsupported reading is queried again
SLOW_CALL = 0.015  # seconds; most queries take microseconds, measurements take tens of milliseconds
SLOW_SHARE = 0.02  # share of the time that one slow query may take
SLOW_EVERY = (5.0, 10.0)  # seconds: minimum and maximum between two calls of a slow query
SLOW_BUDGET = 0.1  # seconds of slow queries in one round

# Queries that block for a measurement by design: 20 ms each.
BLOCKING = frozenset(("nvmlDeviceGetPcieThroughput",))

LOST = frozenset((pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED))
GONE = frozenset((pynvml.NVML_ERROR_UNINITIALIZED, pynvml.NVML_ERROR_DRIVER_NOT_LOADED))

# Failures that a later query would repeat.
_PERMANENT = frozenset(
    (
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    )
)

Key = tuple[str, tuple[Any, ...]]


@dataclass(frozen=True)
class Handle:
    """The driver's handle of a device: an address. Unlike the binding's own handles it is hashable."""

    address: int

    @classmethod
    def of(cls, given: Any) -> Handle:
        return cls(ctypes.cast(given, ctypes.c_void_p).value or 0)

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:  # what ctypes passes to the library
        return ctypes.c_void_p(self.address)


def query(name: str, *arguments: Any) -> tuple[Any, int | None]:
    """Return the driver's answer and None, or None and the driver's error code."""
    function: Callable[..., Any] | None = getattr(pynvml, name, None)
    if function is None:
        return None, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    try:
        return function(*arguments), None
    except pynvml.NVMLError as error:
        return None, getattr(error, "value", pynvml.NVML_ERROR_UNKNOWN)
    except UnicodeDecodeError:
        return None, pynvml.NVML_ERROR_UNKNOWN


@dataclass
class _Held:
    """The last answer of a slow query."""

    answer: Any = None
    failure: int | None = pynvml.NVML_ERROR_TIMEOUT
    due: float = float("-inf")


class Driver:
    """Queries with memory: unsupported queries are repeated rarely, slow ones take turns."""

    def __init__(self) -> None:
        self.failure: int | None = None  # error code of the last query; None where it was answered
        self.failures: set[int] = set()  # all error codes since the owner cleared it
        self._now = float("-inf")
        self._absent: dict[Key, tuple[float, int]] = {}  # until when, and the error code
        self._suspects: set[str] = set()  # queries that were slow the last time
        self._slow: set[str] = set(BLOCKING)
        self._held: dict[Key, _Held] = {}

    def ask(self, name: str, *arguments: Any) -> Any:
        """Return the driver's answer; None where there is none, with the error code in `failure`.

        The answer of a slow query is that of its last turn, some seconds old.
        """
        self.failure = None
        key = (name, arguments)
        absent = self._absent.get(key)
        if absent is not None and self._now < absent[0]:
            return self._fail(absent[1])
        if name in self._slow:
            previous = self._held.setdefault(key, _Held())
            return self._fail(previous.failure) if previous.failure is not None else previous.answer
        answer, took = self._timed(key)
        if took <= SLOW_CALL:
            self._suspects.discard(name)
        elif name not in self._suspects:
            self._suspects.add(name)  # once may be coincidence: on a busy machine this thread waits for a core
        else:
            self._slow.add(name)
            self._held[key] = _Held(answer, self.failure, self._now + _slow_pause(took))
        return answer

    def ask_now(self, name: str, *arguments: Any) -> Any:
        """Query without memory, where the answer must be current."""
        answer, self.failure = query(name, *arguments)
        return self._fail(self.failure) if self.failure is not None else answer

    def begin(self, now: float) -> None:
        """Begin a round of queries at `now`: repeat the slow queries that are due, the longest due first."""
        self._now = now
        spent = 0.0
        while self._held and spent < SLOW_BUDGET:
            key = min(self._held, key=lambda key: self._held[key].due)
            if self._held[key].due > now:
                break
            answer, took = self._timed(key)
            spent += took
            if took < SLOW_CALL / 2 and key[0] not in BLOCKING and self.failure not in LOST:
                self._no_longer_slow(key[0])
            else:
                self._held[key] = _Held(answer, self.failure, now + _slow_pause(took))

    def forget(self) -> None:
        """Drop all memory: the handles are invalid after the driver was reopened."""
        self._absent.clear()
        self._held.clear()
        self._slow = set(BLOCKING)

    def _no_longer_slow(self, name: str) -> None:
        """Treat a query as fast again: the driver may have been waking a card."""
        self._slow.discard(name)
        self._held = {key: held for key, held in self._held.items() if key[0] != name}

    def _timed(self, key: Key) -> tuple[Any, float]:
        began = time.perf_counter()
        answer = self.ask_now(key[0], *key[1])
        took = time.perf_counter() - began
        if self.failure is not None:
            if self.failure in _PERMANENT:
                self._absent[key] = (self._now + ABSENT_SECONDS, self.failure)
        else:
            self._absent.pop(key, None)
        return answer, took

    def _fail(self, code: int) -> None:
        self.failure = code
        self.failures.add(code)


def _slow_pause(took: float) -> float:
    return min(max(took / SLOW_SHARE, SLOW_EVERY[0]), SLOW_EVERY[1])


Field = int | tuple[int, int]  # a number, or a number and its scope

MEMORY_TEMPERATURE = 82
POWER_POLICY = 74  # nanoseconds of clocks reduced by the power limit
THERMAL_POLICY = 75  # the same for heat; older cards have only this one
POWER_AVERAGE = 185
POWER_INSTANT = 186
ALL_LINKS = 0xFFFFFFFF
NVLINK_TX: Field = (138, ALL_LINKS)  # KiB
NVLINK_RX: Field = (139, ALL_LINKS)

RENUMBERED = (580, 82)  # the first driver with the new numbers of the three slowdown counters
_OLD_SLOWDOWNS = (251, 252, 253)
_NEW_SLOWDOWNS = (269, 270, 271)

# The members of the union, by the type that comes with the value.
_MEMBERS = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def slowdown_counters(version: str | None) -> tuple[int, int, int] | None:
    """Return the counters of software thermal, hardware thermal and power brake slowdowns, in nanoseconds.

    None where the driver version is unknown: the wrong numbers would be other counters.
    """
    known = re.match(r"(\d+)\.(\d+)", version or "")
    if known is None:
        return None
    return _NEW_SLOWDOWNS if (int(known[1]), int(known[2])) >= RENUMBERED else _OLD_SLOWDOWNS


def field_value(answer: Any) -> float | int | None:
    """Return the value of one field of an answer; None where the driver did not fill it in."""
    member = _MEMBERS.get(answer.valueType)
    if answer.nvmlReturn != pynvml.NVML_SUCCESS or member is None:
        return None
    value: float | int = getattr(answer.value, member)
    return value if math.isfinite(value) else None


# GPM: activity counters of SMs, tensor cores, memory and links between two samples, on Hopper and later.

MIB = 1 << 20
SLOW_SAMPLE_SECONDS = 10.0  # between samples where taking one is slow

# Metric -> field of the event, and its factor.
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
        """Return the counters of a card, or of a MIG instance on it; None where it has none."""
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
        """Fill in the activity since the sample before."""
        if now < self._due or not self._samples:
            return
        before, after = self._samples
        began = time.perf_counter()
        if self._instance is None:
            sampled = self._driver.ask_now("nvmlGpmSampleGet", self._handle, after)
        else:
            sampled = self._driver.ask_now("nvmlGpmMigSampleGet", self._handle, self._instance, after)
        if time.perf_counter() - began > SLOW_CALL:
            self._due = now + SLOW_SAMPLE_SECONDS
        if sampled is None:
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
            sample = request.metrics[place]
            if sample.nvmlReturn != pynvml.NVML_SUCCESS or not math.isfinite(sample.value) or sample.value < 0:
                continue
            if factor == 1.0 and sample.value > 105:  # percent; more is an invalid measurement
                continue
            setattr(gpu, name, sample.value * factor)

    def close(self) -> None:
        for sample in self._samples:
            self._driver.ask_now("nvmlGpmSampleFree", sample)
        self._samples = []


@dataclass
class Device:
    """One GPU or MIG instance: its constants, and the previous values for its rates."""

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
    absent_fields: dict[Field, float] = field(default_factory=dict)  # until when they are not queried
    rare_due: float = float("-inf")

    def rate(self, name: str, total: float | None, now: float) -> float | None:
        return self.rates.setdefault(name, Rate())(total, now)


def find_cards(driver: Driver) -> tuple[list[Device], list[int]]:
    """Return the cards that answer, and the indices of those that the driver has lost."""
    cards, lost = [], []
    for index in range(driver.ask("nvmlDeviceGetCount") or 0):
        driver.failures.clear()
        handle = driver.ask("nvmlDeviceGetHandleByIndex", index)
        device = None if handle is None else _card(driver, Handle.of(handle), index)
        if driver.failures & LOST:
            lost.append(index)
        elif device is not None:
            cards.append(device)
    return cards, lost


def _card(driver: Driver, handle: Handle, index: int) -> Device:
    device = _device(driver, handle, index)
    bus = driver.ask("nvmlDeviceGetPciInfo", handle)
    device.bus_id = _text(bus.busId) if bus is not None else None
    if is_split(driver, device):
        find_instances(driver, device)
    else:
        device.gpm = Gpm.of(driver, handle)  # a split card is measured by instance
    return device


def is_split(driver: Driver, device: Device) -> bool | None:
    """Return whether a card is split into MIG instances; None where it does not support that."""
    modes = driver.ask("nvmlDeviceGetMigMode", device.handle)
    return None if modes is None else modes[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def find_instances(driver: Driver, device: Device) -> None:
    """Update a card's MIG instances: they come and go while the driver runs."""
    known = {child.uuid: child for child in device.children}
    instances = []
    for place in range(driver.ask("nvmlDeviceGetMaxMigDeviceCount", device.handle) or 0):
        given = driver.ask_now("nvmlDeviceGetMigDeviceHandleByIndex", device.handle, place)
        if given is None:
            continue
        handle = Handle.of(given)
        child = _device(driver, handle, device.index)
        old = known.pop(child.uuid, None)
        if old is not None:
            old.handle = handle  # an instance created again in the same place has a new handle
            child = old
        else:
            child.parent = device
            child.instance = driver.ask_now("nvmlDeviceGetGpuInstanceId", handle)
            if child.instance is not None:
                child.gpm = Gpm.of(driver, device.handle, child.instance)
        instances.append(child)
    for removed in known.values():
        if removed.gpm is not None:
            removed.gpm.close()
    device.children = instances


def _device(driver: Driver, handle: Handle, index: int) -> Device:
    uuid = _text(driver.ask_now("nvmlDeviceGetUUID", handle))
    name = _text(driver.ask_now("nvmlDeviceGetName", handle))
    return Device(handle, index, uuid or f"index-{index}", name)


def _text(given: Any) -> str | None:
    if isinstance(given, bytes):
        given = given.decode("utf-8", "replace")
    return clean(given, MAX_NAME) or None if given else None
