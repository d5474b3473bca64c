"""Facts of a program's setup: its model, optimizer, mixed precision and compilation. Shapes and settings, no values."""

from __future__ import annotations

import functools
import os
import sys
import time
import weakref
from threading import get_ident
from typing import Any, Dict, Iterable, List, Optional

from trainhooks import session
from trainhooks.auto.instrumentation import call_safely, put_facts
from trainhooks.auto.models.module_parts import MAX_WRAPPERS, modules_in, parameters_in, stored_attribute
from trainhooks.auto.steps.plan import is_planned, passes, planned_bounds
from trainhooks.lane_entries import FACTS, NANOSECOND, SPAN, host_clock
from trainhooks.program_errors import pass_on
from trainhooks.protocol.limits import clean

# Entries of a model's config from which operations per token are computed, or that prevent it (experts).
SHAPE = (
    "model_type", "hidden_size", "head_dim", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "tie_word_embeddings", "n_positions", "num_local_experts", "num_experts", "n_routed_experts",
    "is_encoder_decoder", "sliding_window",
)  # fmt: skip
WRAPPERS = ("DistributedDataParallel", "DataParallel", "DeepSpeedEngine")

AUTOCAST_OFF = "off"

COMPILE_INTERVAL = 3.0  # seconds between two readings of dynamo's counters
MAX_COMPILE_REASONS = 10
MAX_REASON_LENGTH = 300  # characters
LIMIT_HIT = "limit exceeded"  # in dynamo's message when it stops recompiling a function and runs it uncompiled


class _Known:
    """Facts of this process's training recorded so far.

    Attributes:
        autocast: a dtype; "off" while autocast was never used; None if it is not watched.
        model: the first optimizer's model, until it is recorded.
        is_model_recorded: whether an adapter has recorded the model.
        optimizer_size: parameters of the recorded optimizer (the largest so far); None if none is recorded.
        storages: GPU memory of weights, of those that are trained, and of optimizers' states.
    """

    autocast: Optional[str] = None
    model: Optional["weakref.ReferenceType[Any]"] = None
    is_model_recorded = False
    optimizer_size: Optional[int] = None

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget what another training has of its own. Its model may be known already."""
        self.is_model_recorded, self.optimizer_size = False, None
        self.storages: Dict[str, Dict[int, int]] = {"weights": {}, "trained": {}, "state": {}}  # address: bytes


known = _Known()


def _dtype(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def model_facts(model: Any) -> Dict[str, Any]:
    """Return facts of an `nn.Module`, wrapped or not; a model of transformers has more of them."""
    known.is_model_recorded = True
    inner = unwrap(model)
    facts: Dict[str, Any] = {"class": type(inner).__name__, **_parameters(inner)}
    replicas = _replicas(model)
    if replicas is not None:
        facts["data_parallel"] = replicas
    config = stored_attribute(inner, "config")
    if config is not None:
        attention = getattr(config, "_attn_implementation", None)
        if attention is not None:
            facts["attention"] = str(attention)
        for name in SHAPE:
            value = getattr(config, name, None)
            if isinstance(value, (int, str)):
                facts[name] = value
        quantization = _quantization(inner, config)
        if quantization is not None:
            facts["quantization"] = quantization
            facts.pop("parameters", None)  # packed: several weights an element
    peft = _peft(inner)
    if peft is not None:
        facts["peft"] = peft
    # transformers' own property for this warns in some versions, which a user would see.
    if any(vars(module).get("gradient_checkpointing") for module in modules_in(inner)):
        facts["gradient_checkpointing"] = True
    return facts


def unwrap(model: Any) -> Any:
    """Return the model inside DDP (`module`) and torch.compile (`_orig_mod`)."""
    for _ in range(MAX_WRAPPERS):
        modules = getattr(model, "_modules", {})
        inside = modules.get("_orig_mod")
        if inside is None:
            inside = wrapped(model)
        if inside is None:
            break
        model = inside
    return model


def wrapped(model: Any) -> Any:
    """Return the model that DDP or another wrapper of its kind holds; None where this is none."""
    return getattr(model, "_modules", {}).get("module") if type(model).__name__ in WRAPPERS else None


def _replicas(model: Any) -> Optional[int]:
    """Return how many ranks hold this model and train it on batches of their own; None where it is not in DDP."""
    for _ in range(MAX_WRAPPERS):
        if type(model).__name__ == WRAPPERS[0]:
            group = vars(model).get("process_group")
            return int(group.size()) if type(group).__module__.startswith("torch.") else None
        model = (vars(model).get("_modules") or {}).get("_orig_mod")
        if model is None:
            break
    return None


def _parameters(model: Any) -> Dict[str, Any]:
    """Return numbers of parameters; empty if only this rank's shard is visible."""
    total = trainable = 0
    sharded = False
    dtypes: Dict[str, int] = {}
    for parameter in parameters_in(model):
        size = parameter.numel()
        if type(parameter).__name__ == "FlatParameter" or getattr(parameter, "ds_numel", None) is not None:
            return {}
        sharded = sharded or type(parameter).__name__ == "DTensor"  # its size is that of the whole
        total += size
        trainable += size if parameter.requires_grad else 0
        dtype = _dtype(parameter.dtype)
        dtypes[dtype] = dtypes.get(dtype, 0) + size
    facts = {"parameters": total, "trainable_parameters": trainable, "dtypes": dtypes}
    return {**facts, "sharded": True} if sharded else facts


