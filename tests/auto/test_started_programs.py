"""The programs that a training starts: their time limits, and what is raised while they are waited for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.auto.watched import watched

SCRIPT = """
import subprocess, sys
from concurrent.futures import ThreadPoolExecutor
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

def ends_at_limit():
    try:
        subprocess.run(["sleep", "30"], timeout=0.3, capture_output="pipes" in sys.argv)
    except subprocess.TimeoutExpired as error:
        print(error)

def is_looked_at():
    process = subprocess.Popen(["sleep", "1"])
    while True:
        try:
            return process.wait(timeout=0.3)
        except subprocess.TimeoutExpired:
            pass

pool = ThreadPoolExecutor(4)
for step in range(4):
    if "pool" in sys.argv:
        list(pool.map(lambda _: ends_at_limit(), range(4)))
    else:
        (is_looked_at if "looks" in sys.argv else ends_at_limit)()
    optimizer.zero_grad()
    model(torch.randn(8, 4)).mean().backward()
    optimizer.step()
"""


def limits(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    (tmp_path / "script.py").write_text(SCRIPT)
    run = watched(tmp_path, str(tmp_path / "script.py"), *arguments)
    assert run.code == 0, run.err
    found = run.facts.get("time_limit", {})
    assert isinstance(found, dict)
    return found


@pytest.mark.long
@pytest.mark.parametrize("arguments", [(), ("pipes",)])
def test_limits_of_programs_that_are_waited_for(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    found = limits(tmp_path, *arguments)
    assert 2 <= found["hits"] <= 4
    assert found["own"] == found["hits"]
    assert found["seconds"] == pytest.approx(0.3 * found["hits"], rel=0.05)


@pytest.mark.long
def test_limits_in_a_pool_are_waited_for_at_the_same_time(tmp_path: Path) -> None:
    found = limits(tmp_path, "pool")
    assert 2 <= found["hits"] <= 16 and found["own"] == 0
    assert 0 < found["seconds"] < 0.3 * found["hits"]


@pytest.mark.long
def test_looks_whether_a_process_has_ended_are_none(tmp_path: Path) -> None:
    assert limits(tmp_path, "looks") == {}


RAISES = """
import subprocess, torch, traceback
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(3):
    model(torch.randn(8, 4)).mean().backward(); optimizer.step()
    try:
        subprocess.run(["sleep", "30"], timeout=0.1, capture_output=True)
    except subprocess.TimeoutExpired as error:
        print(error, [(frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)])
"""


@pytest.mark.long
def test_what_is_raised_there_has_no_frame_of_ours(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(RAISES)
    bare = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100)
    assert watched(tmp_path, str(script)).out == bare.stdout and bare.stdout
