"""The work of a token, and how much of what the hardware can do is made use of (MFU). Pure.

Where the operations of a step were seen, any model's work is known by them. Elsewhere it is known of dense language
models by a formula, which does not hold for adapters, experts, frozen parts and mixed dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from monitor.model.operations import Operations, apart, flop, in_words
from monitor.model.peaks import ceiling, peak_of
from monitor.units import rate, share


@dataclass(frozen=True, slots=True)
class Model:
    """What of a dense decoder decides the work of a token. None is unknown."""

    matmul_parameters: int | None = None  # without embeddings; the head counts, also where it is tied to them
    layers: int | None = None
    attention_width: int | None = None  # heads times the width of each: usually the model's own width
    window: int | None = None  # tokens that attention looks back at most; None: all
    unknown: str | None = None  # why the formula does not hold for this model


@dataclass(frozen=True, slots=True)
class Work:
    """One way to compute: the model, the tokens of a sequence on average, the format of the matrix products."""

    model: Model
    length: float | None = None
    dtype: str | None = None  # fp32 | tf32 | bf16 | fp16; None: mixed or unknown
    seen: Operations | None = None  # what one step did, where it was looked at


@dataclass(frozen=True, slots=True)
class Each:
    """The work of one token, or of one sample where the model's input has no length that is counted."""

    flops: float
    per: str  # token | sample
    lines: tuple[str, ...]  # how it comes about


@dataclass(frozen=True, slots=True)
class Device:
    """A GPU that does this work."""

    name: str | None = None
    sm_clock: int | None = None  # MHz, just now


@dataclass(frozen=True, slots=True)
class Mfu:
    """How much of the hardware's peak the training makes use of: a share; and the same of what the clock allows now."""

    share: float | None = None
    of_ceiling: float | None = None
    flops_a_token: float | None = None
    peak: float | None = None  # FLOPS of all GPUs together
    ceiling: float | None = None  # FLOPS at the clocks of now
    formula: tuple[str, ...] = ()  # the figures with their inputs, a line each
    unknown: str | None = None  # why there is no share


def flops_a_token(model: Model, length: float | None) -> float | None:
    """FLOPs of one token, forward and backward: 6 x N + 12 x layers x width x length. Recomputed layers do not count.

    Each parameter of a matrix product takes a multiplication and an addition forward and twice that backward; each
    token is compared with, and summed over, every position of its sequence in every layer, likewise.
    """
    n, layers, width = model.matmul_parameters, model.layers, model.attention_width
    if model.unknown or not n or not layers or not width or length is None or length <= 0:
        return None
    if model.window and length > model.window:
        return None
    return 6.0 * n + 12.0 * layers * width * length


def each_of(work: Work, tokens: bool = True) -> Each | None:
    """The work of a token or a sample, by what was seen before by the formula; None where neither tells.

    Args:
        work: the way to compute.
        tokens: whether tokens are counted; else only samples are.
    """
    formula = flops_a_token(work.model, work.length)
    seen = work.seen
    by_token = seen.a_token(work.length) if seen is not None and tokens else None
    if seen is not None and by_token:
        differs = apart(by_token, formula) if formula is not None else ""
        if differs is not None:
            lines = [f"{flop(by_token)} a token = {in_words(seen, work.length)}", *([differs] if differs else [])]
            return Each(by_token, "token", tuple(lines))
    if formula is not None and tokens:
        return Each(formula, "token", _of_a_token(work, formula))
    by_sample = seen.a_sample(None) if seen is not None else None
    if seen is None or not by_sample:
        return None
    return Each(by_sample, "sample", (f"{flop(by_sample)} a sample = {in_words(seen, None)}",))


def mfu(
    work: Work,
    tokens_per_second: float | None,
    devices: Sequence[Device],
    samples_per_second: float | None = None,
) -> Mfu:
    """The share of the peak of `devices` that what they do in a second needs."""
    each = each_of(work, bool(tokens_per_second)) or each_of(work)
    a_second = tokens_per_second if each is None or each.per == "token" else samples_per_second
    a_token = each.flops if each is not None and each.per == "token" else None
    dtype = format_of(work)
    unknown = _why_unknown(work, each, dtype, a_second, devices)
    if unknown or each is None or dtype is None or not a_second:
        return Mfu(flops_a_token=a_token, formula=each.lines if each is not None else (), unknown=unknown)
    peak = 1e12 * sum(_tflops(device, dtype) for device in devices)
    limits = [ceiling(device.name, dtype, device.sm_clock) for device in devices]
    now = 1e12 * sum(each or 0.0 for each in limits) if all(each is not None for each in limits) else None
    needed = each.flops * a_second
    unit = "tok/s" if each.per == "token" else "samples/s"
    lines = [
        f"MFU {share(needed / peak)} = {rate(a_second, unit)} x {flop(each.flops)} a {each.per} / {_flops(peak)}",
        *each.lines,
        *_of_the_peak(devices, dtype),
    ]
    if now:
        lines.append(f"{share(needed / now)} of the {_flops(now)} that {_clocks(devices)} allow just now")
    return Mfu(needed / peak, needed / now if now else None, a_token, peak, now, tuple(lines))


def format_of(work: Work) -> str | None:
    """The format of the matrix products, as it was seen, else as the settings tell; None: mixed or not known."""
    seen = work.seen
    return seen.dtype if seen is not None and not seen.unknown and seen.dtype is not None else work.dtype


