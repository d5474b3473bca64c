"""What torch has been set to, read where torch is loaded already. Nothing here starts CUDA or waits for it."""

from __future__ import annotations

import sys
from typing import Any, Callable, Dict


def torch_flags() -> Dict[str, Any]:
    """Settings of the loaded torch that decide about speed; empty where torch is not loaded (or half loaded)."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_num_threads"):
        return {}
    readings: Dict[str, Callable[[], Any]] = {
        "threads": torch.get_num_threads,
        "detect_anomaly": torch.is_anomaly_enabled,
        "profiler": torch.autograd._profiler_enabled,
        "matmul_precision": torch.get_float32_matmul_precision,
        "deterministic": torch.are_deterministic_algorithms_enabled,
        "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
        "default_dtype": lambda: str(torch.get_default_dtype()),
        "cuda": lambda: torch.version.cuda,
    }
    flags = {}
    for name, read in readings.items():
        try:
            flags[name] = read()
        except Exception:  # an older or a trimmed torch lacks some of them, in ways of its own
            continue
    return flags
