"""What holds the memory of a run's processes, as text and as JSON: the most first."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from monitor.model.process_memory import RankMemory, holders
from monitor.units import duration, plural, size, size_of, times
from trainhooks.protocol.facts import Held
from trainhooks.protocol.memory import DeviceMemory, Growth, ProcessMemory, Row

MAX_SHOWN_LINES, MAX_SHOWN_SIZES, MAX_SHOWN_TYPES = 8, 4, 6  # the JSON has all that were sent
MAX_WHOLE_RANKS = 1  # told in full: the one that holds most; the others are alike, or known by their sums
MAX_RANKS = 16
MIN_SHOWN_BYTES = 1024  # of growth a step; what grows by fewer takes a million steps to matter
LINES_OFF = (
    "their lines are not recorded; the program has to call"
    ' torch.cuda.memory._record_memory_history(max_entries=1, stacks="python") before it makes the model'
)


def text(run: str, ranks: Sequence[RankMemory], held: Held) -> str:
    """Return what holds the memory.

    Args:
        held: what the hooks have counted of weights, gradients and optimizers on the GPU.
    """
    told = sorted((rank for rank in ranks if rank.memory is not None), key=_weight, reverse=True)
    lines = []
    for rank in told[:MAX_WHOLE_RANKS]:
        lines += [f"{run}: rank {rank.rank}", *_process(rank.memory or ProcessMemory(), held)]
    for rank in told[MAX_WHOLE_RANKS:MAX_RANKS]:
        lines.append(f"rank {rank.rank}: {_short(rank.memory or ProcessMemory())}")
    if len(told) > MAX_RANKS:
        lines.append(f"{len(told) - MAX_RANKS:,} more ranks hold less")
    lines += [f"rank {rank.rank}: {rank.why}" for rank in ranks if rank.memory is None]
    if told and not any(rank.memory and rank.memory.growth for rank in told):
        lines.append(f"What the host's memory grows by, by line: trainmon memory {run} --growth (slows it for seconds)")
    return "\n".join(lines) + "\n"


def _weight(rank: RankMemory) -> tuple[int, int]:
    memory = rank.memory or ProcessMemory()
    grown = memory.growth.resident if memory.growth is not None else None
    return sum(device.allocated for device in memory.devices) or grown or 0, memory.resident or 0


def _short(memory: ProcessMemory) -> str:
    words = [f"GPU {device.index} {size(device.allocated)} in tensors" for device in memory.devices]
    growth = memory.growth
    if growth is not None and growth.resident is not None and growth.steps:
        words.append(f"host {_signed(growth.resident / growth.steps)} per step")
    return ", ".join([*words, f"host {size(memory.resident)}"])


def _process(memory: ProcessMemory, held: Held) -> list[str]:
    lines = [f"GPUs not read: {memory.why}"] if memory.why else []
    for device in memory.devices:
        lines += _device(device, held if len(memory.devices) == 1 else Held())
    lines.append(f"Host: {size(memory.resident)} resident")
    return lines + (_growth(memory.growth) if memory.growth is not None else [])


def _device(device: DeviceMemory, held: Held) -> list[str]:
    lines = [f"GPU {device.index}: {size_of(device.allocated, device.total)} in tensors"]
    parts = [f"{name} {size(part)}" for name, part in holders(device.allocated, device.reserved, held)]
    lines += [f"  {', '.join(parts)}"]
    if device.split:
        lines.append(f"  of the cache {size(device.split)} lie beside tensors, and cannot be given back")
    if device.recorded:
        lines.append("  by line:")
        lines += [f"  {_row(row, 'block', 'blocks')}" for row in device.lines[:MAX_SHOWN_LINES]]
    elif device.sizes:
        sizes = [f"{count:,} of {size(each)}" for each, count in device.sizes[:MAX_SHOWN_SIZES]]
        lines += [f"  blocks: {', '.join(sizes)}", f"  {LINES_OFF}"]
    return lines


def _growth(growth: Growth) -> list[str]:
    steps = growth.steps or 1
    unit = "per step" if growth.steps else f"in {duration(growth.seconds)}, in which no step ended"
    during = f" ({plural(growth.steps, 'step', 'steps')} in {duration(growth.seconds)})" if growth.steps else ""
    lines = [f"Grown {unit}{during}: {_signed((growth.resident or 0) / steps)} resident"]
    rows = [("tensor", "tensors", row) for row in growth.tensors]
    rows += [("object", "objects", row) for row in growth.lines]
    rows = [row for row in rows if _matters(row[2], steps)]
    for one, many, row in sorted(rows, key=lambda row: -row[2][1])[:MAX_SHOWN_LINES]:
        lines.append(_row(row, one, many, steps))
    if any(not row[0] for row in growth.tensors):
        lines.append("  (of these tensors this Python does not know the line: look at lines with as many objects)")
    lines += [f"  lines unknown: {growth.why}"] if growth.why else []
    types = [f"{count / steps:.3g} {name}" for name, count in growth.types[:MAX_SHOWN_TYPES] if count >= steps]
    lines += [f"  objects that hold others: {', '.join(types)} more {unit}"] if types else []
    if growth.before and growth.during and not growth.why:
        slower = f"steps took {duration(growth.during)}, before {duration(growth.before)}"
        slower += f" ({times(growth.during / growth.before)})"
        lines.append(f"  tracemalloc {'of the program is on' if growth.programs else 'ran meanwhile'}: {slower}")
    lines.append(f"  a look took up to {duration(growth.held)} of the interpreter")
    return lines


def _matters(row: Row, steps: int) -> bool:
    """Return whether a place grows by much, or by something with every step."""
    return row[1] >= MIN_SHOWN_BYTES * steps or row[2] >= steps


def _row(row: Row, one: str, many: str, steps: int = 1) -> str:
    place, bytes_, count = row
    number = f"{count / steps:.3g} {one if count == steps else many}" if steps > 1 else plural(count, one, many)
    return f"  {size(bytes_ / steps)}  {place or 'line unknown'}, {number}"


def _signed(change: float) -> str:
    return f"{'-' if change < 0 else '+'}{size(abs(change))}"


def as_json(run: str, ranks: Sequence[RankMemory], held: Held) -> str:
    """Return {run, held, ranks[] {rank, memory, why}} as JSON."""
    rows = [{"rank": rank.rank, "memory": rank.memory, "why": rank.why or None} for rank in ranks]
    return msgspec.json.format(msgspec.json.encode({"run": run, "held": held, "ranks": rows}), indent=2).decode()
