"""torch.compile: what it costs, and when it does not hold. Pure; from the facts that the hooks publish."""

from __future__ import annotations

from typing import Any

from monitor.diagnosis.evidence import Evidence
from monitor.model.report import Finding
from monitor.units import duration, plural, share

RECOMPILES = 5  # a dynamic shape takes one or two before torch generalises it; its limit a function is 8
# Or as often as this, where it is in half of the steps so far: a run of four steps that compiles in each has no more.
AGAIN, HALF_OF_THEM = 2, 0.5
WARMUP_WORTH = 0.10  # of the elapsed time


def _facts(evidence: Evidence) -> dict[str, Any]:
    found = evidence.state.facts.get("compile")
    return found if isinstance(found, dict) else {}


def _number(facts: dict[str, Any], name: str) -> float:
    value = facts.get(name)
    return value if isinstance(value, int | float) else 0


def recompiling(evidence: Evidence) -> Finding | None:
    facts = _facts(evidence)
    times = int(_number(facts, "recompiles"))
    each_step = times >= AGAIN and times >= HALF_OF_THEM * (evidence.steps - 1)
    if times < RECOMPILES and not each_step:
        return None
    seconds = _number(facts, "seconds")
    reasons = facts.get("reasons")
    lines = [f"{plural(times, 'recompile', 'recompiles')}, {duration(seconds)} spent compiling"]
    lines += [str(reason) for reason in reasons[:3]] if isinstance(reasons, list) else []
    # Where torch has given up, recompiling is over, and what it runs now counts; lengths can still be mended.
    over = bool(facts.get("fallback")) and not any("size" in line for line in lines[1:])
    return Finding(
        "recompiling",
        "info" if over else "warning",
        f"torch.compile has recompiled {times} times",
        lines,
        "Mark the dimension that changes (torch._dynamo.mark_dynamic, dynamic=True), or pad to a few fixed lengths;"
        " TORCH_LOGS=recompiles names each reason.",
        min(1.0, evidence.of_wall(seconds)),
    )


def compile_fallback(evidence: Evidence) -> Finding | None:
    facts = _facts(evidence)
    if not facts.get("fallback"):
        return None
    reasons = facts.get("reasons")
    return Finding(
        "compile-fallback",
        "warning",
        "torch.compile has given up: code that was to be compiled runs eagerly",
        [str(reason) for reason in reasons[:3]] if isinstance(reasons, list) else [],
        "Past its recompile limit torch runs the function eagerly without a word. Remove what changes from call to"
        " call, or raise torch._dynamo.config.recompile_limit; TORCH_LOGS=recompiles,graph_breaks shows where.",
    )


def compile_warmup(evidence: Evidence) -> Finding | None:
    seconds = _number(_facts(evidence), "seconds")
    lost = evidence.of_wall(seconds)
    if evidence.report.outcome.state == "running" or lost < WARMUP_WORTH or recompiling(evidence) is not None:
        return None
    return Finding(
        "compile-warmup",
        "info",
        f"Compiling took {duration(seconds)}, {share(lost)} of the run",
        ["a long run pays it back, a short one may be faster without torch.compile"],
        "Keep the cache between runs (TORCHINDUCTOR_CACHE_DIR), compile repeated blocks instead of the whole model, or"
        " leave compilation out of short runs.",
        lost,
    )
