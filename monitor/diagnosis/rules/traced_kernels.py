"""Findings from traced kernels: what the GPU is busy with. Pure.

Shares are of a usual step's time. A kernel's time is measured; what another kernel would take is not, unless a peak
tells.
"""

from __future__ import annotations

from monitor.diagnosis import traced
from monitor.diagnosis.judge import CRITICAL_COST, WARNING_COST
from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.kernels import MAX_TENSOR_ACTIVE
from monitor.model.device.kernel_classes import (
    CASTS,
    COPY_ON,
    DIRECT_CONVOLUTION,
    ELEMENTWISE,
    INDEXING,
    LOSS,
    MATRIX,
    OTHER,
    SCAN,
    SORTING,
    type_of,
)
from monitor.model.device.trace_report import Kernel, TraceReport
from monitor.model.report import Finding
from monitor.units import share
from trainhooks.protocol.limits import clean

# Dense work keeps tensor cores active a tenth of the time or more, other work the memory half of it or more.
MAX_MEMORY_ACTIVE = 0.20


# Kernels for which there is mostly a faster way, whatever their sizes. They use no tensor cores, and more than memory's
# bandwidth holds them up: collisions, passes over the data again and again, one thread for a whole filter.
SLOW = {
    DIRECT_CONVOLUTION: "Try another algorithm for this convolution: torch.backends.cudnn.benchmark = True,"
    " channels_last, fewer groups, or a product of Fourier transforms (torch.fft) where the filter is long.",
    SORTING: "Sort less: torch.topk(..., sorted=False) where the largest values are enough, or a threshold; fewer"
    " columns, or once a step.",
    SCAN: "Scan along the last dimension of a contiguous tensor, in int32 or float32, or once a step: along another"
    " dimension one thread walks through each column.",
    INDEXING: "Rows that many indices hit are added one after another. Sum groups by a matrix product where there are"
    " few of them, or sort the indices and use torch.segment_reduce; index fewer rows at once.",
}


@rule("slow-kernel", Family.MODEL, no_bound=True)
def slow_kernel(evidence: Evidence) -> Finding | None:
    """Find a class of kernels that takes much of the step though it is slow for what it computes."""
    trace = traced.kernel_trace(evidence)
    if trace is None:
        return _estimated(evidence)
    kind = max(SLOW, key=lambda name: trace.share(name))
    part, advice, reason = traced.step_share(evidence, trace, kind), SLOW[kind], "these kernels use no tensor cores"
    if part < WARNING_COST:
        kind = _near_neither_peak(evidence, trace)
        part = traced.step_share(evidence, trace, kind) if kind else 0.0
        advice = "Look for another implementation, or compile it."
        reason = "the driver reports tensor cores and memory hardly used"
    if not kind:
        return None
    kernels = traced.kernels(evidence, kind)
    return Finding(
        code="slow-kernel",
        title=f"Slow kernels: {kind}{traced.main_phase(kernels)}, {share(part)} of the step",
        evidence=[*traced.kernel_lines(kernels), f"{traced.how(trace)}; {reason}; gain not known"],
        advice=advice,
        lost_fraction=part * evidence.loop_share,
    )


def _near_neither_peak(evidence: Evidence, trace: TraceReport) -> str:
    """Return the class that takes most of the time where the driver sees neither peak in use; empty: none."""
    if not _uses_neither(evidence) or evidence.min_idle > CRITICAL_COST:  # an idle GPU has a finding of its own
        return ""
    known = (MATRIX, "copy", "mem", "comm")  # memory's own speed, and the network's, are no matter of the kernel
    return next((row.name for row in trace.classes if not row.name.startswith(known)), "")


def _uses_neither(evidence: Evidence) -> bool:
    device = evidence.device
    tensor, memory = (None, None) if device is None else (device.tensor_active, device.memory_active)
    return tensor is not None and memory is not None and tensor <= MAX_TENSOR_ACTIVE and memory <= MAX_MEMORY_ACTIVE


MIN_ACTIVE = 0.80  # of the time that the SMs are active: then it is the kernels, not the host
MAX_MFU = 0.03  # the model's own operations take no more of the peak; fp32 without tensor cores reaches 5% of bf16's


