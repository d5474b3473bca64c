"""Slow kernels where fast ones exist: attention, optimizer, shapes, memory formats, number formats. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware, traced
from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.batching import LATE_LAUNCHES
from monitor.model.compute.flops import flops_a_token, model_of
from monitor.model.compute.peaks import Peak
from monitor.model.device.kernel_classes import (
    ATTENTION,
    CASTS,
    COPY_ON,
    ELEMENTWISE,
    FP32,
    MATRIX,
    PASSES_OVER_MEMORY,
    SOFTMAX,
    type_of,
)
from monitor.model.device.trace_report import TraceReport
from monitor.model.operations import read_operations
from monitor.model.report import Finding
from monitor.units import duration, share, size

# Of the operations of a token. Eager attention is bound by memory, and takes a larger part of the time than of these.
MIN_ATTENTION_SHARE = 0.15
# How often each tensor that holds scores passes through memory: written and read on the way, read again in backward,
# its gradient written and read.
SCORE_PASSES = 5
# Bytes per second that such kernels reach: nine tenths of what data sheets give the memory (A100 2.0, H100 3.35, H200
# 4.8, B200 8 TB/s).
MEMORY_RATE = 3.0e12
MEMORY_RATES = (("h200", 4.3e12), ("b200", 7.2e12), ("h100", 3.0e12), ("a100", 1.8e12))
MAX_ERROR = 1.25  # of that estimate: masks and casts pass over the scores as well
MAX_WRITTEN_SHARE = 0.90  # there are matrix products, a loss and an optimizer besides, in any model with attention


@rule("slow-attention", Family.MODEL, suppresses=("elementwise-heavy",))
def slow_attention(evidence: Evidence) -> Finding | None:
    """Find attention that writes out its score matrix, where that is a large part of the work."""
    return _eager_attention(evidence) or _written_attention(evidence) or _measured_attention(evidence)


def _eager_attention(evidence: Evidence) -> Finding | None:
    """Find it by a library's setting."""
    facts, length = evidence.facts.model, typical_length(evidence)
    if facts.attention != "eager" or length is None or not evidence.has_steps():
        return None
    model = model_of(facts)
    total, linear = flops_a_token(model, length), flops_a_token(model, 1.0)
    if total is None or linear is None or 1 - linear / total < MIN_ATTENTION_SHARE:
        return None
    return Finding(
        code="slow-attention",
        severity="warning",
        title=f"Slow attention: eager implementation, {share(1 - linear / total)} of the operations",
        evidence=[
            f"typical sequence length {length:,.0f}; {model.layers} layers of width {model.attention_width:,}",
            f"forward and backward {share(evidence.wall_part(hardware.computing_seconds(evidence)))} of wall time",
        ],
        advice='Use from_pretrained(..., attn_implementation="sdpa"): the score matrix is then never written to'
        " memory.",
    )


def _written_attention(evidence: Evidence) -> Finding | None:
    """Find it written by hand: matrix products and a softmax, whose score matrix goes through GPU memory."""
    found, device = evidence.facts.ops.attention_written_out, evidence.device
    seconds, calls = evidence.step_seconds, hardware.calls_per_step(evidence)
    if not found.count or device is None or not evidence.has_steps() or not seconds:
        return None
    part = min(MAX_WRITTEN_SHARE, SCORE_PASSES * found.bytes * calls / _memory_rate(evidence) / seconds)
    if device.bound in ("host", "data"):
        return None
    place = f" at {found.place}" if found.place is not None else ""
    trace = traced.kernel_trace(evidence)
    likely = most = part
    if trace is not None:  # what passes over the scores is part of these
        most = max(part, traced.step_share(evidence, trace, *PASSES_OVER_MEMORY))
        likely = min(MAX_ERROR * part, traced.step_share(evidence, trace, SOFTMAX, ELEMENTWISE, CASTS))
    return Finding(
        code="slow-attention",
        title=f"Slow attention: score matrices written to memory, about {share(part)} of step time",
        evidence=[
            f"{found.count} softmax over score matrices in one forward pass{place}: {size(found.bytes)} in all",
            *([f"sequence length {found.length:,}"] if found.length is not None else []),
            f"estimate: each of its tensors passes through memory {SCORE_PASSES} times, forward and backward",
        ],
        advice="Use torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True): the score matrix is then"
        " never written to memory.",
        estimated=True,
        lost_fraction=most * evidence.loop_share,
        likely_fraction=likely * evidence.loop_share,
    )


