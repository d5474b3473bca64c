"""Steps and phases of plain PyTorch programs: the few functions of torch that every training passes through.

What compiled code can reach asks first whether it is being traced, and is kept from being compiled by itself; so
graphs stay as they are without us.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref
from threading import get_ident
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks import api, cuda, deferred, device_lane, device_place, sampling, session
from trainhooks.auto import (
    batches,
    by_hand,
    graphs,
    imports,
    listener,
    optimizers,
    roots,
    sections,
    startup,
    steps,
    tracebacks,
    usual,
)
from trainhooks.auto.steps import Steps
from trainhooks.auto.usual import LEARNING, LEARNT, STEPPED, STEPPING
from trainhooks.clocks import host_clock

current: Optional[Steps] = None  # what the other files of this package tell their readings to


def install(torch: Any) -> None:
    """Called after `torch` has been imported."""
    global current
    watched = current = Steps(torch.is_grad_enabled)
    is_traced, is_compiling = _compilers(torch)
    found = roots.Roots(torch, watched)
    _wrap_gradients(torch, watched, is_traced, is_compiling)
    _hook_optimizers(watched, found, is_traced, is_compiling)
    _wrap_scaler(torch, watched, is_compiling)
    sections.timed(torch, "save", "checkpoint")
    startup.install(torch, watched)
    hooks = (sys.modules[__name__], steps, usual, batches, by_hand, optimizers, roots, listener)
    graphs.keep_out(torch, *hooks, api, session, deferred, device_lane, device_place, sampling, cuda)
    cuda.watch_captures()
    for graph in cuda.graphs():
        _watch_graphs(graph, watched)  # outside of that: until a capture has begun the device may be called
    tracebacks.install()
    os.register_at_fork(after_in_child=watched.reset)
    imports.when_imported("torch.utils.data.dataloader", "trainhooks.auto.loading")
    imports.when_imported("torch._dynamo.callback", "trainhooks.auto.compiling")


def _compilers(torch: Any) -> Tuple[Callable[[], bool], Callable[[], bool]]:
    """Two functions of this torch: whether we are in a program that dynamo traces, and whether anything is compiled.

    The first is cheap, and known to dynamo as true: what it traces asks that before anything else.
    """
    compiler = getattr(torch, "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None) or _never
    return getattr(compiler, "is_dynamo_compiling", None) or is_compiling, is_compiling


def _never() -> bool:
    return False


def put_in_place(owner: Any, name: str, ours: Callable[..., Any]) -> None:
    setattr(owner, name, functools.wraps(getattr(owner, name))(ours))


def _wrap_gradients(
    torch: Any, watched: Steps, is_traced: Callable[[], bool], is_compiling: Callable[[], bool]
) -> None:
    run_backward = torch.autograd.backward
    run_grad = torch.autograd.grad
    tensor = torch.Tensor
    usual = watched.usual

    def passed_by() -> bool:
        if watched.in_backward or watched.silent or get_ident() != watched.thread or usual.stage == LEARNING:
            return True
        if is_compiling():
            return True
        if usual.stage:
            usual.hand_over()
        return False

    def is_one(loss: Any) -> bool:
        return not cuda.modes_active() and loss.numel() == 1

    def backward(*args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return run_backward(*args, **kwargs)
        loss: Any = args[0] if args else None
        if usual.stage == usual.before_learning and get_ident() == usual.thread and type(loss) is tensor:
            try:
                usual.loss = deferred.loss_of(loss)
            except Exception:  # of more than one number, or one that cannot be asked
                usual.loss = None
            usual.learning = host_clock()
            usual.stage = LEARNING
        elif passed_by():
            return run_backward(*args, **kwargs)
        else:
            try:
                watched.backward_begins(loss if type(loss) is tensor and is_one(loss) else None, host_clock())
            except Exception:  # a tensor that cannot be asked
                watched.fail()
        try:
            return run_backward(*args, **kwargs)
        finally:
            if usual.stage == LEARNING:
                usual.learnt = host_clock()
                usual.stage = LEARNT
            else:
                watched.backward_ends(host_clock())

    def grad(*args: Any, **kwargs: Any) -> Any:
        if is_traced() or passed_by():
            return run_grad(*args, **kwargs)
        watched.gradient_begins(host_clock())
        try:
            return run_grad(*args, **kwargs)
        finally:
            watched.backward_ends(host_clock())

    put_in_place(torch.autograd, "backward", backward)
    put_in_place(torch.autograd, "grad", grad)


def _hook_optimizers(
    watched: Steps, found: roots.Roots, is_traced: Callable[[], bool], is_compiling: Callable[[], bool]
) -> None:
    module = sys.modules["torch.optim.optimizer"]  # torch.optim itself hides it
    make = module.Optimizer.__init__
    usual = watched.usual

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        try:
            if get_ident() == watched.thread:
                if usual.stage:
                    usual.hand_over()
                watched.end_if_done(host_clock())  # another training begins; that one is not waited for in this step
            watched.optimizers.made(self)
            found.look(self, sys._getframe(1))
        except Exception:  # whatever stands in the frames of a program may raise anything when it is looked at
            watched.fail()

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_traced():
            return
        if usual.stage == LEARNT and id(optimizer) == usual.key:
            usual.stepping = host_clock()
            usual.stage = STEPPING
            return
        if is_compiling() or watched.silent or (get_ident() != watched.thread and not watched.adopt()):
            return
        try:
            if usual.stage:
                usual.hand_over()
            if id(optimizer) not in found.settled:
                found.settle(optimizer, sys._getframe(1))
            watched.optimizer_begins(id(optimizer), host_clock())
        except Exception:  # as above
            watched.fail()

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if is_traced():
            return
        if usual.stage == STEPPING and id(optimizer) == usual.key:
            t = host_clock()
            if usual.on_gpu:
                usual.stepped = t
                usual.stage = STEPPED
            else:
                usual.end(t, t)
            return
        if is_compiling() or watched.silent or get_ident() != watched.thread:
            return
        try:
            if usual.stage:
                usual.hand_over()
            watched.optimizer_ends(id(optimizer), optimizer, host_clock())
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
        if watched.usual.stage:
            watched.usual.hand_over()
        before = watched.entered
        watched.scaler_begins(key, host_clock())
        try:
            result = run(self, optimizer, *args, **kwargs)
        except BaseException:
            watched.nested.clear()
            raise
        watched.scaler_ends(key, optimizer, watched.entered > before, host_clock())
        return result

    put_in_place(scaler, "step", step)


def _watch_graphs(graph: Any, watched: Steps) -> None:
    """Whole steps that are captured as a graph: what is captured is no step, and each replay is one."""
    try:
        begin, end, run = graph.capture_begin, graph.capture_end, graph.replay
    except AttributeError:  # a torch without them
        return
    usual = watched.usual
    silenced = 0  # the id of the graph whose capture keeps us silent

    def ready() -> bool:
        if watched.silent or get_ident() != watched.thread:
            return False
        if usual.stage:
            usual.hand_over()
        return True

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal silenced
        try:
            if ready() and watched.capture_begins(host_clock()):
                silenced = id(self)
        except Exception:  # an optimizer of a foreign class may lack anything
            watched.fail()
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            if silenced == id(self):
                silenced = 0
                watched.silent = False
            raise

    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal silenced
        if silenced == id(self):
            silenced = 0
            try:
                if watched.capture_ends():
                    keep(self, id(self))
            except Exception:  # as above
                watched.fail()
        return end(self, *args, **kwargs)

    def replay(self: Any) -> Any:
        if id(self) not in held or not ready() or watched.in_forward or watched.in_backward or watched.nested:
            return run(self)
        watched.replay_begins(host_clock())
        try:
            return run(self)
        finally:
            watched.replay_ends(host_clock())

    held: Dict[int, Any] = {}  # graphs with an optimizer's step, by id

    def keep(captured: Any, key: int) -> None:
        held[key] = weakref.ref(captured, lambda _: held.pop(key, None))

    try:
        for name, ours in (("capture_begin", capture_begin), ("capture_end", capture_end), ("replay", replay)):
            put_in_place(graph, name, ours)
    except TypeError:  # a class of C++ alone
        return
