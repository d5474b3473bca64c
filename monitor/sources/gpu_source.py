"""Read all GPUs of the machine, in a thread of its own: a driver may be slow or hang."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import pynvml

from monitor.gpu_lines import DeltaEncoder, in_words
from monitor.sources import gpu_readings
from monitor.sources.amdgpu import AmdSource
from monitor.sources.nvml import GONE, LOST, Device, Driver, Handle, find_cards, query
from trainhooks.protocol.events import Event, Gpu, Note
from trainhooks.protocol.limits import clean

# Critical errors (XIDs): a thread waits for the next one.

WAIT_MS = 1000  # the thread stops within a second


class XidWatch:
    """Wait for critical errors of the given devices in a thread until stopped."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._uuids = {device.handle: device.uuid for device in devices}
        self._devices = devices
        self._errors: deque[tuple[str | None, int]] = deque(maxlen=100)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainmon-xid", daemon=True)
        self._thread.start()

    def take_errors(self) -> list[tuple[str | None, int]]:
        """Return the errors since the last call as UUID (None: unknown) and XID, oldest first."""
        return [self._errors.popleft() for _ in range(len(self._errors))]

    def stop(self) -> None:
        """Stop the thread, which takes up to a second."""
        self._over.set()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        events, failure = query("nvmlEventSetCreate")
        if failure is not None:
            return
        try:
            registered = [device for device in self._devices if self._register(device, events)]
            if registered:
                self._wait(events)
        finally:
            query("nvmlEventSetFree", events)

    def _register(self, device: Device, events: Any) -> bool:
        known, _ = query("nvmlDeviceGetSupportedEventTypes", device.handle)
        if not (known or 0) & pynvml.nvmlEventTypeXidCriticalError:
            return False
        return query("nvmlDeviceRegisterEvents", device.handle, pynvml.nvmlEventTypeXidCriticalError, events)[1] is None

    def _wait(self, events: Any) -> None:
        while not self._over.is_set():
            event, failure = query("nvmlEventSetWait", events, WAIT_MS)
            if failure in GONE:
                return
            if failure not in (None, pynvml.NVML_ERROR_TIMEOUT):
                self._over.wait(WAIT_MS / 1000)  # a lost card makes the call fail at once: do not spin
            elif event is not None and event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._errors.append((self._uuids.get(Handle.of(event.device)), int(event.eventData)))


# The driver may be missing, be unloaded, and come back.

RETRY_SECONDS = 30.0  # between attempts to reach a driver that is missing or went away, or a card that is lost


@dataclass(frozen=True)
class Trouble:
    """Why GPUs cannot be read."""

    code: str  # for programs
    text: str  # one line


_TROUBLES = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: Trouble("not-found", "no NVIDIA driver: libnvidia-ml.so.1 not found"),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: Trouble("not-loaded", "the NVIDIA driver is installed but not loaded"),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: Trouble(
        "version-mismatch", "NVIDIA library and loaded driver differ in version; reboot or reload the driver"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: Trouble("no-permission", "no permission to query the NVIDIA driver"),
}


@dataclass
class Reading:
    """The result of one round of queries."""

    gpus: list[Gpu] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)  # critical errors since the round before
    trouble: Trouble | None = None


