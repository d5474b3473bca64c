"""The hooks' one way to torch.cuda: found where the program has loaded it, never imported, never started.

It is looked up in `sys.modules` at each use, so that a simulated device can replace it.

While a CUDA graph is being captured in any thread, no call of ours may reach CUDA: one from another thread breaks a
capture of mode 'global', and torch reports captures of the calling thread only. So captures are counted here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any, Callable, Dict, List, Optional, Set

from trainhooks.program_errors import until_gone


class DevicePlace:
    """Find the stream that a thread's events are recorded on. For that thread alone, and outside of captures.

    A program may put its model on `cuda:1` and never call `set_device`. An event recorded on the current device would
    then make a context on a GPU that the program does not use (hundreds of MiB), and time a stream without work.
    """

    def __init__(self) -> None:
        self._model_devices: Set[int] = set()  # where optimizers' parameters lie
        self._used: Set[int] = set()  # on which the program has had memory
        self._current = 0  # the thread's current device, as the step began
        self._device = 0  # whose stream it is

    def works_on(self, device: int) -> None:
        """Note that an optimizer's parameters lie on `device`."""
        self._model_devices.add(device)

    def begins(self, torch_cuda: Any) -> Optional[Any]:
        """Return the stream for the step that begins; None where it is unclear which device the program uses."""
        self._current = int(torch_cuda.current_device())
        device = self._find(torch_cuda, self._current)
        if device is None:
            return None
        self._device = device
        return torch_cuda.current_stream(device)

    def stream(self, torch_cuda: Any) -> Optional[Any]:
        """Return the stream for what is recorded between steps; None as above. The open step is not touched."""
        device = self._find(torch_cuda, int(torch_cuda.current_device()))
        return None if device is None else torch_cuda.current_stream(device)

    def _find(self, torch_cuda: Any, current: int) -> Optional[int]:
        device: Optional[int] = current
        if len(self._model_devices) == 1:
            (device,) = self._model_devices
        elif current not in self._used:
            used = [index for index in context_devices() if self._is_used(torch_cuda, index)]
            device = current if current in used else used[0] if len(used) == 1 else None
        return device

    def goes_on(self, torch_cuda: Any) -> Optional[Any]:
        """Return the stream for a later event of the same step; None where the thread has changed its device."""
        return torch_cuda.current_stream(self._device) if torch_cuda.current_device() == self._current else None

    def _is_used(self, torch_cuda: Any, device: int) -> bool:
        """Return whether torch has ever had memory there. Its allocator is asked (0.15 ms) until it has."""
        if device in self._used:
            return True
        try:
            stats = torch_cuda.memory_stats_as_nested_dict(device)
            used = bool(stats["allocated_bytes"]["all"]["allocated"])
        except Exception:  # the program's own allocator has no statistics
            used = True
        if used:
            self._used.add(device)
        return used


class EventPool:
    """CUDA events with times, made once and reused. An event belongs to the device on which it was first recorded.

    Args:
        limit: how many are ever made.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._made = 0
        self._by_device: Dict[int, List[Any]] = {}
        self._free: List[Any] = []  # of the device in use

    def use_device(self, device: int) -> None:
        """Take events for this device from here on."""
        self._free = self._by_device.setdefault(device, [])

    def take(self, torch_cuda: Any) -> Optional[Any]:
        """Return a free event, or None where the limit is reached."""
        if self._free:
            return self._free.pop()
        if self._made >= self._limit:
            return None
        self._made += 1
        return torch_cuda.Event(enable_timing=True)

    def release(self, events: List[Any]) -> None:
        """Take back events of the device in use. One may occur several times in a row; it is taken once."""
        last = None
        for event in events:
            if event is not last:
                self._free.append(event)
                last = event


_MARK = "_trainhooks_watched"

captured = 0  # graphs that were ever captured
captures: Dict[int, Any] = {}  # open ones that are watched, by the graph's id


def torch_cuda() -> Optional[Any]:
    """Return torch.cuda where the program has loaded it, else None."""
    return getattr(sys.modules.get("torch"), "cuda", None)


def started_cuda() -> Optional[Any]:
    """Return torch.cuda once the program has started CUDA in this process, else None."""
    cuda = torch_cuda()
    is_initialized = getattr(cuda, "is_initialized", None)
    try:
        return cuda if is_initialized is not None and is_initialized() else None
    except Exception:  # a torch that is half loaded
        return None


def process_group() -> Dict[str, int]:
    """Return rank and world_size of torch's process group; empty without one. The one source of ranks in mp.spawn."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is None or not distributed.is_available() or not distributed.is_initialized():
            return {}
        return {"rank": int(distributed.get_rank()), "world_size": int(distributed.get_world_size())}
    except Exception:  # torch is half imported or lacks these calls
        return {}


def is_rocm() -> bool:
    """Return whether the loaded torch drives AMD's GPUs under CUDA's names."""
    return getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None) is None


