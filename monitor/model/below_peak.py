"""Where the rest of the hardware's peak goes: from the peak down to the MFU. Pure."""

from __future__ import annotations

from monitor.model.report import Device, LossRow, MatrixProduct

DUST = 1e-9  # of the peak: what rounding leaves
PRODUCT = "a plain matrix product does less than the peak"


def below_peak(
    found: Device, mfu: float | None, waits: float | None, product: MatrixProduct | None = None
) -> list[LossRow]:
    """Where the rest of the peak goes, from what is certain to what is left.

    Args:
        mfu: share of the peak that is reached; None: unknown, and so are its parts.
        waits: share of a step in which this rank's device waits for another rank in collectives.
        product: what these GPUs were measured to reach in a plain matrix product. Where it holds, time counts for what
            they would do of it in that time; else for what the peak would be.
    """
    if mfu is None:
        return []
    top = reached(product) if holds(product, mfu, found.busy_most) else 1.0
    needed = mfu / top  # of the time, if all of it went into such products
    most = 1.0 if found.busy_most is None else max(found.busy_most, needed)
    least = needed if found.busy_least is None else min(most, max(found.busy_least, needed))
    collective = 0.0 if waits is None else min(waits, least - needed)
    inner = "kernels that do less than the peak" if top == 1.0 else "kernels that do less than a plain matrix product"
    rows = [
        LossRow(PRODUCT, 1.0 - top),
        LossRow("the GPU is idle", top * (1.0 - most)),
        LossRow("idle or busy: not known", top * (most - least)),
        LossRow("waiting for another rank", top * collective),
        LossRow(inner, top * (least - collective) - mfu),
    ]
    return [row for row in rows if row.share > DUST]


def reached(product: MatrixProduct | None) -> float:
    """Of the peak. A card may clock higher than its data sheet says: more than the peak is all of it."""
    return 1.0 if product is None or product.share is None else min(1.0, product.share)


def holds(product: MatrixProduct | None, mfu: float, busy_most: float | None) -> bool:
    """Whether the training does no more than the product in the time in which the GPU is busy at most."""
    busy = 1.0 if busy_most is None else max(busy_most, mfu)
    return mfu <= reached(product) * busy
