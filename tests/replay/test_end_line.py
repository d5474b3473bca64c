"""A run in one line, as it ends: outcome, cost, speed, what was lost, and how it stands against the last one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from monitor.alerts import command_input
from monitor.model.comparison.last_run import Standing
from monitor.model.report import Lost, Rates
from monitor.model.view import PreviousRun, View
from monitor.reports.run_summary import end_line, short, verdict_line
from monitor.runs.replay import recorded

RECORDINGS = sorted((Path(__file__).parents[2] / "demo" / "recordings").glob("*.jsonl"))


def of(name: str) -> View:
    return recorded(next(path for path in RECORDINGS if path.stem == name))


def test_it_has_everything_that_is_known() -> None:
    view = of("sft-cpu")
    view.report.progress.cost, view.report.throughput.mfu = 131.0, 0.38
    view.verdict.lost, view.verdict.culprit = Lost(1.0, 8.0, 20.0, 100.0), "data"
    started = (view.report.run.started or 0.0) - 86400
    view = replace(view, previous_run=PreviousRun("a", "a", (), started, Standing(1 / 1.06, 0.91, 0.98)))
    line = end_line(view)
    assert line.startswith("sft_trainer finished (exit code 0) after 57.")
    assert ", $131.00, 580 tok/s, MFU 38%, 8.0% lost to data; 6% faster than the run of " in line
    assert short(view).split("\n")[0] == f"trainmon: {line}" and command_input(view, None)["text"] == line


def test_it_leaves_out_what_is_not_known() -> None:
    view = of("rl-code-cpu")
    assert end_line(view) == "rl-code finished (exit code 0) after 42.6 s, 1,592 tok/s"


def test_ranks_are_told_together_where_they_add_up() -> None:
    view = of("rl-code-cpu")
    view.report.throughput.rank = 0
    assert end_line(view).endswith(", rank 0: 1,592 tok/s")
    view.report.throughput.job = Rates(None, 8 * 1592.0)
    assert end_line(view).endswith(", 12,736 tok/s")


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_no_verdict_without_its_fix(path: Path) -> None:
    view = recorded(path)
    summary = short(view)
    assert "DO THIS\n" in summary and view.verdict.title[:40] in summary
    title, fix = verdict_line(view).split("\n")
    assert view.verdict.title in title and fix.strip().startswith("→ ")