def _quantization(model: Any, config: Any) -> Optional[str]:
    method = stored_attribute(model, "quantization_method") or getattr(
        getattr(config, "quantization_config", None), "quant_method", None
    )
    return None if method is None else str(getattr(method, "value", method))


def _peft(model: Any) -> Optional[str]:
    adapters = stored_attribute(model, "peft_config")
    if not isinstance(adapters, dict) or not adapters:
        return None
    kind = getattr(next(iter(adapters.values())), "peft_type", None)
    return str(getattr(kind, "value", kind))


# The optimizer, at its first step: by then the model has been wrapped, moved and set


def remember_model(module: Any) -> None:
    """Keep the model that the first optimizer trains; it is recorded at the optimizer's first step."""
    known.model = weakref.ref(module)


def trained_model() -> Any:
    """Return the model that the first optimizer trains; None where it is unknown or gone."""
    return known.model() if known.model is not None else None


def optimizer_steps(optimizer: Any) -> None:
    """Record optimizer, precision and model, at the first step of an optimizer."""
    call_safely(passes.training_steps)
    facts = call_safely(_setup, optimizer)
    if facts:
        put_facts(**facts)


def _setup(optimizer: Any) -> Dict[str, Any]:
    found = optimizer_facts(optimizer)
    if known.optimizer_size is not None and found["parameters"] <= known.optimizer_size:
        return {}
    known.optimizer_size = found["parameters"]
    facts: Dict[str, Any] = {"optimizer": found, "autocast": known.autocast, "python": python_tools()}
    bounds = None if is_planned() else call_safely(planned_bounds)
    if bounds:
        facts["plan"] = bounds
    module = trained_model()
    if module is not None and not known.is_model_recorded:
        facts["model"] = model_facts(module)
    return facts


def python_tools() -> Dict[str, bool]:
    """Return which tools Python calls in this thread: at each line, at each function, at each allocation."""
    monitoring = getattr(sys, "monitoring", None)  # Python 3.12 and later
    used = {} if monitoring is None else {number: monitoring.get_tool(number) for number in range(3)}
    by_option = "tracemalloc" in sys._xoptions or bool(os.environ.get("PYTHONTRACEMALLOC", "").strip("0"))
    tracemalloc = sys.modules.get("tracemalloc")
    found = {
        "trace": sys.gettrace() is not None or bool(used.get(0) or used.get(1)),  # its debugger and coverage
        "profile": sys.getprofile() is not None or bool(used.get(2)),
        "tracemalloc": tracemalloc.is_tracing() if tracemalloc is not None else by_option,
    }
    return {name: value for name, value in found.items() if value}


