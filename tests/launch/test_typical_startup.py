"""How long the start-up usually takes is told from earlier runs of the same command, and of no other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from monitor.model.report import Outcome
from monitor.runs import figures_cache
from monitor.runs.follow import Run, load
from monitor.tui.panels.header import now

from .conftest import State, python

TRAINING = """
import time
import trainhooks as th
time.sleep({start})
for _ in th.steps(range({steps})):
    time.sleep(0.01)
"""


@pytest.mark.long
def test_the_usual_start_up_of_a_command(state: State, monkeypatch) -> None:
    monkeypatch.setenv("TRAINMON_DIR", str(state.path))
    command = python(TRAINING.format(start=0.5, steps=5))
    assert state.run(*command).returncode == 0
    first = state.only
    load(first)  # whoever reads an ended run to its end leaves its figures
    took = load(first).report.wall.startup
    assert took is not None and took > 0.5
    state.run(*python(TRAINING.format(start=0.1, steps=3)))
    state.run(*command)
    _, other, again = state.runs()
    assert figures_cache.typical_startup(again) == took
    assert figures_cache.typical_startup(other) is None
    assert figures_cache.typical_startup(first) is None


def test_the_typical_start_up_is_shown_before_the_first_step(state: State, monkeypatch) -> None:
    monkeypatch.setenv("TRAINMON_DIR", str(state.path))
    run = Run(state.path / "runs" / "none-yet")
    monkeypatch.setattr(figures_cache, "typical_startup", lambda path: 9.0)
    while run.advance():
        pass
    view = run.view()
    run.close()
    assert view.typical_startup == 9.0
    shown = "".join(text for text, _ in now(replace(view, report=replace(view.report, outcome=Outcome("running")))))
    assert shown == "waiting for the first step; typical time to first step 9 s"
