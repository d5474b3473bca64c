"""transformers (and peft, which imports it first): the Trainer, calls of `generate()`, and loading."""

from __future__ import annotations

import os
import re
import sys
import threading
from functools import partial
from types import ModuleType
from typing import Any, Callable, Dict, Optional, Set, Tuple

from trainhooks import session
from trainhooks.auto import transformers as callback
from trainhooks.auto import unseen
from trainhooks.auto.imports import when_imported
from trainhooks.auto.instrumentation import (
    EVAL,
    batch_used,
    call_safely,
    framework,
    put_facts,
    span,
    time_functions,
    wrap,
)
from trainhooks.auto.models.generator_weights import weights
from trainhooks.auto.rl import decoding
from trainhooks.auto.rl.generations import Generation
from trainhooks.protocol import rundir
from trainhooks.protocol.vocabulary import UNCACHED_CALLS
from trainhooks.recording import facts

Function = Callable[..., Any]

# Spans of a Trainer outside its steps, by method.
TRAINER_SPANS = {
    "_evaluate": EVAL,
    "evaluate": EVAL,
    "predict": EVAL,
    "evaluation_loop": EVAL,
    "prediction_loop": EVAL,
    "_save_checkpoint": "checkpoint",
    "save_model": "checkpoint",
    "_load_from_checkpoint": "load checkpoint",
    "_load_best_model": "load checkpoint",
    "log": "logging",
}
# Loading: module, class, and the span of each method.
LOADERS: Tuple[Tuple[str, str, Dict[str, str]], ...] = (
    ("transformers.modeling_utils", "PreTrainedModel", {"_load_pretrained_model": "load weights"}),
    ("transformers.tokenization_utils_base", "PreTrainedTokenizerBase", {"from_pretrained": "load tokenizer"}),
    ("transformers.models.auto.tokenization_auto", "AutoTokenizer", {"from_pretrained": "load tokenizer"}),
    ("transformers.models.auto.configuration_auto", "AutoConfig", {"from_pretrained": "load config"}),
    ("transformers.processing_utils", "ProcessorMixin", {"from_pretrained": "load processor"}),
    ("peft.peft_model", "PeftModel", {"__init__": "add adapters", "from_pretrained": "load adapters"}),
)
SHARD = re.compile(r"-0*(\d+)-of-0*(\d+)\.\w+$")  # model-00003-of-00004.safetensors


@when_imported("transformers.trainer")
def wrap_trainer(module: ModuleType) -> None:
    time_functions(module.Trainer, TRAINER_SPANS)
    wrap(module.Trainer, "training_step", _training_step)
    automatic = callback.AutomaticTrainmonCallback
    if automatic not in module.DEFAULT_CALLBACKS:
        module.DEFAULT_CALLBACKS.append(automatic)


def _training_step(original: Function) -> Function:
    """Count each batch when it is used: the Trainer fetches all batches of a step, and through accelerate one more."""

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        batch_used()
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise

    return wrapper


# Calls of `generate()`: the phase `generation`, and their number, tokens and batch per step. New tokens are counted to
# each end token where they are in host memory; of a GPU's only shapes are read, so that padding after an end token is
# counted.


@when_imported("transformers.generation.utils")
def wrap_generate(module: ModuleType) -> None:
    wrap(module.GenerationMixin, "generate", _generate)
    wrap(module.GenerationMixin, "_prepare_cache_for_generation", _prepare_cache)


@when_imported("transformers.tokenization_utils_base")
def wrap_tokenizer(module: ModuleType) -> None:
    wrap(module.PreTrainedTokenizerBase, "decode", partial(_tell_generations, "decoded", "token_ids"))
    wrap(module.PreTrainedTokenizerBase, "__call__", partial(_tell_generations, "tokenized", "text"))


