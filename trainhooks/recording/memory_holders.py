"""What holds a process's memory, for who asks: the GPU's by torch's allocator, the host's by the kernel.

Nothing is turned on for it. A block's line is known where the program records it (`torch.cuda.memory`); where it does
not, blocks have sizes alone.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple

from trainhooks.device import cuda
from trainhooks.lane_entries import monotonic_seconds
from trainhooks.protocol.memory import MAX_LINES, MAX_SIZES, DeviceMemory, ProcessMemory, Row
from trainhooks.recording.frames import innermost_place
from trainhooks.recording.gc_room import no_collection

CAPTURING = "a CUDA graph is being captured"
LIVING = "active_allocated"  # a block's state, as torch names it
MAX_SEGMENTS = 50_000  # more would hold the interpreter for long


def process_memory() -> ProcessMemory:
    """Return what holds this process's memory. Never raises, and never starts CUDA."""
    answer = ProcessMemory(resident=resident_bytes())
    found = cuda.started_cuda()
    if found is None or cuda.is_rocm():
        return answer
    if cuda.captures:
        answer.why = CAPTURING
        return answer
    try:
        with no_collection():
            answer.devices = _devices(found)
    except Exception as error:  # an allocator of the program's own, a torch that is half loaded, old or trimmed
        answer.why = f"torch does not say: {type(error).__name__}"
    return answer


def _devices(torch_cuda: Any) -> List[DeviceMemory]:
    stats = {at: torch_cuda.memory_stats_as_nested_dict(at) for at in cuda.devices(sys.modules["torch"])}
    began = monotonic_seconds()
    segments: List[Mapping[str, Any]] = []
    if sum(row["segment"]["all"]["current"] for row in stats.values()) <= MAX_SEGMENTS:
        segments = _segments(torch_cuda)
    held = monotonic_seconds() - began
    found = []
    for at, row in stats.items():
        device = device_memory(at, row, segments)
        device.total, device.seconds = int(torch_cuda.get_device_properties(at).total_memory), held
        found.append(device)
    return found


def _segments(torch_cuda: Any) -> List[Mapping[str, Any]]:
    """Return the allocator's segments, without the history of what was freed, which may be endless."""
    try:
        return list(torch_cuda.memory_snapshot(include_traces=False))
    except TypeError:  # before torch 2.10 or so: the history comes along
        return list(torch_cuda.memory_snapshot())


def device_memory(index: int, stats: Mapping[str, Any], segments: Iterable[Mapping[str, Any]]) -> DeviceMemory:
    """Return what the allocator's statistics and segments say of one device. Pure.

    Args:
        stats: as `torch.cuda.memory_stats_as_nested_dict` returns them.
        segments: as `torch.cuda.memory_snapshot` does, of all devices.
    """
    found = DeviceMemory(index)
    found.allocated = int(stats["allocated_bytes"]["all"]["current"])
    found.reserved = int(stats["reserved_bytes"]["all"]["current"])
    split = stats.get("inactive_split_bytes")
    found.split = int(split["all"]["current"]) if split is not None else None
    by_line: Dict[str, Tuple[int, int]] = {}
    by_size: Dict[int, int] = {}
    for segment in segments:
        for block in segment["blocks"] if segment.get("device", 0) == index else ():
            if block["state"] == LIVING:
                size = int(block["size"])
                by_size[size] = by_size.get(size, 0) + 1
                place = _place(block)
                found.recorded = found.recorded or place is not None
                add(by_line, place or "", size)
    found.lines = most(by_line) if found.recorded else []
    found.sizes = sorted(by_size.items(), key=lambda row: -row[0] * row[1])[:MAX_SIZES]
    return found


def _place(block: Mapping[str, Any]) -> Optional[str]:
    """Return the line that a block comes from; None where it was not recorded, or is not Python's."""
    frames = block.get("frames")
    if frames is None and block.get("history"):  # before torch 2.1
        frames = block["history"][0].get("frames")
    return innermost_place((frame["filename"], frame["line"], frame["name"]) for frame in frames or ())


def add(known: Dict[str, Tuple[int, int]], place: str, size: int, count: int = 1) -> None:
    """Add bytes and a number of blocks to those of a place."""
    before = known.get(place, (0, 0))
    known[place] = before[0] + size, before[1] + count


def most(known: Dict[str, Tuple[int, int]]) -> List[Row]:
    """Return the places with the most bytes: place, bytes, blocks."""
    rows = [(place, size, count) for place, (size, count) in known.items()]
    return sorted(rows, key=lambda row: -row[1])[:MAX_LINES]


def resident_bytes() -> Optional[int]:
    """Return the bytes of this process that lie in memory; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as source:
            return int(source.read(128).split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
