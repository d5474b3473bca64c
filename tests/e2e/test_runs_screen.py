"""All runs on a real terminal: opened from the list, and back to it."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.reports import card

from .conftest import ROOT, Box

RECORDING = ROOT / "demo" / "recordings" / "sft-cpu.jsonl"


def a_run(box: Box, name: str) -> Path:
    path = box.path / "runs" / name
    path.mkdir(parents=True)
    (path / "run.json").write_text(f'{{"id": "{name}", "name": "{name}", "started": 1000000000}}')
    shutil.copy(RECORDING, path / "rank-0-2e4493ba.jsonl")
    return path


def test_trainmon_alone_shows_the_runs_opens_one_and_comes_back(box: Box) -> None:
    for name in ("alpha", "beta"):
        a_run(box, name)
    terminal = box.trainmon()
    terminal.wait_for(lambda screen: "2 runs" in screen and "60/60" in screen and "eval_loss" in screen)
    terminal.press("\r")
    terminal.wait_for("Where the time goes")
    terminal.press("q")
    terminal.wait_for("2 runs")
    terminal.press("r")
    terminal.wait_for(lambda screen: "REPLAY" in screen and "Where the time goes" in screen)
    terminal.press("q")
    terminal.wait_for("2 runs")
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_a_replay_on_a_terminal(box: Box) -> None:
    terminal = box.trainmon("replay", str(RECORDING), "--speed", "0")
    terminal.wait_for(lambda screen: "REPLAY · paused at" in screen)
    for _ in range(3):
        terminal.press(".")
    terminal.wait_for(lambda screen: "step 3 of 60" in screen)
    terminal.press(",")
    terminal.wait_for(lambda screen: "step 2 of 60" in screen)
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_a_key_copies_the_short_report_of_what_is_on_screen(box: Box) -> None:
    terminal = box.trainmon("replay", str(RECORDING), "--speed", "0")
    terminal.wait_for(lambda screen: "REPLAY · paused at" in screen)
    for _ in range(19):
        terminal.press(")")
    terminal.wait_for(lambda screen: "of 60" in screen)
    terminal.press("Y")
    terminal.wait_for("Copied the short report")
    (copied,) = re.findall(rb"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07", terminal.raw)
    lines = base64.b64decode(copied).decode().splitlines()
    assert lines[0].startswith("sft") and len(lines) <= 32 and max(map(len, lines)) <= card.WIDTH
    assert any(line.startswith(("WHY SLOW", "VERDICT", "PROBLEM")) for line in lines) and "--full" in lines[-1]
    terminal.press("q")
    assert terminal.exit_code() == 0


@pytest.mark.long
def test_the_theme_is_remembered(box: Box) -> None:
    a_run(box, "alpha")
    terminal = box.trainmon("attach", "alpha")
    terminal.wait_for("Where the time goes")
    terminal.press("t")
    terminal.press("q")
    assert terminal.exit_code() == 0
    assert '"theme": "paper"' in (box.path / "screen.json").read_text()
    program = "from monitor.tui.feed import load_preferences; print(load_preferences().theme)"
    told = subprocess.run([sys.executable, "-c", program], env=box.environment, cwd=ROOT, capture_output=True)
    assert told.stdout == b"paper\n"
