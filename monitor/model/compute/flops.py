"""The work of a token and of a step, and the share of the hardware's peak that it makes use of (MFU). Pure.

Where the operations of a step were recorded, they give the work of any model. Elsewhere a formula gives the work of
dense language models; it does not hold for adapters, experts, frozen parts and mixed dtypes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from monitor.model.compute.peaks import ceiling, peak_of
from monitor.model.operations import Operations, difference_note, flop_text, read_operations, work_text
from monitor.model.report import Report
from monitor.units import rate, share
from trainhooks.protocol.facts import TrainedModel


@dataclass(frozen=True, slots=True)
class Model:
    """The figures of a dense decoder that determine the work of a token. None is unknown."""

    matmul_parameters: int | None = None  # without embeddings; the head counts, also where it is tied to them
    layers: int | None = None
    attention_width: int | None = None  # heads times their width: in most models the model's own width
    window: int | None = None  # tokens that attention looks back at most; None: all
    unknown: str | None = None  # why the formula does not hold for this model


@dataclass(frozen=True, slots=True)
class Work:
    """What determines the work: the model, the mean tokens of a sequence, the format of the matrix products."""

    model: Model
    length: float | None = None
    dtype: str | None = None  # fp32 | tf32 | bf16 | fp16; None: mixed or unknown
    seen: Operations | None = None  # the recorded operations of one step; None: not recorded


@dataclass(frozen=True, slots=True)
class WorkPerUnit:
    """The work of one token, or of one sample where tokens are not counted."""

    flops: float
    per: str  # token | sample
    lines: tuple[str, ...]  # its calculation, for people


@dataclass(frozen=True, slots=True)
class Accelerator:
    """A GPU in use."""

    name: str | None = None
    sm_clock: int | None = None  # MHz, the current clock


@dataclass(frozen=True, slots=True)
class Mfu:
    """The share of the hardware's peak that the training reaches, and that of the ceiling at the current clocks."""

    share: float | None = None
    of_ceiling: float | None = None
    flops_a_token: float | None = None
    peak: float | None = None  # FLOPS of all GPUs together
    ceiling: float | None = None  # FLOPS at the current clocks
    formula: tuple[str, ...] = ()  # the figures with their inputs, a line each
    unknown: str | None = None  # why there is no share


def flops_a_token(model: Model, length: float | None) -> float | None:
    """Return the FLOPs of a token, forward and backward: 6 x N + 12 x layers x width x length, without recomputation.

    Each parameter of a matrix product takes a multiplication and an addition forward and twice that backward; each
    token is compared with, and summed over, every position of its sequence in every layer, likewise.
    """
    n, layers, width = model.matmul_parameters, model.layers, model.attention_width
    if model.unknown or not n or not layers or not width or length is None or length <= 0:
        return None
    if model.window and length > model.window:
        return None
    return 6.0 * n + 12.0 * layers * width * length


def work_per_unit(work: Work, tokens: bool = True) -> WorkPerUnit | None:
    """Return the work of a token or a sample, by the recorded operations, else by the formula; None: unknown.

    Args:
        tokens: whether tokens are counted; otherwise only samples are.
    """
    formula = flops_a_token(work.model, work.length)
    seen = work.seen
    by_token = seen.token_flops(work.length) if seen is not None and tokens else None
    if seen is not None and by_token:
        differs = difference_note(by_token, formula) if formula is not None else ""
        if differs is not None:
            lines = [f"{flop_text(by_token)} a token = {work_text(seen, work.length)}", *([differs] if differs else [])]
            return WorkPerUnit(flops=by_token, per="token", lines=tuple(lines))
    if formula is not None and tokens:
        return WorkPerUnit(flops=formula, per="token", lines=_of_a_token(work, formula))
    by_sample = seen.sample_flops(None) if seen is not None else None
    if seen is None or not by_sample:
        return None
    return WorkPerUnit(by_sample, "sample", (f"{flop_text(by_sample)} a sample = {work_text(seen, None)}",))


