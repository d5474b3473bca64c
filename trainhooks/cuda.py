"""The one door of the hooks to torch.cuda: found where the program has loaded it, never imported, never started.

What stands in `sys.modules` when a thing is needed is what is used, so a simulated device can take its place.

While a CUDA graph is being captured, in any thread, no call of ours may reach CUDA: one from another thread breaks a
capture of mode 'global', and torch tells each thread of its own current stream only. So captures are counted here.
"""

from __future__ import annotations

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
    """A tensor of one element in pinned memory, made now."""
    return sys.modules["torch"].empty((), dtype=dtype, device="cpu", pin_memory=True)  # whatever the default device


def event() -> Any:
    """An event without a time, made now."""
    return sys.modules["torch"].cuda.Event()


def _never() -> bool:
    return False


def watch_captures() -> None:
    """Hear of every capture from here on. May be called again, from any thread; it makes no call to CUDA."""
    graph = getattr(torch_cuda(), "CUDAGraph", None)
    if not isinstance(graph, type):
        return
    begin, end = getattr(graph, "capture_begin", None), getattr(graph, "capture_end", None)
    if begin is None or end is None or hasattr(begin, _MARK):
        return

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
        graph.capture_begin, graph.capture_end = capture_begin, capture_end  # type: ignore[attr-defined]
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
