"""Load and store the measured matrix-product speeds of GPUs, which `doctor --measure-gpu` writes into one file.

The content of the file is not trusted: entries that are no measurement are skipped and reported.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from pathlib import Path
from typing import Any

from monitor.model.compute.peaks import FORMATS, Product, Products, peak_of
from monitor.units import plural
from trainhooks.protocol import rundir
from trainhooks.protocol.limits import MAX_NAME, clean

VERSION = 1
MAX_STORE_BYTES = 256 * 1024  # of the whole file; an entry takes half a kilobyte
MAX_CARDS = 64  # the newest are kept
# Times the listed peak. Cards run about a tenth above their data sheets; more is no measurement.
MAX_PEAK_RATIO = 1.5
MAX_TFLOPS = 1e6  # for a card without a listed peak: a hundred times what any card reaches today
DAY = 24 * 3600.0


def load(path: Path | None = None) -> Products:
    """Return the stored measurements, with a message where some or all cannot be read."""
    try:
        path = path or rundir.products_file()
        content = _read(path)
    except FileNotFoundError:
        return Products()
    except OSError as error:
        return Products(trouble=f"{rundir.PRODUCTS} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        return Products(trouble=f"{rundir.PRODUCTS} was ignored: {_reason(error)}")
    entries = content.get("cards") if isinstance(content, dict) and content.get("version") == VERSION else None
    if not isinstance(entries, list):
        return Products(trouble=f"{rundir.PRODUCTS} was ignored: unknown version")
    cards = [_product(entry, time.time() + DAY) for entry in entries[:MAX_CARDS]]
    left_out = len(entries) - sum(card is not None for card in cards)
    trouble = (
        f"{plural(left_out, 'entry', 'entries')} of {rundir.PRODUCTS} cannot be read as measurements"
        if left_out
        else None
    )
    return Products(tuple(card for card in cards if card is not None), trouble)


def keep(product: Product) -> Path:
    """Store a measurement in place of the card's last one. Return the file.

    Raises:
        OSError: it cannot be written, or its directory is not safe.
    """
    rundir.ready_runs_dir()  # creates missing parents, and checks who may change them
    path = rundir.products_file()
    other_cards = [card for card in load(path).cards if _key(card) != _key(product)]
    newest = sorted([*other_cards, product], key=lambda card: card.measured)[-MAX_CARDS:]
    rundir.write_json(path, {"version": VERSION, "cards": [_entry(card) for card in newest]})
    return path


def _key(product: Product) -> tuple[str, str | None]:
    return product.name, product.uuid


def _entry(product: Product) -> dict[str, Any]:
    return {
        "name": product.name,
        "uuid": product.uuid,
        "driver": product.driver,
        "power_limit": product.power_limit,
        "measured": product.measured,
        "simulated": product.simulated,
        "tflops": product.tflops,
    }


def _read(path: Path) -> Any:
    """Return the file's JSON. Raise a ValueError for what is not a regular file, too large, or not JSON."""
    with open(path, "rb", opener=rundir.at_once) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise ValueError("not a regular file")
        content = source.read(MAX_STORE_BYTES + 1)
    if len(content) > MAX_STORE_BYTES:
        raise ValueError("too large")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("not JSON") from None


def _reason(error: Exception) -> str:
    return str(error) or "not JSON"


def _product(entry: Any, latest: float) -> Product | None:
    """Return an entry as a measurement; None where it is invalid."""
    if not isinstance(entry, dict):
        return None
    name, measured, stored = entry.get("name"), _number(entry.get("measured")), entry.get("tflops")
    if not isinstance(name, str) or not name or measured is None or measured > latest or not isinstance(stored, dict):
        return None
    name = clean(name, MAX_NAME)
    tflops = {kind: value for kind in FORMATS if (value := _plausible(name, kind, stored.get(kind))) is not None}
    if not tflops:
        return None
    uuid, driver = (clean(text, MAX_NAME) if isinstance(text := entry.get(key), str) else None for key in _TEXTS)
    return Product(
        name, measured, tflops, uuid, _number(entry.get("power_limit")), driver, bool(entry.get("simulated"))
    )


_TEXTS = ("uuid", "driver")


def _plausible(name: str, kind: str, value: Any) -> float | None:
    number, peak = _number(value), peak_of(name)
    listed = peak.tflops(kind) if peak is not None else None
    most = MAX_PEAK_RATIO * listed if listed else MAX_TFLOPS
    return number if number is not None and number <= most else None


def _number(value: Any) -> float | None:
    """Return a finite number above 0; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if 0 < number < math.inf else None
