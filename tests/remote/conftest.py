"""Two state directories: that of a far host, reached by a command that sets it, and that of the host of the viewer."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path

import pytest

from tests.launch.conftest import State, state

__all__ = ["state"]

LOOP = """
import sys, time
import trainhooks as th
th.init(name="far training", total_steps=int(sys.argv[1]))
for step in th.steps(range(int(sys.argv[1]))):
    with th.phase("forward"):
        time.sleep(float(sys.argv[2]))
    th.log(loss=1 / (step + 1))
    print("step", step, flush=True)
"""


@pytest.fixture
def far(state: State) -> State:
    return state


@pytest.fixture
def near(tmp_path: Path) -> State:
    return State(tmp_path / "near")


def trainings(steps: int, seconds: float) -> list[str]:
    return [sys.executable, "-u", "-c", LOOP, str(steps), str(seconds)]


def via(far: State, with_trainmon: bool = True) -> str:
    """Return the words that lead to the far host: with trainmon on its PATH, or with a bare Python alone."""
    place = far.path.parent / ("with_trainmon" if with_trainmon else "bare")
    place.mkdir(exist_ok=True)
    python = shlex.quote(sys._base_executable)  # type: ignore[attr-defined]
    _script(place / "python3", f'exec {python} -S "$@"')
    if with_trainmon:
        _script(place / "trainmon", f'exec {shlex.quote(sys.executable)} -m monitor "$@"')
    words = ["env", "-u", "PYTHONPATH", f"TRAINMON_DIR={far.path}", f"PATH={place}:/usr/bin:/bin"]
    return shlex.join([*words, *([f"PYTHONPATH={far.environment['PYTHONPATH']}"] if with_trainmon else [])])


def configure(near: State, **hosts: str) -> None:
    near.path.mkdir(exist_ok=True)
    rows = [f"{host} = {json.dumps(command)}" for host, command in hosts.items()]
    (near.path / "config.toml").write_text("\n".join(["[hosts]", *rows, ""]))


def _script(path: Path, line: str) -> None:
    path.write_text(f"#!/bin/sh\n{line}\n")
    os.chmod(path, 0o755)


def relays(far: State) -> list[int]:
    """Return the relays that run for this test's far host."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, place = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        if b"\0relay\0" in words and f"TRAINMON_DIR={far.path}".encode() in place.split(b"\0"):
            found.append(int(process.name))
    return found
