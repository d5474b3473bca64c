"""Several trainings under one command, told in a line."""

from __future__ import annotations

import pytest

from monitor.model import group
from monitor.model.report import Member


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
    told = group.group_of([Member(number=0, state=state) for state in states], shown=0)
    assert told is not None
    assert group.line(told).split(";")[0] == said