class GpuSource:
    """Read all GPUs; reconnect to a driver or a lost card that comes back."""

    def __init__(self) -> None:
        self.version: str | None = None  # the driver's
        self._driver = Driver()
        self._devices: list[Device] | None = None  # None: no connection to the driver
        self._known: dict[str, Device] = {}  # every card that was seen, by UUID
        self._lost: set[str] = set()  # UUIDs, and "index N" for one that never answered
        self._trouble: Trouble | None = None
        self._retry_at = float("-inf")
        self._watch: XidWatch | None = None
        self.amd: AmdSource | None = None  # where there is no NVIDIA GPU, but one of the amdgpu driver

    def read(self, now: float, members: Set[int] = frozenset(), whole: bool = False) -> Reading:
        """Read every GPU.

        Args:
            now: the monotonic clock.
            members: the pids of the run's process trees.
            whole: include readings that seldom change, otherwise taken every ten seconds.
        """
        self._driver.begin(now)
        if now >= self._retry_at and (self._devices is None or self._lost):
            self._open(now)
        reading = Reading()
        for device in self._devices or ():
            if device.uuid in self._lost:
                continue
            self._driver.failures.clear()
            device.rare_due = now if whole else device.rare_due
            gpus = gpu_readings.read_gpu(self._driver, device, self.version, members, now)
            if self._driver.failures & GONE:
                self._close(now)
                return Reading(trouble=self._trouble)
            if self._driver.failures & LOST:
                self._lost.add(device.uuid)
                self._retry_at = now + RETRY_SECONDS
            else:
                reading.gpus += gpus
        self._add_errors(reading, now)
        reading.trouble = self._lost_gpus() if self._lost else self._trouble
        if self.amd is not None and not self._devices and not self._lost:
            reading.gpus, reading.trouble = self.amd.read(now, members, whole), None
        return reading

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _open(self, now: float) -> None:
        """Connect to the driver and find its cards, or those of another maker."""
        self._connect(now)
        amd = AmdSource() if not self._devices else None
        self.amd = amd if amd is not None and amd.cards else None

    def _connect(self, now: float) -> None:
        if self._watch is not None and self._watch.alive:
            self._watch.stop()  # it holds the library open for up to a second
            return
        self._retry_at = now + RETRY_SECONDS
        if self._devices is not None:
            self._forget()
        self._driver.ask_now("nvmlInit")
        failure = self._driver.failure
        if failure is not None:
            unknown = Trouble("init-failed", f"NVML initialization failed: {pynvml.NVMLError(failure)}")
            self._trouble = _TROUBLES.get(failure, unknown)
            return
        version = self._driver.ask_now("nvmlSystemGetDriverVersion")
        self.version = clean(version, 64) if version else None
        self._devices, unreached = find_cards(self._driver)
        present = {device.uuid for device in self._devices}
        reached = {device.index for device in self._devices}
        self._lost = {uuid for uuid, device in self._known.items() if uuid not in present}
        known_lost = {self._known[uuid].index for uuid in self._lost}
        self._lost |= {f"index {index}" for index in unreached if index not in known_lost | reached}
        self._known.update((device.uuid, device) for device in self._devices)
        self._trouble = None if self._devices else Trouble("no-gpu", "the NVIDIA driver shows no GPU")
        self._watch = XidWatch(self._devices) if self._devices else None

    def _close(self, now: float) -> None:
        """Disconnect: the driver was unloaded."""
        code = next(iter(self._driver.failures & GONE - {pynvml.NVML_ERROR_UNINITIALIZED}), 0)
        self._trouble = _TROUBLES.get(code, Trouble("driver-gone", "the NVIDIA driver was unloaded"))
        if self._watch is not None:
            self._watch.stop()
        self._forget()
        self._retry_at = now + RETRY_SECONDS
        self._known, self._lost = {}, set()  # a reloaded driver may have other cards

    def _forget(self) -> None:
        for device in self._devices or ():
            for part in (device, *device.children):
                if part.gpm is not None:
                    part.gpm.close()
        self._driver.ask_now("nvmlShutdown")
        self._driver.forget()
        self._devices = None

    def _add_errors(self, reading: Reading, now: float) -> None:
        by_uuid = {gpu.uuid: gpu for gpu in reading.gpus}
        for uuid, xid in self._watch.take_errors() if self._watch is not None else ():
            device = self._known.get(uuid) if uuid is not None else None
            who = f"GPU {device.index}" if device is not None else "a GPU"
            reading.notes.append(
                Note(
                    producer="", seq=0, t=now, text=f"{who} reports {in_words(xid)}", level="warning", code="gpu-error"
                )
            )
            if device is None or uuid is None:
                continue
            gpu = by_uuid.get(uuid)
            if gpu is None:  # lost since: only the error is known
                gpu = by_uuid[uuid] = Gpu(producer="", seq=0, t=now, uuid=uuid, index=device.index, name=device.name)
                reading.gpus.append(gpu)
            gpu.xid = xid

    def _lost_gpus(self) -> Trouble:
        names = sorted(str(self._known[uuid].index) if uuid in self._known else uuid.split()[1] for uuid in self._lost)
        plural = len(names) > 1
        text = (
            f"GPU{'s' if plural else ''} {', '.join(names)} lost: the driver cannot reach {'them' if plural else 'it'}"
        )
        return Trouble("gpu-lost", f"{text} (reset or reboot needed)")


FIRST_READING = 0.5  # seconds to wait for the first reading
STOP_WAIT = 0.5  # seconds to wait at the end for a reading in progress
HANGS = 10.0  # seconds without an answer, after which the driver counts as hanging


class GpuPoller:
    """Read all GPUs once per interval in a thread, and pass on the events."""

    def __init__(
        self,
        interval: float,
        write: Callable[..., None],
        members: Callable[[], Set[int]],
        complain: Callable[[Exception], None],
    ) -> None:
        """
        Args:
            write: takes the events; safe to call from this thread.
            members: gives the pids of the run's process trees.
            complain: receives exceptions of readings.
        """
        self._interval = interval
        self._write = write
        self._members = members
        self._complain = complain
        self._thinner = DeltaEncoder()
        self._trouble: str | None = None
        self._answered = threading.Event()  # at least one reading is done
        self._first_wait = FIRST_READING
        self._began: float | None = None  # when the reading in progress began; None between readings
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainmon-gpus", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def trouble(self) -> str | None:
        """Return one line on why GPUs cannot be read; None where they can."""
        self._answered.wait(self._first_wait)
        self._first_wait = 0.0
        began = self._began
        waited = 0.0 if began is None else time.monotonic() - began
        if waited > HANGS:
            return f"the NVIDIA driver has not answered for {int(waited)} s"
        return self._trouble

    def stop(self) -> None:
        self._over.set()
        self._thread.join(STOP_WAIT)

    def _run(self) -> None:
        source = GpuSource()
        due = time.monotonic()
        while True:
            self._began = time.monotonic()
            self._poll(source)
            self._began = None
            self._answered.set()
            now = time.monotonic()
            due = max(due + self._interval, now)  # when late, continue from now, without a burst
            if self._over.wait(due - now):
                break
        source.close()

    def _poll(self, source: GpuSource) -> None:
        try:
            reading = source.read(time.monotonic(), self._members())
            events: list[Event] = [*map(self._thinner.encode, reading.gpus), *reading.notes]
            if events:
                self._write(*events)
            self._trouble = None if reading.trouble is None else reading.trouble.text
        except Exception as error:
            # An unexpected error costs one reading, not all later ones.
            self._complain(error)
