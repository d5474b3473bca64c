"""Findings from traced kernels. Pure."""

from __future__ import annotations

from monitor.diagnosis.rule import Evidence, Family, rule
from monitor.diagnosis.rules.kernels import MAX_TENSOR_ACTIVE
from monitor.model.device.kernel_classes import CONVOLUTION, MATRIX
from monitor.model.report import Finding
from monitor.units import duration, plural, share
from trainhooks.protocol.limits import clean

MIN_KERNEL_SHARE = 0.30  # of the time in which kernels ran, by one kernel in one phase
MIN_LOUD_SHARE = 0.50  # likewise: more than all other kernels together
MIN_BUSY_SHARE = 0.70  # of the traced steps: with less, removing idle time comes first
# Dense work keeps tensor cores active a tenth of the time or more, other work the memory half of it or more.
MAX_MEMORY_ACTIVE = 0.20
NO_WORK = ("copy", "memset", "communication")  # classes of rows that are no kernels of the model's
ADVICE = {
    CONVOLUTION: "Try another algorithm for this convolution: torch.backends.cudnn.benchmark = True, channels_last,"
    " fewer groups, or a product of Fourier transforms (torch.fft) where the filter is hundreds of taps long.",
}


@rule("slow-kernel", Family.MODEL)
def slow_kernel(evidence: Evidence) -> Finding | None:
    """Find a kernel that takes much of the device's time, though neither tensor cores nor memory are much used."""
    device = evidence.device
    trace = device.trace if device is not None else None
    if device is None or trace is None or not trace.kernels or (trace.busy or 0.0) < MIN_BUSY_SHARE:
        return None
    tensor, memory, top = device.tensor_active, device.memory_active, trace.kernels[0]
    if tensor is None or memory is None or tensor > MAX_TENSOR_ACTIVE or memory > MAX_MEMORY_ACTIVE:
        return None
    if top.share < MIN_KERNEL_SHARE or top.kind.startswith((*NO_WORK, MATRIX)):
        return None
    return Finding(
        code="slow-kernel",
        severity="warning" if top.share >= MIN_LOUD_SHARE else "info",
        title=f"Slow kernel: {clean(top.name, 60)} in {clean(top.phase, 20)}, {share(top.share)} of GPU time",
        evidence=[
            f"{top.kind}, {duration(top.seconds)} a step (traced, {plural(trace.steps, 'step', 'steps')})",
            f"tensor cores active {share(tensor)}, memory {share(memory)} of the time (driver): near neither peak",
        ],
        advice=ADVICE.get(
            top.kind, "Look for another implementation of this operation, or compile it (torch.compile)."
        ),
    )
