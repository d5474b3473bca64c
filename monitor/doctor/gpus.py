"""The driver, and which readings each GPU has."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields

from monitor.doctor.check import Check
from monitor.sources.gpu.source import GpuSource, Reading
from trainhooks.events import Gpu

ROUNDS = 5  # of questions: rates have two ends, and slow readings come in turns
PAUSE = 0.2  # seconds between them

# What is no reading: identity, what only a run knows, and what is absent where all is well.
_NO_READINGS = frozenset((
    "producer", "seq", "t", "uuid", "index", "name", "simulated", "ours", "mig_of", "mig", "xid", "delta", "unknown",
    "driver", "bus_id",
))  # fmt: skip
READINGS = tuple(f.name for f in fields(Gpu) if f.name not in _NO_READINGS)

_ADVICE = {
    "not found": "Nothing to do on a machine without an NVIDIA GPU. In a container, start it with --gpus all.",
    "not loaded": "Load it (sudo modprobe nvidia), or reboot; on a machine without a GPU there is nothing to do.",
    "differ in version": "Reboot, or reload the driver's modules: the driver was updated under a running system.",
    "no permission": "Your user needs to read /dev/nvidia*; ask whoever runs the machine.",
    "is lost": "See dmesg for XID errors; the card needs a reset or the machine a reboot.",
    "are lost": "See dmesg for XID errors; the cards need a reset or the machine a reboot.",
}


def checks(source: GpuSource | None = None, sleep: Callable[[float], None] = time.sleep) -> list[Check]:
    """Ask the driver as the recorder does."""
    source = source or GpuSource()
    readings = [source.read(time.monotonic())]
    if readings[0].gpus:
        for _ in range(ROUNDS - 1):
            sleep(PAUSE)
            readings.append(source.read(time.monotonic()))
    source.close()
    return [_driver(readings[-1], source.version), *_cards(readings)]


def _driver(last: Reading, version: str | None) -> Check:
    if last.trouble is not None:
        state = "limited" if last.gpus else "missing" if "not found" in last.trouble else "broken"
        return Check("NVIDIA driver", state, last.trouble, advice(last.trouble))  # type: ignore[arg-type]
    cards = sum(gpu.mig_of is None for gpu in last.gpus)
    seen = "1 GPU" if cards == 1 else f"{cards} GPUs"
    simulated = any(gpu.simulated for gpu in last.gpus)
    text = f"{version or 'version unknown'}, {seen}" + (", SIMULATED: a stand-in for the driver" if simulated else "")
    return Check("NVIDIA driver", "works", text, details={"version": version, "gpus": cards, "simulated": simulated})


def advice(trouble: str) -> str | None:
    return next((text for words, text in _ADVICE.items() if words in trouble), None)


def _cards(readings: list[Reading]) -> list[Check]:
    """A check a card, or one for all cards that tell the same."""
    told: dict[str, tuple[Gpu, set[str]]] = {}
    for reading in readings:
        for gpu in reading.gpus:
            known = told.setdefault(gpu.uuid, (gpu, set()))[1]
            known.update(name for name in READINGS if getattr(gpu, name) is not None)
    alike: dict[tuple[str | None, bool, frozenset[str]], list[Gpu]] = {}
    for gpu, known in told.values():
        alike.setdefault((gpu.name, gpu.mig_of is not None, frozenset(known)), []).append(gpu)
    return [_card(gpus, set(known), is_instance) for (_, is_instance, known), gpus in alike.items()]


def _card(gpus: list[Gpu], known: set[str], is_instance: bool) -> Check:
    indices = sorted({gpu.index for gpu in gpus})
    which = "s " + _span(indices) if len(indices) > 1 else f" {indices[0]}"
    part = f"GPU{which} readings" if not is_instance else f"MIG instances of GPU{which}"
    missing = [name for name in READINGS if name not in known]
    text = f"{gpus[0].name or 'name unknown'}: {len(known)} of {len(READINGS)} readings"
    if missing:
        text += "; not told: " + ", ".join(name.replace("_", " ") for name in missing)
    details = {"uuids": [gpu.uuid for gpu in gpus], "readings": sorted(known), "missing": missing}
    hint = None
    if "sm_clock" not in known or "reasons" not in known:
        hint = "Without clocks and their reasons, throttling of this GPU cannot be seen."
        hint = None if is_instance else hint  # an instance's are its card's
    return Check(part, "works" if hint is None else "limited", text, hint, details=details)


def _span(numbers: list[int]) -> str:
    """`0-7`, or `0, 2, 5`."""
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))
