"""A dense load, to see a power cap where the card has one to show. Nothing of its settings is changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from monitor.gpu_lines import reasons_in_words
from monitor.sources.gpu_source import GpuSource
from tests.gpu_check.row import TOLD, Row, judged
from trainhooks.protocol.events import Gpu

SECONDS = 20.0
SIZE = 8192
CAP = 0x4  # software power cap
NEAR = 0.97  # of the limit: a card that draws so much is held there
BUSY = 95.0  # percent


def multiply(torch: Any, over: threading.Event) -> None:
    """Matrix products without a pause; asked every few dozen whether that is enough."""
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    while not over.is_set():
        for _ in range(50):
            b = torch.mm(a, b).mul_(1.0 / SIZE**0.5)
        torch.cuda.synchronize()


def check(torch: Any) -> list[Row]:
    over, source, readings = threading.Event(), GpuSource(), list[Gpu]()
    name = str(torch.cuda.get_device_properties(0).uuid).removeprefix("GPU-")
    load = threading.Thread(target=multiply, args=(torch, over))
    load.start()
    try:
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            found = source.read(time.monotonic()).gpus
            readings += [gpu for gpu in found if gpu.uuid.removeprefix("GPU-") == name]
            time.sleep(0.5)
    finally:
        over.set()
        load.join()
        source.close()
    return verdict(readings[len(readings) // 4 :])  # the first ones are of a card that gets going


def verdict(readings: Sequence[Gpu]) -> list[Row]:
    if not readings:
        return [judged("dense load", "no reading", "a card at work", False)]
    busy = max((gpu.utilization or 0.0 for gpu in readings), default=0.0)
    rows = [judged("dense load: utilization", f"{busy:.0f}%", f"at least {BUSY:.0f}%", busy >= BUSY)]
    watts = [gpu.power for gpu in readings if gpu.power is not None]
    limits = [gpu.power_limit for gpu in readings if gpu.power_limit is not None]
    words = sorted({word for gpu in readings for word in reasons_in_words(gpu.reasons)})
    rows.append(Row("dense load: clock event reasons", ", ".join(words) or "none", "", TOLD))
    if not watts or not limits:
        return [*rows, Row("dense load: power", "not told", "", TOLD)]
    capped = any((gpu.reasons or 0) & CAP for gpu in readings)
    drawn, limit = max(watts), min(limits)
    shown = (f"{drawn:.0f} W" + (", capped" if capped else ""), f"limit {limit:.0f} W")
    if drawn >= NEAR * limit:  # a card at its limit says so
        return [*rows, judged("dense load: power cap", *shown, capped)]
    return [*rows, Row("dense load: power cap not reached", *shown, TOLD)]
