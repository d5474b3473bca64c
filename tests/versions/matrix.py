"""The short form of `make harmless` on another interpreter: programs bare and watched, and what differs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from .environments import INSTALL, ROOT, Environment

VERSION = (3, 13)  # the first that frees frames, starts threads and traces otherwise than the Python of the other tests
TRAINING, LIBRARIES = "training", ("torch", "numpy", "gymnasium")  # a family, and what its programs import
SECONDS = 3600.0  # against hanging
ROW_WORDS = 3  # at least, in the line of a program: its family, its name, its time


def differences(made: Environment, tell: Callable[[str], None], families: tuple[str, ...]) -> list[str]:
    """Return a line for each program that is not the same, and one where they did not come to an end.

    Args:
        made: an environment with trainmon.
        tell: is given a line where programs are left out.
        families: of `tests.harmless`, all.
    """
    pinned = ["--constraint", str(ROOT / "constraints.txt")]
    told = subprocess.run([made.python, "-m", "pip", *INSTALL, *pinned, *LIBRARIES], capture_output=True, text=True)
    words = list(families)
    if told.returncode != 0:
        words.remove(TRAINING)
        tell(f"without the programs that train: {(told.stderr.splitlines() or ['pip failed'])[-1]}")
    command = [made.python, "-m", "tests.harmless", "--short", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS)
    *rows, last = ended.stdout.splitlines() or [""]
    tell(last or "the programs did not run")
    found = [row for row in rows if len(row.split()) >= ROW_WORDS and not row.endswith("same")]
    return found or ([f"exit code {ended.returncode}: {ended.stderr[-300:]}"] if ended.returncode != 0 else [])
