"""Settings left on by mistake, and torch.compile that costs more than it gains. Pure."""

from __future__ import annotations

from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.batching import LATE_LAUNCHES
from monitor.model import operations
from monitor.model.report import Finding
from monitor.units import duration, plural, share

# Of the stack samples; giving memory back waits for the GPU, and a loop that does it seldom is never sampled there.
MIN_EMPTY_CACHE_SHARE = 0.03

# These explain all late launches, whatever they cost: each launch is waited for or recorded, code that should be
# compiled runs eagerly, the allocator starts over.
DELAYS_ALL_LAUNCHES = Suppress(("launch-bound", "small-batch"))


# Before others: it distorts all other measurements.
@rule("debug-settings", Family.MODEL, priority=2, suppresses=("gpu-starved", DELAYS_ALL_LAUNCHES))
def debug_settings(evidence: Evidence) -> Finding | None:
    """Find debugging switches that make every step slower."""
    if not evidence.enough():
        return None
    lines = _debug_lines(evidence)
    if not lines:
        return None
    return Finding(
        code="debug-settings",
        severity="warning",
        title=f"Debug setting left on: {lines[0].partition(':')[0]}",
        evidence=lines,
        advice="Turn it off for runs that need speed; compare the next run with this one to see what it costs.",
    )


# Switches of torch that cost time with a GPU.
ON_A_GPU = {
    ("CUDA_LAUNCH_BLOCKING", "1"): "each kernel is waited for before the next one is launched",
    (
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "1",
    ): "each tensor is allocated and freed by the driver, which waits for the GPU",
}
# Tools that Python calls, by the name of their fact.
TOOLS = {
    "trace": "a debugger or coverage: called at each line",
    "profile": "a Python profiler: called at each function call",
    "tracemalloc": "tracemalloc: records a traceback for each allocation",
}


def _debug_lines(evidence: Evidence) -> list[str]:
    """Return a line for each debugging switch that is on: its name, a colon, what it does."""
    flags, environment, tools = (evidence.facts(name) for name in ("torch", "environment", "python"))
    lines = []
    if evidence.report.gpus:
        lines += [f"{name}={on}: {does}" for (name, on), does in ON_A_GPU.items() if environment.get(name) == on]
    if environment.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL" and (evidence.report.run.ranks or 1) > 1:
        lines.append("TORCH_DISTRIBUTED_DEBUG=DETAIL: each collective is checked by another one")
    if flags.get("detect_anomaly") is True:
        lines.append("autograd anomaly detection: records a traceback for each operation")
    if flags.get("profiler") is True:
        lines.append("torch profiler is running")
    lines += [line for name, line in TOOLS.items() if tools.get(name) is True]
    samples = operations.calls_seen(evidence.state.main.frames, frozenset(("empty_cache",)))
    if samples.share >= MIN_EMPTY_CACHE_SHARE:
        lines.append(
            f"torch.cuda.empty_cache() in each step: {share(samples.share)} of stack samples, at {samples.places[0]};"
            " the freed memory is requested again at once"
        )
    return lines


# torch.compile, from the facts that the hooks publish.

MIN_RECOMPILES = 5  # a dynamic shape takes one or two before torch generalizes it; its limit per function is 8
# Or as often as this, where it is in half of the steps so far: a run of four steps that compiles in each has no more.
MIN_FREQUENT_RECOMPILES, MIN_RECOMPILED_SHARE = 2, 0.5
MIN_COMPILE_SHARE = 0.03  # of the elapsed time: what a long run recompiled at its start costs it nothing
MIN_WARMUP_SHARE = 0.10  # of the elapsed time
MAX_REASONS = 3


def _seconds(evidence: Evidence) -> float:
    value = evidence.facts("compile").get("seconds")
    return value if isinstance(value, int | float) else 0.0


def _reasons(evidence: Evidence) -> list[str]:
    reasons = evidence.facts("compile").get("reasons")
    return [str(reason) for reason in reasons[:MAX_REASONS]] if isinstance(reasons, list) else []


@rule("recompiling", Family.COMPILE, suppresses=(Suppress(("gpu-starved",), if_most=True), LATE_LAUNCHES))
def recompiling(evidence: Evidence) -> Finding | None:
    """Find torch.compile that compiles again and again."""
    facts = evidence.facts("compile")
    count = facts.get("recompiles")
    times = int(count) if isinstance(count, int | float) else 0
    often = times >= MIN_FREQUENT_RECOMPILES and times >= MIN_RECOMPILED_SHARE * (evidence.steps - 1)
    if times < MIN_RECOMPILES and not often:
        return None
    seconds, reasons = _seconds(evidence), _reasons(evidence)
    # Where torch has given up, recompiling is over and what it runs now counts; lengths can still be fixed.
    is_over = bool(facts.get("fallback")) and not any("size" in reason for reason in reasons)
    is_small = evidence.of_wall(seconds) < MIN_COMPILE_SHARE
    return Finding(
        code="recompiling",
        severity="info" if is_over or is_small else "warning",
        title=f"torch.compile: {plural(times, 'recompile', 'recompiles')}",
        evidence=[f"{duration(seconds)} spent compiling", *reasons],
        advice="Mark the dimension that changes (torch._dynamo.mark_dynamic, dynamic=True), or pad to a few fixed"
        " lengths; TORCH_LOGS=recompiles names each reason.",
        lost_fraction=min(1.0, evidence.of_wall(seconds)),
    )


@rule("compile-fallback", Family.COMPILE, suppresses=("gpu-starved", DELAYS_ALL_LAUNCHES))
def compile_fallback(evidence: Evidence) -> Finding | None:
    """Find torch.compile that gave up, so that its code runs eagerly."""
    if not evidence.facts("compile").get("fallback"):
        return None
    return Finding(
        code="compile-fallback",
        severity="warning",
        title="torch.compile fell back to eager execution",
        evidence=_reasons(evidence),
        advice="Past its recompile limit torch runs the function eagerly without a message. Remove what changes from"
        " call to call, or raise torch._dynamo.config.recompile_limit; TORCH_LOGS=recompiles,graph_breaks shows where.",
    )


@rule("compile-warmup", Family.COMPILE)
def compile_warmup(evidence: Evidence) -> Finding | None:
    """Find compile time that a short run does not pay back."""
    seconds = _seconds(evidence)
    lost = evidence.of_wall(seconds)
    if evidence.is_running or lost < MIN_WARMUP_SHARE or recompiling(evidence) is not None:
        return None
    return Finding(
        code="compile-warmup",
        severity="info",
        title=f"Compile time: {duration(seconds)}, {share(lost)} of the run",
        evidence=["a long run pays it back, a short one may be faster without torch.compile"],
        advice="Keep the cache between runs (TORCHINDUCTOR_CACHE_DIR), compile repeated blocks instead of the whole"
        " model, or leave compilation out of short runs.",
        lost_fraction=lost,
    )