def optimizer_facts(optimizer: Any) -> Dict[str, Any]:
    """Return class, size and device of an optimizer, and its settings `fused` and `foreach` (None: torch's default)."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    dtypes: Dict[str, int] = {}
    for parameter in parameters:
        dtype = _dtype(parameter.dtype)
        dtypes[dtype] = dtypes.get(dtype, 0) + parameter.numel()
    facts: Dict[str, Any] = {
        "class": type(optimizer).__name__,
        "parameters": sum(dtypes.values()),
        "tensors": len(parameters),
        "dtypes": dtypes,
        "device": parameters[0].device.type if parameters else None,
    }
    first = optimizer.param_groups[0] if optimizer.param_groups else {}
    return {**facts, **{name: first[name] for name in ("fused", "foreach") if name in first}}


def optimizer_remembers(optimizer: Any) -> None:
    """Record the bytes of GPU memory that weights, gradients and optimizers hold, once an optimizer has its state."""
    call_safely(_add_memory, optimizer)


def _add_memory(optimizer: Any) -> None:
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    module = trained_model()
    weights = [*trained, *(module.parameters() if module is not None else ())]
    state = [value for known_of in optimizer.state.values() for value in known_of.values() if hasattr(value, "is_cuda")]
    known.storages["weights"].update(_storages(weights))
    known.storages["state"].update(_storages(state))
    known.storages["trained"].update(_storages(trained))  # a gradient is as large as what it is of
    held = {name: sum(sizes.values()) for name, sizes in known.storages.items()}
    put_facts(held={"weights": held["weights"], "gradients": held["trained"], "optimizer": held["state"]})


def _storages(tensors: Iterable[Any]) -> Dict[int, int]:
    """Return address and bytes of what tensors on a GPU lie in: several may share it, or hold a part of a whole."""
    stores = [tensor.untyped_storage() for tensor in tensors if tensor.is_cuda]
    return {store.data_ptr(): store.nbytes() for store in stores}


def watch_autocast(module: Any) -> None:
    """Record whether and with which dtype the program uses torch.autocast, wherever in its code.

    Autocast may be used anywhere in a model, so the one class that all uses share is wrapped until its first use.
    """
    autocast: Any = module.autocast
    init = autocast.__init__

    @functools.wraps(init)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        if getattr(self, "_enabled", False):
            autocast.__init__ = init
            known.autocast = _dtype(getattr(self, "fast_dtype", None))
            put_facts(autocast=known.autocast)

    autocast.__init__ = __init__
    known.autocast = AUTOCAST_OFF


# torch.compile


class CompileWatch:
    """Record compilations as spans, and dynamo's counters as facts. Never imports torch._dynamo.

    Args:
        tracker: the step tracker; compilations of other threads are not the training's time.
    """

    def __init__(self, tracker: Any) -> None:
        self._tracker = tracker
        self._put: Optional[session.Put] = None  # while something is being compiled
        self._since = 0
        self._nanoseconds = 0
        self._due = 0.0
        self._facts: Dict[str, Any] = {}
        self._recompiled: Dict[str, str] = {}  # reasons, by the id of the compilation

    def listen(self, handler: Any) -> None:
        """Register with dynamo's callback handler, and again whenever `torch._dynamo.reset()` has cleared it."""
        handler.register_start_callback(self._begins)
        handler.register_end_callback(self._ends)
        clear = handler.clear

        def clear_and_register() -> None:
            clear()
            handler.register_start_callback(self._begins)
            handler.register_end_callback(self._ends)

        handler.clear = clear_and_register

    def _begins(self, _: Any) -> None:
        if get_ident() == self._tracker.thread and not session.has_explicit_steps():
            self._put = session.quiet_put()
            self._since = host_clock()
            self._put((SPAN, self._since, "compile"))

    def _ends(self, _: Any) -> None:
        put, self._put = self._put, None
        if put is not None:
            now = host_clock()
            self._nanoseconds += now - self._since
            put((None, now))

    def on_step_end(self, put: session.Put, last: bool) -> None:
        """Put the facts that have changed, if it is time to read them; `last`: the program ends."""
        now = time.monotonic()
        if now < self._due and not last:
            return
        self._due = now + COMPILE_INTERVAL
        try:
            found = self._read()
        except Exception as error:  # dynamo's counters are its own, and change with its versions
            pass_on(error)
            return
        if found is not None and found != self._facts:
            self._facts = found
            put((FACTS, {"facts": {"compile": found}}))

    def _read(self) -> Optional[Dict[str, Any]]:
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return None
        counters = utils.counters
        graphs = counters["stats"].get("unique_graphs", 0) if "stats" in counters else 0
        if not graphs and not self._nanoseconds:
            return None  # imported, and not used
        broken = dict(counters["graph_break"]) if "graph_break" in counters else {}
        unsupported = list(counters["unimplemented"]) if "unimplemented" in counters else []
        for metrics in utils.get_compilation_metrics():
            reason = getattr(metrics, "recompile_reason", None)
            if reason and metrics.compile_id and not getattr(metrics, "fail_type", None):
                self._recompiled[str(metrics.compile_id)] = _first_line(reason)
        reasons: List[str] = [*self._recompiled.values(), *map(_first_line, broken)]
        return {
            "graphs": graphs,
            "seconds": round(self._nanoseconds / NANOSECOND, 3),
            "graph_breaks": sum(broken.values()),
            "recompiles": len(self._recompiled),
            "reasons": list(dict.fromkeys(reasons))[:MAX_COMPILE_REASONS],
            "fallback": any(LIMIT_HIT in text for text in unsupported),
        }


def _first_line(text: Any) -> str:
    return clean(str(text).split("\n", 1)[0], MAX_REASON_LENGTH)
