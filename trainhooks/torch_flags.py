"""What torch has been set to, read where torch is loaded already. Nothing here starts CUDA or waits for it."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict

from trainhooks import cuda

_memory: Dict[str, int] = {}  # as it was told last


def torch_flags() -> Dict[str, Any]:
    """Settings of the loaded torch that decide about speed; empty where torch is not loaded (or half loaded)."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {}
    readings: Dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "detect_anomaly": lambda: _detects_anomaly(torch),
        "profiler": lambda: _profiler(torch),
        "matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
        "default_dtype": lambda: str(torch.get_default_dtype()),
        "cuda": lambda: torch.version.cuda,
        "gpu_memory": lambda: _gpu_memory(torch),
    }
    flags = {}
    for name, read in readings.items():
        try:
            flags[name] = read()
        except Exception:  # an older or a trimmed torch lacks some of them, in ways of its own
            continue
    if not flags.get("gpu_memory"):
        flags.pop("gpu_memory", None)
    return flags


def _detects_anomaly(torch: Any) -> bool:
    """Torch's own compiler has it on while it traces, for the tracebacks, without the search for nan."""
    return bool(torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled())


def _profiler(torch: Any) -> bool:
    """Torch's own question is about the thread that asks; its module knows of all."""
    known = getattr(torch.autograd.profiler, "_is_profiler_enabled", False)
    return bool(known or torch.autograd._profiler_enabled())


def _gpu_memory(torch: Any) -> Dict[str, int]:
    """The allocator's own figures of the device that it holds most on, in bytes; drivers see what it has reserved only.

    Peaks in steps of a hundredth of the device's memory, what is held now in steps of a fiftieth, and counts as powers
    of two, so that they are seldom news. While a CUDA graph is captured the last ones stand.
    """
    global _memory
    if cuda.captures:
        return _memory
    if not torch.cuda.is_initialized() or torch.version.cuda is None:
        return {}
    # The current device is a matter of each thread, and this one is not the training's.
    told = [(torch.cuda.memory_stats_as_nested_dict(index), index) for index in cuda.devices(torch)]
    if not told:
        return {}
    stats, index = max(told, key=lambda row: row[0]["reserved_bytes"]["all"]["peak"])
    total = int(torch.cuda.get_device_properties(index).total_memory)
    grain = max(1, total // 100)
    allocated, reserved = stats["allocated_bytes"]["all"], stats["reserved_bytes"]["all"]
    _memory = {
        "total": total,
        "allocated": _upwards(int(allocated["current"]), 2 * grain),
        "reserved": _upwards(int(reserved["current"]), 2 * grain),
        "peak_allocated": _upwards(int(allocated["peak"]), grain),
        "peak_reserved": _upwards(int(reserved["peak"]), grain),
        "retries": _doubling(int(stats["num_alloc_retries"])),
        "ooms": _doubling(int(stats["num_ooms"])),
    }
    return _memory


def _upwards(size: int, grain: int) -> int:
    """The least multiple of `grain` that is not below `size`."""
    return -(-size // grain) * grain


def _doubling(count: int) -> int:
    """The greatest power of two that is not above `count`."""
    return 1 << (count.bit_length() - 1) if count > 0 else 0
