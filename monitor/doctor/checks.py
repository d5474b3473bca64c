"""Checks of this machine: GPU driver and readings, and the session."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from monitor.running import lifetime
from monitor.sources.amdgpu import UNTESTED
from monitor.sources.gpu_source import GpuSource, Reading
from trainhooks.protocol.events import Gpu

State = Literal["works", "limited", "missing", "broken"]


@dataclass(frozen=True)
class Check:
    """The result of one check: state, description, and what to do about it."""

    part: str
    state: State
    text: str
    advice: str | None = None
    essential: bool = False  # without it trainmon cannot do its work
    details: dict[str, Any] = field(default_factory=dict)  # for programs

    @property
    def fatal(self) -> bool:
        return self.essential and self.state == "broken"


ROUNDS = 5  # of readings: rates need two, and slow queries take turns
ROUND_SECONDS = 0.2  # seconds between them

# Fields that are not readings: identity, values known only in a run, and values absent without a problem.
_NO_READINGS = frozenset((
    "producer", "seq", "t", "uuid", "index", "name", "simulated", "ours", "mig_of", "mig", "xid", "delta", "unknown",
    "driver", "bus_id",
))  # fmt: skip
READINGS = tuple(f.name for f in fields(Gpu) if f.name not in _NO_READINGS)

_ADVICE = {
    "not-found": "Nothing to do on a machine without an NVIDIA GPU. In a container, start it with --gpus all.",
    "not-loaded": "Load it (sudo modprobe nvidia) or reboot; nothing to do on a machine without a GPU.",
    "version-mismatch": "Reboot or reload the driver's modules: the driver was updated on a running system.",
    "no-permission": "Your user needs read access to /dev/nvidia*; ask the administrator of this machine.",
    "gpu-lost": "See dmesg for XID errors; reset the GPU or reboot the machine.",
}


def gpu_checks(source: GpuSource | None = None, sleep: Callable[[float], None] = time.sleep) -> list[Check]:
    """Read the GPUs as the recorder does. Return a check for the driver and one for each group of like cards."""
    source = source or GpuSource()
    readings = [source.read(time.monotonic())]
    if readings[0].gpus:
        for _ in range(ROUNDS - 1):
            sleep(ROUND_SECONDS)
            readings.append(source.read(time.monotonic()))
    source.close()
    driver = _driver(readings[-1], source.version) if source.amd is None else _amd_driver(readings[-1])
    return [driver, *_cards(readings)]


def _driver(last: Reading, version: str | None) -> Check:
    if last.trouble is not None:
        state: State = "limited" if last.gpus else "missing" if last.trouble.code == "not-found" else "broken"
        return Check("NVIDIA driver", state, last.trouble.text, _ADVICE.get(last.trouble.code))
    cards = sum(gpu.mig_of is None for gpu in last.gpus)
    seen = "1 GPU" if cards == 1 else f"{cards} GPUs"
    simulated = any(gpu.simulated for gpu in last.gpus)
    text = f"{version or 'version unknown'}, {seen}" + (", SIMULATED: a stand-in for the driver" if simulated else "")
    return Check("NVIDIA driver", "works", text, details={"version": version, "gpus": cards, "simulated": simulated})


def _amd_driver(last: Reading) -> Check:
    seen = "1 GPU" if len(last.gpus) == 1 else f"{len(last.gpus)} GPUs"
    text = f"amdgpu, {seen}; {UNTESTED}: compare its readings with rocm-smi"
    return Check("AMD driver", "limited", text, details={"gpus": len(last.gpus), "tested": False})


def _cards(readings: list[Reading]) -> list[Check]:
    """Return a check for each group of cards with the same name and readings."""
    by_uuid: dict[str, tuple[Gpu, set[str]]] = {}
    for reading in readings:
        for gpu in reading.gpus:
            known = by_uuid.setdefault(gpu.uuid, (gpu, set()))[1]
            known.update(name for name in READINGS if getattr(gpu, name) is not None)
    alike: dict[tuple[str | None, bool, frozenset[str]], list[Gpu]] = {}
    for gpu, known in by_uuid.values():
        alike.setdefault((gpu.name, gpu.mig_of is not None, frozenset(known)), []).append(gpu)
    return [_card(gpus, set(known), is_instance) for (_, is_instance, known), gpus in alike.items()]


def _card(gpus: list[Gpu], known: set[str], is_instance: bool) -> Check:
    indices = sorted({gpu.index for gpu in gpus})
    which = "s " + _span(indices) if len(indices) > 1 else f" {indices[0]}"
    part = f"GPU{which} readings" if not is_instance else f"MIG instances of GPU{which}"
    missing = [name for name in READINGS if name not in known]
    text = f"{gpus[0].name or 'name unknown'}: {len(known)} of {len(READINGS)} readings"
    if missing:
        text += "; missing: " + ", ".join(name.replace("_", " ") for name in missing)
    details = {"uuids": [gpu.uuid for gpu in gpus], "readings": sorted(known), "missing": missing}
    hint = None
    if "sm_clock" not in known or "reasons" not in known:
        hint = "Throttling of this GPU cannot be detected without clocks and throttle reasons."
        hint = None if is_instance else hint  # those of an instance are its card's
    return Check(part, "works" if hint is None else "limited", text, hint, details=details)


def _span(numbers: list[int]) -> str:
    """Return indices as `0-7` or `0, 2, 5`."""
    if numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]}-{numbers[-1]}"
    return ", ".join(map(str, numbers))


def room_for_both(short: str | None) -> Check:
    """
    Args:
        short: the result of `monitor.running.room.shortage` for this process.
    """
    part = "room in this container"
    if short is None:
        return Check(part, "works", "no limit of memory or tasks that trainmon's own processes come near")
    advice = "Raise its limits of memory and tasks to have GPUs, host and printed lines recorded."
    return Check(part, "limited", f"{short}: a run is recorded by its hooks alone", advice)


# Whether a training outlives the terminal it was started from.

SESSION_PART = "logging out"


def session_lifetime(tied: lifetime.LifetimeLimit | None) -> Check:
    """
    Args:
        tied: the result of `monitor.running.lifetime.lifetime_limit` for this process.
    """
    if tied is None:
        return Check(
            SESSION_PART, "works", "nothing found that ends a training when its terminal closes or you log out"
        )
    if tied.this_process:
        return Check(
            SESSION_PART, "limited", tied.text, "The training ends with trainmon here, so `trainmon run` waits for it."
        )
    return Check(SESSION_PART, "limited", tied.text)
