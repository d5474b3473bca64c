"""What GPUs were measured to reach in a plain matrix product: one file beside the runs, written when somebody asks.

Whoever may write there may write anything: what is no measurement is passed over, and said to be.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from pathlib import Path
from typing import Any

from monitor.model.peaks import peak_of
from monitor.model.products import FORMATS, Product, Products
from monitor.units import plural
from trainhooks import rundir
from trainhooks.events import MAX_NAME, clean

VERSION = 1
MAX_BYTES = 256 * 1024  # of a file of ours, of which a card takes half a kilobyte
MAX_CARDS = 64  # of which the newest stay
# Times the listed peak. Cards clock some tenth above their data sheets; what is far beyond was not measured.
BELIEVED = 1.5
MAX_TFLOPS = 1e6  # of a card whose peak is not listed: a hundred times what any does today
DAY = 24 * 3600.0


def load(path: Path | None = None) -> Products:
    """What was measured, and why not all of it can be read."""
    try:
        path = path or rundir.products_file()
        found = _read(path)
    except FileNotFoundError:
        return Products()
    except OSError as error:
        return Products(trouble=f"{rundir.PRODUCTS} cannot be read: {error.strerror or error}")
    except (ValueError, RecursionError) as error:
        return Products(trouble=f"{rundir.PRODUCTS} is not used: {_reason(error)}")
    entries = found.get("cards") if isinstance(found, dict) and found.get("version") == VERSION else None
    if not isinstance(entries, list):
        return Products(trouble=f"{rundir.PRODUCTS} is not used: it is not of this version")
    cards = [_product(entry, time.time() + DAY) for entry in entries[:MAX_CARDS]]
    left_out = len(entries) - sum(card is not None for card in cards)
    trouble = (
        f"{plural(left_out, 'entry', 'entries')} of {rundir.PRODUCTS} cannot be read as measurements"
        if left_out
        else None
    )
    return Products(tuple(card for card in cards if card is not None), trouble)


def keep(product: Product) -> Path:
    """Put a measurement in the place of the card's last one. Returns the file.

    Raises:
        OSError: it cannot be written, or its directory is not safe.
    """
    rundir.ready_runs_dir()  # makes what is missing above it, and looks who may change it
    path = rundir.products_file()
    others = [each for each in load(path).cards if _key(each) != _key(product)]
    newest = sorted([*others, product], key=lambda each: each.measured)[-MAX_CARDS:]
    rundir.write_json(path, {"version": VERSION, "cards": [_entry(each) for each in newest]})
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
    """The file's JSON. Nobody waits for a pipe in its place, and nobody reads a gigabyte."""
    with open(path, "rb", opener=rundir.at_once) as source:
        if not stat.S_ISREG(os.fstat(source.fileno()).st_mode):
            raise ValueError("it is no file")
        content = source.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError("it is too long")
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None


def _reason(error: Exception) -> str:
    return str(error) or "it is not JSON"


def _product(entry: Any, latest: float) -> Product | None:
    """An entry as a measurement; None where it is none."""
    if not isinstance(entry, dict):
        return None
    name, measured, told = entry.get("name"), _number(entry.get("measured")), entry.get("tflops")
    if not isinstance(name, str) or not name or measured is None or measured > latest or not isinstance(told, dict):
        return None
    name = clean(name, MAX_NAME)
    tflops = {kind: each for kind in FORMATS if (each := _believed(name, kind, told.get(kind))) is not None}
    if not tflops:
        return None
    uuid, driver = (clean(each, MAX_NAME) if isinstance(each := entry.get(key), str) else None for key in _TEXTS)
    return Product(
        name, measured, tflops, uuid, _number(entry.get("power_limit")), driver, bool(entry.get("simulated"))
    )


_TEXTS = ("uuid", "driver")


def _believed(name: str, kind: str, value: Any) -> float | None:
    told, peak = _number(value), peak_of(name)
    listed = peak.tflops(kind) if peak is not None else None
    most = BELIEVED * listed if listed else MAX_TFLOPS
    return told if told is not None and told <= most else None


def _number(value: Any) -> float | None:
    """Above 0, and finite."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        told = float(value)
    except OverflowError:
        return None
    return told if 0 < told < math.inf else None
