"""`torch.cuda` as the hooks and the workloads see it: the simulated device behind torch's own names.

Every call is charged to the host's clock and to whoever made it, and watched: what no hook may do is kept in
`misdeeds`. What a program does (it may wait, it may break its own capture) is its own affair.
"""

from __future__ import annotations

import os
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulated_device.device import Device, DeviceError, Graph, Mark, Stream

if TYPE_CHECKING:
    from tests.simulated_device.kineto import Kineto

_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_HOOKS = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))), "trainhooks") + os.sep
# Of this package's files those that stand for a user's.
_PROGRAMS = ("workloads.py", "layers.py", "networks.py", "programs.py", "more_programs.py")
_FAILED = "operation failed due to a previous error during capture"


class Face:
    """The calls of one process. Use `cuda` as its torch.cuda."""

    def __init__(self, *devices: Device) -> None:
        self.devices, self.clock = devices, devices[0].clock
        self.misdeeds: list[str] = []
        self.initialized = True
        self.compiling = False
        self.captured = False  # whether a graph ever was
        self.kineto: Kineto | None = None
        self.events = 0  # ever made by hooks
        self.calls: dict[str, int] = {}  # by hooks
        self.hooks_cost = 0  # nanoseconds that the host was charged for calls of hooks
        self.by_step: dict[int, int] = {}  # the same by the step that was under way
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        self._local = threading.local()
        face = self
        self.Event = type("Event", (_Event,), {"face": face})
        self.CUDAGraph = type("CUDAGraph", (_CUDAGraph,), {"face": face})
        self.cuda = SimpleNamespace(**self.names())

    # Who calls, and what it costs

    def call(self, name: str, cost: int, safe: bool = False) -> Device:
        """Charge a call and judge it.

        Args:
            name: what is called, for `calls` and `misdeeds`.
            cost: nanoseconds of the host's time.
            safe: whether it may be made while a capture is open, from any thread.

        Raises:
            DeviceError: the device is in error.
        """
        device = self.devices[self.current_device()]
        ours, beside = by_hooks(), threading.get_ident() != self._thread
        if not beside:  # what another thread asks holds nobody up
            self.clock.pass_by(cost)
        if ours:
            if not beside:
                self.hooks_cost += cost
                self.by_step[device.step] = self.by_step.get(device.step, 0) + cost
            self.calls[name] = self.calls.get(name, 0) + 1
            if not self.initialized:
                self.misdeed(f"{name} before CUDA was started")
            if os.getpid() != self._pid:
                self.misdeed(f"{name} in a child")
            if self.compiling and not safe:
                self.misdeed(f"{name} while something is compiled")
        if not safe:
            for each in self.devices:  # a capture of mode 'global' is broken by any thread, whatever the device
                if each.capture is not None and (ours or beside):
                    each.capture.broken = name
                    if ours:
                        self.misdeed(f"{name} in a capture")
            if self.kineto is not None:
                self.kineto.touched()
        device.check()
        return device

    def misdeed(self, what: str) -> None:
        if what not in self.misdeeds:
            self.misdeeds.append(what)

    # A device a thread, and a stream a device

    def current_device(self) -> int:
        index: int = getattr(self._local, "device", 0)
        return index

    def set_device(self, index: int) -> None:
        self._local.device = index

    def current_stream(self, device: Any = None) -> Any:
        index = device if isinstance(device, int) else getattr(device, "index", None)
        index = self.current_device() if index is None else index
        found = self.devices[index]
        self.call("current_stream", found.costs.current_stream, safe=True)
        return self.seen(found.stream)

    def seen(self, stream: Stream) -> Any:
        """A stream as torch shows it."""
        return _Stream(self, stream)

    def Stream(self, device: int | None = None, name: str = "side") -> Any:
        on = self.devices[self.current_device() if device is None else device]
        self.call("Stream", on.costs.make_event)
        self._handles = getattr(self, "_handles", 100) + 1
        return self.seen(Stream(on, self._handles, name))

    @contextmanager
    def use(self, stream: Any) -> Any:
        """`with torch.cuda.stream(...)`."""
        device = stream.simulated.device
        before, device.stream = device.stream, stream.simulated
        index, self._local.device = self.current_device(), device.index
        try:
            yield
        finally:
            device.stream, self._local.device = before, index

    def is_capturing(self) -> bool:
        device = self.call("is_current_stream_capturing", self.devices[0].costs.is_capturing, safe=True)
        return device.capture is not None and threading.get_ident() == self._thread

    def synchronize(self, device: Any = None) -> None:
        if by_hooks():
            self.misdeed("synchronize")
        self.call("synchronize", 0).synchronize()

    def memory(self, *_: Any) -> dict[str, Any]:
        self.call("memory_stats", self.devices[0].costs.memory, safe=True)
        held = self.devices[self.current_device()].memory
        both = {"allocated": 2**42, "freed": 2**42}
        tensors = {"current": held.allocated, "peak": held.peak_allocated, **both}
        segments = {"current": held.reserved, "peak": held.peak_reserved, **both}
        kinds = ("allocated_bytes", "active_bytes", "inactive_split_bytes", "requested_bytes")
        told: dict[str, Any] = {kind: {"all": dict(tensors)} for kind in kinds}
        told["reserved_bytes"] = {"all": segments}
        return {**told, "num_alloc_retries": held.retries, "num_ooms": held.ooms}

    def empty_cache(self) -> None:
        """Waits for the device; what is free then goes back to the driver, and is asked for again."""
        device = self.call("empty_cache", 0)
        device.swept()
        device.synchronize()
        device.memory.empty_cache()

    def memory_left(self, *_: Any) -> tuple[int, int]:
        self.call("mem_get_info", 10_000)
        return 40 * 2**30, 80 * 2**30

    def context(self, index: int) -> bool:
        """torch._C._cuda_hasPrimaryContext: harmless to a capture, but a call all the same."""
        if by_hooks() and any(each.capture is not None for each in self.devices):
            self.misdeed("a look at the context in a capture")
        return True

    def properties(self, index: Any = 0) -> Any:
        uuid = f"00000000-0000-0000-0000-{int(index or 0):012d}"
        name = "Simulated H100 80GB HBM3"
        return SimpleNamespace(
            name=name, uuid=uuid, total_memory=80 * 2**30, major=9, minor=0, multi_processor_count=132
        )

    def names(self) -> dict[str, Any]:
        """Everything of torch.cuda that is stood in for."""
        return {
            "Event": self.Event,
            "CUDAGraph": self.CUDAGraph,
            "Stream": self.Stream,
            "stream": self.use,
            "graph": self._graph,
            "is_initialized": lambda: self.initialized,
            "is_available": lambda: True,
            "current_device": self.current_device,
            "set_device": self.set_device,
            "device_count": lambda: len(self.devices),
            "current_stream": self.current_stream,
            "default_stream": lambda device=0: self.seen(self.devices[int(device or 0)].compute),
            "is_current_stream_capturing": self.is_capturing,
            "synchronize": self.synchronize,
            "get_device_properties": self.properties,
            "get_device_name": lambda index=0: self.properties(index).name,
            "get_device_capability": lambda index=0: (9, 0),
            "memory_stats_as_nested_dict": self.memory,
            "empty_cache": self.empty_cache,
            "memory_stats": lambda *_: _flat(self.memory()),
            "memory_allocated": lambda *_: self.memory()["allocated_bytes"]["all"]["current"],
            "mem_get_info": self.memory_left,
        }

    @contextmanager
    def _graph(self, graph: Any, *_: Any, **__: Any) -> Any:
        graph.capture_begin()
        try:
            yield
        finally:
            graph.capture_end()


