"""Critical errors (XIDs), as the driver reports them: a thread that waits for the next one."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

import pynvml

from monitor.sources.gpu.device import Device
from monitor.sources.gpu.driver import GONE, Handle, query

WAIT_MS = 1000  # so that the thread sees within a second that it is to end


class XidWatch:
    """Waits for critical errors of the given devices until told to stop."""

    def __init__(self, devices: Sequence[Device]) -> None:
        self._uuids = {device.handle: device.uuid for device in devices}
        self._devices = devices
        self._found: deque[tuple[str, int]] = deque(maxlen=100)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trainmon-xid", daemon=True)
        self._thread.start()

    def take(self) -> list[tuple[str, int]]:
        """What came since the last call: UUID and XID, oldest first."""
        return [self._found.popleft() for _ in range(len(self._found))]

    def stop(self) -> None:
        """Tell the thread to end, which takes it up to a second."""
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
                self._over.wait(WAIT_MS / 1000)  # a lost card makes the call fail at once, again and again
            elif event is not None and event.eventType & pynvml.nvmlEventTypeXidCriticalError:
                self._found.append((self._uuids.get(Handle.of(event.device), ""), int(event.eventData)))
