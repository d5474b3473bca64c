"""`make gpu-check`: what trainmon says of a real GPU, checked on one. Prints a table; exit 1 where something differs.

It needs an NVIDIA GPU and an environment whose torch was built for CUDA. No setting of the GPU is changed. It takes
some five minutes, and nothing else should use the GPU meanwhile.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.gpu_check import clock, events, load, smi, training
from tests.gpu_check.row import BAD, HEAD, Row, judged, line


def missing() -> str | None:
    """Why nothing can be checked here."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver is installed (there is no nvidia-smi)"
    if importlib.util.find_spec("torch") is None:
        return f"no torch in {sys.prefix}"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not built for CUDA; make gpu-check PYTHON_GPU=... takes another one"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    return None


def checks(torch: Any, scratch: Path, out: Path) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Each with a name; every one is made, whatever becomes of the others."""

    def sft() -> list[Row]:
        report, printed, run = training.run(scratch, *training.SFT)
        return [*training.sft(report, printed), training.record(run, out)]

    yield "idle", smi.check
    yield "events", lambda: events.check(torch)
    yield "clock", lambda: clock.check(*training.run(scratch, *clock.command())[:2])
    yield "load", lambda: load.check(torch)
    yield "after the load", smi.check
    yield "sft", sft
    yield "rl", lambda: training.rl(training.run(scratch, *training.RL)[0])


def main() -> int:
    parser = argparse.ArgumentParser(prog="gpu-check", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--out", type=Path, default=Path("build/gpu-sft.jsonl"), help="where the recording goes")
    given = parser.parse_args()
    why_not = missing()
    if why_not is not None:
        print(f"gpu-check: nothing is checked: {why_not}", file=sys.stderr)
        return 2
    import torch

    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}\n{HEAD}", flush=True)
    bad = 0
    with tempfile.TemporaryDirectory(prefix="trainmon-gpu-check-") as scratch:
        for name, check in checks(torch, Path(scratch), given.out):
            try:
                rows = check()
            except Exception as error:  # the table goes on: the other checks have something to say, too
                rows = [judged(name, f"{type(error).__name__}: {error}"[:60], "", False)]
            for row in rows:
                bad += row.verdict == BAD
                print(line(row), flush=True)
    print(f"\n{bad or 'no'} {'check differs' if bad == 1 else 'checks differ'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
