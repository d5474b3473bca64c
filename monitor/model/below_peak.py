"""Where the rest of the hardware's peak goes: from the peak down to the MFU. Pure."""

from __future__ import annotations

from monitor.model.report import Device, LossRow

DUST = 1e-9  # of the peak: what rounding leaves


def below_peak(found: Device, mfu: float | None, waits: float | None) -> list[LossRow]:
    """Where the rest of the peak goes, from what is certain to what is left.

    Args:
        mfu: share of the peak that is reached; None: unknown, and so are its parts.
        waits: share of a step in which this rank's device waits for another rank in collectives.
    """
    if mfu is None:
        return []
    most = 1.0 if found.busy_most is None else max(found.busy_most, mfu)
    least = mfu if found.busy_least is None else min(most, max(found.busy_least, mfu))
    collective = 0.0 if waits is None else min(waits, least - mfu)
    rows = [
        LossRow("the GPU is idle", 1.0 - most),
        LossRow("idle or busy: not known", most - least),
        LossRow("waiting for another rank", collective),
        LossRow("kernels that do less than the peak", least - collective - mfu),
    ]
    return [row for row in rows if row.share > DUST]