def devices(torch: Any) -> List[int]:
    """Return torch's indices of the devices on which this process has a context. CUDA must have been started."""
    count = torch.cuda.device_count()
    return [index for index in range(count) if count == 1 or torch._C._cuda_hasPrimaryContext(index)]


def context_devices() -> List[int]:
    """Return the same, with a single device checked too; empty while a capture is open."""
    torch = sys.modules["torch"]
    if captures:
        return []
    try:
        return [index for index in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(index)]
    except AttributeError:  # a torch without it
        return [0]


def is_quiet() -> bool:
    """Return whether the calling thread may call CUDA now: no capture is open. torch.cuda must be loaded."""
    return not captures and not sys.modules["torch"].cuda.is_current_stream_capturing()


def current_stream(device: Any) -> Any:
    """Return the calling thread's current stream of a device."""
    return sys.modules["torch"].cuda.current_stream(device)


def compiling_check() -> Callable[[], bool]:
    """Return the function that says whether something is being compiled on this thread."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None) or never


def make_pinned(dtype: Any) -> Any:
    """Make a tensor of one element in pinned memory, writable in and out of inference mode."""
    torch = sys.modules["torch"]
    with getattr(torch, "inference_mode", _plain)(False):
        return torch.empty((), dtype=dtype, device="cpu", pin_memory=True)  # whatever the default device


def make_event() -> Any:
    """Make an event without a time."""
    return sys.modules["torch"].cuda.Event()


def free_memory(device: Any = None) -> float:
    """Return the free share of a device's memory, of the current one's by default; 0 where torch does not say."""
    mem_get_info = getattr(torch_cuda(), "mem_get_info", None)
    if mem_get_info is None:
        return 0.0
    free, total = mem_get_info(device)
    return float(free / total) if total else 0.0


def never() -> bool:
    """Return False, in place of a check that is not available yet."""
    return False


def _plain(_: bool) -> Any:
    return contextlib.nullcontext()


def graph_classes() -> List[Any]:
    """Return the classes that capture graphs: torch.cuda's, and from torch 2.12 on the one of all accelerators."""
    accelerator = getattr(sys.modules.get("torch"), "accelerator", None)
    found = (getattr(torch_cuda(), "CUDAGraph", None), getattr(accelerator, "Graph", None))
    return [graph for graph in found if hasattr(graph, "capture_begin") and hasattr(graph, "capture_end")]


def watch_captures() -> None:
    """Watch every capture from here on. May be called again, from any thread; it makes no call to CUDA."""
    for graph in graph_classes():
        if not hasattr(graph.capture_begin, _MARK):
            _watch_captures_of(graph)


def _watch_captures_of(graph: Any) -> None:
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _add_capture(self)
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            captures.pop(id(self), None)
            raise

    @functools.wraps(end)
    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return end(self, *args, **kwargs)
        finally:
            captures.pop(id(self), None)

    setattr(capture_begin, _MARK, True)
    try:
        graph.capture_begin, graph.capture_end = capture_begin, capture_end
    except TypeError:  # a class of C++ alone: `is_current_stream_capturing` has to do
        return


def _add_capture(graph: Any) -> None:
    """Remember a capture until its end, or until its graph is dropped."""
    global captured
    captured += 1
    key = id(graph)
    try:
        captures[key] = until_gone(graph, captures, key)
    except TypeError:
        captures[key] = True


def forget_captures() -> None:
    """Drop all captures, in a forked child: they are of the parent's other threads."""
    captures.clear()


def modes_active() -> bool:
    """Return whether calls of torch on this thread pass through a mode of the program's, which is not to see ours."""
    try:
        core = sys.modules["torch"]._C
        if not core._len_torch_function_stack() and not core._len_torch_dispatch_stack():
            return False
        if core._len_torch_dispatch_stack():
            return True
    except AttributeError:  # a torch without them
        return False
    # A default device is also a mode, but it only changes where tensors are made.
    modes = map(core._get_function_stack_at, range(core._len_torch_function_stack()))
    return any(type(mode).__name__ != "DeviceContext" for mode in modes)


def is_profiled() -> bool:
    """Return whether a profiler of torch is on, on this thread."""
    return bool(sys.modules["torch"]._C._autograd._profiler_enabled())


def may_compute() -> bool:
    """Return whether nobody sees what the hooks compute with the program's tensors: neither a mode nor a profiler."""
    return not (modes_active() or is_profiled())


def keep_forever(kept: Any) -> None:
    """Keep an object and what it holds until the process is gone, beyond the interpreter's own end.

    Freeing an event, or pinned memory that was copied to, calls the device. In a forked child and after a CUDA error
    that call fails where no exception can pass: torch then ends the process (std::terminate).
    """
    import ctypes  # loaded already: torch needs it

    python = getattr(ctypes, "pythonapi", None)
    if python is not None:
        python.Py_IncRef(ctypes.py_object(kept))