# From a length on at which kernels of flash attention reach half of the peak; those of masks, odd head sizes and
# fp32 do not.
MIN_LENGTH = 1024
MAX_EFFICIENCY = 0.30  # of the peak; a causal mask halves the work that is counted here
REACHED = 0.50  # of the peak, by flash attention: 48% to 85% on an H100 from 1,024 tokens on


def _measured_attention(evidence: Evidence) -> Finding | None:
    """Find attention kernels that reach little of the GPU's peak at a length at which fast ones do."""
    trace, known, ops = traced.kernel_trace(evidence), hardware.gpu_peak(evidence), read_operations(evidence.facts)
    length, half = typical_length(evidence), known[1].bf16 if known is not None else None
    seconds = evidence.step_seconds
    if trace is None or ops is None or ops.unknown or not half or length is None or length < MIN_LENGTH:
        return None
    part = traced.step_share(evidence, trace, ATTENTION)
    if not part or not seconds or not ops.attention:
        return None
    reached = ops.attention * hardware.calls_per_step(evidence) / (part * seconds) / (half * 1e12)
    if reached > MAX_EFFICIENCY:
        return None
    likely = part * (1.0 - reached / REACHED) * evidence.loop_share
    return Finding(
        code="slow-attention",
        title=f"Slow attention: {share(reached)} of the GPU's peak, in {share(part)} of the step",
        evidence=[
            *traced.kernel_lines(traced.kernels(evidence, ATTENTION)),
            f"{traced.how(trace)}; at {length:,.0f} tokens flash attention reaches {share(REACHED)} or more",
        ],
        advice="Pass no dense mask: is_causal=True, a window or a block mask (flex_attention), or sequences of one"
        " length. Use bf16 and head sizes of 64 or 128.",
        lost_fraction=part * (1.0 - reached) * evidence.loop_share,
        likely_fraction=likely,
        least_fraction=likely / 2,
    )


def _memory_rate(evidence: Evidence) -> float:
    names = {(card.name or "").lower() for card in hardware.gpus(evidence)}
    return max((rate for model, rate in MEMORY_RATES if any(model in name for name in names)), default=MEMORY_RATE)


def typical_length(evidence: Evidence) -> float | None:
    """Return the positions of a sequence, padding included where it is known."""
    main = evidence.state.main
    if main.lengths.steps:
        return main.lengths.typical()
    return main.pace.tokens / main.pace.samples if main.pace.tokens and main.pace.samples else None


MIN_OPTIMIZER_SHARE_ON_CPU = 0.20  # of step time: a fused step has no kernel starts to save there
MIN_TENSORS = 20  # to update; with fewer there is little to fuse
HAS_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # of torch.optim
FUSED_ON_CPU = (2, 4)  # torch's version from which these are fused on the CPU, too


@rule("unfused-optimizer", Family.MODEL, suppresses=("gpu-starved", LATE_LAUNCHES))
def unfused_optimizer(evidence: Evidence) -> Finding | None:
    """Find an optimizer that takes much of the step and updates one parameter after the other."""
    row, facts = evidence.phase("optimizer"), evidence.facts.optimizer
    if row is None or not evidence.has_steps() or evidence.host_only:
        return None
    where, kind, tensors = hardware.model_device(evidence), facts.kind, facts.tensors
    if where not in ("cuda", "cpu") or kind not in HAS_FUSED or tensors is None:
        return None
    if not is_one_by_one(evidence) or tensors < MIN_TENSORS:
        return None
    if where == "cpu" and row.share < MIN_OPTIMIZER_SHARE_ON_CPU:
        return None
    return Finding(
        code="unfused-optimizer",
        certain=where == "cuda",
        estimated=True,  # what a fused one takes is not known
        title=f"Unfused optimizer: {kind} updates {tensors:,} tensors one by one, {share(row.share)} of step time",
        evidence=[
            f"fused={facts.fused}, foreach={facts.foreach}, parameters on {where}",
            f"optimizer {duration(row.mean)} per step",
        ],
        advice=f"Use {fused_setting(evidence, kind)}.",
        lost_fraction=evidence.wall_part(row.recurring),
    )


