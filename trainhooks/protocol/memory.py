"""What a training process says of its memory: the answer to a `MemoryRequest`, a line of JSON. Sizes are bytes.

Places are texts as people read them: `train.py:41 in save`.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import List, Optional, Tuple

Row = Tuple[str, int, int]  # a place, bytes and number of what it holds

MAX_LINES = 20  # of the program, for each list of an answer
MAX_SIZES = 10  # of blocks


@dataclass
class DeviceMemory:
    """What torch's allocator says of a GPU.

    Attributes:
        index: torch's.
        total: of the device.
        allocated: in tensors.
        reserved: taken from the driver.
        split: reserved, free, and beside tensors in its segment, so that it cannot be given back.
        recorded: whether the program records where each block comes from.
        lines: place, bytes and blocks of what lives; the most first.
        sizes: size of a block, and how many of it live; the most in sum first.
        seconds: that reading it held the interpreter.
    """

    index: int = 0
    total: Optional[int] = None
    allocated: int = 0
    reserved: int = 0
    split: Optional[int] = None
    recorded: bool = False
    lines: List[Row] = field(default_factory=list)
    sizes: List[Tuple[int, int]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class Growth:
    """What has been added to a process's memory over some steps, and is still there.

    Attributes:
        seconds: between the two looks.
        steps: that ended meanwhile.
        resident: by which the process has grown; None where the system does not say.
        lines: place, bytes and blocks of Python's own memory; the most first.
        tensors: place, bytes and number of tensors on the host, views with what they show; empty place: unknown.
        types: of Python's objects that can hold others, and how many more there are.
        before: seconds of a step before, without tracemalloc; None where none was seen.
        during: seconds of a step meanwhile.
        held: seconds that one look took at most; it holds the interpreter for most of them.
        programs: whether the program itself has tracemalloc on: it stays on.
        why: there are no lines.
    """

    seconds: float = 0.0
    steps: int = 0
    resident: Optional[int] = None
    lines: List[Row] = field(default_factory=list)
    tensors: List[Row] = field(default_factory=list)
    types: List[Tuple[str, int]] = field(default_factory=list)
    before: Optional[float] = None
    during: Optional[float] = None
    held: float = 0.0
    programs: bool = False
    why: Optional[str] = None


@dataclass
class ProcessMemory:
    """The answer.

    Attributes:
        resident: of the process; None where the system does not say.
        why: the GPUs are not read.
        growth: None where it was not asked for.
    """

    status: str = "accepted"  # as of all answers (`trainhooks.protocol.control`)
    resident: Optional[int] = None
    devices: List[DeviceMemory] = field(default_factory=list)
    why: Optional[str] = None
    growth: Optional[Growth] = None

    def line(self) -> bytes:
        return json.dumps(dataclasses.asdict(self), separators=(",", ":")).encode("ascii") + b"\n"
