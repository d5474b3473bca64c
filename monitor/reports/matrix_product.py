"""What these GPUs reach in a plain matrix product, in words; how to measure it where nobody has."""

from __future__ import annotations

from datetime import datetime

from monitor.model.products import NOT_MEASURED
from monitor.model.report import MatrixProduct
from monitor.units import share
from trainhooks.events import clean

MEASURE = "`trainmon doctor --measure-gpu` measures it, on an idle GPU"


def lines(product: MatrixProduct | None) -> list[str]:
    """One line; none where the MFU is not known, for then nothing is held against it."""
    if product is None:
        return []
    if product.share is None or product.tflops is None:
        why = f" ({clean(product.unknown)})" if product.unknown and product.unknown != NOT_MEASURED else ""
        return [f"what a plain matrix product reaches here is not known{why}: {MEASURE}"]
    day = "" if product.measured is None else f" {datetime.fromtimestamp(product.measured):%Y-%m-%d}"
    which = "on this GPU" if product.same_card else "on another GPU of this name"
    told = (
        f"a plain matrix product in {product.format} reaches {share(product.share)} of the peak,"
        f" {product.tflops:,.4g} TFLOPS (measured{day} {which})"
    )
    return [told if product.holds else f"{told}; this does not hold here, where the training reaches more"]