def is_one_by_one(evidence: Evidence) -> bool:
    """Return whether the optimizer updates each parameter by itself: on a GPU torch groups them by default."""
    facts = evidence.facts.optimizer
    if facts.fused is None or facts.fused is True or facts.foreach is True:
        return False
    if hardware.model_device(evidence) == "cpu":
        return _torch_version(evidence) >= FUSED_ON_CPU
    return facts.foreach is False or facts.fused is False


def fused_setting(evidence: Evidence, kind: str) -> str:
    if evidence.facts.framework == "transformers":
        return f'optim="{evidence.facts.config.optim or "adamw_torch"}" → "adamw_torch_fused"'
    return f"torch.optim.{kind}(..., fused=True)"


def _torch_version(evidence: Evidence) -> tuple[int, ...]:
    parts = evidence.facts.versions.get("torch", "").split(".")[:2]
    return tuple(int(part) for part in parts if part.isdigit())


# Shapes and layouts that fast kernels do not take, from one forward pass that was watched.

# Of the operations. Vocabularies of odd size are a fifth to a third of small language models', and worth a line.
MIN_MISALIGNED_SHARE = 0.20
MIN_WARNING_MISALIGNED_SHARE = 0.60  # the model's own width is odd: every product is slower
MIN_CONV_SHARE = 0.50  # of the operations in convolutions
MIN_HALF_SHARE = 0.50  # of the operations in 16 bits: in fp32 the layout gains little
SIXTEEN_BITS = ("bfloat16", "float16")
MAX_SHAPES = 3


@rule("misaligned-shapes", Family.MODEL)
def misaligned_shapes(evidence: Evidence) -> Finding | None:
    """Find matrix products whose sizes do not fit tensor cores."""
    found, device = evidence.facts.ops.misaligned, evidence.device
    part = found.share
    if device is None or not evidence.has_steps() or part < MIN_MISALIGNED_SHARE:
        return None
    is_warning = part >= MIN_WARNING_MISALIGNED_SHARE and device.bound != "host"
    return Finding(
        code="misaligned-shapes",
        severity="warning" if is_warning else "info",
        title=f"Misaligned shapes: {share(part)} of the operations in matrix products that do not fit tensor cores",
        evidence=[
            *(
                f"{row} (rows, columns, inner size): not all multiples of 8, or 4 in fp32"
                for row in found.shapes[:MAX_SHAPES]
            ),
            "cost unknown, depends on size and library",
        ],
        advice="Pad widths, heads and the vocabulary to a multiple of 64 (50,257 → 50,304); the padding is never used.",
    )


@rule("channels-last", Family.MODEL)
def channels_last(evidence: Evidence) -> Finding | None:
    """Find convolutions in 16 bits on images in channels-first layout."""
    conv, device = evidence.facts.ops.conv, evidence.device
    if device is None or not evidence.has_steps() or conv.share < MIN_CONV_SHARE or conv.channels_last != 0:
        return None
    by_dtype = evidence.facts.ops.flops_by_dtype
    total, half = sum(by_dtype.values()), sum(by_dtype.get(name, 0.0) for name in SIXTEEN_BITS)
    if not total or half < MIN_HALF_SHARE * total:
        return None
    return Finding(
        code="channels-last",
        severity="warning" if device.bound == "device" else "info",
        title=f"Channels-first layout (NCHW) in {conv.count} 16-bit convolutions",
        evidence=[
            f"{share(conv.share)} of the operations are convolutions",
            "tensor cores take NHWC: each call converts images",
        ],
        advice="Call model.to(memory_format=torch.channels_last), and convert the images likewise.",
    )