def _tell_generations(told: str, first: str, original: Function) -> Function:
    """Tell what a tokenizer was given, an argument named `first`, and what it made of that."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            made = original(self, *args, **kwargs)
        except BaseException as error:
            unseen.drop_own_frames(error)
            raise
        tracker = framework.tracker
        if _thread_state.is_generating:  # a streamer shows what is not complete
            return made
        if tracker is not None and not tracker.silent and tracker.thread == threading.get_ident():
            call_safely(getattr(tracker.generations, told), args[0] if args else kwargs.get(first), made)
        return made

    return wrapper


class _ThreadState(threading.local):
    is_generating = False
    is_cached: Optional[bool] = None  # the call under way; None: not known


_thread_state = _ThreadState()


def _generate(original: Function) -> Function:
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        # A nested call (of an assistant model, a deprecated strategy) is part of the outer one.
        if _is_compiling() or _thread_state.is_generating:
            return original(self, *args, **kwargs)
        _thread_state.is_generating = True
        _thread_state.is_cached = None
        try:
            with Generation() as generation:
                output = original(self, *args, **kwargs)
        finally:
            _thread_state.is_generating = False
        figures = call_safely(generate_figures, self, args, kwargs, output)
        if figures is not None:
            figures[0].update(call_safely(_tail, self, args, kwargs, output) or {})
            if call_safely(_is_uncached, self, kwargs):
                figures[0][UNCACHED_CALLS] = 1
        generation.ended(partial(_new_ids, self, args, kwargs, output), figures)
        call_safely(weights.generated, self)
        return output

    return wrapper


def _prepare_cache(original: Function) -> Function:
    """Note whether the call under way has a cache: its configuration is complete only here."""

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        configuration = kwargs.get("generation_config", args[0] if args else None)
        _thread_state.is_cached = getattr(configuration, "use_cache", None)
        return original(self, *args, **kwargs)

    return wrapper


_reasons: Set[str] = set()  # why calls had no cache, as reported


def _is_uncached(model: Any, kwargs: Dict[str, Any]) -> bool:
    """Return whether a call that has ended used no cache, though its model could. The reason becomes a fact, once."""
    used = _thread_state.is_cached
    if used is None:
        used = decoding.generate_setting(model, kwargs, "use_cache")
    if used is not False or not decoding.can_cache(model):
        return False
    is_argument = kwargs.get("use_cache") is False
    reason = "an argument of generate()" if is_argument else "the generation configuration"
    if reason not in _reasons:
        _reasons.add(reason)
        put_facts(generate={"use_cache": False, "set_by": reason})
    return True


def _tail(model: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], output: Any) -> Dict[str, int]:
    given = _given_columns(model, _prompt_shape(args, kwargs), kwargs)
    return decoding.tail_of_tokens(model, kwargs, output, given)


def _new_ids(model: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], output: Any) -> Any:
    given = _given_columns(model, _prompt_shape(args, kwargs), kwargs)
    return getattr(output, "sequences", output)[:, given:]


def _is_compiling() -> bool:
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    is_compiling = getattr(compiler, "is_compiling", None)
    return is_compiling is not None and bool(is_compiling())


def generate_figures(
    model: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], output: Any
) -> Tuple[Dict[str, int], Dict[str, float]]:
    """Return the metrics of one call: those to add up (calls, prompt tokens, new tokens) and to average (batch)."""
    sums = {"generate_calls": 1}
    prompt = _prompt_shape(args, kwargs)
    written = _shape(getattr(output, "sequences", output))
    given = _shape(_first(kwargs, "inputs", "input_ids", "inputs_embeds", "input_features", "pixel_values"))
    batch = prompt[0] if prompt else given[0] if given else None
    if len(prompt) == 2:
        sums["prompt_tokens"] = prompt[0] * prompt[1]
    if len(written) == 2:
        sums["completions"] = written[0]
        sums["new_tokens"] = written[0] * max(0, written[1] - _given_columns(model, prompt, kwargs))
    return sums, {} if batch is None else {"generate_batch": float(batch)}


def _prompt_shape(args: Tuple[Any, ...], kwargs: Dict[str, Any]) -> Tuple[int, ...]:
    shape = _shape(args[0] if args else _first(kwargs, "inputs", "input_ids"))
    return (1, *shape) if len(shape) == 1 else shape


def _given_columns(model: Any, prompt: Tuple[int, ...], kwargs: Dict[str, Any]) -> int:
    """Return the columns of the output of generate() that are not new: the prompt, or a decoder's start tokens."""
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        start = _shape(kwargs.get("decoder_input_ids"))
        return start[1] if len(start) == 2 else 1
    return prompt[1] if len(prompt) == 2 else 0


def _first(kwargs: Dict[str, Any], *names: str) -> Optional[Any]:
    return next((kwargs[name] for name in names if kwargs.get(name) is not None), None)


def _shape(value: Any) -> Tuple[int, ...]:
    shape = getattr(value, "shape", None)
    return () if shape is None else tuple(int(size) for size in shape)


def _wrap_loader(class_name: str, spans: Dict[str, str], module: ModuleType) -> None:
    owner = getattr(module, class_name, None)
    if owner is not None:
        time_functions(owner, spans)


for _module, _class, _spans in LOADERS:
    when_imported(_module)(partial(_wrap_loader, _class, _spans))


@when_imported("transformers.modeling_utils")
def wrap_model_loading(module: ModuleType) -> None:
    wrap(module.PreTrainedModel, "from_pretrained", _load_model)
    wrap(module, "load_shard_file", _load_shard)  # transformers 4


@when_imported("transformers.models.auto.auto_factory")
def wrap_auto_model_loading(module: ModuleType) -> None:
    wrap(module._BaseAutoModelClass, "from_pretrained", _load_model)


def _load_model(original: Function) -> Function:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with span("load model"):
            if call_safely(_is_alone):
                session.announce()  # so that loading is shown while it is going on
            return original(*args, **kwargs)

    return wrapper


def _is_alone() -> bool:
    """Return whether this seems to be the training: launched by trainmon, no worker, no other process of this rank.

    A process that a training starts (a judge, a reward model's server) is announced by its steps, if it does any.
    """
    if session.is_child() and "RANK" not in os.environ:
        return False
    run = os.environ.get(rundir.RUN_VARIABLE)
    if not run:
        return False
    rank = facts.rank_facts().get("rank", 0)
    return not any(name.startswith(f"rank-{rank}-") for name in os.listdir(run))


def _load_shard(original: Function) -> Function:
    def wrapper(args: Any, *rest: Any, **kwargs: Any) -> Any:
        with span(call_safely(shard_name, args) or "load shard"):
            return original(args, *rest, **kwargs)

    return wrapper


def shard_name(args: Tuple[Any, ...]) -> Optional[str]:
    """Return `load shard 3/4` from the arguments of `load_shard_file`, of which one is the shard's path."""
    for argument in args:
        found = SHARD.search(argument) if isinstance(argument, str) else None
        if found:
            return f"load shard {found[1]}/{found[2]}"
    return None
