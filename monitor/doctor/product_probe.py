"""Square matrix products on the first GPU that CUDA shows, timed by CUDA events. Runs in the training's own Python.

Its text is handed to that Python, which may be an old one (3.9) and knows nothing of trainmon: so it imports nothing of
it. It says each thing in a line of JSON, and waits for a line before it touches the GPU, so that others there are seen.
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from typing import Any

SIZES = (8192, 4096, 2048, 1024)  # the first that fits: from some thousands on, larger ones are hardly faster
SHARE = 4  # a quarter of the free memory is enough for three matrices
WARM = 1.0  # seconds before a measurement: clocks have risen, and the power limit has begun to act
WINDOW = 0.2  # seconds of one measurement
WINDOWS = 5  # together as long as the second over which drivers average the power
LONGEST = 100_000  # products in a window, should one seem to take no time

# Format, torch's name of the numbers, bytes of each, the oldest compute capability whose tensor cores know it.
FORMATS = (
    ("bf16", "bfloat16", 2, (8, 0)),
    ("fp16", "float16", 2, (7, 0)),
    ("tf32", "float32", 4, (8, 0)),
    ("fp32", "float32", 4, (0, 0)),
)


def tell(**what: Any) -> None:
    print("\n" + json.dumps({"trainmon": what}), flush=True)


def refusal(torch: Any) -> str | None:
    """Why nothing can be measured here."""
    version = getattr(torch, "version", None)
    if getattr(version, "hip", None):
        return "its torch is built for ROCm; only CUDA is measured"
    if not getattr(version, "cuda", None):
        return "its torch is built without CUDA"
    return None if torch.cuda.is_available() else "its torch sees no GPU"


def main() -> None:
    try:
        torch = import_module("torch")
    except Exception as error:  # not installed, or broken in ways of its own
        tell(refused=f"torch cannot be imported there: {type(error).__name__}: {error}")
        return
    why = refusal(torch)
    if why is not None:
        tell(refused=why)
        return
    tell(ready=os.getpid(), torch=str(torch.__version__), cuda=str(torch.version.cuda))
    if not sys.stdin.readline():  # whoever asked is gone
        return
    found = torch.cuda.get_device_properties(0)
    uuid = getattr(found, "uuid", None)  # since torch 2.4
    tell(name=str(found.name), uuid=None if uuid is None else str(uuid))
    capability = tuple(torch.cuda.get_device_capability(0))
    for kind, dtype, width, oldest in FORMATS:
        if capability < oldest:
            continue
        try:
            measure(torch, kind, getattr(torch, dtype), width)
        except Exception as error:  # out of memory, say, because others came
            tell(format=kind, failed=f"{type(error).__name__}: {error}")
    tell(done=True)


def measure(torch: Any, kind: str, dtype: Any, width: int) -> None:
    free = torch.cuda.mem_get_info(0)[0]
    size = next((each for each in SIZES if 3 * width * each * each * SHARE <= free), None)
    if size is None:
        tell(format=kind, failed="too little memory is free")
        return
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    # Random values: of zeros a GPU draws less power, and clocks higher, than of what a training has.
    one, other = (torch.randn(size, size, device="cuda", dtype=torch.float32).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device="cuda", dtype=dtype)

    def timed(count: int) -> float:
        """Seconds of so many products, by the device's clock."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(count):
            torch.mm(one, other, out=out)
        end.record()
        end.synchronize()
        return max(float(begin.elapsed_time(end)) / 1e3, 1e-9)

    timed(1)  # loads the library, and chooses its kernel
    passed, count, last = 0.0, 1, 0.0
    while passed < WARM:
        last = timed(count)
        passed += last
        count = max(1, min(LONGEST, int(count * WINDOW / last)))
    tell(begin=kind)
    seconds = [timed(count) for _ in range(WINDOWS)]
    tell(format=kind, size=size, products=count, seconds=seconds)


if __name__ == "__main__":
    main()