def mfu_of(
    work: Work,
    tokens_per_second: float | None,
    devices: Sequence[Accelerator],
    samples_per_second: float | None = None,
) -> Mfu:
    """Return the share of the peak of `devices` that is reached at these tokens (or samples) a second."""
    per_unit = work_per_unit(work, bool(tokens_per_second)) or work_per_unit(work)
    a_second = tokens_per_second if per_unit is None or per_unit.per == "token" else samples_per_second
    a_token = per_unit.flops if per_unit is not None and per_unit.per == "token" else None
    dtype = matmul_format(work)
    unknown = _why_unknown(work, per_unit, dtype, a_second, devices)
    if unknown or per_unit is None or dtype is None or not a_second:
        return Mfu(flops_a_token=a_token, formula=per_unit.lines if per_unit is not None else (), unknown=unknown)
    peak = 1e12 * sum(_tflops(device, dtype) for device in devices)
    limits = [ceiling(device.name, dtype, device.sm_clock) for device in devices]
    now = 1e12 * sum(limit or 0.0 for limit in limits) if all(limit is not None for limit in limits) else None
    needed = per_unit.flops * a_second
    unit = "tok/s" if per_unit.per == "token" else "samples/s"
    lines = [
        f"MFU {share(needed / peak)} = {rate(a_second, unit)} x {flop_text(per_unit.flops)} a {per_unit.per}"
        f" / {_flops(peak)}",
        *per_unit.lines,
        *_of_the_peak(devices, dtype),
    ]
    if now:
        lines.append(f"{share(needed / now)} of the {_flops(now)} reachable at the current {_clocks(devices)}")
    return Mfu(
        share=needed / peak,
        of_ceiling=needed / now if now else None,
        flops_a_token=a_token,
        peak=peak,
        ceiling=now,
        formula=tuple(lines),
    )


def matmul_format(work: Work) -> str | None:
    """Return the format of the matrix products: as recorded, else by the settings; None: mixed or unknown."""
    seen = work.seen
    return seen.dtype if seen is not None and not seen.unknown and seen.dtype is not None else work.dtype


def _why_unknown(
    work: Work, per_unit: WorkPerUnit | None, dtype: str | None, a_second: float | None, devices: Sequence[Accelerator]
) -> str | None:
    if per_unit is None:
        reason = _why_no_work(work)
        seen = work.seen.unknown if work.seen is not None else None
        return f"{seen}; {reason}" if seen else reason
    if dtype is None:
        return "dtype of the matrix products mixed or unknown"
    if not devices:
        return "GPUs in use unknown"
    for device in devices:
        peak = peak_of(device.name)
        if peak is None:
            return f"peak of {device.name or 'an unnamed GPU'} not listed"
        if not peak.tflops(dtype):
            return f"peak of {device.name} in {dtype} not listed"
    return None if a_second else f"{per_unit.per}s are not counted"


def _why_no_work(work: Work) -> str:
    model = work.model
    if model.unknown:
        return model.unknown
    if not (model.matmul_parameters and model.layers and model.attention_width):
        return "model shape unknown"
    if not work.length or work.length <= 0:
        return "sequence length unknown"
    return f"sliding window of {model.window or 0:,} tokens: attention work unknown"


def _tflops(device: Accelerator, dtype: str) -> float:
    peak = peak_of(device.name)
    return (peak.tflops(dtype) if peak is not None else None) or 0.0


def _of_a_token(work: Work, per_unit: float) -> tuple[str, ...]:
    model = work.model
    return (
        f"{flop_text(per_unit)} a token = 6 x {model.matmul_parameters:,} parameters in matrix products"
        f" + 12 x {model.layers} layers x {model.attention_width:,} wide x {work.length:,.0f} tokens long",
    )


def _of_the_peak(devices: Sequence[Accelerator], dtype: str) -> list[str]:
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


def _clocks(devices: Sequence[Accelerator]) -> str:
    clocks = sorted({device.sm_clock for device in devices if device.sm_clock})
    return f"{clocks[0]:,} MHz" if len(clocks) == 1 else f"{clocks[0]:,}-{clocks[-1]:,} MHz"


