"""Square matrix products on the first GPU that CUDA shows, timed by CUDA events. Runs in the training's own Python.

That Python may be old (3.9) and lacks trainmon, so this source is passed to it as text and imports nothing of
trainmon. It writes every result as a line of JSON, and waits for a line before it uses the GPU, so that other programs
are seen.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

SIZES = (8192, 4096, 2048, 1024)  # the first that fits in memory: above some thousands, larger ones are hardly faster
MEMORY_FRACTION = 4  # a quarter of the free memory is enough for three matrices
WARMUP_SECONDS = 1.0  # seconds of warm-up: clocks rise, and the power limit takes effect
WINDOW_SECONDS = 0.2  # seconds of one measurement
WINDOWS = 5  # together as long as the second over which drivers average the power
MAX_PRODUCTS = 100_000  # most products in a window, where one seems to take no time

# Format, torch dtype, bytes per number, the oldest compute capability whose tensor cores support it.
FORMATS = (
    ("bf16", "bfloat16", 2, (8, 0)),
    ("fp16", "float16", 2, (7, 0)),
    ("tf32", "float32", 4, (8, 0)),
    ("fp32", "float32", 4, (0, 0)),
)


def write_message(**fields: Any) -> None:
    print("\n" + json.dumps({"trainmon": fields}), flush=True)


def refusal(torch: Any) -> str | None:
    """Return why nothing can be measured here; None where it can."""
    version = getattr(torch, "version", None)
    if getattr(version, "hip", None):
        return "torch is built for ROCm; only CUDA is supported"
    if not getattr(version, "cuda", None):
        return "torch is built without CUDA"
    return None if torch.cuda.is_available() else "torch sees no GPU"


def main() -> None:
    try:
        torch = import_module("torch")
    except Exception as error:  # not installed, or broken
        write_message(refused=f"torch cannot be imported: {type(error).__name__}: {error}")
        return
    why = refusal(torch)
    if why is not None:
        write_message(refused=why)
        return
    write_message(ready=os.getpid(), torch=str(torch.__version__), cuda=str(torch.version.cuda))
    if not sys.stdin.readline():  # the parent is gone
        return
    properties = torch.cuda.get_device_properties(0)
    uuid = getattr(properties, "uuid", None)  # since torch 2.4
    write_message(name=str(properties.name), uuid=None if uuid is None else str(uuid))
    capability = tuple(torch.cuda.get_device_capability(0))
    for kind, dtype, width, oldest in FORMATS:
        if capability < oldest:
            continue
        try:
            measure(torch, kind, getattr(torch, dtype), width)
        except Exception as error:  # out of memory, for example
            write_message(format=kind, failed=f"{type(error).__name__}: {error}")
    write_message(done=True)


def measure(torch: Any, kind: str, dtype: Any, width: int) -> None:
    free = torch.cuda.mem_get_info(0)[0]
    size = next((side for side in SIZES if 3 * width * side * side * MEMORY_FRACTION <= free), None)
    if size is None:
        write_message(format=kind, failed="not enough free memory")
        return
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    # Random values: with zeros a GPU draws less power and clocks higher than in a training.
    one, other = (torch.randn(size, size, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device="cuda", dtype=dtype)

    def timed(count: int) -> float:
        """Return the seconds of `count` products by the device's clock."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            torch.mm(one, other, out=out)
        end.record()
        end.synchronize()
        return max(float(begin.elapsed_time(end)) / 1e3, 1e-9)

    timed(1)  # loads the library and selects its kernel
    passed, count, last = 0.0, 1, 0.0
    while passed < WARMUP_SECONDS:
        last = timed(count)
        passed += last
        count = max(1, min(MAX_PRODUCTS, int(count * WINDOW_SECONDS / last)))
    write_message(begin=kind)
    seconds = [timed(count) for _ in range(WINDOWS)]
    write_message(format=kind, size=size, products=count, seconds=seconds)


if __name__ == "__main__":
    main()
