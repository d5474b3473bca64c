"""Every rule, and the one way to run them. Pure."""

from __future__ import annotations

from collections.abc import Callable

from monitor.diagnosis import (
    batches,
    compiling,
    consistency,
    copies,
    disks,
    drift,
    exhaustion,
    headroom,
    host_bound,
    idle_time,
    kernels,
    leak,
    neighbours,
    outliers,
    passes,
    placement,
    precedence,
    precision,
    progress,
    ranks,
    regression,
    settings,
    shapes,
    silence,
    standstill,
    stops,
    synchronizing,
    target,
    waiting,
    worth,
)
from monitor.diagnosis.evidence import Evidence
from monitor.diagnosis.gpu import GpuEvidence, gpu_evidence
from monitor.diagnosis.gpu_trouble import GPU_RULES
from monitor.model.device_use import bound_in_words, busy_in_words
from monitor.model.devices import ours
from monitor.model.fold import OTHER
from monitor.model.report import Finding
from monitor.model.what_if import recoverable
from monitor.units import age, duration, share, times

Rule = Callable[[Evidence], Finding | None]

RULES: tuple[Rule, ...] = (
    silence.nothing_reports,
    standstill.stalled,
    worth.nonfinite_loss,
    worth.reward_flat,
    worth.loss_flat,
    ranks.straggler,
    waiting.input_bound,
    waiting.unaccounted_time,
    batches.padding_waste,
    batches.sequential_generation,
    outliers.length_outliers,
    passes.duplicate_forward,
    passes.sequential_batching,
    placement.training_on_cpu,
    placement.gpu_starved,
    precision.fp32_matmul,
    precision.no_mixed_precision,
    kernels.slow_attention,
    host_bound.small_batch,
    host_bound.launch_bound,
    synchronizing.synchronizing,
    copies.offload,
    copies.pageable_copies,
    shapes.misaligned_shapes,
    shapes.channels_last,
    shapes.deterministic_mode,
    kernels.unfused_optimizer,
    exhaustion.oom_risk,
    exhaustion.memory_fragmented,
    leak.memory_leak,
    headroom.checkpointing_unneeded,
    headroom.memory_headroom,
    target.below_expected,
    regression.regressed,
    stops.checkpoint_stall,
    stops.eval_heavy,
    stops.logging_overhead,
    stops.slow_startup,
    compiling.recompiling,
    compiling.compile_fallback,
    compiling.compile_warmup,
    settings.debug_settings,
    neighbours.cpu_starved,
    settings.oversubscribed,
    settings.swap,
    disks.disk_slow,
    consistency.inconsistent_console,
    drift.slow_drift,
    progress.slow_steps,
    progress.steps_skipped,
)

SHOWN_KINDS, SHOWN_PHASES = 4, 3  # more are a table, which the screens have
WORTH_SHOWING = 0.01  # of step time
ENOUGH_STEPS = 5


def diagnose(evidence: Evidence) -> list[Finding]:
    """The findings, gravest first; among equals the one whose mending can gain most."""
    found = [finding for rule in RULES if (finding := rule(evidence)) is not None]
    gpus = _gpus(evidence)
    found += [finding for gpu_rule in GPU_RULES if (finding := gpu_rule(gpus)) is not None]
    found = idle_time.bounded(evidence, precedence.once(found))
    for each in found:
        each.recoverable = recoverable(evidence.report, each)
    return sorted(found, key=precedence.rank)


def _gpus(evidence: Evidence) -> GpuEvidence:
    state, report = evidence.state, evidence.report
    over = report.outcome.state != "running"
    return gpu_evidence(state.throttles, state.main.timelines, report.wall.total, over, ours(state))


def verdict(findings: list[Finding], evidence: Evidence) -> Finding:
    """The one line for the top of the screen: the first grave finding, else where the time goes."""
    for finding in findings:
        if finding.severity != "info":
            return finding
    if not evidence.steps:
        silent = next((each for each in findings if each.code == silence.CODE), None)
        return silent or _before_the_first_step(evidence)
    return _where_the_time_goes(evidence, quiet=not findings)


def _before_the_first_step(evidence: Evidence) -> Finding:
    now, title = evidence.open, "No step was seen"
    if evidence.report.outcome.state == "running":
        title = "Waiting for the first step"
        if now.step is not None and now.step_seconds is not None:
            where = f", in {now.phase}" if now.phase else ""
            title = f"The first step has been open for {age(now.step_seconds)}{where}"
        elif now.spans:
            name, seconds = now.spans[-1]
            title = f"Starting: {name} for {age(seconds)}"
    return Finding("none", "info", title)


def _where_the_time_goes(evidence: Evidence, quiet: bool) -> Finding:
    report = evidence.report
    if evidence.steps < ENOUGH_STEPS:
        return Finding("none", "info", "Too few steps to judge")
    if report.device is not None and evidence.host_only:
        told = bound_in_words(report.device)
        title = f"{told[0].upper()}{told[1:]}; host clock only: the GPU's phases are not known"
        return Finding("none", "info", title, _busy(evidence))
    slowest = max(report.phases, key=lambda row: row.share)
    name = "time in no named phase" if slowest.name == OTHER else slowest.name
    title = f"{share(slowest.share)} of step time is {name}, {duration(slowest.mean)} a step"
    if report.device is not None:
        told = bound_in_words(report.device)
        title = f"{told[0].upper()}{told[1:]}: {share(slowest.share)} of the GPU's time is {name},"
        title += f" {duration(slowest.mean)} a step"
    return Finding(
        "none", "info", f"{title}; nothing stands out" if quiet else title, _in_numbers(evidence, slowest.name)
    )


def _in_numbers(evidence: Evidence, slowest: str) -> list[str]:
    """How long the kinds of step usually take, where there are a few; and the phases that come next."""
    kinds = [
        f"{duration(baseline.usual())} ({called})"
        for kind, baseline in evidence.state.main.baselines.items()
        if baseline.limit and (called := _called(kind))
    ]
    lines = [f"usual steps: {', '.join(kinds)}"] if 1 < len(kinds) <= SHOWN_KINDS else []
    others = sorted((row for row in evidence.report.phases if row.name != slowest), key=lambda row: -row.share)
    told = [f"{row.name} {share(row.share)}" for row in others[:SHOWN_PHASES] if row.share >= WORTH_SHOWING]
    lines = [*lines, f"then {', '.join(told)}"] if told else lines
    return [*lines, *_busy(evidence)]


def _busy(evidence: Evidence) -> list[str]:
    device = evidence.device
    if device is None or device.busy_least is None:
        return []
    limit = f"; without idle time at most {times(device.gain_limit)} as fast" if device.gain_limit is not None else ""
    return [f"the GPU is {busy_in_words(device)} of the time in steps{limit}"]


def _called(kind: str) -> str:
    """`generator, stage 2`; empty for steps that tell neither."""
    role, _, stage = kind.partition("\n")
    return ", ".join(filter(None, (role, stage and f"stage {stage}")))
