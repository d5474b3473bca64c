"""Which GPUs this process really uses, by UUID: the one name of a GPU that containers and reordering leave alone.

Torch is asked only once the program has started CUDA by itself, and only what starts nothing and waits for nothing.
"""

from __future__ import annotations

import os
import sys
from typing import Any, List, Optional

from trainhooks import cuda
from trainhooks.events import MAX_NAME, clean

EVERY = 10.0  # seconds between two looks, once a device is known: a process may begin to use another one


class Devices:
    """Remembers what it has seen: a process keeps its context on a device until it ends."""

    def __init__(self) -> None:
        self._uuids: List[str] = []
        self._due = 0.0

    def look(self, now: float) -> List[str]:
        """The UUIDs of the devices in use, in torch's order; empty while that is unknown."""
        if now >= self._due and not cuda.captures:
            found = device_uuids()
            if found:
                self._uuids = found
                self._due = now + EVERY
        return self._uuids


def device_uuids() -> List[str]:
    """The UUIDs of the devices on which this process has a CUDA context; empty where torch does not tell."""
    try:
        found = cuda.started()
        if found is None or cuda.is_rocm():
            return []
        visible = visible_devices(os.environ.get("CUDA_VISIBLE_DEVICES"))
        named = [
            _uuid(found.get_device_properties(index), index, visible) for index in cuda.devices(sys.modules["torch"])
        ]
    except Exception:  # a torch that is half loaded, old or trimmed lacks some of them, in ways of its own
        return []
    return [uuid for uuid in named if uuid is not None]


def visible_devices(variable: Optional[str]) -> List[str]:
    """The words of CUDA_VISIBLE_DEVICES: indices, UUIDs or the beginnings of such, MIG ids."""
    return [word.strip() for word in (variable or "").split(",") if word.strip()]


def _uuid(properties: Any, index: int, visible: List[str]) -> Optional[str]:
    """The UUID of torch's device `index`, as the driver's tools write it."""
    word = visible[index] if index < len(visible) else ""
    if word.startswith("MIG-"):  # the properties of a MIG instance may carry the UUID of its card
        return clean(word, MAX_NAME)
    known = getattr(properties, "uuid", None)  # since torch 2.4
    if known is not None:
        text = clean(known, MAX_NAME)
        return text if text.startswith(("GPU-", "MIG-")) else "GPU-" + text
    return clean(word, MAX_NAME) if word.startswith("GPU-") else None
