"""An environment in which NVIDIA's binding finds eight simulated GPUs."""

from __future__ import annotations

import subprocess
from pathlib import Path

GPU = Path(__file__).resolve().parents[1] / "gpu"


def environment(directory: Path) -> dict[str, str]:
    """Builds the library in `directory`. Raises CalledProcessError where it cannot be compiled."""
    library = directory / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, GPU / "nvml_stub.c", "-pthread"], check=True)
    return {"NVML_STUB": str(GPU / "scenes" / "h200x8.txt"), "LD_LIBRARY_PATH": str(directory)}
