"""Let torchvision's wheel for CUDA import beside a torch for CPUs: its operators stay out, all else is as it was."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path


def main() -> None:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    if subprocess.run([sys.executable, "-c", "import torchvision"], capture_output=True).returncode != 0:
        Path(found.origin).with_name("_meta_registrations.py").write_text("")


if __name__ == "__main__":
    main()
