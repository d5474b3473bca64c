"""A run that is slower than the last one of its command says so while it runs, and in the line that ends it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import Box

pytestmark = pytest.mark.long

PROGRAM = """
import pathlib, sys, time
import trainhooks as th
slower = float(pathlib.Path(sys.argv[1]).read_text())
th.init(name="pulsar", total_steps=int(sys.argv[2]))
for index in th.steps(range(int(sys.argv[2]))):
    with th.phase("forward"):
        time.sleep(0.03 * slower)
    th.log(loss=2.0 / (1 + index / 50))
"""


def test_a_slower_run_says_so_while_it_runs_and_at_its_end(box: Box, tmp_path: Path) -> None:
    script, slower = tmp_path / "train.py", tmp_path / "slower"
    script.write_text(PROGRAM)
    slower.write_text("1.0")
    command = ("--", sys.executable, str(script), str(slower), "250")
    first = box.trainmon("run", "--no-tui", *command)
    first.wait_for("pulsar finished (exit code 0) after")
    assert first.exit_code() == 0 and "the run of" not in first.text, "there is none to compare with"

    slower.write_text("1.5")
    second = box.trainmon("run", *command, columns=80, lines=24)
    shown = second.wait_for("slower than the run of")
    assert "RUNNING" in shown and "loss" in shown
    rows = [row for row in shown.split("\n") if row.startswith("▌")]
    assert len(rows) >= 2 and any("→" in row for row in rows), "the verdict has its fix"
    second.wait_for("FINISHED")
    second.press("q")
    assert second.exit_code() == 0
    told = second.raw.decode(errors="replace").rpartition("trainmon: pulsar finished (exit code 0) after")[2]
    card = " ".join(told.split())  # at 80 columns a line is broken between words
    assert "it/s" in card and "slower than the run of" in card, card
