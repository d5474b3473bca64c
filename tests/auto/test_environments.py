"""Trainings in environments that are not trainmon's: without pyzmq and msgspec, and with another Python."""

from __future__ import annotations

import ast
import glob
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

from .watched import LIMIT, ROOT, environment

OURS = ("zmq", "pyzmq", "msgspec", "textual", "plotext", "click", "pynvml", "nvidia_ml_py", "psutil")
TRAINING = """
import os, sys, time
try:
    import zmq, msgspec
except ImportError:
    pass
else:
    sys.exit('this environment was to lack both')
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = torch.utils.data.DataLoader(torch.ones(400, 4), batch_size=4)
for number, batch in enumerate(loader, 1):
    optimizer.zero_grad()
    model(batch).mean().backward()
    optimizer.step()
    while number == 50 and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
print('done')
"""
HOOKED = """
import os, sys, time
import trainhooks as th
for number in th.steps(range(1, 101), total=100):
    with th.phase('training'):
        sum(range(1000))
    while number == 50 and not os.path.exists(sys.argv[1]):
        time.sleep(0.05)
print('done')
"""


@pytest.fixture(scope="module")
def without_ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has all that this one has, but for what trainmon itself needs."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--symlinks", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.lower().startswith(OURS) and entry.suffix != ".pth" and not (site / entry.name).exists():
            (site / entry.name).symlink_to(entry)
    return place / "bin" / "python"


def watch_live(tmp_path: Path, python: str | Path, script: str, halfway: int) -> None:
    """The steps are seen while the program lasts, and all of them after it."""
    program, go = tmp_path / "train.py", tmp_path / "go"
    program.write_text(script)
    variables = {**environment(tmp_path / "state"), "PYTHONPATH": str(ROOT)}
    trainmon = [sys.executable, "-m", "monitor"]
    started = subprocess.Popen(
        [*trainmon, "run", "--no-tui", "--", python, program, go], env=variables, stdout=subprocess.PIPE
    )

    def told() -> tuple[str, int]:
        asked = subprocess.run([*trainmon, "report", "last", "--json"], env=variables, capture_output=True, text=True)
        if asked.returncode:
            return "", 0
        known = json.loads(asked.stdout)
        return known["outcome"]["state"], known["progress"]["steps_done"]

    until = time.monotonic() + LIMIT
    while told() != ("running", halfway) and time.monotonic() < until and started.poll() is None:
        time.sleep(0.2)
    live = told()
    go.touch()
    out, _ = started.communicate(timeout=LIMIT)
    assert live == ("running", halfway)
    assert (out, started.returncode) == (b"done\n", 0)
    assert told() == ("finished", 100)


@pytest.mark.long
def test_a_training_without_pyzmq_and_msgspec_is_seen_live(tmp_path: Path, without_ours: Path) -> None:
    watch_live(tmp_path, without_ours, TRAINING, halfway=50)


def other_pythons() -> list[str]:
    """Interpreters of another version than this one's that can be had on this machine, oldest and newest."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    found: dict[tuple[int, ...], str] = {}
    for minor in range(9, 20):
        name = f"python3.{minor}"
        homes = sorted(glob.glob(os.path.expanduser(f"~/.pyenv/versions/3.{minor}.*/bin/python")))
        path = next(iter(homes), None) or shutil.which(name)
        if path and f"3.{minor}" != here and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            found[(3, minor)] = path
    paths = [found[version] for version in sorted(found)]
    return [*paths[:1], *paths[1:][-1:]]


@pytest.mark.long
def test_another_python_is_seen_live(tmp_path: Path) -> None:
    pythons = other_pythons()
    for number, python in enumerate(pythons):
        (tmp_path / str(number)).mkdir()
        watch_live(tmp_path / str(number), python, HOOKED, halfway=49)
    if not pythons:
        pytest.skip("this machine has no other Python from 3.9 on; the syntax is checked below all the same")


@pytest.mark.parametrize("path", sorted((ROOT / "trainhooks").rglob("*.py")), ids=lambda path: path.name)
def test_the_hooks_are_written_for_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(), feature_version=(3, 9))