def is_machinery(path: str) -> bool:
    """Whether a file of this package stands for torch's C++, the driver or the device, not for a user's program."""
    return path.startswith(_HERE) and not path.endswith(_PROGRAMS)


def by_hooks() -> bool:
    """Whether the innermost frame outside this package belongs to the hooks."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(_HOOKS) and frame.f_code.co_name != "__torch_function__":  # that passes a program's call on
            return True
        between = "contextlib" in path or is_machinery(path)
        if not between:
            return False
        frame = frame.f_back  # type: ignore[assignment]
    return False


def _flat(nested: dict[str, Any], begin: str = "") -> dict[str, int]:
    found: dict[str, int] = {}
    for key, value in nested.items():
        found.update(_flat(value, f"{begin}{key}.") if isinstance(value, dict) else {begin + key: value})
    return found


class _Stream:
    """torch.cuda.Stream."""

    def __init__(self, face: Face, simulated: Stream) -> None:
        self.face, self.simulated = face, simulated
        self.cuda_stream, self.device_index = simulated.handle, simulated.device.index
        self.device = SimpleNamespace(type="cuda", index=self.device_index)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Stream) and other.simulated is self.simulated

    def __hash__(self) -> int:
        return hash((self.device_index, self.cuda_stream))

    def query(self) -> bool:
        self.face.call("Stream.query", self.simulated.device.costs.query)
        return self.face.clock.now >= self.simulated.free

    def synchronize(self) -> None:
        if by_hooks():
            self.face.misdeed("synchronize")
        self.face.call("Stream.synchronize", 0)
        self.simulated.device.synchronize(self.simulated)

    def wait_stream(self, other: Any) -> None:
        self.simulated.device.wait_stream(other.simulated, self.simulated)

    def wait_event(self, event: Any) -> None:
        event.wait(self)

    def record_event(self, event: Any = None) -> Any:
        event = event or self.face.Event()
        event.record(self)
        return event


class _Event:
    """torch.cuda.Event."""

    face: Face

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        device = self.face.call("Event", self.face.devices[0].costs.make_event, safe=True)
        del device
        self.face.events += by_hooks()
        self.timed, self.mark, self.thread = enable_timing, None, 0
        self.recorded_at = 0  # by the host
        self.captured = False

    def record(self, stream: Any = None) -> None:
        began = self.face.clock.now
        device = self.face.call("Event.record", self.face.devices[0].costs.record if self.timed else 12_000)
        on: Stream = device.stream if stream is None else stream.simulated
        ours = by_hooks()
        if ours and self.timed and on.name == "communication":
            self.face.misdeed("a timed event on a stream of communication")
        if ours and self.mark is not None and self.mark.stream.device is not on.device:
            self.face.misdeed("an event of one device recorded on another")
        self.thread = threading.get_ident()
        self.captured = on.device.capture is not None
        self.recorded_at = self.face.clock.now
        self.mark = on.device.mark(on)
        on.device.called("cudaEventRecord", began)

    def _asked(self, name: str, cost: int) -> Mark | None:
        self.face.call(name, cost)
        if by_hooks() and self.thread not in (0, threading.get_ident()):
            self.face.misdeed(f"{name} from another thread than the one that recorded it")
        if self.captured:
            raise DeviceError("CUDA error: operation not permitted on an event last recorded in a capturing stream")
        mark: Mark | None = self.mark
        return mark

    def query(self) -> bool:
        began = self.face.clock.now
        mark = self._asked("Event.query", self.face.devices[0].costs.query)
        self.face.devices[self.face.current_device()].called("cudaEventQuery", began)
        return mark is None or self.face.clock.now >= mark.at

    def elapsed_time(self, end: Any) -> float:
        first = self._asked("Event.elapsed_time", self.face.devices[0].costs.elapsed_time)
        last: Mark | None = end.mark
        if first is None or last is None or not (self.timed and end.timed):
            raise ValueError("Both events must be recorded, and made with enable_timing=True")
        if first.stream.device is not last.stream.device:
            raise DeviceError("CUDA error: invalid resource handle")
        if max(first.at, last.at) > self.face.clock.now:
            raise DeviceError("CUDA error: device not ready")
        return first.stream.device.milliseconds(first, last)

    def synchronize(self) -> None:
        if by_hooks():
            self.face.misdeed("synchronize")
        began = self.face.clock.now
        mark = self._asked("Event.synchronize", 0)
        if mark is not None:
            mark.stream.device.waited += self.face.clock.wait_until(mark.at)
            mark.stream.device.called("cudaEventSynchronize", began)

    def wait(self, stream: Any = None) -> None:
        mark = self._asked("Event.wait", self.face.devices[0].costs.query)
        on: Stream = self.face.devices[self.face.current_device()].stream if stream is None else stream.simulated
        if mark is not None:
            on.free = max(on.free, mark.at)


class _CUDAGraph:
    """torch.cuda.CUDAGraph."""

    face: Face

    def __init__(self, keep_graph: bool = False) -> None:
        self.graph = Graph()

    def capture_begin(self, *_: Any, **__: Any) -> None:
        self.face.captured = True
        self.face.devices[self.face.current_device()].capture = self.graph

    def capture_end(self) -> None:
        self.face.devices[self.face.current_device()].capture = None
        if self.graph.broken:
            raise DeviceError(f"CUDA error: {_FAILED} ({self.graph.broken})")

    def replay(self) -> None:
        self.face.devices[self.face.current_device()].replay(self.graph)
