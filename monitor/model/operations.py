"""The work of a call by its operations. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from monitor.units import share
from trainhooks.protocol.facts import Census, RunFacts

# Of one forward pass early in the run.
#
# Work that grows with the square of the length is kept apart, so that the work of other lengths is known. Recomputation
# is not counted: it saves memory and is not the model's own work.

MAX_FORMULA_ERROR = 0.10  # of the formula against the recorded operations; beyond it, these are used
_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, slots=True)
class Operations:
    """The work of one call of the model, forward and backward.

    Attributes:
        attention: the part of `flops` that grows with the square of the length.
        batch: samples of the call; None: unknown.
        length: positions of a sample; None where the input has none.
        input: the shape of the input, as text.
        step: the step of the call.
        unknown: why the work is unknown; None: it is known.
    """

    flops: float = 0.0
    attention: float = 0.0
    batch: int | None = None
    length: int | None = None
    input: str = ""
    step: int = 0
    dtype: str | None = None  # fp32 | tf32 | bf16 | fp16, of most of them
    unknown: str | None = None

    def sample_flops(self, length: float | None) -> float | None:
        """Return the FLOPs of a sample, forward and backward: of this length; None: of the recorded one."""
        if self.unknown or not self.batch:
            return None
        if length is None or not self.length:
            return self.flops / self.batch
        longer = length / self.length
        return ((self.flops - self.attention) * longer + self.attention * longer**2) / self.batch

    def token_flops(self, length: float | None) -> float | None:
        """Return the FLOPs of a token of sequences of this length; None where the input has no length."""
        whole = self.sample_flops(length) if self.length and length else None
        return whole / length if whole is not None and length else None


def read_operations(facts: RunFacts, precision: str | None = None) -> Operations | None:
    """Return the operations that the hooks reported; None where they reported none.

    Args:
        facts: all facts of a run.
        precision: torch's setting for fp32 matrix products; below "highest" they run as TF32.
    """
    ops = facts.ops
    if ops == Census():
        return None
    unknown = ops.flops_unknown or (None if ops.flops_forward else "no operations recorded")
    if facts.model.is_encoder_decoder and not unknown:
        unknown = "encoder-decoder: two sequence lengths"
    flops = ops.flops_forward + ops.flops_backward
    return Operations(
        flops=flops,
        attention=min(ops.flops_attention, flops),
        batch=ops.batch,
        length=ops.length,
        input=ops.input or "",
        step=ops.step or 0,
        dtype=_dtype(ops, precision),
        unknown=unknown,
    )


def _dtype(ops: Census, precision: str | None) -> str | None:
    """Return the format of most of the operations; None: unknown, or no peaks are listed for it."""
    amounts = ops.flops_by_dtype
    if not sum(amounts.values()):
        return None
    most = max(amounts, key=lambda name: amounts[name])
    if most != "float32":
        return _DTYPES.get(most)
    if ops.conv.share > 0.5 and ops.conv.tf32 is not None:
        return "tf32" if ops.conv.tf32 else "fp32"  # convolutions have their own setting; torch allows TF32 by default
    if precision is None:
        return None
    return "fp32" if precision == "highest" else "tf32"


def work_text(seen: Operations, length: float | None) -> str:
    """Return the calculation of the work of a token, or of a sample where `length` is None."""
    where = f"from the operations of step {seen.step} on {seen.input}"
    if length and seen.length and seen.batch:
        linear = (seen.flops - seen.attention) / seen.batch / seen.length
        quadratic = seen.attention / seen.batch / seen.length**2
        return f"{flop_text(linear)} + {flop_text(quadratic)} x {length:,.0f} tokens, {where}"
    return f"{flop_text(seen.flops)} / {seen.batch:,} samples, {where}"


def difference_note(measured: float, formula: float) -> str | None:
    """Return a note where the formula differs from the measured work, both in FLOPs a token; None where they agree."""
    if abs(measured / formula - 1) <= MAX_FORMULA_ERROR:
        return None
    return f"the formula gives {flop_text(formula)}, {share(formula / measured)} of the measured work"


def flop_text(value: float) -> str:
    for size, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if value >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value / 1e3:,.3g} kFLOP"