def _why_unknown(
    work: Work, each: Each | None, dtype: str | None, a_second: float | None, devices: Sequence[Device]
) -> str | None:
    if each is None:
        reason = _why_no_work(work)
        seen = work.seen.unknown if work.seen is not None else None
        return f"{seen}; {reason}" if seen else reason
    if dtype is None:
        return "the dtype of the matrix products is mixed or not known"
    if not devices:
        return "the GPUs that are used are not known"
    for device in devices:
        peak = peak_of(device.name)
        if peak is None:
            return f"the peak of {device.name or 'a GPU without a name'} is not listed"
        if not peak.tflops(dtype):
            return f"the peak of {device.name} in {dtype} is not listed"
    return None if a_second else f"{each.per}s are not counted"


def _why_no_work(work: Work) -> str:
    model = work.model
    if model.unknown:
        return model.unknown
    if not (model.matmul_parameters and model.layers and model.attention_width):
        return "the model's shape is not known"
    if not work.length or work.length <= 0:
        return "the length of the sequences is not known"
    return f"attention looks back {model.window or 0:,} tokens only: its share of the work is not known"


def _tflops(device: Device, dtype: str) -> float:
    peak = peak_of(device.name)
    return (peak.tflops(dtype) if peak is not None else None) or 0.0


def _of_a_token(work: Work, each: float) -> tuple[str, ...]:
    model = work.model
    return (
        f"{flop(each)} a token = 6 x {model.matmul_parameters:,} parameters in matrix products"
        f" + 12 x {model.layers} layers x {model.attention_width:,} wide x {work.length:,.0f} tokens long",
    )


def _of_the_peak(devices: Sequence[Device], dtype: str) -> list[str]:
    counts: dict[str, int] = {}
    for device in devices:
        counts[device.name or ""] = counts.get(device.name or "", 0) + 1
    lines = []
    for name, count in counts.items():
        peak = peak_of(name)
        if peak is not None:
            note = f"; {peak.note}" if peak.note else ""
            lines.append(f"peak: {count} x {name}, {peak.tflops(dtype):,g} TFLOPS dense in {dtype}{note}")
    return lines


def _clocks(devices: Sequence[Device]) -> str:
    clocks = sorted({device.sm_clock for device in devices if device.sm_clock})
    return f"{clocks[0]:,} MHz" if len(clocks) == 1 else f"{clocks[0]:,} to {clocks[-1]:,} MHz"


def _flops(value: float) -> str:
    return f"{value / 1e12:,.4g} TFLOPS"


# What the facts of a run say

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok", "moe_intermediate_size")
_EXPERT_TYPES = re.compile(r"moe|mixtral|dbrx|deepseek_v[23]|gpt_oss|llama4|jamba|switch_transformers", re.IGNORECASE)
_HALF = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"}


def model_of(facts: Mapping[str, Any]) -> Model:
    """The model by the facts that the hooks tell of it: Hugging Face's names, and the numbers of parameters."""
    unknown = _not_dense(facts)
    if unknown:
        return Model(unknown=unknown)
    width, layers, heads = (_whole(facts, *names) for names in _SHAPE)
    head_width = _whole(facts, "head_dim")
    if not heads:  # nothing that attends, so another formula
        return Model()
    attention = heads * head_width if head_width else width
    return Model(_matmul_parameters(facts, width), layers, attention, _whole(facts, "sliding_window"))


_SHAPE = (
    ("hidden_size", "n_embd", "d_model"),
    ("num_hidden_layers", "n_layer", "num_layers"),
    ("num_attention_heads", "n_head", "num_heads"),
)


def _not_dense(facts: Mapping[str, Any]) -> str | None:
    """Why the formula does not hold; None where it does."""
    if facts.get("peft"):
        return f"adapters ({facts['peft']}) train: the formula is of full training"
    if facts.get("quantization"):
        return "the model is quantised"
    if any(facts.get(name) for name in _EXPERTS) or _EXPERT_TYPES.search(str(facts.get("model_type", ""))):
        return "a mixture of experts: a token passes through a part of the parameters only"
    if facts.get("is_encoder_decoder"):
        return "an encoder and a decoder: their tokens pass through a part of the parameters only"
    if facts.get("sharded"):
        return "the parameters are shared out among ranks: how the work on a token is, is not known"
    total, trainable = _whole(facts, "parameters"), _whole(facts, "trainable_parameters")
    if total and trainable is not None and trainable < total:
        return "a part of the model is frozen: the formula is of full training"
    return None


def _matmul_parameters(facts: Mapping[str, Any], width: int | None) -> int | None:
    told = _whole(facts, "matmul_parameters")
    if told:
        return told
    total, vocabulary = _whole(facts, "parameters"), _whole(facts, "vocab_size")
    tied, kind = facts.get("tie_word_embeddings"), facts.get("class")
    if not total or not vocabulary or not width or tied is None or not isinstance(kind, str):
        return None
    # Tied: one table, looked up at the entrance (no work) and multiplied with at the exit, where the model has one.
    head_in_table = bool(tied) and "LM" in kind
    positions = _whole(facts, "n_positions") or 0
    left = total - (0 if head_in_table else vocabulary * width) - positions * width
    return left if left > 0 else None


def compute_dtype(
    dtypes: Sequence[str], autocast: str | None = None, matmul_precision: str | None = None
) -> str | None:
    """The format of the matrix products; None where it is mixed or unknown.

    Args:
        dtypes: of the parameters, as torch names them.
        autocast: the dtype of mixed precision, where it is on.
        matmul_precision: torch.get_float32_matmul_precision(): below "highest", fp32 products run as TF32.
    """
    if autocast is not None:
        return _HALF.get(autocast.removeprefix("torch."))
    kinds = {name.removeprefix("torch.") for name in dtypes}
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind in ("float32", "fp32"):
        if matmul_precision is None:
            return None
        return "fp32" if matmul_precision == "highest" else "tf32"
    return _HALF.get(kind)


def _whole(facts: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = facts.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
