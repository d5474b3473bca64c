"""The work of a sample by the operations that were seen: one forward pass, looked at early in the run. Pure.

What grows with the square of the length is kept apart, so the work is a formula and not one number. Recomputation is
not counted: it is a price paid for memory, not work that the model asks for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from monitor.units import share

DIFFERENT = 0.10  # the known formula and what was seen: beyond this, what was seen is right
_DTYPES = {"bfloat16": "bf16", "float16": "fp16"}


@dataclass(frozen=True, slots=True)
class Operations:
    """What one call of the model takes, forward and backward.

    Attributes:
        attention: of `flops`, what grows with the square of the length.
        batch: samples of the call.
        length: positions of each, where its input has such.
        input: the shape of the input, as text.
        step: in which that was.
        unknown: why the work is not known.
    """

    flops: float = 0.0
    attention: float = 0.0
    batch: int | None = None
    length: int | None = None
    input: str = ""
    step: int = 0
    dtype: str | None = None  # fp32 | tf32 | bf16 | fp16, of most of them
    unknown: str | None = None

    def a_sample(self, length: float | None) -> float | None:
        """FLOPs of a sample, forward and backward: of this length, or of the one that was seen."""
        if self.unknown or not self.batch:
            return None
        if length is None or not self.length:
            return self.flops / self.batch
        longer = length / self.length
        return ((self.flops - self.attention) * longer + self.attention * longer**2) / self.batch

    def a_token(self, length: float | None) -> float | None:
        """FLOPs of a token of sequences of this length; None where the input has no length."""
        whole = self.a_sample(length) if self.length and length else None
        return whole / length if whole is not None and length else None


def operations(facts: Mapping[str, Any], precision: str | None = None) -> Operations | None:
    """What the hooks told of operations; None where they told nothing.

    Args:
        facts: all facts of a run.
        precision: torch's setting for fp32 matrix products; below "highest" they run as TF32.
    """
    told = facts.get("ops")
    if not isinstance(told, dict):
        return None
    unknown = told.get("flops_unknown")
    forward, backward, attention = (_amount(told, f"flops_{name}") for name in ("forward", "backward", "attention"))
    if not forward and not unknown:
        unknown = "no operation was seen"
    model = facts.get("model")
    if isinstance(model, dict) and model.get("is_encoder_decoder") and not unknown:
        unknown = "an encoder and a decoder, each with a length of its own"
    return Operations(
        forward + backward,
        min(attention, forward + backward),
        _whole(told, "batch"),
        _whole(told, "length"),
        str(told.get("input", "")),
        _whole(told, "step") or 0,
        _dtype(told, precision),
        unknown if isinstance(unknown, str) else None,
    )


def _dtype(told: Mapping[str, Any], precision: str | None) -> str | None:
    """The format of most of the operations; None where it is none of those that cards' peaks are listed in."""
    table = told.get("flops_by_dtype")
    amounts = {name: _amount(table, name) for name in table} if isinstance(table, dict) else {}
    if not amounts or not sum(amounts.values()):
        return None
    most = max(amounts, key=lambda name: amounts[name])
    if most != "float32":
        return _DTYPES.get(most)
    conv = told.get("conv")
    if isinstance(conv, dict) and _amount(conv, "share") > 0.5 and isinstance(conv.get("tf32"), bool):
        return "tf32" if conv["tf32"] else "fp32"  # a setting of its own, which allows it unless somebody forbids it
    if precision is None:
        return None
    return "fp32" if precision == "highest" else "tf32"


def in_words(seen: Operations, length: float | None) -> str:
    """How the work of a token, or of a sample, comes about."""
    where = f"by the operations of step {seen.step}, on {seen.input}"
    if length and seen.length and seen.batch:
        linear = (seen.flops - seen.attention) / seen.batch / seen.length
        each = seen.attention / seen.batch / seen.length**2
        return f"{flop(linear)} + {flop(each)} x {length:,.0f} tokens long, {where}"
    return f"{flop(seen.flops)} / {seen.batch:,} samples, {where}"


def apart(seen: float, formula: float) -> str | None:
    """What is said where the known formula gives something else than what was seen; None where they agree."""
    if abs(seen / formula - 1) <= DIFFERENT:
        return None
    return f"by its shape and its parameters it would be {flop(formula)}, {share(formula / seen)} of what was seen"


def flop(value: float) -> str:
    for size, name in ((1e12, "TFLOP"), (1e9, "GFLOP"), (1e6, "MFLOP")):
        if value >= size:
            return f"{value / size:,.3g} {name}"
    return f"{value / 1e3:,.3g} kFLOP"


def _amount(table: Mapping[str, Any], name: str) -> float:
    value = table.get(name)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e30 else 0.0


def _whole(table: Mapping[str, Any], name: str) -> int | None:
    value = table.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
