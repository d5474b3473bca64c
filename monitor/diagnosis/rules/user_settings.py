"""Settings left on by mistake, and torch.compile that costs more than it gains. Pure."""

from __future__ import annotations

import re

from monitor.diagnosis.judge import MIN_COST
from monitor.diagnosis.rule import Evidence, Family, Suppress, rule
from monitor.diagnosis.rules.batching import LATE_LAUNCHES
from monitor.model.report import Finding
from monitor.model.steps.sampled_calls import calls_seen
from monitor.step_blocks import OTHER
from monitor.units import duration, plural, share
from trainhooks.protocol.calls import EMPTIES_CACHE

# These explain all late launches, whatever they cost: each launch is waited for or recorded, code that should be
# compiled runs eagerly, the allocator starts over.
DELAYS_ALL_LAUNCHES = Suppress(("launch-bound", "small-batch"))


# Before others: it distorts all other measurements.
@rule("debug-settings", Family.MODEL, priority=2, suppresses=("gpu-starved", DELAYS_ALL_LAUNCHES))
def debug_settings(evidence: Evidence) -> Finding | None:
    """Find debugging switches that make every step slower."""
    if not evidence.has_steps():
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


def _debug_lines(evidence: Evidence) -> list[str]:
    """Return a line for each debugging switch that is on: its name, a colon, what it does."""
    flags, environment, tools = evidence.facts.torch, evidence.facts.environment, evidence.facts.python
    lines = []
    if evidence.report.gpus:
        lines += [f"{name}={on}: {does}" for (name, on), does in ON_A_GPU.items() if environment.get(name) == on]
    if environment.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL" and (evidence.report.run.ranks or 1) > 1:
        lines.append("TORCH_DISTRIBUTED_DEBUG=DETAIL: each collective is checked by another one")
    if flags.detect_anomaly:
        lines.append("autograd anomaly detection: records a traceback for each operation")
    if flags.profiler:
        lines.append("torch profiler is running")
    lines += ["a debugger or coverage: called at each line"] if tools.trace else []
    lines += ["a Python profiler: called at each function call"] if tools.profile else []
    lines += ["tracemalloc: records a traceback for each allocation"] if tools.tracemalloc else []
    samples = calls_seen(evidence.state.main.samples.by_phase(), EMPTIES_CACHE)
    if samples.share >= MIN_COST:
        lines.append(
            f"torch.cuda.empty_cache() in each step: {share(samples.share)} of stack samples, at {samples.places[0]};"
            " the freed memory is requested again at once"
        )
    return lines


# torch.compile, from the facts that the hooks publish.

MIN_RECOMPILES = 5  # a dynamic shape takes one or two before torch generalizes it; its limit per function is 8
# Or as often as this, where it is in half of the steps so far: a run of four steps that compiles in each has no more.
MIN_FREQUENT_RECOMPILES, MIN_RECOMPILED_SHARE = 2, 0.5
MIN_WARMUP_SHARE = 0.10  # of the elapsed time
MAX_SHOWN_REASONS = 3


# A guard on a Python number, as torch names it: `0/1: n == 2`, `1/0: L['self'].step == 5`. Shapes are of tensors.
_NUMBER_GUARD = re.compile(r"^\d+/\d+: (?!.*\bsize\b)[^=<>]{1,200} == -?\d")
NUMBER_ADVICE = (
    "A number that changes from call to call is compiled in: pass it as a tensor, or keep what depends on it out of the"
    " compiled function; TORCH_LOGS=recompiles names each reason."
)
SHAPE_ADVICE = (
    "Mark the dimension that changes (torch._dynamo.mark_dynamic, dynamic=True), or pad to a few fixed lengths;"
    " TORCH_LOGS=recompiles names each reason."
)


@rule("recompiling", Family.COMPILE, suppresses=(Suppress(("gpu-starved",), if_most=True), LATE_LAUNCHES))
def recompiling(evidence: Evidence) -> Finding | None:
    """Find torch.compile that compiles again and again."""
    compiled = evidence.facts.compile
    times = compiled.recompiles or 0
    often = times >= MIN_FREQUENT_RECOMPILES and times >= MIN_RECOMPILED_SHARE * (evidence.steps - 1)
    if times < MIN_RECOMPILES and not often:
        return None
    seconds, reasons = compiled.seconds or 0.0, compiled.reasons[:MAX_SHOWN_REASONS]
    # Where torch has given up, recompiling is over and what it runs now counts; lengths can still be fixed.
    is_over = bool(compiled.fallback) and not any("size" in reason for reason in reasons)
    numbers = all(_NUMBER_GUARD.search(reason) for reason in reasons) and bool(reasons)
    return Finding(
        code="recompiling",
        cost=evidence.wall_part(seconds),
        certain=not is_over,
        title=f"torch.compile: {plural(times, 'recompile', 'recompiles')}",
        evidence=[f"{duration(seconds)} spent compiling", *reasons],
        advice=NUMBER_ADVICE if numbers else SHAPE_ADVICE,
        lost_fraction=min(1.0, evidence.wall_part(seconds)),
    )


@rule("compile-fallback", Family.COMPILE, suppresses=("gpu-starved", DELAYS_ALL_LAUNCHES))
def compile_fallback(evidence: Evidence) -> Finding | None:
    """Find torch.compile that gave up, so that its code runs eagerly."""
    if not evidence.facts.compile.fallback:
        return None
    return Finding(
        code="compile-fallback",
        severity="warning",
        title="torch.compile fell back to eager execution",
        evidence=evidence.facts.compile.reasons[:MAX_SHOWN_REASONS],
        advice="Past its recompile limit torch runs the function eagerly without a message. Remove what changes from"
        " call to call, or raise torch._dynamo.config.recompile_limit; TORCH_LOGS=recompiles,graph_breaks shows where.",
    )


MIN_CAPTURES = 16
MIN_CAPTURES_SHARE = 0.25  # of the steps; their number is known to within a factor of two, from below


@rule("graph-recapture", Family.GPU, suppresses=("unaccounted-time", "gpu-starved", LATE_LAUNCHES))
def graph_recapture(evidence: Evidence) -> Finding | None:
    """Find CUDA graphs that are captured again and again, in place of replayed."""
    captures, steps = evidence.facts.torch.graph_captures or 0, evidence.steps
    if captures < MIN_CAPTURES or captures < MIN_CAPTURES_SHARE * steps or not evidence.has_steps():
        return None
    return Finding(
        code="graph-recapture",
        severity="warning",
        title=f"CUDA graphs captured again: {captures:,} or more in {steps:,} steps",
        evidence=["a capture costs the host more than the step that it holds", *evidence.places(OTHER)],
        advice="Capture once, with inputs in static tensors, and copy each batch into them before replay(). For inputs"
        " of several shapes keep a graph for each.",
    )


@rule("compile-warmup", Family.COMPILE)
def compile_warmup(evidence: Evidence) -> Finding | None:
    """Find compile time that a short run does not pay back."""
    seconds = evidence.facts.compile.seconds or 0.0
    lost = evidence.wall_part(seconds)
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
