"""Take the census of operations: once per run, in the second training call of a model.

The first call may still make buffers, choose kernels and start libraries. If the conditions are not met, the reason is
recorded and the census is not tried again: the model may be compiled or captured later.
"""

from __future__ import annotations

import dis
import os
import sys
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from trainhooks.auto import batch_parts, unseen
from trainhooks.auto.instrumentation import call_safely, put_facts
from trainhooks.auto.models.module_parts import modules_in, parameters_in
from trainhooks.auto.operations.op_census import Census
from trainhooks.auto.unseen import hide_code
from trainhooks.device import cuda
from trainhooks.program_errors import pass_on

OPS_VARIABLE = "TRAINMON_OPS"  # 0: no census
_MODULE, _FUNCTION = type(sys), type(call_safely)
MAX_REPLACEMENT_FRAMES = 5  # between a function that replaces torch's and the call of torch's
MAX_INPUTS = 64  # items of a list that are searched
INSPECTED_CALL = 2  # of the training calls of one model
_INPUTS = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values")
# With overridden functions these modules do not take their fast path of evaluation, which pads differently.
_FAST_PATHS = ("TransformerEncoder", "TransformerEncoderLayer", "MultiheadAttention")
COMPILED = "compiled: its operations are not seen"
SEVERAL = "several models train: only one of them was inspected"


