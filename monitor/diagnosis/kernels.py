"""Slow ways to compute what has a fast one: attention that writes out its matrix, an optimizer of small steps. Pure."""

from __future__ import annotations

from typing import Any

from monitor.diagnosis import hardware
from monitor.diagnosis.evidence import Evidence
from monitor.model.flops import flops_a_token, model_of
from monitor.model.report import Finding
from monitor.units import duration, share, size

ENOUGH = 20  # steps
# Of the operations of a token. Eager attention is bound by memory, and takes a larger part of the time than of these.
ATTENTION_WORTH = 0.15
# How often each tensor that holds scores passes through memory: written and read on the way, read again in backward,
# its gradient written and read.
TIMES_MOVED = 5
# Bytes a second that such kernels reach: nine tenths of what data sheets give the memory (A100 2.0, H100 3.35, H200
# 4.8, B200 8 TB/s).
MEMORY_RATE = 3.0e12
MEMORY_RATES = (("h200", 4.3e12), ("b200", 7.2e12), ("h100", 3.0e12), ("a100", 1.8e12))
WRITTEN_WORTH = 0.10  # of the step, by that estimate
MOST_OF_A_STEP = 0.90  # there are matrix products, a loss and an optimizer besides, in any model that attends
OPTIMIZER_WORTH = 0.10  # of step time
OPTIMIZER_ON_CPU = 0.20  # likewise, where a fused step saves fewer starts of kernels
MANY_TENSORS = 20  # to update; of fewer, there is little to put together
HAS_FUSED = ("Adam", "AdamW", "SGD", "Adagrad")  # of torch.optim
FUSED_ON_CPU = (2, 4)  # torch's version from which these are fused on the CPU, too


def slow_attention(evidence: Evidence) -> Finding | None:
    """Attention in its plain form, where it is a large part of the work."""
    return _eager(evidence) or _written_out(evidence)


def _eager(evidence: Evidence) -> Finding | None:
    """By a library's setting."""
    facts = hardware.table(evidence, "model")
    length = usual_length(evidence)
    if facts.get("attention") != "eager" or length is None or not evidence.enough(ENOUGH):
        return None
    model = model_of(facts)
    whole, short = flops_a_token(model, length), flops_a_token(model, 1.0)
    if whole is None or short is None:
        return None
    part = 1 - short / whole
    if part < ATTENTION_WORTH:
        return None
    return Finding(
        "slow-attention",
        "warning",
        f"Attention writes out its whole matrix (eager), and is {share(part)} of the operations",
        [
            f"sequences of {length:,.0f} positions, usually; {model.layers} layers, {model.attention_width:,} wide",
            f"forward and backward take {share(evidence.of_wall(hardware.computing(evidence)))} of the elapsed time",
        ],
        'from_pretrained(..., attn_implementation="sdpa"): the matrix is then never written to memory.',
    )


def _written_out(evidence: Evidence) -> Finding | None:
    """By hand: matrix products and a softmax, whose whole matrix goes through the device's memory."""
    told = hardware.table(evidence, "ops").get("attention_written_out")
    if not isinstance(told, dict) or evidence.device is None or not evidence.enough(ENOUGH):
        return None
    count, moved, length = told.get("count"), told.get("bytes"), told.get("length")
    seconds, calls = evidence.step_seconds, hardware.calls_a_step(evidence)
    if not isinstance(count, int) or not isinstance(moved, int) or not seconds or count < 1:
        return None
    part = min(MOST_OF_A_STEP, TIMES_MOVED * moved * calls / _memory_rate(evidence) / seconds)
    if part < WRITTEN_WORTH or evidence.device.bound in ("host", "data"):
        return None
    place = f", at {told['place']}" if isinstance(told.get("place"), str) else ""
    return Finding(
        "slow-attention",
        "warning",
        f"Attention is written out: its whole matrix goes through memory, some {share(part)} of the step",
        [
            f"{count} softmax over score matrices in one forward pass{place}: {size(moved)} in all",
            *([f"sequences of {length:,} positions"] if isinstance(length, int) else []),
            "each of its tensors is written or read five times, forward and backward, at the memory's speed",
        ],
        "torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True): the matrix is then never written.",
        part * evidence.of_wall(evidence.report.wall.stepping),
    )


def _memory_rate(evidence: Evidence) -> float:
    names = {(each.name or "").lower() for each in hardware.cards(evidence)}
    return max((rate for name, rate in MEMORY_RATES if any(name in each for each in names)), default=MEMORY_RATE)


def usual_length(evidence: Evidence) -> float | None:
    """Positions of a sequence, padding included where it is told."""
    main = evidence.state.main
    if main.lengths.steps:
        return main.lengths.usual()
    return main.pace.tokens / main.pace.samples if main.pace.tokens and main.pace.samples else None


def unfused_optimizer(evidence: Evidence) -> Finding | None:
    """The optimizer's share of the step is large, and it updates one parameter after the other."""
    row, facts = evidence.phase("optimizer"), hardware.table(evidence, "optimizer")
    if row is None or not evidence.enough(ENOUGH) or row.share < OPTIMIZER_WORTH or evidence.host_only:
        return None
    where, kind, tensors = hardware.place(evidence), facts.get("class"), facts.get("tensors")
    if where not in ("cuda", "cpu") or kind not in HAS_FUSED or not isinstance(tensors, int):
        return None
    if not one_by_one(evidence) or tensors < MANY_TENSORS:
        return None
    if where == "cpu" and row.share < OPTIMIZER_ON_CPU:
        return None
    lost = evidence.of_wall(row.mean * row.count)
    settings = ", ".join(f"{name}={facts.get(name)}" for name in ("fused", "foreach"))
    return Finding(
        "unfused-optimizer",
        "warning" if where == "cuda" else "info",
        f"{kind} updates {tensors:,} tensors one by one: {share(row.share)} of step time",
        [f"{settings}, parameters on {where}", f"optimizer {duration(row.mean)} a step"],
        fused_advice(evidence, str(kind)),
        lost,
    )


def one_by_one(evidence: Evidence) -> bool:
    """Whether the optimizer updates each parameter by itself: torch groups them on a GPU, if nobody says otherwise."""
    facts = hardware.table(evidence, "optimizer")
    if "fused" not in facts or facts.get("fused") or facts.get("foreach"):
        return False
    if hardware.place(evidence) == "cpu":
        return _version(evidence) >= FUSED_ON_CPU
    return facts.get("foreach") is False or facts.get("fused") is False


def fused_advice(evidence: Evidence, kind: str) -> str:
    if evidence.state.facts.get("framework") == "transformers":
        return f'optim="{hardware.table(evidence, "config").get("optim", "adamw_torch")}" → "adamw_torch_fused".'
    return f"torch.optim.{kind}(..., fused=True)."


def _version(evidence: Evidence) -> tuple[int, ...]:
    told: Any = hardware.table(evidence, "versions").get("torch")
    parts = told.split(".")[:2] if isinstance(told, str) else []
    return tuple(int(part) for part in parts if part.isdigit())
