"""Shapes and layouts that a device's fast paths do not take: from one forward pass that was looked at. Pure."""

from __future__ import annotations

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import share

ENOUGH = 20  # steps
# Of the operations. Vocabularies of odd size are a fifth to a third of small language models', and worth a word.
MISALIGNED_WORTH = 0.20
MISALIGNED_GRAVE = 0.60  # the model's own width is odd: each product pays
CONV_WORTH = 0.50  # of the operations in convolutions
SIXTEEN_BITS = ("bfloat16", "float16")
SHOWN = 3


def misaligned_shapes(evidence: Evidence) -> Finding | None:
    """Matrix products whose sizes tensor cores cannot take in whole."""
    told = hardware.table(evidence, "ops").get("misaligned")
    if not isinstance(told, dict) or evidence.device is None or not evidence.enough(ENOUGH):
        return None
    part, shapes = told.get("share"), told.get("shapes")
    if not isinstance(part, int | float) or part < MISALIGNED_WORTH:
        return None
    told_shapes = shapes[:SHOWN] if isinstance(shapes, list) else []
    rows = [row for row in told_shapes if isinstance(row, str)]
    grave = part >= MISALIGNED_GRAVE and evidence.device.bound != "host"
    return Finding(
        "misaligned-shapes",
        "warning" if grave else "info",
        f"{share(part)} of the operations are matrix products of sizes that tensor cores do not take whole",
        [
            *(f"{row} (rows, columns, inner size): some no multiple of 8, in fp32 of 4" for row in rows),
            "what that costs differs by size and library: not known",
        ],
        "Make widths, heads and the vocabulary a multiple of 64 (50,257 -> 50,304); what is added is never used.",
    )


def channels_last(evidence: Evidence) -> Finding | None:
    """Convolutions in 16 bits on images laid out channel by channel."""
    ops = hardware.table(evidence, "ops")
    told = ops.get("conv")
    if not isinstance(told, dict) or evidence.device is None or not evidence.enough(ENOUGH):
        return None
    part, count, last = told.get("share"), told.get("count"), told.get("channels_last")
    if not isinstance(part, int | float) or not isinstance(count, int) or part < CONV_WORTH or last != 0:
        return None
    by_dtype = ops.get("flops_by_dtype")
    whole = sum(by_dtype.values()) if isinstance(by_dtype, dict) else 0
    half = sum(by_dtype.get(name, 0) for name in SIXTEEN_BITS) if isinstance(by_dtype, dict) else 0
    if not whole or half < 0.5 * whole:
        return None  # in fp32 the layout gains little
    return Finding(
        "channels-last",
        "warning" if evidence.device.bound == "device" else "info",
        f"{count} convolutions in 16 bits work on images laid out channel by channel (NCHW)",
        [f"{share(part)} of the operations are convolutions", "tensor cores take NHWC: each call converts its images"],
        "model.to(memory_format=torch.channels_last), and the images likewise.",
    )


def deterministic_mode(evidence: Evidence) -> Finding | None:
    """Only algorithms that give the same result each time are allowed: some of them are slower. Information."""
    flags = hardware.table(evidence, "torch")
    if evidence.device is None or not evidence.enough(ENOUGH) or flags.get("deterministic") is not True:
        return None
    return Finding(
        "deterministic-mode",
        "info",
        "Only deterministic algorithms are allowed (torch.use_deterministic_algorithms)",
        ["scatter, index_add, some convolutions and attention take slower ways; what it costs here is not known"],
        "Where results need not be the same to the last bit: torch.use_deterministic_algorithms(False), and"
        " torch.backends.cudnn.benchmark=True for convolutions of constant size.",
    )
