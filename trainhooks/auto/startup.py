"""Start-up told apart: imports of large libraries, CUDA's own start, the model's way to the GPU."""

from __future__ import annotations

import functools
from threading import get_ident
from typing import Any, Callable

from trainhooks import session
from trainhooks.auto import imports, sections
from trainhooks.auto.steps import Steps


def install(torch: Any, watched: Steps) -> None:
    """Called after `torch` has been imported."""
    imports.tell_to(session.quiet_put())
    _watch_cuda(torch, watched)
    _watch_moves(torch, watched)


def _watch_cuda(torch: Any, watched: Steps) -> None:
    """CUDA starts once, on the first call that needs it; from then on its own function is back in place."""
    cuda = torch.cuda
    start = cuda._lazy_init

    @functools.wraps(start)
    def _lazy_init() -> None:
        if get_ident() != watched.thread or cuda.is_initialized():
            start()
            return
        with sections.span("cuda init"):
            start()
        cuda._lazy_init = start

    cuda._lazy_init = _lazy_init


def _watch_moves(torch: Any, watched: Steps) -> None:
    """The model's move to the GPU, as long as no step has been made."""

    def timed(move: Callable[..., Any], always: bool) -> Callable[..., Any]:
        @functools.wraps(move)
        def ours(self: Any, *args: Any, **kwargs: Any) -> Any:
            if watched.told or get_ident() != watched.thread or not (always or _to_gpu(args, kwargs)):
                return move(self, *args, **kwargs)
            with sections.span("model to GPU"):
                return move(self, *args, **kwargs)

        return ours

    module = torch.nn.Module
    module.to = timed(module.to, always=False)
    module.cuda = timed(module.cuda, always=True)


def _to_gpu(args: Any, kwargs: Any) -> bool:
    device = kwargs.get("device", args[0] if args else None)
    if type(device) is int:
        return True
    return str(getattr(device, "type", device)).startswith("cuda")
