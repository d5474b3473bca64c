"""A measurement of matrix products: kept, and told as text or for programs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from monitor.doctor.measure import Measured, Result
from monitor.model.peaks import Peak, kind_of, peak_of
from monitor.runs import products
from monitor.units import share

HEAD = ("format", "size", "TFLOPS", "of the peak", "least", "most", "SM clock", "power")
UNKNOWN = "–"


def keep(found: Measured) -> tuple[Path | None, str | None]:
    """The file that it was put into, or why it was not."""
    if not any(each.failed is None for each in found.results):
        return None, "nothing could be measured"
    product = found.product()
    if product is None:
        return None, "the GPU was not its own, or that is not known"
    try:
        return products.keep(product), None
    except OSError as error:
        return None, f"it cannot be written: {error.strerror or error}"


def text(found: Measured, kept: Path | None, why_not: str | None) -> str:
    peak = peak_of(found.name)
    lines = [_card(found), "square products of random values, by CUDA events: the median of five times 0.2 s, warm"]
    lines += ["", *_table([HEAD, *(_row(each, peak) for each in found.results if each.failed is None)])]
    lines += [f"{each.format}: not measured: {each.failed}" for each in found.results if each.failed is not None]
    lines.append("")
    if peak is None:
        lines.append(f"the peak of {found.name or 'this GPU'} is not listed: no report can hold a training against it")
    elif peak.note:
        lines.append(peak.note)
    lines += [f"mind: {each}" for each in found.others]
    lines.append(f"kept in {kept}: reports show how far a training is from it" if kept else f"not kept: {why_not}")
    return "\n".join(lines) + "\n"


def mapping(found: Measured, kept: Path | None, why_not: str | None) -> dict[str, Any]:
    peak, card = peak_of(found.name), found.card
    return {
        "gpu": {
            "name": found.name,
            "uuid": card.uuid if card is not None else found.uuid,
            "driver": card.driver if card is not None else None,
            "power_limit": card.power_limit if card is not None else None,
            "simulated": card.simulated if card is not None else None,
            "listed_as": kind_of(found.name) if peak is not None else None,
        },
        "torch": found.torch,
        "cuda": found.cuda,
        "products": [
            {**asdict(each), "peak": _tflops(peak, each.format), "share": _share(peak, each)} for each in found.results
        ],
        "others": found.others,
        "kept": None if kept is None else str(kept),
        "not_kept": why_not,
    }


def _card(found: Measured) -> str:
    card = found.card
    parts = [found.name or "a GPU without a name", *([card.uuid] if card is not None else [])]
    if card is not None:
        parts += [f"driver {card.driver}"] if card.driver else []
        limit, usual = card.power_limit, card.power_limit_default
        lower = f" of {usual:.0f} W" if limit and usual and limit < usual else ""
        parts += [f"power limit {limit:.0f} W{lower}"] if limit else []
        parts += ["SIMULATED"] if card.simulated else []
    return ", ".join([*parts, f"torch {found.torch}"])


def _row(each: Result, peak: Peak | None) -> tuple[str, ...]:
    told = _tflops(peak, each.format)
    of = f"{share(_share(peak, each))} of {told:,g}" if told else UNKNOWN
    clock = UNKNOWN if each.sm_clock is None else f"{each.sm_clock:,.0f} MHz"
    power = UNKNOWN if each.power is None else f"{each.power:.0f} W"
    figures = (f"{value:,.4g}" for value in (each.tflops, each.least, each.most))
    reached, least, most = figures
    return each.format, f"{each.size:,}", reached, of, least, most, clock, power


def _tflops(peak: Peak | None, kind: str) -> float | None:
    return peak.tflops(kind) if peak is not None else None


def _share(peak: Peak | None, each: Result) -> float | None:
    most = _tflops(peak, each.format)
    return each.tflops / most if most and each.failed is None else None


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[place]) for row in rows) for place in range(len(HEAD))]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows]