@rule("deterministic-mode", Family.MODEL)
def deterministic_mode(evidence: Evidence) -> Finding | None:
    """Find torch restricted to deterministic algorithms, some of which are slower. Information."""
    if evidence.device is None or not evidence.has_steps() or not evidence.facts.torch.deterministic:
        return None
    return Finding(
        code="deterministic-mode",
        severity="info",
        title="Deterministic algorithms only (torch.use_deterministic_algorithms)",
        evidence=["scatter, index_add, some convolutions and attention use slower algorithms; cost unknown"],
        advice="If results need not be bitwise reproducible: torch.use_deterministic_algorithms(False), and"
        " torch.backends.cudnn.benchmark=True for convolutions of constant size.",
    )


# The number format of matrix products, compared with those of this GPU.

# Of the time, in which the GPU runs something: below, the step waits for something else than matrix products.
MIN_COMPUTING = 0.50
MIN_PEAK_RATIO = 1.5  # times the peak; 10% or 20% is lost to other kernels
MAX_TENSOR_ACTIVE = 0.05  # of the time that tensor cores are active: exact fp32 never uses them
# Of a format's peak, that matrix products of a model reach at least: so the time that they take, which is what another
# format shortens, is an estimate from above.
REACHED_PEAK_SHARE = 0.3
USUAL_PEAK_SHARE = 0.5  # likewise, that they usually reach: large ones 0.7
MIN_CONV_TF32_SHARE = 0.5  # of the operations in convolutions: their own setting decides


def _busy_peak(evidence: Evidence) -> tuple[str, Peak, float] | None:
    """Return the GPU's name, its peak and its computing share; None where one is unknown or the GPU mostly waits."""
    known, busy = hardware.gpu_peak(evidence), hardware.computing_share(evidence)
    if known is None or busy is None or not evidence.has_steps() or busy < MIN_COMPUTING:
        return None
    return *known, busy


@rule("fp32-matmul", Family.MODEL, only_bound=True)
def fp32_matmul(evidence: Evidence) -> Finding | None:
    """Find matrix products in exact fp32 on a GPU with TF32."""
    trace = traced.kernel_trace(evidence)
    if trace is not None:
        return _fp32_kernels(evidence, trace)
    known = _busy_peak(evidence)
    if known is None:
        return None
    name, peak, busy = known
    if not hardware.is_fp32(evidence) or hardware.allows_tf32(evidence) is not False or _uses_tensor_cores(evidence):
        return None
    if peak.fp32 is None or peak.tf32 is None or not _has_tf32(peak) or _convolves_in_tf32(evidence):
        return None  # GeForce: the same peak; before Ampere there is no TF32
    lost = _product_share(evidence, busy, peak.fp32) * (1 - peak.fp32 / peak.tf32)
    if evidence.facts.framework == "transformers":
        advice = "Set tf32=True in TrainingArguments. bf16=True gains more, where it fits."
    else:
        advice = (
            'Call torch.set_float32_matmul_precision("high") before training. bf16 autocast gains more, where it fits.'
        )
    return Finding(
        code="fp32-matmul",
        title=f"Exact fp32 matrix products: peak {peak.fp32:,g} TFLOPS instead of {peak.tf32:,g} with TF32",
        evidence=[_fp32_line(name, busy), 'torch.get_float32_matmul_precision() is "highest"'],
        advice=advice,
        cost=lost * REACHED_PEAK_SHARE / USUAL_PEAK_SHARE,
        estimated=True,
        lost_fraction=lost * evidence.loop_share,
    )


HALF_THE_BYTES = 0.5  # of a pass over memory's time
PEAK_RATIO_REACHED = 0.5  # of the peaks' ratio: what products gain by the faster format at least, if they are large


