"""The part of the report on the GPU: what is known of the device's time. See `monitor.model.report`."""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor.model.device.trace_report import TraceReport


@dataclass(slots=True)
class GpuClock:
    """The steps that CUDA events timed, and those that they could not; `Device` has the same and more."""

    steps: int
    dropped: int


@dataclass(slots=True)
class AccountRow:
    """A part of the device's time in steps, as a share with lower and upper bound.

    All lower bounds add up to at most 1, all upper bounds to at least 1.
    """

    what: str  # "forward", "waiting for data", "synchronizing"...
    state: str  # busy | copy | idle
    least: float | None  # lower bound; None: unknown
    most: float | None  # upper bound; None: unknown, the time is then in the upper bounds of other parts
    by: str = "events"  # events | host | trace: the source
    looks: None = None  # no part is counted from stack samples any more; a key of `report --json` stays


@dataclass(slots=True)
class OutsideRow:
    """Work outside the steps: an evaluation, a checkpoint or another span, by the host's clock."""

    what: str
    seconds: float
    share: float  # of the run's elapsed time
    busy_least: float | None = None  # of it, by the driver: SM activity, and the time in which any kernel ran
    busy_most: float | None = None


@dataclass(slots=True)
class LossRow:
    """A part of the hardware's peak that the training does not reach, as a share of the peak."""

    what: str
    share: float


@dataclass(slots=True)
class MemoryOwners:
    """Bytes of GPU memory of one process at its peak, by what holds them; None: unknown."""

    weights: int | None = None
    gradients: int | None = None
    optimizer: int | None = None
    others: int | None = None  # activations, inputs, workspaces: the rest of what was allocated
    cached: int | None = None  # reserved by torch's allocator, and in no tensor


@dataclass(slots=True)
class Device:
    """How the run uses its GPUs, by the device's own clock and the driver. Shares are of the time in steps.

    Between two marks the device may have waited for the host: so `busy` is a range. At least: from the host recording a
    mark to the device passing it, and what the SMs were active. At most: all but what is known to be idle.
    """

    clock: str | None = None  # cuda: by CUDA events; None: steps are timed by the host's clock only
    timed_steps: int = 0
    dropped: int = 0  # steps that were to be timed, and could not be
    seconds: float | None = None  # a step, the mean
    busy_least: float | None = None
    busy_most: float | None = None
    queued: float | None = None  # share of time in which it certainly had work in its queue
    queue_empty: float | None = None  # share of step time in which the host was never ahead of the device
    sm_active: float | None = None  # means over the steps, first ones left out; of all programs on the GPU
    sm_occupancy: float | None = None
    tensor_active: float | None = None
    memory_active: float | None = None
    utilization: float | None = None
    pcie_rx: float | None = None  # bytes a second
    pcie_tx: float | None = None
    readings: int = 0
    bound: str | None = None  # device | host | data; None: not known
    gain_limit: float | None = None  # times as fast at most, by removing idle time; None: unknown
    account: list[AccountRow] = field(default_factory=list)
    outside_steps: list[OutsideRow] = field(default_factory=list)  # not part of `account`, which covers the steps
    idle_at: list[None] = field(default_factory=list)  # always empty: a traced step says more; a key stays
    # From the peak down to the MFU: what is lost to idle time, to other ranks, and within kernels; with the MFU they
    # add up to 1. Empty where the MFU is not known.
    below_peak: list[LossRow] = field(default_factory=list)
    matrix_product: None = None  # nothing measures it any more; a key of `report --json` stays
    estimate: None = None  # likewise: no step is delayed any more
    trace: TraceReport | None = None  # None: no step was traced
    memory: MemoryOwners | None = None  # None: the allocator's figures are not known
    delays: None = None  # likewise
