"""The one door of the hooks to torch.cuda: found where the program has loaded it, never imported, never started.

What stands in `sys.modules` when a thing is needed is what is used, so a simulated device can take its place.

While a CUDA graph is being captured, in any thread, no call of ours may reach CUDA: one from another thread breaks a
capture of mode 'global', and torch tells each thread of its own current stream only. So captures are counted here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import weakref
from typing import Any, Callable, Dict, List, Optional

_MARK = "_trainhooks_watched"

captures: Dict[int, Any] = {}  # open ones, by the graph's id; empty: no thread captures, as far as it was watched


def torch_cuda() -> Optional[Any]:
    """torch.cuda where the program has loaded it; else None."""
    return getattr(sys.modules.get("torch"), "cuda", None)


def started() -> Optional[Any]:
    """torch.cuda once the program has started CUDA in this process; else None."""
    cuda = torch_cuda()
    is_initialized = getattr(cuda, "is_initialized", None)
    try:
        return cuda if is_initialized is not None and is_initialized() else None
    except Exception:  # a torch that is half loaded
        return None


def is_rocm() -> bool:
    """Whether the loaded torch drives AMD's GPUs under CUDA's names."""
    return getattr(getattr(sys.modules.get("torch"), "version", None), "cuda", None) is None


def devices(torch: Any) -> List[int]:
    """Torch's indices of the devices on which this process has a context. CUDA must have been started."""
    count = torch.cuda.device_count()
    return [index for index in range(count) if count == 1 or torch._C._cuda_hasPrimaryContext(index)]


def with_context() -> List[int]:
    """The same, asked of a single device, too: one that is merely looked at has none. None while a capture is open."""
    torch = sys.modules["torch"]
    if captures:
        return []
    try:
        return [index for index in range(torch.cuda.device_count()) if torch._C._cuda_hasPrimaryContext(index)]
    except AttributeError:  # a torch that does not tell
        return [0]


def is_quiet() -> bool:
    """Whether the calling thread may call CUDA now: no capture is open anywhere. torch.cuda must be loaded."""
    return not captures and not sys.modules["torch"].cuda.is_current_stream_capturing()


def current_stream(device: Any) -> Any:
    """The calling thread's current stream of a device."""
    return sys.modules["torch"].cuda.current_stream(device)


def compiling() -> Callable[[], bool]:
    """What tells whether something is being compiled on this thread."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_compiling", None) or _never


def pinned(dtype: Any) -> Any:
    """A tensor of one element in pinned memory, made now; to be written to in and out of inference mode."""
    torch = sys.modules["torch"]
    with getattr(torch, "inference_mode", _plain)(False):
        return torch.empty((), dtype=dtype, device="cpu", pin_memory=True)  # whatever the default device


def event() -> Any:
    """An event without a time, made now."""
    return sys.modules["torch"].cuda.Event()


def free_memory() -> float:
    """The share of the current device's memory that nobody has taken; 0 where torch does not tell."""
    asked = getattr(torch_cuda(), "mem_get_info", None)
    if asked is None:
        return 0.0
    free, total = asked()
    return float(free / total) if total else 0.0


def delay(cycles: int) -> bool:
    """Hold up the current stream for so many cycles of its device; False: this torch cannot."""
    sleep = getattr(torch_cuda(), "_sleep", None)
    if sleep is None:
        return False
    sleep(cycles)
    return True


def _never() -> bool:
    return False


def _plain(_: bool) -> Any:
    return contextlib.nullcontext()


def graphs() -> List[Any]:
    """The classes that capture graphs: torch.cuda's, and from torch 2.12 on the one of all accelerators."""
    accelerator = getattr(sys.modules.get("torch"), "accelerator", None)
    found = (getattr(torch_cuda(), "CUDAGraph", None), getattr(accelerator, "Graph", None))
    return [each for each in found if hasattr(each, "capture_begin") and hasattr(each, "capture_end")]


def watch_captures() -> None:
    """Hear of every capture from here on. May be called again, from any thread; it makes no call to CUDA."""
    for graph in graphs():
        if not hasattr(graph.capture_begin, _MARK):
            _watch_captures_of(graph)


def _watch_captures_of(graph: Any) -> None:
    begin, end = graph.capture_begin, graph.capture_end

    @functools.wraps(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        _opened(self)
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


def _opened(graph: Any) -> None:
    """Keep it in mind until its end; or until it is dropped, should its end never be told."""
    key = id(graph)
    try:
        captures[key] = weakref.ref(graph, lambda _: captures.pop(key, None))
    except TypeError:
        captures[key] = True


def forget() -> None:
    """In a forked child: what the parent's other threads captured is none of its own."""
    captures.clear()


def modes_active() -> bool:
    """Whether calls of torch pass through something of the program's on this thread: that is not to see any of ours."""
    try:
        core = sys.modules["torch"]._C
        if not core._len_torch_function_stack() and not core._len_torch_dispatch_stack():
            return False
        if core._len_torch_dispatch_stack():
            return True
    except AttributeError:  # a torch without them
        return False
    # A default device is a mode, too: it only sees to it that tensors are made there.
    modes = map(core._get_function_stack_at, range(core._len_torch_function_stack()))
    return any(type(mode).__name__ != "DeviceContext" for mode in modes)


def never_freed(kept: Any) -> None:
    """Keep an object and what it holds until the process is gone, beyond the interpreter's own end.

    To free an event, or pinned memory that was copied to, is a call to the device. In a forked child, and after a
    CUDA error, that call fails where no exception can pass: torch then ends the process (std::terminate).
    """
    import ctypes  # loaded already: torch needs it

    python = getattr(ctypes, "pythonapi", None)
    if python is not None:
        python.Py_IncRef(ctypes.py_object(kept))