def _fp32_kernels(evidence: Evidence, trace: TraceReport) -> Finding | None:
    """Find them by the kernels that ran."""
    part, known = traced.step_share(evidence, trace, MATRIX + FP32), hardware.gpu_peak(evidence)
    if known is None or not part:
        return None
    name, peak = known
    if peak.fp32 is None or peak.tf32 is None or not _has_tf32(peak):
        return None
    left = peak.fp32 / peak.tf32  # of their time, where both formats reach as much of their peak
    is_chosen = hardware.is_fp32(evidence)
    advice = 'Call torch.set_float32_matmul_precision("high") before training.'
    if not is_chosen:
        advice += " Or find what makes their inputs float32, as a .float() in the model does."
    # What comes with fp32: passes over memory with twice the bytes.
    others = traced.step_share(evidence, trace, *PASSES_OVER_MEMORY) * evidence.loop_share
    part *= evidence.loop_share
    return Finding(
        code="fp32-matmul",
        title=f"Exact fp32 matrix products, no tensor cores: {share(part)} of the step",
        evidence=[
            *traced.kernel_lines(traced.kernels(evidence, MATRIX + FP32)),
            f"{traced.how(trace)}; {name}: peak {peak.fp32:,g} TFLOPS, {peak.tf32:,g} with TF32",
        ],
        advice=advice,
        lost_fraction=part + HALF_THE_BYTES * others,
        likely_fraction=part * (1 - left),
        least_fraction=part * (1 - min(1.0, left / PEAK_RATIO_REACHED)),
    )


def _fp32_line(name: str, busy: float) -> str:
    return f"{name} busy {share(busy)} of the time; all parameters float32, no autocast"


def _uses_tensor_cores(evidence: Evidence) -> bool:
    """Return whether matrix products run on tensor cores already, whatever the settings say."""
    device = evidence.device
    return device is not None and device.tensor_active is not None and device.tensor_active >= MAX_TENSOR_ACTIVE


def _has_tf32(peak: Peak) -> bool:
    return peak.fp32 is not None and peak.tf32 is not None and peak.tf32 >= MIN_PEAK_RATIO * peak.fp32


def _convolves_in_tf32(evidence: Evidence) -> bool:
    """Return whether most work is in convolutions, for which cuDNN's own setting allows TF32 by default."""
    conv = evidence.facts.ops.conv
    return conv.tf32 is True and conv.share >= MIN_CONV_TF32_SHARE


def _product_share(evidence: Evidence, busy: float, tflops: float) -> float:
    """Return the share of the time in matrix products at this peak, at most; all busy time where they are unknown.

    A network on graphs, or one that is solved for a differential equation, hardly has any.
    """
    ops, seconds = read_operations(evidence.facts), evidence.step_seconds
    if ops is None or ops.unknown or not ops.flops or not seconds:
        return busy
    return min(busy, ops.flops * hardware.calls_per_step(evidence) / (REACHED_PEAK_SHARE * tflops * 1e12) / seconds)


@rule("no-mixed-precision", Family.MODEL, only_bound=True)
def no_mixed_precision(evidence: Evidence) -> Finding | None:
    """Find training in fp32 on a GPU with much faster 16-bit formats."""
    known = _busy_peak(evidence)
    if known is None:
        return None
    name, peak, busy = known
    allowed = _convolves_in_tf32(evidence) or hardware.allows_tf32(evidence)
    if not allowed and _uses_tensor_cores(evidence):
        return None
    now = peak.tflops("tf32" if allowed else "fp32")
    half = peak.bf16 or peak.fp16
    if not hardware.is_fp32(evidence) or allowed is None or not now or not half or half < MIN_PEAK_RATIO * now:
        return None
    lost = _product_share(evidence, busy, now) * (1 - now / half)
    dtype = "bf16" if peak.bf16 else "fp16"
    # TF32 is one line that changes no weight update: the first thing to do.
    has_fp32_finding = fp32_matmul(evidence) is not None
    is_chosen = bool(allowed) and _has_tf32(peak)  # tensor cores are in use: the precision may be intended
    return Finding(
        code="no-mixed-precision",
        cost=None if has_fp32_finding else lost * REACHED_PEAK_SHARE / USUAL_PEAK_SHARE,
        certain=not is_chosen,
        estimated=True,
        title=f"No mixed precision: peak {now:,g} TFLOPS instead of {half:,g} with {dtype}",
        evidence=[_fp32_line(name, busy), "mixed precision speeds up matrix products only"],
        advice=_mixed_advice(evidence, dtype),
        lost_fraction=None if has_fp32_finding else lost * evidence.loop_share,
    )


