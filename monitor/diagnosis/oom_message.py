"""What an out-of-memory error says: what was asked for, and what held the memory. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from monitor.model.process_memory import GRADIENTS, OPTIMIZER, OTHERS, WEIGHTS, holders
from monitor.units import size
from trainhooks.protocol.facts import Held

_UNITS = {"bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50}
_SIZE = r"([\d.]+) (bytes|[KMGTP]iB|B)\b"
_ASKED = re.compile(rf"[Tt]ried to allocate {_SIZE}|Unable to allocate {_SIZE}")  # torch on GPU and host, numpy
_TOTAL = re.compile(rf"total capaci?ty of {_SIZE}|{_SIZE} total capacity")  # torch 2.1 writes it capacty
_FREE = re.compile(rf"of which {_SIZE} is free|{_SIZE} free;")
_ALLOCATED = re.compile(rf"allocated memory {_SIZE} is allocated by|{_SIZE} already allocated")
_UNALLOCATED = re.compile(rf"{_SIZE} is reserved by PyTorch but unallocated")
_RESERVED = re.compile(rf"{_SIZE} reserved in total by PyTorch")  # before torch 2.1
_PRIVATE = re.compile(rf"with {_SIZE} allocated in private pools")
_ALLOWED = re.compile(rf"{_SIZE} allowed;")
_OWN = re.compile(rf"this process has {_SIZE} memory in use")
_OTHER = re.compile(rf"Process (\d+) has {_SIZE} memory in use")

MIN_OTHER_SHARE = 0.1  # of the GPU's memory; less is a desktop's, or a monitor's


@dataclass
class OutOfMemory:
    """What the message holds, in bytes; None where it does not say."""

    asked: int | None = None
    total: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    private: int | None = None  # of what is allocated, in pools of CUDA graphs
    allowed: int | None = None  # by `set_per_process_memory_fraction`
    own: int | None = None  # of this process, by the driver
    others: list[tuple[int, int]] = field(default_factory=list)  # pid and bytes of other processes


def read(message: str) -> OutOfMemory:
    """Return what a message of torch or numpy says, of any version."""
    found = OutOfMemory(
        asked=_bytes(_ASKED, message),
        total=_bytes(_TOTAL, message),
        free=_bytes(_FREE, message),
        allocated=_bytes(_ALLOCATED, message),
        reserved=_bytes(_RESERVED, message),
        private=_bytes(_PRIVATE, message),
        allowed=_bytes(_ALLOWED, message),
        own=_bytes(_OWN, message),
    )
    unallocated = _bytes(_UNALLOCATED, message)
    if found.allocated is not None and unallocated is not None:
        found.reserved = found.allocated + unallocated
    if found.own is not None:  # else one of them may be this process, under its number outside of a container
        found.others = [(int(pid), _number(amount, unit)) for pid, amount, unit in _OTHER.findall(message)]
    return found


def lines(found: OutOfMemory, held: Held) -> list[str]:
    """Return what was asked for and what held the memory; empty where the message does not say."""
    if found.asked is None or found.total is None:
        return [] if found.asked is None else [f"asked for {size(found.asked)}"]
    free = f", of which {size(found.free)} were free" if found.free is not None else ""
    rows = [f"asked for {size(found.asked)} of a GPU of {size(found.total)}{free}"]
    if found.allocated is not None:
        parts = holders(found.allocated, found.reserved, held)
        rows.append("held by " + ", ".join(f"{name} {size(part)}" for name, part in parts))
        if not any(name == WEIGHTS for name, _ in parts):
            rows.append("what the tensors are is unknown: weights and gradients are counted with the first update")
    if found.private:
        rows.append(f"{size(found.private)} of the tensors in pools of CUDA graphs")
    if found.allowed is not None and found.allowed < found.total:
        rows.append(f"the program allows itself {size(found.allowed)}")
    if found.own is not None and found.reserved is not None and found.own > found.reserved:
        rows.append(f"{size(found.own - found.reserved)} of this process outside of torch: CUDA, NCCL, libraries")
    return [*rows, *(f"process {pid} held {size(bytes_)} of the same GPU" for pid, bytes_ in found.others)]


def advice(found: OutOfMemory, held: Held) -> str | None:
    """Return what helps against what held most; None: what helps in general."""
    asked, total, allocated, reserved = found.asked, found.total, found.allocated, found.reserved
    if asked is None or total is None or allocated is None:
        return None
    if asked > total:
        return (
            f"No GPU of this size holds one tensor of {size(asked)}: look at the line for a product of two long"
            " dimensions, or a batch of the whole data."
        )
    pid, most = max(found.others, key=lambda row: row[1], default=(0, 0))
    if most >= max(asked, MIN_OTHER_SHARE * total):
        return f"End process {pid} first, or use another GPU: what it holds would have been enough."
    room = found.free or 0
    if found.allowed is not None and reserved is not None:
        room = min(room, max(0, found.allowed - reserved))
    if reserved is not None and reserved - allocated + room >= asked:
        return (
            "There was enough, in pieces: set PYTORCH_ALLOC_CONF=expandable_segments:True (PYTORCH_CUDA_ALLOC_CONF"
            " before torch 2.9), or pad batches to a few sizes."
        )
    parts = dict(holders(allocated, None, held))
    kept = sum(parts.get(name, 0) for name in (WEIGHTS, GRADIENTS, OPTIMIZER))
    if WEIGHTS in parts and kept > allocated - kept and OTHERS in parts:
        return (
            f"A smaller batch frees at most {size(parts[OTHERS])}: weights, gradients and optimizer hold the rest. An"
            " 8-bit optimizer, weights in bf16, LoRA, or sharding over GPUs (FSDP, ZeRO) makes them smaller."
        )
    return None


def _bytes(pattern: re.Pattern[str], message: str) -> int | None:
    match = pattern.search(message)
    found = [group for group in match.groups() if group is not None] if match is not None else []
    return _number(*found) if found else None


def _number(amount: str, unit: str) -> int:
    try:
        return round(float(amount) * _UNITS[unit])
    except (ValueError, OverflowError):  # `1.2.3`
        return 0
