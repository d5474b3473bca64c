"""A torch that is nothing but matrix products on a clock of its own. Copied as `torch.py` to where a child finds it.

What it is like comes in FAKE_TORCH, as JSON: the rates in TFLOPS by format, the card, the free memory.
"""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace
from typing import Any

TOLD: dict[str, Any] = json.loads(os.environ["FAKE_TORCH"])
NOW = [0.0]  # seconds on the device's clock
if TOLD.get("broken"):
    raise ImportError(TOLD["broken"])

__version__ = "9.0"
version = SimpleNamespace(cuda=TOLD.get("cuda", "13.0"), hip=TOLD.get("hip"))
bfloat16, float16, float32 = "bfloat16", "float16", "float32"
backends = SimpleNamespace(cuda=SimpleNamespace(matmul=SimpleNamespace(allow_tf32=None)))


class Matrix:
    def __init__(self, rows: int, columns: int, dtype: str) -> None:
        self.shape, self.dtype = (rows, columns), dtype

    def to(self, dtype: str) -> Matrix:
        return Matrix(*self.shape, dtype)


def randn(rows: int, columns: int, device: str, dtype: str) -> Matrix:
    assert device == "cuda"
    return Matrix(rows, columns, dtype)


def empty(rows: int, columns: int, device: str, dtype: str) -> Matrix:
    return randn(rows, columns, device, dtype)


def mm(one: Matrix, other: Matrix, out: Matrix) -> Matrix:
    assert one.dtype == other.dtype == out.dtype and one.shape == other.shape == out.shape
    kind = {bfloat16: "bf16", float16: "fp16"}.get(one.dtype)
    kind = kind or ("tf32" if backends.cuda.matmul.allow_tf32 else "fp32")
    rate = TOLD["rates"][kind]
    if rate is None:
        raise RuntimeError(f"CUDA out of memory \x1b[2J in {kind}")
    NOW[0] += 2.0 * one.shape[0] ** 3 / (rate * 1e12)
    return out


class Event:
    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = -1.0

    def record(self) -> None:
        self.at = NOW[0]

    def synchronize(self) -> None:
        time.sleep(TOLD.get("pause", 0.0))

    def elapsed_time(self, end: Event) -> float:
        return (end.at - self.at) * 1e3


def _begin(_: int) -> Any:
    if TOLD.get("dies"):
        os._exit(9)
    marker = TOLD.get("marker")
    if marker:  # the card is in use from here on
        with open(marker) as source, open(os.environ["NVML_STUB"] + ".new", "w") as new:
            new.write(source.read().replace("OWN_PID", str(os.getpid())))
        os.replace(new.name, os.environ["NVML_STUB"])
    return SimpleNamespace(name=TOLD["name"], uuid=TOLD.get("uuid"))


cuda = SimpleNamespace(
    device_count=lambda: 1,
    is_available=lambda: TOLD.get("available", True),
    get_device_properties=_begin,
    get_device_capability=lambda _: tuple(TOLD.get("capability", (9, 0))),
    mem_get_info=lambda _: (TOLD.get("free", 100 << 30), 140 << 30),
    Event=Event,
)
