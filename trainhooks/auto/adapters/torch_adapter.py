"""PyTorch: hooks on fetches, forwards, backwards and optimizer steps, which report to the step tracker.

Wrappers that compiled code can reach check first whether they are being traced, and are excluded from compilation, so
that graphs are the same as without the hooks.
"""

from __future__ import annotations

import functools
import os
import sys
from threading import get_ident
from types import FunctionType, TracebackType
from typing import Any, Callable, Dict, Optional, Tuple

from trainhooks import session
from trainhooks.auto import data_loading, imports, instrumentation, unseen
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import call_safely, framework, replace_function, span
from trainhooks.auto.models import model_calls, model_copies, module_registry, own_writing, program_facts
from trainhooks.auto.rl import environments as environments  # loaded here, so that it is kept out of graphs, too
from trainhooks.auto.rl import started_programs
from trainhooks.auto.steps import fast_path, plan, step_tracker, trainings
from trainhooks.auto.steps.step_tracker import StepTracker
from trainhooks.device import cuda
from trainhooks.lane_entries import host_clock
from trainhooks.program_errors import until_gone
from trainhooks.protocol import trial_settings
from trainhooks.recording import start_watch

Check = Callable[[], bool]
Models = model_calls.TrainedModels

OURS = f"{__name__.partition('.')[0]}."  # how the names of our modules begin
OWN_HANDLE = -1  # the id of our hooks of all optimizers; torch's begin at 0

start_watch.watch_start(imports.MAIN_THREAD, session.has_stepped)  # here torch's own import is about to begin

# Modules whose functions call the program's: warnings pass over them.
_WRAPPING = (
    sys.modules[__name__], fast_path, data_loading, model_calls, model_copies, module_registry, own_writing,
    program_facts,
)  # fmt: skip


@when_imported("torch")
def install(torch: Any) -> None:
    """Install the hooks in torch, once it has been imported."""
    for module in _WRAPPING:
        unseen.hide_from_warnings(module)  # before any of them makes its wrappers
    tracker = framework.tracker = StepTracker(torch.is_grad_enabled)
    is_traced, is_compiling = _compilers(torch)
    models = model_calls.TrainedModels(torch, tracker, is_traced)
    _wrap_gradients(torch, tracker, models, is_traced, is_compiling)
    _hook_optimizers(torch, tracker, models, is_traced, is_compiling)
    _wrap_scaler(torch, tracker, is_compiling)
    _wrap_profilers(torch)
    instrumentation.wrap(torch, "save", _save)
    imports.route_spans(session.quiet_put())
    _time_cuda_start(torch, tracker)
    _time_moves(torch, tracker)
    _keep_out_of_graphs(torch)
    started_programs.watch_subprocess()
    cuda.watch_captures()
    for graph in cuda.graph_classes():
        _watch_graphs(graph, tracker)  # after `watch_captures`: these run before it, while CUDA may still be called
    _trim_tracebacks()
    os.register_at_fork(after_in_child=tracker.reset)

    @when_imported("torch.utils.data.dataloader")
    def watch_loaders(dataloader: Any) -> None:
        data_loading.watch_loaders(dataloader, torch, tracker)

    @when_imported("torch._dynamo.callback")  # the program is going to compile something
    def watch_compilation(callback: Any) -> None:
        watch = program_facts.CompileWatch(tracker)
        watch.listen(callback.callback_handler)
        tracker.on_step_end = watch.on_step_end

    if trial_settings.VARIABLE in os.environ:  # by `trainmon try` alone
        from trainhooks.auto import trials

        call_safely(trials.install, torch)
    if trial_settings.WRITES_VARIABLE in os.environ:  # likewise
        from trainhooks.auto import trials

        call_safely(trials.tell_saves, torch)


def _save(original: Callable[..., Any]) -> Callable[..., Any]:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if args and type(args[0]).__name__.endswith("Storage"):  # pickle saves a tensor by it, to send it to a process
            return original(*args, **kwargs)
        with span("checkpoint"):
            return original(*args, **kwargs)

    return wrapper


@when_imported("torch.amp.autocast_mode")
def watch_autocast(module: Any) -> None:
    program_facts.watch_autocast(module)


