"""The hooks' one way to torch's profiler: begin a session, end it, read what it recorded.

Its functions are called directly. torch's context manager and kineto's own toggle wait for the device; these do not.
Only the thread that began a session may end it. Reading holds the interpreter; `read` is a generator for that reason.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Iterator, List, NamedTuple, Optional, Tuple

from trainhooks.lane_entries import host_clock

LOG_VARIABLE = "KINETO_LOG_LEVEL"
SILENT = 6  # from this level on kineto prints nothing; at 5 it prints errors
# With 1, CUDA's tracing interface is detached once a session has ended. Without, it stays, and launches stay slower: of
# a loop of small kernels by a third (docs/decisions/021-traced-steps.md).
DETACH_VARIABLE = "TEARDOWN_CUPTI"
MIN_CUDA = (12, 6)  # of the runtime: before, sessions beside CUDA graphs, and detaching, crashed or hung
CLOCK_READINGS = 5
# Set by whoever records the process already, or wants to.
OTHER_PROFILERS = ("KINETO_USE_DAEMON", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")

PRINTS = "off: KINETO_LOG_LEVEL=6 is not set, and torch's profiler would print"
OTHER = "off: another profiler is there"
MISSING = "off: this torch has no profiler"
STAYS = "off: TEARDOWN_CUPTI=1 is not set, and launches would stay slower"
OLD_CUDA = "off: the CUDA runtime is older than 12.6"


class Recorded(NamedTuple):
    """What ran once. Times are nanoseconds of the host clock."""

    name: str
    began: int
    ended: int
    on_device: bool  # a kernel, copy or memset of the device; else an operator or a call of the host
    lane: int  # the stream, or the thread
    correlation: int  # the same for a call of the CUDA runtime and for what it launched
    bytes: int
    event: Any  # torch's own, for what is rarely asked


class Session(NamedTuple):
    """A session of the profiler that has begun."""

    torch: Any
    offset: int  # nanoseconds from the host clock to the profiler's

    def end(self) -> Any:
        """End the session, on the thread that began it. Return its result, for `read`."""
        return self.torch._C._autograd._disable_profiler()


def why_never(on_cuda: bool) -> Optional[str]:
    """Return why this process cannot be traced, as shown to users; None where it can. torch must be loaded."""
    if any(os.environ.get(name) for name in OTHER_PROFILERS):
        return OTHER
    torch = sys.modules.get("torch")
    core = getattr(getattr(torch, "_C", None), "_autograd", None)
    if not all(hasattr(core, name) for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler")):
        return MISSING
    return OLD_CUDA if on_cuda and _cuda_version(torch) < MIN_CUDA else None


def doubts(on_cuda: bool) -> List[str]:
    """Return why this process is not to be traced unless somebody asks for it, likewise."""
    try:
        silent = int(os.environ.get(LOG_VARIABLE, "0")) >= SILENT
    except ValueError:
        silent = False
    found = [] if silent else [PRINTS]
    return [*found, STAYS] if on_cuda and os.environ.get(DETACH_VARIABLE) != "1" else found


def _cuda_version(torch: Any) -> Tuple[int, ...]:
    text = getattr(getattr(torch, "version", None), "cuda", None) or ""
    try:
        return tuple(int(part) for part in text.split(".")[:2])
    except ValueError:
        return ()


def begin(on_cuda: bool) -> Session:
    """Begin a session on this thread: of kernels and calls of the CUDA runtime, else of operators with their shapes."""
    torch = sys.modules["torch"]
    core, profiler = torch._C._autograd, torch.autograd.profiler
    activities = {torch.profiler.ProfilerActivity.CUDA if on_cuda else torch.profiler.ProfilerActivity.CPU}
    extra = torch._C._profiler._ExperimentalConfig()
    config = profiler.ProfilerConfig(profiler.ProfilerState.KINETO, not on_cuda, False, False, False, False, extra)
    offset = _offset()
    core._prepare_profiler(config, activities)
    core._enable_profiler(config, activities)
    return Session(torch, offset)


def _offset() -> int:
    """Return nanoseconds from the host clock to the wall clock, by the least disturbed of several readings."""
    readings = []
    for _ in range(CLOCK_READINGS):
        before, wall, after = host_clock(), time.time_ns(), host_clock()
        readings.append((after - before, wall - (before + after) // 2))
    return min(readings)[1]


def read(events: Any, session: Session) -> Iterator[Recorded]:
    """Return what a session recorded, from its result's events, in no order."""
    host = session.torch.autograd.DeviceType.CPU
    for event in events:
        began = event.start_ns() - session.offset
        on_device = event.device_type() != host
        lane = event.device_resource_id() if on_device else event.start_thread_id()
        yield Recorded(
            event.name(), began, began + event.duration_ns(), on_device, lane, event.correlation_id(),
            event.nbytes() if on_device else 0, event,
        )  # fmt: skip
