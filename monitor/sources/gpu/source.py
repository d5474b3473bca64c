"""All GPUs of the machine, for as long as the recorder lives: the driver may be missing, go away, and come back."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field

import pynvml

from monitor.sources.gpu import readings
from monitor.sources.gpu.device import Device, find
from monitor.sources.gpu.driver import GONE, LOST, Driver
from monitor.sources.gpu.xid import XidWatch
from monitor.xids import in_words
from trainhooks.events import Gpu, Note, clean

RETRY_SECONDS = 30.0  # between attempts to reach a driver that is missing or went away, or a card that is lost

_WHY_NOT = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "no NVIDIA driver: libnvidia-ml.so.1 not found",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "the NVIDIA library and the loaded driver differ in version; a reboot or a driver reload mends it"
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: "no permission to ask the NVIDIA driver",
}


@dataclass
class Reading:
    """What one round of questions found."""

    gpus: list[Gpu] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)  # critical errors that came since the round before
    trouble: str | None = None  # one line about what cannot be read


class GpuSource:
    """Reads all GPUs; finds the driver, or a card that was lost, again when it comes back."""

    def __init__(self) -> None:
        self.version: str | None = None  # the driver's
        self._driver = Driver()
        self._devices: list[Device] | None = None  # None: the driver is not reached
        self._known: dict[str, Device] = {}  # every card that was seen, by UUID
        self._lost: set[str] = set()  # UUIDs, and "index N" for one that never answered
        self._trouble: str | None = None
        self._retry_at = float("-inf")
        self._watch: XidWatch | None = None

    def read(self, now: float, members: Set[int] = frozenset(), whole: bool = False) -> Reading:
        """A reading of each GPU.

        Args:
            now: the monotonic clock.
            members: the pids of the run's process trees.
            whole: with what seldom changes, which otherwise comes in some readings only.
        """
        self._driver.begin(now)
        if now >= self._retry_at and (self._devices is None or self._lost):
            self._open(now)
        found = Reading()
        for device in self._devices or ():
            if device.uuid in self._lost:
                continue
            self._driver.failures.clear()
            device.rare_due = now if whole else device.rare_due
            gpus = readings.read(self._driver, device, self.version, members, now)
            if self._driver.failures & GONE:
                self._close(now)
                return Reading(trouble=self._trouble)
            if self._driver.failures & LOST:
                self._lost.add(device.uuid)
                self._retry_at = now + RETRY_SECONDS
            else:
                found.gpus += gpus
        self._add_errors(found, now)
        found.trouble = self._lost_line() if self._lost else self._trouble
        return found

    def close(self) -> None:
        if self._watch is not None:
            self._watch.stop()

    def _open(self, now: float) -> None:
        """Reach the driver and its cards, anew if it was reached before."""
        if self._watch is not None and self._watch.alive:
            self._watch.stop()  # it holds the library open; within a second it has let go
            return
        self._retry_at = now + RETRY_SECONDS
        if self._devices is not None:
            self._forget()
        self._driver.ask_now("nvmlInit")
        failure = self._driver.failure
        if failure is not None:
            self._trouble = _WHY_NOT.get(failure) or f"NVML does not start: {pynvml.NVMLError(failure)}"
            return
        version = self._driver.ask_now("nvmlSystemGetDriverVersion")
        self.version = clean(version, 64) if version else None
        self._devices, unreached = find(self._driver)
        present = {device.uuid for device in self._devices}
        reached = {device.index for device in self._devices}
        self._lost = {uuid for uuid, device in self._known.items() if uuid not in present}
        known_lost = {self._known[uuid].index for uuid in self._lost}
        self._lost |= {f"index {index}" for index in unreached if index not in known_lost | reached}
        self._known.update((device.uuid, device) for device in self._devices)
        self._trouble = None if self._devices else "the NVIDIA driver shows no GPU"
        self._watch = XidWatch(self._devices) if self._devices else None

    def _close(self, now: float) -> None:
        """The driver went away under us."""
        code = next(iter(self._driver.failures & GONE - {pynvml.NVML_ERROR_UNINITIALIZED}), 0)
        self._trouble = _WHY_NOT.get(code, "the NVIDIA driver went away")
        if self._watch is not None:
            self._watch.stop()
        self._forget()
        self._retry_at = now + RETRY_SECONDS
        self._known, self._lost = {}, set()  # a driver that was loaded anew may have other cards

    def _forget(self) -> None:
        for device in self._devices or ():
            for each in (device, *device.children):
                if each.gpm is not None:
                    each.gpm.close()
        self._driver.ask_now("nvmlShutdown")
        self._driver.forget()
        self._devices = None

    def _add_errors(self, found: Reading, now: float) -> None:
        by_uuid = {gpu.uuid: gpu for gpu in found.gpus}
        for uuid, xid in self._watch.take() if self._watch is not None else ():
            device = self._known.get(uuid)
            who = f"GPU {device.index}" if device is not None else "a GPU"
            found.notes.append(Note("", 0, now, f"{who} reports {in_words(xid)}", "warning", "gpu-error"))
            if device is None:
                continue
            gpu = by_uuid.get(uuid)
            if gpu is None:  # lost by now: nothing is known of it but the error
                gpu = by_uuid[uuid] = Gpu("", 0, now, uuid, device.index, device.name)
                found.gpus.append(gpu)
            gpu.xid = xid

    def _lost_line(self) -> str:
        names = sorted(str(self._known[uuid].index) if uuid in self._known else uuid.split()[1] for uuid in self._lost)
        plural = len(names) > 1
        return (
            f"GPU{'s' if plural else ''} {', '.join(names)} {'are' if plural else 'is'} lost: the driver cannot reach "
            f"{'them' if plural else 'it'} (a reset or a reboot is needed)"
        )
