"""Several trainings under one command, told in a line."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.model import group
from monitor.model.report import Best, Member, MetricRow
from monitor.model.state import RunState
from monitor.model.summary import make_report
from monitor.model.wall_time import RunContext


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (["finished", "finished"], "2, all done"),
        (["finished", "finished", "killed"], "3, all ended, 1 killed"),
        (["failed", "failed", "killed"], "3, all ended, 2 failed, 1 killed"),
        (["finished", "running"], "2 so far, 1 done"),
    ],
)
def test_one_that_was_killed_is_not_done(states: list[str], said: str) -> None:
    told = group.group_of([Member(number=0, state=state) for state in states], shown=0, command=())
    assert told is not None
    assert group.line(told).split(";")[0] == said


@pytest.mark.parametrize(
    ("command", "settings", "total"),
    [
        ("sweep.py --rates 1e-4 1e-3 1e-2 --seed 1", [{"lr": 1e-4}, {"lr": "0.001"}], 3),
        ("sweep.py --rates=1e-4,1e-3,1e-2", [{"lr": 1e-4}, {"lr": 1e-3}], 3),
        ("sweep.py rates=1e-4,1e-3", [{"lr": 1e-4}, {"lr": 1e-3}], 2),
        ("sweep.py --rates 1e-4 1e-3 1e-2", [{"lr": 1e-4}, {"lr": 0.5}], None),
        ("sweep.py --rates 1e-4 1e-3 1e-2", [{"lr": 1e-4}, {"lr": 1e-4}], None),
        ("sweep.py --rates 1e-4 1e-3 1e-2 --widths 8 16", [{"lr": 1e-4, "width": 8}, {"lr": 1e-3, "width": 8}], None),
        ("sweep.py --betas 0.9 0.99", [{"lr": 1e-4}, {"lr": 1e-3}], None),
        ("sweep.py --lr 1e-4", [{"lr": 1e-4}, {"lr": 1e-3}], None),
    ],
)
def test_a_list_in_the_command_tells_how_many_there_are_to_be(
    command: str, settings: list[dict[str, Any]], total: int | None
) -> None:
    rows = [Member(number=0, state="finished", settings=one) for one in settings]
    told = group.group_of(rows, shown=0, command=command.split())
    assert told is not None and told.total == total


def test_a_goal_is_no_result() -> None:
    report = make_report(RunState(), RunContext({}, 0.0, alive=True))
    report.metrics = {
        name: MetricRow(min=low, max=9.0, count=3) for name, low in (("target_val_loss", 1.4), ("val_loss", 2.0))
    }
    assert group.best(report) == Best("val_loss", 2.0, "lowest")