def _compilers(torch: Any) -> Tuple[Check, Check]:
    """Return two checks: whether dynamo traces the program, and whether anything is being compiled.

    The first is cheap and a constant for dynamo, so wrappers call it before anything else.
    """
    is_compiling = cuda.compiling_check()
    return getattr(getattr(torch, "compiler", None), "is_dynamo_compiling", None) or is_compiling, is_compiling


def _wrap_gradients(torch: Any, tracker: StepTracker, models: Models, is_traced: Check, is_compiling: Check) -> None:
    run_grad = torch.autograd.grad
    tensor = torch.Tensor
    path = tracker.fast_path

    def is_ours() -> bool:
        """Return whether the tracker is to record this backward pass."""
        if tracker.in_backward or tracker.silent or path.in_backward or is_compiling():
            return False
        if get_ident() != tracker.thread and not tracker.follow():
            return False
        path.leave()
        return True

    def begins(loss: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> bool:
        if not is_ours():
            return False
        try:
            is_one = type(loss) is tensor and not cuda.modes_active() and loss.numel() == 1
            tracker.backward_begins(loss if is_one else None, host_clock())
            if is_one and tracker.optimizers.none:
                _find_models(tracker, models, loss)
            if tracker.checks.left:
                call_safely(tracker.checks.backward_begins, loss if is_one else None, args, kwargs)
        except BaseException:  # a tensor of a foreign class may raise anything
            tracker.fail()
        return True

    def grad(*args: Any, **kwargs: Any) -> Any:
        if is_traced():
            return run_grad(*args, **kwargs)
        is_seen = False
        with tracker.guard:
            is_seen = is_ours()
            if is_seen:
                tracker.gradient_begins(host_clock())
                tracker.checks.gradients_asked()
        try:
            return run_grad(*args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        finally:
            with tracker.guard:
                if is_seen:
                    tracker.backward_ends(host_clock())

    replace_function(torch.autograd, "backward", path.backward(torch.autograd.backward, tensor, is_traced, begins))
    replace_function(torch.autograd, "grad", grad)


def _find_models(tracker: StepTracker, models: Models, loss: Any) -> None:
    """Find the models of a program that has no optimizer, by a parameter that its loss depends on."""
    if not tracker.sees_model:
        parameter = step_tracker.near_parameter(loss)
        if parameter is not None:
            models.find_around(parameter)


def _hook_optimizers(torch: Any, tracker: StepTracker, models: Models, is_traced: Check, is_compiling: Check) -> None:
    module = sys.modules["torch.optim.optimizer"]  # torch.optim itself hides it
    told_apart = trainings.Trainings(tracker, models)
    init = module.Optimizer.__init__
    path = tracker.fast_path

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        try:
            if get_ident() == tracker.thread:
                path.leave()
                tracker.nested.clear()  # an exception may have left the last one's step
                tracker.end_if_done(host_clock())  # another training begins; its optimizer is not part of this step
                call_safely(told_apart.made, self)
            tracker.optimizers.add(self)
            tracker.checks.optimizer_made(self)
            models.find(self)
        except BaseException:  # modules and optimizers of foreign classes may lack anything
            tracker.fail()

    def begins(optimizer: Any) -> None:
        if tracker.silent and cuda.captures:
            tracker.optimizers.step_captured()
        if is_compiling() or tracker.silent or (get_ident() != tracker.thread and not tracker.adopt()):
            return
        try:
            path.leave()
            if id(optimizer) not in models.settled:
                tracker.checks.arm(host_clock())  # another training begins, or another part of this one
            call_safely(told_apart.steps, optimizer)
            models.steps(optimizer)
            if tracker.checks.left:
                call_safely(tracker.checks.optimizer_begins, optimizer)
                if call_safely(plan.optimizer_begins):
                    tracker.checks.again_soon(host_clock())
            tracker.optimizer_begins(id(optimizer), host_clock())
        except BaseException:  # as above
            tracker.fail()

    def ends(optimizer: Any) -> None:
        if is_compiling() or tracker.silent or get_ident() != tracker.thread:
            return
        try:
            path.leave()
            if tracker.checks.left:
                call_safely(tracker.checks.optimizer_ends, optimizer, program_facts.known.model)
            tracker.optimizer_ends(id(optimizer), optimizer, host_clock())
        except BaseException:  # an optimizer of a foreign class may lack anything
            tracker.fail()

    replace_function(module.Optimizer, "__init__", __init__)
    before, after = path.optimizer_hooks(is_traced, begins, ends)
    _register(module.register_optimizer_step_pre_hook, module, "_global_optimizer_pre_hooks", before)
    _register(module.register_optimizer_step_post_hook, module, "_global_optimizer_post_hooks", after)


def _register(register: Callable[..., Any], module: Any, place: str, hook: Callable[..., Any]) -> None:
    """Register a hook of all optimizers under an id of our own: torch counts ids up, and programs may look at them."""
    handle = register(hook)
    hooks, key = getattr(module, place, {}), getattr(handle, "id", OWN_HANDLE)
    if hooks.get(key) is hook and type(handle).next_id == key + 1:
        hooks[OWN_HANDLE] = hooks.pop(key)
        type(handle).next_id = key


def _wrap_profilers(torch: Any) -> None:
    """Let the program have the profiler, of which there is one a process, from where it makes one of its own."""

    def making(original: Callable[..., Any]) -> Callable[..., Any]:
        def init(*args: Any, **kwargs: Any) -> Any:
            call_safely(session.device.tracer.yield_to_program)
            return original(*args, **kwargs)

        return init

    for module, name, method in (
        ("torch.autograd.profiler", "profile", "__init__"),
        ("torch.profiler.profiler", "_KinetoProfile", "__init__"),
        ("torch.autograd.profiler", "emit_itt", "__enter__"),
        ("torch.autograd.profiler", "emit_nvtx", "__enter__"),
        ("torch.autograd.profiler_legacy", "profile", "__enter__"),
    ):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None:
            instrumentation.wrap(kind, method, making)


def _wrap_scaler(torch: Any, tracker: StepTracker, is_compiling: Check) -> None:
    scaler = torch.amp.grad_scaler.GradScaler if hasattr(torch.amp, "grad_scaler") else torch.cuda.amp.GradScaler
    run = scaler.step
    path = tracker.fast_path

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if is_compiling() or tracker.silent or get_ident() != tracker.thread or not getattr(self, "_enabled", True):
            return run(self, optimizer, *args, **kwargs)
        key = id(optimizer)
        before = tracker.entered
        with tracker.guard:
            if not path.scaler_begins(key):
                path.leave()
                tracker.scaler_begins(key, host_clock())
        try:
            result = run(self, optimizer, *args, **kwargs)
        except BaseException as error:
            with tracker.guard:
                path.leave()
                tracker.nested.clear()
            unseen.drop_own_frames(error)
            raise
        with tracker.guard:
            if not path.scaler_ends():
                path.leave()
                tracker.scaler_ends(key, optimizer, tracker.entered > before, host_clock())
        return result

    run_scale, tensor = scaler.scale, torch.Tensor

    def scale(self: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        is_ours = not tracker.silent and get_ident() == tracker.thread and getattr(self, "_enabled", True)
        if type(outputs) is tensor and not is_compiling() and is_ours:
            try:
                if outputs.numel() == 1 and not cuda.modes_active() and not path.loss_scaled(outputs):
                    path.leave()
                    tracker.loss_scaled(outputs)
            except BaseException:  # as above
                tracker.fail()
        try:
            return run_scale(self, outputs, *args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise

    replace_function(scaler, "scale", scale)
    replace_function(scaler, "step", step)


def _watch_graphs(graph: Any, tracker: StepTracker) -> None:
    """Record replays of captured CUDA graphs that hold an optimizer's step as steps; the capture is no step."""
    try:
        begin, end, run = graph.capture_begin, graph.capture_end, graph.replay
    except AttributeError:  # a torch without them
        return
    silenced_by: Optional[int] = None  # the id of the graph whose capture silences the tracker
    held: Dict[int, Any] = {}  # graphs with an optimizer's step, by id

    def is_ours() -> bool:
        if tracker.silent or get_ident() != tracker.thread:
            return False
        tracker.fast_path.leave()
        return True

    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal silenced_by
        try:
            if is_ours() and tracker.capture_begins(host_clock()):
                silenced_by = id(self)
        except BaseException:  # an optimizer of a foreign class may lack anything
            tracker.fail()
        try:
            return begin(self, *args, **kwargs)
        except BaseException:
            if silenced_by == id(self):
                silenced_by = None
                tracker.silent = False
            raise

    def capture_end(self: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal silenced_by
        if silenced_by == id(self):
            silenced_by = None
            try:
                if tracker.capture_ends():
                    hold(self, id(self))
            except BaseException:  # as above
                tracker.fail()
        return end(self, *args, **kwargs)

    def hold(captured: Any, key: int) -> None:
        held[key] = until_gone(captured, held, key)

    def replay(self: Any) -> Any:
        if id(self) not in held or not is_ours() or tracker.in_forward or tracker.in_backward or tracker.nested:
            return run(self)
        with tracker.guard:
            tracker.replay_begins(host_clock())
        try:
            return run(self)
        finally:
            with tracker.guard:
                tracker.replay_ends(host_clock())

    try:
        for name, wrapper in (("capture_begin", capture_begin), ("capture_end", capture_end), ("replay", replay)):
            replace_function(graph, name, wrapper)
    except TypeError:  # a C++ class without settable attributes
        return


def _time_cuda_start(torch: Any, tracker: StepTracker) -> None:
    """Time the initialization of CUDA, on the first call that needs it; then restore torch's own function."""
    module = torch.cuda
    start = module._lazy_init

    @functools.wraps(start)
    def _lazy_init() -> None:
        try:
            if get_ident() != tracker.thread or module.is_initialized():
                start()
                return
            with span("cuda init"):
                start()
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        module._lazy_init = start

    module._lazy_init = _lazy_init


def _time_moves(torch: Any, tracker: StepTracker) -> None:
    """Time the model's moves to the GPU until the first step."""

    def timed_move(move: Callable[..., Any], is_to_gpu: Callable[[Any, Any], bool]) -> Callable[..., Any]:
        @functools.wraps(move)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                if tracker.announced or get_ident() != tracker.thread or not is_to_gpu(args, kwargs):
                    return move(self, *args, **kwargs)
                with span("model to GPU"):
                    return move(self, *args, **kwargs)
            except BaseException as error:
                unseen.drop_own_frames(error)
                raise

        return wrapper

    module = torch.nn.Module
    module.to = timed_move(module.to, _is_to_gpu)
    module.cuda = timed_move(module.cuda, lambda args, kwargs: True)


def _is_to_gpu(args: Any, kwargs: Any) -> bool:
    device = kwargs.get("device", args[0] if args else None)
    if type(device) is int:
        return True
    return str(getattr(device, "type", device)).startswith("cuda")


def _keep_out_of_graphs(torch: Any) -> None:
    """Exclude our functions from compilation: those of all modules that this one has loaded.

    A graph break calls them, and so does a compiled model; any of them may look at a tensor.
    """
    try:
        frames = torch._C._dynamo.eval_frame
        if hasattr(frames, "set_code_exec_strategy"):
            skip = frames._FrameExecStrategy(frames._FrameAction.SKIP, frames._FrameAction.DEFAULT)
            mark: Callable[[Any], None] = lambda code: frames.set_code_exec_strategy(code, skip)  # noqa: E731
        else:
            mark = frames.skip_code
    except AttributeError:  # a torch that cannot compile
        return
    for module in [one for name, one in sys.modules.items() if name.startswith(OURS)]:
        for owner in (module, *(value for value in vars(module).values() if isinstance(value, type))):
            if getattr(owner, "__module__", module.__name__) != module.__name__:
                continue
            for function in list(vars(owner).values()):
                function = getattr(function, "fget", function)  # of a property
                if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                    _mark_all(function.__code__, mark)


def _mark_all(code: Any, mark: Callable[[Any], None]) -> None:
    mark(code)
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            _mark_all(inner, mark)


def _trim_tracebacks() -> None:
    """Leave our own frames out of the tracebacks of uncaught exceptions, whatever prints them."""
    theirs = sys.excepthook

    @functools.wraps(theirs)  # its name as well, by which it is pickled
    def trimmed_hook(kind: Any, error: Any, trace: Optional[TracebackType]) -> None:
        try:
            trace = unseen.without_own_frames(trace)
            seen = set()
            cause = error
            while cause is not None and id(cause) not in seen:
                seen.add(id(cause))
                cause.__traceback__ = unseen.without_own_frames(cause.__traceback__)
                cause = cause.__cause__ or cause.__context__
        except Exception:  # an exception of a foreign class is shown untrimmed
            pass
        theirs(kind, error, trace)

    if (
        theirs is sys.__excepthook__
    ):  # interactive consoles, and those for generated code, ask whether they are the same
        sys.__excepthook__ = trimmed_hook
    sys.excepthook = trimmed_hook
