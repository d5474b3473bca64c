"""What GPUs were measured to reach in a plain matrix product, and which of that holds for a run's GPUs. Pure.

The peak is a data sheet's. Between it and the training lies what this very card does under its own power limit and
cooling, with the library's own kernels: measured once, when somebody asked for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from monitor.model.peaks import peak_of
from monitor.model.report import MatrixProduct
from trainhooks.events import Gpu

NOT_MEASURED = "not measured"
FORMATS = ("bf16", "fp16", "tf32", "fp32")
# Of watts. A limit is set in steps of watts; and a limit lower by this much costs less clock than two runs of the
# same product differ by.
SAME_LIMIT = 0.02


@dataclass(frozen=True, slots=True)
class Product:
    """What one card was measured to reach."""

    name: str
    measured: float  # unix time
    tflops: dict[str, float]  # by format
    uuid: str | None = None
    power_limit: float | None = None  # watts, at that time
    driver: str | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Products:
    """All that was measured on this machine, and what of it cannot be read."""

    cards: tuple[Product, ...] = ()
    trouble: str | None = None


def product_of(cards: Sequence[Gpu], kind: str, products: Products) -> MatrixProduct:
    """What these cards reach together in products of this format; why that is not known, where it is not.

    Args:
        cards: those that the MFU is of, as the driver reads them.
        kind: the format of the run's matrix products.
        products: what was measured.
    """
    chosen: list[Product] = []
    for card in cards:
        of_name = [each for each in products.cards if _is_for(each, card)]
        if not of_name:
            return MatrixProduct(format=kind, unknown=products.trouble or NOT_MEASURED)
        fitting = [each for each in of_name if _same_limit(each, card)]
        if not fitting:
            return MatrixProduct(format=kind, unknown=_other_limit(of_name, card))
        told = [each for each in fitting if kind in each.tflops]
        if not told:
            return MatrixProduct(format=kind, unknown=f"not measured in {kind}")
        # The card itself before others of its name, then the newest.
        chosen.append(max(told, key=lambda each, card=card: (each.uuid == card.uuid, each.measured)))  # type: ignore[misc]
    peaks = [peak_of(card.name) for card in cards]
    peak = sum((each.tflops(kind) if each is not None else None) or 0.0 for each in peaks)
    if not chosen or not peak:
        return MatrixProduct(format=kind, unknown="the peak is not known")
    reached = sum(each.tflops[kind] for each in chosen)
    same = all(each.uuid == card.uuid for each, card in zip(chosen, cards, strict=True))
    return MatrixProduct(reached / peak, reached, kind, min(each.measured for each in chosen), same)


def _is_for(product: Product, card: Gpu) -> bool:
    return product.simulated == card.simulated and (product.uuid == card.uuid or product.name == card.name)


def _same_limit(product: Product, card: Gpu) -> bool:
    """Where either is not known, nothing speaks against it."""
    one, other = product.power_limit, card.power_limit
    return one is None or other is None or abs(one - other) <= SAME_LIMIT * max(one, other)


def _other_limit(found: Iterable[Product], card: Gpu) -> str:
    newest = max(found, key=lambda each: each.measured)
    return f"measured at a power limit of {newest.power_limit:.0f} W, and the run's is {card.power_limit:.0f} W"
