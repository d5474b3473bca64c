"""What is to be known of a model: its size, its dtypes, how it attends. Shapes and settings only, never a value."""

from __future__ import annotations

from typing import Any, Dict, Optional

# The shape of a language model, from which the work of a token follows.
# What the floating point operations of a token are counted from, and what makes that count impossible (experts).
SHAPE = (
    "model_type", "hidden_size", "head_dim", "num_hidden_layers", "num_attention_heads", "vocab_size",
    "tie_word_embeddings", "n_positions", "num_local_experts", "num_experts", "n_routed_experts",
    "is_encoder_decoder", "sliding_window",
)  # fmt: skip
INNER = 8  # wrappers (DDP, torch.compile, PEFT) that a model may lie in
told = False  # whether somebody has asked for the facts of a model: a framework's adapter knows which is meant


def model_facts(model: Any) -> Dict[str, Any]:
    """Facts of an `nn.Module`, wrapped or not.

    Args:
        model: the module; one of transformers tells more of itself.
    """
    global told
    told = True
    inner = unwrapped(model)
    facts: Dict[str, Any] = {"class": type(inner).__name__, **_parameters(inner)}
    config = getattr(inner, "config", None)
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
    # transformers' own property for this warns in some versions: what a user sees must not change.
    if any(vars(module).get("gradient_checkpointing") for module in inner.modules()):
        facts["gradient_checkpointing"] = True
    return facts


def unwrapped(model: Any) -> Any:
    """The model inside DDP (`module`) and torch.compile (`_orig_mod`)."""
    for _ in range(INNER):
        modules = getattr(model, "_modules", {})
        inside = modules.get("_orig_mod")
        if inside is None and type(model).__name__ in ("DistributedDataParallel", "DataParallel", "DeepSpeedEngine"):
            inside = modules.get("module")
        if inside is None:
            break
        model = inside
    return model


def _parameters(model: Any) -> Dict[str, Any]:
    """Numbers of parameters. Where they are sharded the sizes at hand are this rank's part, so they are left out."""
    total = trainable = 0
    sharded = False
    dtypes: Dict[str, int] = {}
    for parameter in model.parameters():
        size = parameter.numel()
        if type(parameter).__name__ == "FlatParameter" or getattr(parameter, "ds_numel", None) is not None:
            return {}
        sharded = sharded or type(parameter).__name__ == "DTensor"  # its size is the whole one's
        total += size
        trainable += size if parameter.requires_grad else 0
        dtype = str(parameter.dtype).rpartition(".")[2]
        dtypes[dtype] = dtypes.get(dtype, 0) + size
    facts = {"parameters": total, "trainable_parameters": trainable, "dtypes": dtypes}
    return {**facts, "sharded": True} if sharded else facts


def _quantization(model: Any, config: Any) -> Optional[str]:
    method = getattr(model, "quantization_method", None) or getattr(
        getattr(config, "quantization_config", None), "quant_method", None
    )
    return None if method is None else str(getattr(method, "value", method))


def _peft(model: Any) -> Optional[str]:
    adapters = getattr(model, "peft_config", None)
    if not isinstance(adapters, dict) or not adapters:
        return None
    kind = getattr(next(iter(adapters.values())), "peft_type", None)
    return str(getattr(kind, "value", kind))