def _flops(value: float) -> str:
    return f"{value / 1e12:,.4g} TFLOPS"


_EXPERT_TYPES = re.compile(r"moe|mixtral|dbrx|deepseek_v[23]|gpt_oss|llama4|jamba|switch_transformers", re.IGNORECASE)
_HALF = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "fp16": "fp16", "half": "fp16"}


def model_of(known: TrainedModel) -> Model:
    """Return the model by what the hooks tell of it."""
    unknown = _why_not_dense(known)
    if unknown:
        return Model(unknown=unknown)
    if not known.num_attention_heads:  # no attention: the formula does not hold
        return Model()
    return Model(
        matmul_parameters=known.matmul_parameters or _matmul_parameters(known),
        layers=known.num_hidden_layers,
        attention_width=known.num_attention_heads * known.head_dim if known.head_dim else known.hidden_size,
        window=known.sliding_window,
    )


def _why_not_dense(known: TrainedModel) -> str | None:
    """Return why the formula does not hold; None where it does."""
    if known.peft:
        return f"adapters ({known.peft}) train; the formula covers full training"
    if known.quantization:
        return "the model is quantized"
    experts = known.num_experts or known.num_local_experts or known.n_routed_experts
    if experts or _EXPERT_TYPES.search(known.model_type or ""):
        return "mixture of experts: each token uses only part of the parameters"
    if known.is_encoder_decoder:
        return "encoder-decoder: each token uses only part of the parameters"
    if known.sharded:
        return "parameters are sharded across ranks: work per token unknown"
    total, trainable = known.parameters, known.trainable_parameters
    if total and trainable is not None and trainable < total:
        return "part of the model is frozen; the formula covers full training"
    return None


def _matmul_parameters(known: TrainedModel) -> int | None:
    total, vocabulary, width = known.parameters, known.vocab_size, known.hidden_size
    tied, kind = known.tie_word_embeddings, known.kind
    if not total or not vocabulary or not width or tied is None or kind is None:
        return None
    # Tied: one table is both the input embedding (a lookup, no work) and the head, where the model has one.
    left = total - (0 if tied and "LM" in kind else vocabulary * width) - (known.n_positions or 0) * width
    return left if left > 0 else None


def compute_dtype(
    dtypes: Sequence[str], autocast: str | None = None, matmul_precision: str | None = None
) -> str | None:
    """Return the format of the matrix products; None where it is mixed or unknown.

    Args:
        dtypes: of the parameters, as torch names them.
        autocast: the dtype of mixed precision; None: off.
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


# The work of a step: tokens, samples, FLOPs a token.


@dataclass(frozen=True, slots=True)
class StepWork:
    """Means over the run; None is unknown."""

    tokens: float | None = None  # a step
    samples: float | None = None  # a step
    length: float | None = None  # tokens a sample
    flops_a_token: float | None = None  # forward and backward
    parameters: int | None = None


def work_of(report: Report) -> StepWork:
    """Return the work of a run's steps, by its rates and by what is known of its model."""
    tokens, samples = _per_step(report, "tokens_per_second"), _per_step(report, "samples_per_second")
    length = tokens / samples if tokens and samples else None
    known = report.run.facts
    unit_work = work_per_unit(Work(model_of(known.model), length, seen=read_operations(known)))
    a_token = unit_work.flops if unit_work is not None and unit_work.per == "token" else None
    return StepWork(tokens, samples, length, a_token, known.model.parameters or None)


def _per_step(report: Report, rate: str) -> float | None:
    per_second, steps = getattr(report.throughput, rate), report.throughput.steps_per_second
    return per_second / steps if per_second and steps else None


def work_ratio(before: StepWork, after: StepWork) -> float | None:
    """Return the ratio of the FLOPs a token (else of the parameters), later to earlier; None: unknown."""
    if before.flops_a_token and after.flops_a_token:
        return after.flops_a_token / before.flops_a_token
    if before.parameters and after.parameters:
        return after.parameters / before.parameters
    return None
