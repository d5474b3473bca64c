"""`trainmon attach --pid` on a real terminal: what it says, the question, and the list of runs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import Box

TRAINING = """
import time, torch
model = torch.nn.Linear(4, 4)
for number in range(1, 10000):
    print(f"step {number}/9999 loss {1 / number:.5f}", flush=True)
    time.sleep(0.05)
"""


@pytest.fixture
def training(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    (tmp_path / "train.py").write_text(TRAINING)
    words = [sys.executable, "train.py", "--token", "hunter2hunter2", "\x1b]0;owned\x07"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    yield process
    process.kill()
    process.wait()


def wait_for_steps(path: Path) -> None:
    while b"step 5/" not in path.read_bytes():
        pass


def test_no_is_no(box: Box, training: subprocess.Popen[bytes], tmp_path: Path) -> None:
    wait_for_steps(tmp_path / "log")
    terminal = box.trainmon("attach", "--pid", str(training.pid))
    text = terminal.wait_for("Attach? [y/N]")
    assert f"process {training.pid}" in text and "nothing is changed in it" in text and "/log (" in text
    assert "hunter2" not in text and b"\x1b]0;owned" not in terminal.raw
    terminal.press("\r")
    terminal.wait_for("nothing was done")
    assert terminal.exit_code() == 1
    assert not (box.path / "runs").exists() and training.poll() is None


@pytest.mark.long
def test_yes_opens_the_dashboard_and_the_recording_goes_on_without_it(
    box: Box, training: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    wait_for_steps(tmp_path / "log")
    terminal = box.trainmon("attach", "--pid", str(training.pid))
    terminal.wait_for("Attach? [y/N]")
    terminal.press("y\r")
    terminal.wait_for(lambda text: "RUNNING" in text and "of 9,999" in text)
    terminal.press("q")
    assert terminal.exit_code() == 0
    journal = next(box.run().glob("console-*.jsonl"))
    before = journal.stat().st_size
    while journal.stat().st_size == before:
        assert training.poll() is None
    training.kill()
    training.wait()
    listed = box.trainmon("attach", box.run().name)
    listed.wait_for("outcome unknown")
    listed.press("q")
    assert listed.exit_code() == 0


def test_the_list_of_runs_tells_how_to_watch_it(box: Box, training: subprocess.Popen[bytes], tmp_path: Path) -> None:
    wait_for_steps(tmp_path / "log")
    terminal = box.trainmon()
    # A machine may have so many trainings that it is one of "and 3 more".
    own = f"trainmon attach --pid {training.pid}"
    text = terminal.wait_for(lambda text: "not watched" in text and (own in text or "more: trainmon ls" in text))
    assert "hunter2" not in text and b"\x1b]0;owned" not in terminal.raw
    terminal.press("q")
    assert terminal.exit_code() == 0
