"""Programs run one at a time, bare or under `trainmon run`, each with a state directory of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
REPORT_LIMIT = 120.0  # seconds, against hanging
GRACE = 30.0  # seconds between being asked to end and being killed
# What a cluster's environment, or a surrounding run, must not lend to a program that is measured.
FOREIGN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_LOCALID")
TAIL = 300  # characters of what a program said last


@dataclass(frozen=True)
class Ran:
    """One run of a program.

    Attributes:
        told: the last line that it printed as a JSON object; empty where there is none.
        report: what `trainmon report --json` says; None for a bare run, and where there is none.
    """

    code: int | None  # None: it hung, and was ended
    wall: float
    printed: str
    errors: str
    told: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] | None = None

    @property
    def trouble(self) -> str | None:
        if self.code is None:
            return "it hung"
        if self.code:
            last = [line for line in self.errors.splitlines() if line.strip() and not line.startswith("  ")]
            said = next((line for line in reversed(last) if "Error" in line), last[-1] if last else "")
            return f"exit code {self.code}: {said[:TAIL]}"
        return None


def last_json(text: str) -> dict[str, Any]:
    """The last line that is a JSON object."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            try:
                found = json.loads(line)
            except ValueError:
                continue
            if isinstance(found, dict):
                return found
    return {}


def environment(state: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN and name[:8] != "TRAINMON"}
    path = os.pathsep.join(filter(None, (str(ROOT), kept.get("PYTHONPATH"))))
    return {**kept, "PYTHONPATH": path, rundir.STATE_VARIABLE: str(state), **(more or {})}


def bare(
    command: Sequence[str], state: Path, limit: float, more: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> Ran:
    """A program by itself.

    Args:
        state: where its output lies meanwhile.
        limit: seconds after which it hangs.
        more: environment variables.
    """
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    began = time.monotonic()
    with (state / "stdout.txt").open("w+b") as out, (state / "stderr.txt").open("w+b") as errors:
        child = subprocess.Popen(
            list(command), cwd=cwd, env=environment(state, more), stdin=subprocess.DEVNULL, stdout=out, stderr=errors
        )
        try:
            code: int | None = child.wait(limit)
        except subprocess.TimeoutExpired:
            code = None
            _end(child, state)
        wall = time.monotonic() - began
        texts = [(file.seek(0), file.read().decode("utf-8", "replace"))[1] for file in (out, errors)]
    return Ran(code, wall, texts[0], texts[1], last_json(texts[0]))


def recorded(
    name: str, command: Sequence[str], state: Path, limit: float, more: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> Ran:  # fmt: skip
    """A program under `trainmon run`."""
    trainmon = [sys.executable, "-m", "monitor", "run", "--no-tui", "--name", name, "--"]
    return bare([*trainmon, *command], state, limit, more, cwd)


def watched(
    name: str, command: Sequence[str], state: Path, limit: float, more: Mapping[str, str] | None = None,
    cwd: Path = ROOT,
) -> Ran:  # fmt: skip
    """A program under `trainmon run`, and the report of it."""
    return replace(recorded(name, command, state, limit, more, cwd), report=report(name, state))


def report(name: str, state: Path) -> dict[str, Any] | None:
    """What `trainmon report` says of a run today; None where there is no run."""
    told = subprocess.run(
        [sys.executable, "-m", "monitor", "report", name, "--json"],
        cwd=ROOT, env=environment(state), capture_output=True, text=True, timeout=REPORT_LIMIT,
    )  # fmt: skip
    return json.loads(told.stdout) if told.returncode == 0 else None


def _end(child: subprocess.Popen[bytes], state: Path) -> None:
    """Give up on a program that hangs. A training under trainmon outlives its terminal: it is stopped by name."""
    child.send_signal(signal.SIGTERM)
    try:
        child.wait(GRACE)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    if (state / "runs").is_dir():
        stop = [sys.executable, "-m", "monitor", "stop", "last"]
        subprocess.run(stop, cwd=ROOT, env=environment(state), capture_output=True, timeout=REPORT_LIMIT)