def _estimated(evidence: Evidence) -> Finding | None:
    """Find it without a trace: busy SMs that do little, by the driver."""
    device, mfu = evidence.device, evidence.report.throughput.mfu
    if device is None or device.sm_active is None or mfu is None or not evidence.has_steps():
        return None
    if device.sm_active < MIN_ACTIVE or mfu > MAX_MFU or not _uses_neither(evidence):
        return None
    rows = [row for row in evidence.report.phases if row.clock == "cuda"]
    most = max(rows, key=lambda row: row.share, default=None)
    where = f", most in {clean(most.name, 20)} ({share(most.share)} of the step)" if most is not None else ""
    return Finding(
        code="slow-kernel",
        severity="warning",
        title=f"Slow kernels{where}: SMs active {share(device.sm_active)}, at neither peak (estimate)",
        evidence=[
            f"tensor cores active {share(device.tensor_active)}, memory {share(device.memory_active)}",
            f"MFU {share(mfu)}",
            "an estimate by the driver: no step was traced, so that the kernel is not known; gain not known",
        ],
        advice="See which kernel it is by a trace: trainmon run makes one where it may. Often it is a convolution with"
        " long filters or many groups, a sort, a scan, or indexing that adds up.",
    )


# Passes over memory: more than half of the GPU's time in them is more than any matrix products get. In a network of
# attention or convolutions in eager mode they take a seventh to a quarter.
MIN_PASSES = 0.30  # of the step
SURE_PASSES = 0.50  # of the time in which kernels run
MIN_TYPE_SHARE = 0.5  # of their time, for a number format to be named
ONE_BY_ONE = ("optimizer", OTHER)  # phases in which tensors are mostly updated one after another


@rule("elementwise-heavy", Family.MODEL, no_bound=True)
def elementwise_heavy(evidence: Evidence) -> Finding | None:
    """Find steps of which most is spent in elementwise kernels, casts and copies: passes over the same memory."""
    trace = traced.kernel_trace(evidence)
    if trace is None:
        return None
    kernels = [row for row in traced.kernels(evidence, ELEMENTWISE, CASTS, COPY_ON) if "compiled" not in row.kind]
    ran = sum(row.share for row in kernels)  # of the time in which kernels run
    part = ran * traced.step_share(evidence, trace)
    if part < MIN_PASSES:
        return None
    lines = [*traced.kernel_lines(kernels), *_formats(kernels)]
    where = traced.main_phase(kernels)
    updates = sum(row.seconds for row in kernels if row.phase in ONE_BY_ONE)
    advice = (
        "Fuse them: torch.compile the function that has them, or use one kernel of a library (layer_norm, rms_norm,"
        " scaled_dot_product_attention, cross_entropy). Keep bf16 where fp32 is not needed; index in place of one-hot."
    )
    if updates > MIN_TYPE_SHARE * sum(row.seconds for row in kernels):
        lines += evidence.places(OTHER)
        advice = "Update all tensors at once: torch.optim with fused=True, or torch._foreach_ functions." + (
            " Or compile the update with torch.compile."
        )
    return Finding(
        code="elementwise-heavy",
        certain=ran >= SURE_PASSES,
        title=f"Elementwise kernels{where} take {share(part)} of the step: each is a pass over memory",
        evidence=[
            *lines,
            f"{traced.how(trace)}; matrix products {share(traced.step_share(evidence, trace, MATRIX))}; gain not known",
        ],
        advice=advice,
        lost_fraction=part * evidence.loop_share,
    )


def _formats(kernels: list[Kernel]) -> list[str]:
    """Return the number format of most of the kernels' time, as far as their names tell; empty: none."""
    seconds: dict[str, float] = {}
    for row in kernels:
        seconds[type_of(row.name)] = seconds.get(type_of(row.name), 0.0) + row.seconds
    total = sum(seconds.values())
    return [
        f"{share(spent / total)} of it in {name}"
        for name, spent in seconds.items()
        if name and spent >= MIN_TYPE_SHARE * total
    ]


# Of its kernels' time, at most: a cast to float32 and back moves 12 bytes a value, the loss itself 20 in float32.
CASTS_OF_LOSS = 0.6


@rule("loss-heavy", Family.MODEL, no_bound=True)
def loss_heavy(evidence: Evidence) -> Finding | None:
    """Find a loss whose kernels take much of the step: a softmax over a large vocabulary, in fp32."""
    trace = traced.kernel_trace(evidence)
    part = traced.step_share(evidence, trace, LOSS) if trace is not None else 0.0
    if trace is None or not part:
        return None
    kernels = traced.kernels(evidence, LOSS)
    cost = part + min(CASTS_OF_LOSS * part, traced.step_share(evidence, trace, CASTS))
    return Finding(
        code="loss-heavy",
        title=f"Loss takes {share(part)} of the step, without the product that makes its inputs",
        evidence=[
            *traced.kernel_lines(kernels),
            f"{traced.how(trace)}; with casts of its inputs perhaps {share(cost)}; gain not known",
        ],
        advice="Leave the inputs in bf16 and let cross_entropy do the rest; give it class indices, no one-hot targets."
        " Compile the loss with the last layer, or take a fused linear cross entropy, which never writes all of them.",
        cost=cost,
        lost_fraction=part * evidence.loop_share,
    )
