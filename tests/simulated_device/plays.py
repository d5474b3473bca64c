"""Plays of workloads: what the hooks told, and what was true."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from monitor.running import launch
from tests.hooks.conftest import FOREIGN, ROOT, Told
from tests.simulated_device.play import TRUTH, VARIABLE
from tests.simulated_device.workloads import WORKLOADS, Workload
from trainhooks.program_errors import DEBUG_VARIABLE
from trainhooks.protocol import rundir

# What `trainmon run` sets, so that kernels are traced.
TRACING = launch.PROFILER
PLAY = Path(__file__).with_name("play.py")


@dataclass
class Played:
    """One training by the hooks, and by the ledger."""

    workload: Workload
    way: str
    told: Told
    truth: dict[str, Any]

    @cached_property
    def indices(self) -> list[int]:
        return self.told.indices

    @cached_property
    def timed(self) -> dict[int, dict[str, Any]]:
        """What was told of the steps that were timed."""
        return {event["step"]: event for event in self.told.kind("gpu_time") if "seconds" in event}

    @cached_property
    def true_steps(self) -> dict[int, dict[str, float]]:
        """Busy seconds of each step's phases on the device."""
        return {int(step): phases for step, phases in self.truth["steps"].items()}


class Zygote:
    """The process that has torch, and whose copies the scripts run in."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.simulated_device.zygote"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def run(self, script: Path, work: Path, **environment: str) -> Told:
        """Run a script to its end, in a state directory of its own."""
        state = work / "state"
        kept = {key: value for key, value in os.environ.items() if key not in (*FOREIGN, rundir.RUN_VARIABLE)}
        # The operations that torch sees here are not the kernels that the device is said to run.
        ours = {rundir.STATE_VARIABLE: str(state), DEBUG_VARIABLE: "1", "PYTHONPATH": str(ROOT), "TRAINMON_OPS": "0"}
        request = {
            "script": str(script),
            "cwd": str(work),
            "out": str(work / "out"),
            "err": str(work / "err"),
            "environment": {**kept, **ours, **environment},
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        code = int(self._process.stdout.readline())
        return Told(state, code, (work / "out").read_text(), (work / "err").read_text())

    def end(self) -> None:
        self._process.communicate()


class Plays:
    """Workloads and scripts, each in a process of its own. A workload is played once, whichever worker asks for it.

    Args:
        zygote: starts them.
        work: where those lie that nobody else asks for.
        shared: where the plays of workloads lie, of all workers of this run of tests.
    """

    def __init__(self, zygote: Zygote, work: Path, shared: Path) -> None:
        self._zygote, self._work, self._shared = zygote, work, shared
        self._known: dict[str, Played] = {}

    def __call__(self, workload: str, **order: Any) -> Played:
        """Play a workload; `order` is as `play` takes it."""
        return self._once({"workload": workload, **order}, replace(WORKLOADS[workload], **order.get("changes", {})))

    def program(self, name: str, mended: bool = False, **order: Any) -> Played:
        """Play a program of `programs`, on the real torch and its own operations."""
        return self._once({"program": name, "mended": mended, **order}, Workload(name))

    def _once(self, order: dict[str, Any], workload: Workload) -> Played:
        wanted = json.dumps(order, sort_keys=True)
        if wanted not in self._known:
            told = self._played(wanted, TRAINMON_OPS="1" if "program" in order else "0")
            truth = json.loads((told.state.parent / TRUTH).read_text())
            self._known[wanted] = Played(workload, order.get("way", "auto"), told, truth)
        return self._known[wanted]

    def _played(self, wanted: str, **environment: str) -> Told:
        work = self._shared / hashlib.sha256(wanted.encode()).hexdigest()[:16]
        work.mkdir(parents=True, exist_ok=True)
        with open(work / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (work / "done").exists():
                told = self._zygote.run(PLAY, work, **{VARIABLE: wanted, **environment})
                assert told.code == 0 and told.err == "", told.err
                (work / "done").touch()
        return Told(work / "state", 0, (work / "out").read_text())

    def script(self, source: str, good: bool = True, **environment: str) -> Told:
        """Run a script of a test's own; unless it is said otherwise it must end well, and say nothing on its own."""
        work = self._work / f"script{len(list(self._work.iterdir()))}"
        work.mkdir()
        path = work / "script.py"
        path.write_text(textwrap.dedent(source))
        told = self._zygote.run(path, work, **environment)
        assert not good or (told.code == 0 and told.err == ""), told.err
        return told