class OpInspection:
    """The one inspection of a process.

    Attributes:
        done: whether the census was taken or never will be.
    """

    def __init__(self) -> None:
        self.done = os.environ.get(OPS_VARIABLE, "1") == "0"
        self._pid = os.getpid()
        self._calls: Dict[int, int] = {}  # training calls by model
        self._step = 0
        self._began = 0
        self._inspected: Optional["weakref.ReferenceType[Any]"] = None
        self._class_name = ""

    def is_due(self, module: Any, began: int) -> bool:
        """Return whether to inspect this training call of a model. `began` identifies the step."""
        key = id(module)
        if self.done:
            if self._inspected is not None and key not in self._calls:
                self._calls[key] = 1
                before = self._inspected()
                # Else it was wrapped since then, or a training of the same class followed an ended one.
                if not _holds(module, {id(before)}) and (
                    before is not None or type(module).__name__ != self._class_name
                ):
                    self._put({"flops_unknown": SEVERAL})
            return False
        if began != self._began:
            self._began = began
            self._step += 1
        self._calls[key] = self._calls.get(key, 0) + 1
        return self._calls[key] >= INSPECTED_CALL

    def call_for(self, torch: Any, module: Any) -> Callable[..., Any]:
        """Return the function to call in place of the module's own call."""
        self.done = True
        try:
            reason = self._obstacle(torch, module) if os.getpid() == self._pid else ""
        except Exception as error:  # an unknown torch, or a module of a foreign class
            pass_on(error)
            reason = ""
        if reason is None:
            self._inspected, self._class_name = weakref.ref(module), type(module).__name__
            return self._with_census(torch, module)
        if reason:
            self._put({"step": self._step, "flops_unknown": reason})
        return module._call_impl  # type: ignore[no-any-return]

    def _obstacle(self, torch: Any, module: Any) -> Optional[str]:
        """Return why the call may not be inspected ("" for a reason that is not recorded); None if it may be."""
        if _uses_dynamo(torch, module):
            return COMPILED
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            return "traced: its operations are not seen"
        if cuda.started_cuda() is not None and not cuda.is_quiet():
            return "captured in a CUDA graph: its operations are not seen"
        if any(type(mode).__name__ != "DeviceContext" for mode in _stack(torch)):
            return "another mode overrides torch's functions"
        if "torch.fx.experimental.proxy_tensor" not in sys.modules or _callbacks() is None:
            return ""  # autocast imports the former under a mode; without the latter a compiler would trace it
        if type(module).__name__ == "DataParallel":
            return "DataParallel: its replicas run in threads of their own"
        for part in modules_in(module):
            if isinstance(part, torch.jit.ScriptModule):
                return "scripted: its operations are not seen"
            if not part.training and type(part).__name__ in _FAST_PATHS:
                return "a part of the model runs in torch's fast path of evaluation"
        return None

    def _with_census(self, torch: Any, module: Any) -> Callable[..., Any]:
        def inspected(*args: Any, **kwargs: Any) -> Any:
            active = call_safely(ActiveCensus, torch)
            if active is None:
                return module._call_impl(*args, **kwargs)
            try:
                result = module._call_impl(*args, **kwargs)
            except BaseException as error:  # our frames are also between those of torch
                error.__traceback__ = unseen.without_own_frames(error.__traceback__)
                raise
            finally:
                call_safely(active.leave)
            call_safely(active.census.model_returned, result)
            call_safely(self._report, torch, module, active.census, args, kwargs)
            return result

        return inspected

    def _report(self, torch: Any, module: Any, census: Census, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        if census.failed is not None:
            self._put({"step": self._step, "flops_unknown": census.failed})
            return
        if not _holds(module, set(self._calls)):
            census.unknown = census.unknown or SEVERAL
        census.unknown = census.unknown or _sharded(module)
        self._put({"step": self._step, **census.facts(input_sizes(torch, args, kwargs))})

    def _put(self, facts: Dict[str, Any]) -> None:
        put_facts(ops=facts)


# Not all of this file: `_suppress_repeated_warnings` counts on the frame of `_call`.
OpInspection._with_census.__code__ = hide_code(OpInspection._with_census.__code__)
inspection = OpInspection()


class ActiveCensus:
    """The census on the thread's stack of modes, from its creation to `leave`."""

    def __init__(self, torch: Any) -> None:
        self.census = Census(torch)
        self._torch = torch
        self._mode = _mode(torch, self.census)
        self._callbacks: Any = _callbacks()
        self._callbacks.register_start_callback(self._compiles)
        call_safely(_suppress_repeated_warnings)
        torch.overrides._push_mode(self._mode)

    def _compiles(self, *_: Any) -> None:
        """Remove the mode when something is compiled after all: it would be recompiled without the mode."""
        self.census.failed = self.census.failed or COMPILED
        call_safely(self._remove)

    def leave(self) -> None:
        self._remove()
        if self._compiles in self._callbacks.start_callbacks:  # torch._dynamo.reset() forgets them
            self._callbacks.remove_start_callback(self._compiles)

    def _remove(self) -> None:
        """Remove the mode. Called again as the call ends: dynamo empties the stack while it traces, and restores it."""
        self.census.open = False
        overrides, above = self._torch.overrides, []
        while True:  # modes that the program has put above ours stay
            modes = _stack(self._torch)
            if not any(mode is self._mode for mode in modes):
                break
            taken = overrides._pop_mode()
            if taken is not self._mode:
                above.append(taken)
        for mode in reversed(above):
            overrides._push_mode(mode)


def _mode(torch: Any, census: Census) -> Any:
    home = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep

    class OperationCensus(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        """Make each call of torch once, unchanged, and record it."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if type(func) is _FUNCTION and not func.__code__.co_filename.startswith(home):  # neither C's nor torch's
                func = _original(torch, func)
            result = _call(func, args, kwargs)
            if census.open:
                census.add_call(func, args, kwargs, result)
            return result

    return OperationCensus()


def _suppress_repeated_warnings() -> None:
    """Suppress warnings that the program has had before: they would reappear, since our line calls torch now."""
    modules = [module for module in list(sys.modules.values()) if type(module) is _MODULE]
    registries: List[Dict[Any, Any]] = [vars(module).get("__warningregistry__") or {} for module in modules]
    wrapper = globals().setdefault("__warningregistry__", {})
    wrapper["version"] = max(registry.get("version", 0) for registry in registries)  # of the filters
    lines = [line for _, line in dis.findlinestarts(_call.__code__) if line]
    for registry in registries:
        for key in list(registry):
            if type(key) is tuple and len(key) == 3:
                wrapper.update({(*key[:2], line): True for line in lines})


def _original(torch: Any, func: Any) -> Any:
    """Return what to call for a function that replaces torch's own.

    It has run up to its call of torch's function. Torch finds that a mode is active, looks its own function up by name,
    and passes us the replacement, which would run a second time.
    """
    codes: List[Any] = []
    frame: Any = sys._getframe(2)
    while frame is not None and len(codes) < MAX_REPLACEMENT_FRAMES:
        codes.append(frame.f_code)
        if frame.f_code is func.__code__:
            break
        frame = frame.f_back
    else:
        return func
    inside = [getattr(func, "__wrapped__", None)]
    for cell in func.__closure__ or ():
        try:
            inside.append(cell.cell_contents)
        except ValueError:  # an empty one
            continue
    for function in inside:  # a Python function is on the stack itself
        if type(function) is _FUNCTION and function.__code__ in codes[:-1]:
            return function
    name = next((name for name, value in vars(torch.Tensor).items() if value is func), "")
    return getattr(torch._C.TensorBase, name, func)


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _stack(torch: Any) -> Tuple[Any, ...]:
    core = torch._C
    return tuple(core._get_function_stack_at(index) for index in range(core._len_torch_function_stack()))


def _callbacks() -> Any:
    """Return dynamo's callbacks at compilations (torch 2.3); an optimizer has loaded them at the latest."""
    return getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)


def _uses_dynamo(torch: Any, module: Any) -> bool:
    """Return whether anything was compiled in this process, or will be in this call."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return False
    if sum(utils.counters["frames"].values()) if "frames" in utils.counters else 0:
        return True
    for part in modules_in(module):
        if "_orig_mod" in (vars(part).get("_modules") or {}):
            return True
        call = vars(part).get("_compiled_call_impl")
        if call is not None and not str(getattr(call, "__module__", "")).startswith("trainhooks"):
            return True
    return False


def _holds(module: Any, keys: Set[int]) -> bool:
    """Return whether all modules of these ids are the module or parts of it (called before it was wrapped)."""
    return keys <= {id(part) for part in modules_in(module)}


def _sharded(module: Any) -> Optional[str]:
    """Return why the inspected weights may be shards; None if they are whole."""
    for parameter in parameters_in(module):
        if type(parameter).__name__ == "FlatParameter":
            return "the parameters are sharded (FSDP)"
        if getattr(parameter, "ds_numel", None) is not None:
            return "the parameters are sharded (DeepSpeed)"
    return None


def input_sizes(torch: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Return batch and length of the model's inputs, as far as shapes show them."""
    leading = next((tensor for tensor in _leading(torch, args, kwargs) if tensor.dim()), None)
    if leading is None:
        return {}
    shape = [int(size) for size in leading.shape]
    facts: Dict[str, Any] = {"batch": shape[0], "input": "x".join(map(str, shape))}
    if len(shape) == (3 if leading.dtype.is_floating_point else 2):
        facts["length"] = shape[1]
        facts["positions"] = shape[0] * shape[1]
    return facts


def _leading(torch: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Iterator[Any]:
    """Yield the tensors among the inputs, known names of main inputs first."""
    first = batch_parts.as_mapping(args[0]) if args else None
    table: Any = kwargs if first is None else first
    named = [table.get(name) for name in _INPUTS]
    flat = [item for value in args for item in (batch_parts.first_items(value, MAX_INPUTS) or (value,))]
    for value in (*named, *flat, *(table.get(name) for name in list(table.keys()))):
        if batch_parts.is_readable(type(value), torch.Tensor):
            yield value