def _mixed_advice(evidence: Evidence, dtype: str) -> str:
    framework = evidence.facts.framework
    if framework == "transformers":
        advice = f"Set {dtype}=True in TrainingArguments"
    elif framework == "lightning":
        advice = f'Use Trainer(precision="{"bf16-mixed" if dtype == "bf16" else "16-mixed"}")'
    else:
        name = "bfloat16" if dtype == "bf16" else "float16"
        advice = f"Run forward and loss under torch.autocast with dtype torch.{name}"
    return advice + ("." if dtype == "bf16" else ", with a loss scaler: this GPU has no bf16.")


# A part of a model may be in float64 on purpose: a loss, a solver. All of it is rarely meant.
MIN_DOUBLE_SHARE = 0.9
DOUBLE_GAIN = 0.5  # of the time: a CPU computes and moves half as many float64 as float32


@rule("double-precision", Family.MODEL, suppresses=("elementwise-heavy",), only_bound=True)
def double_precision(evidence: Evidence) -> Finding | None:
    """Find a model that is trained in float64, or kernels that compute in it."""
    trace = traced.kernel_trace(evidence)
    return _double_model(evidence) or (None if trace is None else _double_kernels(evidence, trace))


def _double_kernels(evidence: Evidence, trace: TraceReport) -> Finding | None:
    rows = [row for row in traced.kernels(evidence) if type_of(row.name) == "float64"]
    part = sum(row.share for row in rows) * traced.step_share(evidence, trace)
    if not part:
        return None
    # Names of many elementwise kernels do not tell their format: they may be of the same tensors.
    passes = sum(row.share for row in traced.kernels(evidence, ELEMENTWISE, CASTS, COPY_ON) if not type_of(row.name))
    known, most = (each * evidence.loop_share for each in (part, part + passes * traced.step_share(evidence, trace)))
    return Finding(
        code="double-precision",
        certain=evidence.facts.torch.default_dtype != "torch.float64",
        title=f"Double precision: kernels in float64{traced.main_phase(rows)} take {share(part)} of the step or more",
        evidence=[*traced.kernel_lines(rows), f"{traced.how(trace)}, by the kernels' names"],
        advice="Find the tensor that is float64: NumPy makes them by default, and what is computed with one is float64,"
        " too. Convert it once: torch.from_numpy(x).float().",
        lost_fraction=most,
        likely_fraction=most * HALF_THE_BYTES,
        least_fraction=known * HALF_THE_BYTES,
    )


def _double_model(evidence: Evidence) -> Finding | None:
    dtypes = evidence.facts.optimizer.dtypes
    double, total = dtypes.get("float64", 0), sum(dtypes.values())
    names = ("forward", "backward", "training", "optimizer")
    whole = sum(row.mean * row.count for row in evidence.report.phases if row.name in names)
    if total <= 0 or double < MIN_DOUBLE_SHARE * total or not evidence.has_steps():
        return None
    on_cpu = hardware.model_device(evidence) == "cpu"
    is_meant = evidence.facts.torch.default_dtype == "torch.float64"
    lines = [f"{share(double / total)} of {total:,} trained parameters are float64"]
    lines += ["torch.set_default_dtype(torch.float64): it is meant for all tensors"] if is_meant else []
    return Finding(
        code="double-precision",
        severity="info" if is_meant and not on_cpu else "" if on_cpu else "warning",
        certain=not is_meant,
        title="Double precision: the model computes in float64",
        evidence=lines,
        advice="Train in float32: convert the data instead of the model, by torch.from_numpy(x).float(). NumPy makes"
        " float64 by default.",
        cost=evidence.loop_part(evidence.named_seconds(*names)) * DOUBLE_GAIN if on_cpu else None,
        estimated=True,
        lost_fraction=evidence.wall_part(whole) * DOUBLE_GAIN if on_cpu else None,  # a bound: long first steps, too
    )
