"""When the census of operations is taken, and how it is told: once in a run, in the second training call of a model.

The first call may still make buffers, choose kernels and start libraries. Where the conditions are not met the reason
is told, and it is not tried again: what is compiled or captured later is no longer what was looked at.
"""

from __future__ import annotations

import dis
import os
import sys
import weakref
from typing import Any, Callable, Dict, Iterator, List, Optional, Set, Tuple

from trainhooks import cuda, session
from trainhooks.auto import sections
from trainhooks.auto.op_census import Census
from trainhooks.entries import FACTS

VARIABLE = "TRAINMON_OPS"  # 0: no census
_MODULE, _FUNCTION = type(sys), type(sections.harmless)
NEAR = 5  # frames between a function that replaces torch's and the call of torch's
AT = 2  # training calls of one model
_INPUTS = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values")
# Their fast path in evaluation is not taken where functions are overridden, and pads otherwise.
_FAST_PATHS = ("TransformerEncoder", "TransformerEncoderLayer", "MultiheadAttention")
COMPILED = "compiled: its operations are not seen"
SEVERAL = "several models train: only one of them was looked at"


class Look:
    """One in a process.

    Attributes:
        done: the census was taken, or is never going to be.
    """

    def __init__(self) -> None:
        self.done = os.environ.get(VARIABLE, "1") == "0"
        self._pid = os.getpid()
        self._calls: Dict[int, int] = {}  # training calls by model
        self._step = 0
        self._began = 0
        self._looked_at: Optional["weakref.ReferenceType[Any]"] = None
        self._kind = ""

    def due(self, module: Any, began: int) -> bool:
        """A model is called in training; `began` tells steps apart. Whether this call is the one to look at."""
        key = id(module)
        if self.done:
            if self._looked_at is not None and key not in self._calls:
                self._calls[key] = 1
                before = self._looked_at()
                # Else it was wrapped since, or a training of its kind has followed one that is over.
                if not _holds(module, {id(before)}) and (before is not None or type(module).__name__ != self._kind):
                    self._tell({"flops_unknown": SEVERAL})
            return False
        if began != self._began:
            self._began = began
            self._step += 1
        self._calls[key] = self._calls.get(key, 0) + 1
        return self._calls[key] >= AT

    def at(self, torch: Any, module: Any) -> Callable[..., Any]:
        """What is to be called in place of the module's own call."""
        self.done = True
        try:
            reason = self._hindrance(torch, module) if os.getpid() == self._pid else ""
        except Exception:  # a torch that lacks what is asked for, or a module of a foreign class
            reason = ""
        if reason is None:
            self._looked_at, self._kind = weakref.ref(module), type(module).__name__
            return self._with_census(torch, module)
        if reason:
            self._tell({"step": self._step, "flops_unknown": reason})
        return module._call_impl  # type: ignore[no-any-return]

    def _hindrance(self, torch: Any, module: Any) -> Optional[str]:
        """Why nothing may be looked at; "" where that is nobody's business; None where it may."""
        if _uses_dynamo(torch, module):
            return COMPILED
        if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None:
            return "traced: its operations are not seen"
        if cuda.started() is not None and not cuda.is_quiet():
            return "captured in a CUDA graph: its operations are not seen"
        if any(type(mode).__name__ != "DeviceContext" for mode in _stack(torch)):
            return "another mode overrides torch's functions"
        if "torch.fx.experimental.proxy_tensor" not in sys.modules or _callbacks() is None:
            return ""  # autocast asks for the first where a mode is active; without the other a compiler would find us
        if type(module).__name__ == "DataParallel":
            return "DataParallel: its replicas run in threads of their own"
        for part in module.modules():
            if isinstance(part, torch.jit.ScriptModule):
                return "scripted: its operations are not seen"
            if not part.training and type(part).__name__ in _FAST_PATHS:
                return "a part of the model runs in torch's fast path of evaluation"
        return None

    def _with_census(self, torch: Any, module: Any) -> Callable[..., Any]:
        def look(*args: Any, **kwargs: Any) -> Any:
            visit = sections.harmless(Visit, torch)
            if visit is None:
                return module._call_impl(*args, **kwargs)
            try:
                result = module._call_impl(*args, **kwargs)
            finally:
                sections.harmless(visit.leave)
            sections.harmless(visit.census.returned, result)
            sections.harmless(self._report, torch, module, visit.census, args, kwargs)
            return result

        return look

    def _report(self, torch: Any, module: Any, census: Census, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> None:
        if census.failed is not None:
            self._tell({"step": self._step, "flops_unknown": census.failed})
            return
        if not _holds(module, set(self._calls)):
            census.unknown = census.unknown or SEVERAL
        census.unknown = census.unknown or _shared_out(module)
        self._tell({"step": self._step, **census.facts(inputs(torch, args, kwargs))})

    def _tell(self, facts: Dict[str, Any]) -> None:
        session.quiet_put()((FACTS, {"facts": {"ops": facts}}))


look = Look()


class Visit:
    """The census on the thread's stack of modes. Made, it stands there."""

    def __init__(self, torch: Any) -> None:
        self.census = Census(torch)
        self._torch = torch
        self._mode = _mode(torch, self.census)
        self._callbacks: Any = _callbacks()
        self._callbacks.register_start_callback(self._compiles)
        sections.harmless(_no_warning_twice)
        torch.overrides._push_mode(self._mode)

    def _compiles(self, *_: Any) -> None:
        """Something compiles after all: it must not find us on the stack, or it would compile again without us."""
        self.census.failed = self.census.failed or COMPILED
        sections.harmless(self._step_down)

    def leave(self) -> None:
        self._step_down()
        if self._compiles in self._callbacks.start_callbacks:  # torch._dynamo.reset() forgets them
            self._callbacks.remove_start_callback(self._compiles)

    def _step_down(self) -> None:
        """Asked once more when the call ends: dynamo takes the stack away while it traces, and puts it back."""
        self.census.open = False
        overrides, above = self._torch.overrides, []
        while True:  # what the program has put above us and not taken away stays
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
        """Sees each call of torch, and passes it on as it is, once."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if type(func) is _FUNCTION and not func.__code__.co_filename.startswith(home):  # neither C's nor torch's
                func = _original(torch, func)
            result = _pass_on(func, args, kwargs)
            if census.open:
                census.saw(func, args, kwargs, result)
            return result

    return OperationCensus()


def _no_warning_twice() -> None:
    """What the program was warned of, at a line of its own, it is not warned of again because we stand in between."""
    modules = [each for each in list(sys.modules.values()) if type(each) is _MODULE]
    registries: List[Dict[Any, Any]] = [vars(each).get("__warningregistry__") or {} for each in modules]
    ours = globals().setdefault("__warningregistry__", {})
    ours["version"] = max(each.get("version", 0) for each in registries)  # of the filters; of others nothing is read
    lines = [line for _, line in dis.findlinestarts(_pass_on.__code__) if line]
    for registry in registries:
        for key in list(registry):
            if type(key) is tuple and len(key) == 3:
                ours.update({(*key[:2], line): True for line in lines})


def _original(torch: Any, func: Any) -> Any:
    """What to call for a function that somebody has put in the place of torch's own.

    It has run up to where it calls torch's; torch finds that a mode is active, looks its own function up by name, and
    hands us the replacement, which would run a second time.
    """
    codes: List[Any] = []
    frame: Any = sys._getframe(2)
    while frame is not None and len(codes) < NEAR:
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
    for each in inside:  # one of Python's is on the stack itself
        if type(each) is _FUNCTION and each.__code__ in codes[:-1]:
            return each
    name = next((name for name, value in vars(torch.Tensor).items() if value is func), "")
    return getattr(torch._C.TensorBase, name, func)


def _pass_on(func: Any, args: Any, kwargs: Any) -> Any:
    return func(*args, **kwargs)


def _stack(torch: Any) -> Tuple[Any, ...]:
    core = torch._C
    return tuple(core._get_function_stack_at(index) for index in range(core._len_torch_function_stack()))


def _callbacks() -> Any:
    """What tells that dynamo begins to compile (torch 2.3); loaded with it, at the latest by an optimizer."""
    return getattr(sys.modules.get("torch._dynamo.callback"), "callback_handler", None)


def _uses_dynamo(torch: Any, module: Any) -> bool:
    """Whether anything was compiled in this process, or is going to be in this call."""
    utils = sys.modules.get("torch._dynamo.utils")
    if utils is None:
        return False
    if sum(utils.counters["frames"].values()) if "frames" in utils.counters else 0:
        return True
    for part in module.modules():
        if "_orig_mod" in part._modules:
            return True
        call = vars(part).get("_compiled_call_impl")
        if call is not None and not str(getattr(call, "__module__", "")).startswith("trainhooks"):
            return True
    return False


def _holds(module: Any, keys: Set[int]) -> bool:
    """Whether all modules of these ids are the module itself or parts of it: what was called before it was wrapped."""
    return keys <= {id(part) for part in module.modules()}


def _shared_out(module: Any) -> Optional[str]:
    """Why the weights that were seen may not be whole."""
    for parameter in module.parameters():
        if type(parameter).__name__ == "FlatParameter":
            return "the parameters are shared out among ranks (FSDP)"
        if getattr(parameter, "ds_numel", None) is not None:
            return "the parameters are shared out among ranks (DeepSpeed)"
    return None


def inputs(torch: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Dict[str, Any]:
    """Batch and length of what the model is called on, as far as shapes tell."""
    leading = next((each for each in _leading(torch, args, kwargs) if each.dim()), None)
    if leading is None:
        return {}
    shape = [int(size) for size in leading.shape]
    told: Dict[str, Any] = {"batch": shape[0], "input": "x".join(map(str, shape))}
    whole = not leading.dtype.is_floating_point
    if (whole and len(shape) == 2) or (not whole and len(shape) == 3):
        told["length"] = shape[1]
        told["positions"] = shape[0] * shape[1]
    return told


def _leading(torch: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Iterator[Any]:
    """Tensors among the inputs, the one that tells most first."""
    first = args[0] if args else None
    table: Any = first if hasattr(first, "keys") and hasattr(first, "get") else kwargs
    for name in _INPUTS:
        if isinstance(table.get(name), torch.Tensor):
            yield table[name]
    flat = [each for one in args for each in (one if isinstance(one, (tuple, list)) else (one,))]
    for each in (*flat, *(table[name] for name in list(table.keys()))):
        if isinstance(each, torch.Tensor):
            yield each
