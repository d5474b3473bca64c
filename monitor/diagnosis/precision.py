"""The number format of the matrix products, against what this GPU could do. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.operations import operations
from monitor.model.peaks import Peak
from monitor.model.report import Finding
from monitor.units import share

ENOUGH = 20  # steps
# Of the time, in which the GPU runs something: below, the step waits for something else than matrix products.
BUSY = 0.50
FASTER = 1.5  # times the peak; a tenth or two are eaten by what is no matrix product
WORTH = 0.15  # of the time, at most
TENSOR_CORES = 0.05  # of the time that they are active: exact fp32 never uses them
# Of a format's peak, that matrix products of a model reach at least: so the time that they take, which is what another
# format shortens, is an estimate from above.
REACHED = 0.3


def fp32_matmul(evidence: Evidence) -> Finding | None:
    """Matrix products are exact fp32 on a card that has TF32."""
    known, busy = hardware.peak(evidence), hardware.computing_share(evidence)
    if known is None or busy is None or not evidence.enough(ENOUGH) or busy < BUSY:
        return None
    name, peak = known
    if not hardware.full_precision(evidence) or hardware.tf32(evidence) is not False or _uses_tensor_cores(evidence):
        return None
    if peak.fp32 is None or peak.tf32 is None or not _has_tf32(peak) or _convolves_in_tf32(evidence):
        return None  # GeForce: the same peak; before Ampere there is no TF32
    lost = _in_products(evidence, busy, peak.fp32) * (1 - peak.fp32 / peak.tf32)
    if lost < WORTH:
        return None
    return Finding(
        "fp32-matmul",
        "warning",
        f"Matrix products run in exact fp32: {peak.fp32:,g} TFLOPS at most, in TF32 {peak.tf32:,g}",
        [
            f"{name}, busy {share(busy)} of the time; all parameters are float32, and no autocast is used",
            'torch.get_float32_matmul_precision() is "highest"',
        ],
        _tf32_advice(evidence),
        lost * evidence.of_wall(evidence.report.wall.stepping),
    )


def _uses_tensor_cores(evidence: Evidence) -> bool:
    """Whether matrix products run on tensor cores already, whatever the settings say: exact fp32 never does."""
    device = evidence.device
    return device is not None and device.tensor_active is not None and device.tensor_active >= TENSOR_CORES


def _has_tf32(peak: Peak) -> bool:
    return peak.fp32 is not None and peak.tf32 is not None and peak.tf32 >= FASTER * peak.fp32


def _convolves_in_tf32(evidence: Evidence) -> bool:
    """Whether most of the work is in convolutions, which cuDNN's own setting allows TF32: it is on by default."""
    told = hardware.table(evidence, "ops").get("conv")
    if not isinstance(told, dict) or told.get("tf32") is not True:
        return False
    part = told.get("share")
    return isinstance(part, int | float) and part >= 0.5


def _in_products(evidence: Evidence, busy: float, tflops: float) -> float:
    """The share of the time in matrix products at this peak, at most: all of the busy time, where they are not known.

    A network on graphs, or one that is solved for a differential equation, hardly has any.
    """
    seen, seconds = operations(evidence.state.facts), evidence.step_seconds
    if seen is None or seen.unknown or not seen.flops or not seconds:
        return busy
    return min(busy, seen.flops * hardware.calls_a_step(evidence) / (REACHED * tflops * 1e12) / seconds)


def _tf32_advice(evidence: Evidence) -> str:
    if evidence.state.facts.get("framework") == "transformers":
        return "tf32=True in TrainingArguments. bf16=True gains more, where it fits."
    return 'torch.set_float32_matmul_precision("high") before training. bf16 autocast gains more, where it fits.'


def no_mixed_precision(evidence: Evidence) -> Finding | None:
    """All is computed in fp32 on a card with much faster 16-bit formats."""
    known, busy = hardware.peak(evidence), hardware.computing_share(evidence)
    if known is None or busy is None or not evidence.enough(ENOUGH) or busy < BUSY:
        return None
    name, peak = known
    allowed = _convolves_in_tf32(evidence) or hardware.tf32(evidence)
    if not allowed and _uses_tensor_cores(evidence):
        return None
    now = peak.tflops("tf32" if allowed else "fp32")
    half = peak.bf16 or peak.fp16
    if not hardware.full_precision(evidence) or allowed is None or not now or not half or half < FASTER * now:
        return None
    lost = _in_products(evidence, busy, now) * (1 - now / half)
    if lost < WORTH:
        return None
    faster = "bf16" if peak.bf16 else "fp16"
    cheaper_first = fp32_matmul(evidence) is not None  # one line and no change of the weights' updates: told by itself
    chosen = bool(allowed) and _has_tf32(peak)  # tensor cores are in use, and whoever wants these digits may
    return Finding(
        "no-mixed-precision",
        "info" if cheaper_first or chosen else "warning",
        f"No mixed precision: {now:,g} TFLOPS at most, in {faster} {half:,g}",
        [
            f"{name}, busy {share(busy)} of the time; all parameters are float32, and no autocast is used",
            "it speeds matrix products up, and nothing else: the rest of the step stays as it is",
        ],
        _mixed_advice(evidence, faster),
        None if cheaper_first else lost * evidence.of_wall(evidence.report.wall.stepping),
    )


def _mixed_advice(evidence: Evidence, faster: str) -> str:
    framework = evidence.state.facts.get("framework")
    if framework == "transformers":
        said = f"{faster}=True in TrainingArguments"
    elif framework == "lightning":
        said = f'Trainer(precision="{"bf16-mixed" if faster == "bf16" else "16-mixed"}")'
    else:
        said = f"torch.autocast around forward and loss, dtype torch.{'bfloat16' if faster == 'bf16' else 'float16'}"
    return said + ("." if faster == "bf16" else ", with a loss scaler: this card has no bf16.")
