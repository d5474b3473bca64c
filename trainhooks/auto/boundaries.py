"""Steps and phases of plain PyTorch programs: the few functions of torch that every training passes through.

What compiled code can reach asks first whether it is being traced, and is kept from being compiled by itself; so
graphs stay as they are without us.
"""

from __future__ import annotations

import functools
import os
import sys
from threading import get_ident
from typing import Any, Callable, Optional

from trainhooks import deferred, session
from trainhooks.auto import (
    batches,
    by_hand,
    compiling,
    imports,
    optimizers,
    roots,
    sections,
    startup,
    steps,
    tracebacks,
)
from trainhooks.auto.roots import Roots
from trainhooks.auto.steps import Steps

current: Optional[Steps] = None  # what the other files of this package tell their readings to


def install(torch: Any) -> None:
    """Called after `torch` has been imported."""
    global current
    watched = current = Steps(torch.is_grad_enabled)
    is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or _never
    found = Roots(torch, watched, is_compiling)
    _wrap_gradients(torch, watched, is_compiling)
    _hook_optimizers(watched, found, is_compiling)
    _wrap_scaler(torch, watched, is_compiling)
    sections.timed(torch, "save", "checkpoint")
    startup.install(torch, watched)
    clock = [session.gpu_clock] if session.gpu_clock is not None else []
    compiling.keep_out(
        torch, sys.modules[__name__], steps, batches, by_hand, optimizers, roots, deferred, session, *clock
    )
    tracebacks.install()
    os.register_at_fork(after_in_child=watched.reset)
    imports.when_imported("torch.utils.data.dataloader", "trainhooks.auto.loading")
    imports.when_imported("torch._dynamo.callback", "trainhooks.auto.compiling")


def _never() -> bool:
    return False


def put_in_place(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    setattr(owner, name, functools.wraps(getattr(owner, name))(ours))


def _wrap_gradients(torch: Any, watched: Steps, is_compiling: Callable[[], bool]) -> None:
    run_backward = torch.autograd.backward
    run_grad = torch.autograd.grad
    tensor = torch.Tensor

    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or watched.in_backward or watched.silent or get_ident() != watched.thread:
            return run_backward(*args, **kwargs)
        loss: Any = args[0] if args else None
        try:
            watched.backward_begins(loss if type(loss) is tensor and loss.numel() == 1 else None)
        except Exception:  # a tensor that cannot be asked
            watched.fail()
        try:
            return run_backward(*args, **kwargs)
        finally:
            watched.backward_ends()

    def grad(*args: Any, **kwargs: Any) -> Any:
        if is_compiling() or watched.in_backward or watched.silent or get_ident() != watched.thread:
            return run_grad(*args, **kwargs)
        watched.gradient_begins()
        try:
            return run_grad(*args, **kwargs)
        finally:
            watched.backward_ends()

    put_in_place(torch.autograd, "backward", backward)
    put_in_place(torch.autograd, "grad", grad)


def _hook_optimizers(watched: Steps, found: Roots, is_compiling: Callable[[], bool]) -> None:
    module = sys.modules["torch.optim.optimizer"]  # torch.optim itself hides it
    make = module.Optimizer.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        try:
            watched.optimizers.made(self)
            found.look(self, sys._getframe(1))
        except Exception:  # whatever stands in the frames of a program may raise anything when it is looked at
            watched.fail()

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling() or watched.silent:
            return
        if get_ident() != watched.thread and not watched.adopt():
            return
        try:
            if id(optimizer) not in found.settled:
                found.settle(optimizer, sys._getframe(1))
            watched.optimizer_begins(id(optimizer))
        except Exception:  # as above
            watched.fail()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_compiling() or watched.silent or get_ident() != watched.thread:
            return
        try:
            watched.optimizer_ends(id(optimizer), optimizer)
        except Exception:  # an optimizer of a foreign class may lack anything
            watched.fail()

    put_in_place(module.Optimizer, "__init__", __init__)
    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)


def _wrap_scaler(torch: Any, watched: Steps, is_compiling: Callable[[], bool]) -> None:
    scaler = torch.amp.grad_scaler.GradScaler if hasattr(torch.amp, "grad_scaler") else torch.cuda.amp.GradScaler
    run = scaler.step

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or watched.silent or get_ident() != watched.thread or not getattr(self, "_enabled", True):
            return run(self, optimizer, *args, **kwargs)
        key = id(optimizer)
        before = watched.entered
        watched.scaler_begins(key)
        try:
            result = run(self, optimizer, *args, **kwargs)
        except BaseException:
            watched.nested.clear()
            raise
        watched.scaler_ends(key, optimizer, watched.entered > before)
        return result

    put_in_place(scaler, "step", step)
