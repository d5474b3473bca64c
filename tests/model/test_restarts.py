"""Elastic restarts: the same run goes on; what is done again counts once, and the time between has a name."""

from __future__ import annotations

import random
from typing import Any

import pytest

from monitor.model.report import Report
from monitor.model.summary import make_report, open_work
from trainhooks.protocol.events import Facts

from .conftest import Story, around, folded, judged_state, parts_of, report_of


def life(name: str, first: int, last: int, begin: float, restart: int = 0, rank: int = 0, **fields: Any) -> Story:
    """A process that begins at `begin`, loads for 3 s, and does the steps `first` to `last` at 2 s each."""
    told = Story(name, rank, restart=restart)
    told.now = begin
    told.events[0].t = begin
    told.events[0].process_started = begin - 1  # type: ignore[attr-defined]
    told.span("load", 3)
    for index in range(first, last + 1):
        told.step_with({"index": index, **fields}, forward=2)
    return told


def check(known: Report) -> None:
    assert known.wall.total is not None
    assert sum(parts_of(known.wall)) == pytest.approx(known.wall.total)
    assert known.progress.steps_done == known.progress.steps_ok + known.progress.steps_skipped


def test_a_restart_from_a_checkpoint() -> None:
    first = life("a", 1, 10, 100.0)
    second = life("b", 7, 20, first.now + 20, restart=1)
    known = report_of(first, second.bye())
    check(known)
    progress, wall = known.progress, known.wall
    assert (progress.steps_done, progress.restarts, progress.steps_again) == (20, 1, 4)
    assert wall.spans == pytest.approx({"load": 3, "restart": 20}) and wall.between_steps == pytest.approx(0)
    assert wall.steps == pytest.approx(2 * 24)
    assert [row.text for row in known.alerts] == ["restart 1: rank 0 began again at step 7; 4 steps repeated"]
    assert known.outcome.state == "finished"


def test_a_restart_from_the_begin() -> None:
    first = life("a", 1, 10, 100.0)
    known = report_of(first, life("b", 1, 3, first.now + 5, restart=1).bye())
    check(known)
    assert known.progress.steps_done == 3 and known.progress.steps_again == 10
    assert "began again at step 1; 10 steps" in known.alerts[0].text


def test_a_restart_that_lost_nothing() -> None:
    first = life("a", 1, 10, 100.0)
    known = report_of(first, life("b", 11, 12, first.now + 5, restart=1).bye())
    check(known)
    assert known.progress.steps_done == 12 and known.progress.steps_again == 0
    assert known.alerts[0].text == "restart 1: rank 0 began again at step 11"


def test_a_resumed_run_that_is_restarted() -> None:
    """Its first process began at step 101; the second one says where it begins, too."""
    first, second = Story("a"), Story("b", restart=1)
    first.tell(Facts, start_step=100, total_steps=130)
    for index in range(101, 111):
        first.step_with({"index": index}, forward=2)
    second.now = first.now + 10
    second.events[0].t = second.now
    second.tell(Facts, start_step=105)
    for index in range(106, 121):
        second.step_with({"index": index}, forward=2)
    known = report_of(first, second)
    assert (known.progress.steps_done, known.progress.steps_again, known.progress.steps_total) == (120, 5, 130)


def test_skipped_steps_that_are_done_again_are_not_skipped_twice() -> None:
    first = life("a", 1, 6, 100.0)
    for index in (7, 8):
        first.step_with({"index": index, "status": "skipped", "reason": "empty"}, data=1)
    known = report_of(first, life("b", 6, 9, first.now + 5, restart=1).bye())
    check(known)
    assert known.progress.skipped == {} and known.progress.steps_done == 9


def test_several_restarts_of_several_ranks() -> None:
    stories, begin = [], 100.0
    for restart, (first, last) in enumerate([(1, 10), (6, 15), (11, 30)]):
        lives = [life(f"r{rank}{restart}", first, last, begin, restart, rank) for rank in range(3)]
        begin = lives[0].now + 7
        stories += lives
    for told in stories[-3:]:
        told.bye()
    known = report_of(*stories)
    check(known)
    assert (known.progress.steps_done, known.progress.restarts, known.progress.steps_again) == (30, 2, 10)
    assert known.run.ranks == 3 and len(known.ranks) == 3 and known.outcome.state == "finished"
    assert known.wall.spans["restart"] == pytest.approx(14)


def test_an_error_that_a_restart_has_mended_is_no_failure() -> None:
    first = life("a", 1, 10, 100.0).bye("RuntimeError: a peer went away")
    second = life("b", 11, 12, first.now + 5, restart=1).bye()
    assert report_of(first, second).outcome.state == "finished"
    assert report_of(first, second, alive=True).outcome.state == "running"


def test_the_first_steps_after_a_restart_are_warm_up() -> None:
    first = life("a", 1, 60, 100.0)
    second = life("b", 61, 61, first.now + 5, restart=1)
    second.step_with({"index": 62}, forward=30).step_with({"index": 63}, forward=2)
    known = report_of(first, second.bye())
    assert [row.code for row in known.alerts] == ["restart"] and known.slow_steps == []
    for index in range(64, 80):
        second.step_with({"index": index}, forward=2)
    second.step_with({"index": 80}, forward=30)
    assert [slow.step for slow in report_of(first, second).slow_steps] == [80], "and later ones are judged"


# While it lasts


def test_the_time_until_the_first_step_is_shown_as_it_grows() -> None:
    first = life("a", 1, 10, 100.0)
    second = Story("b", restart=1)
    second.now = first.now + 20
    second.events[0].t = second.now
    second.wait(8).pulse(spans=[("load", 8.0)])
    state = folded(first, second)
    about = around(state, alive=True, now=second.now + 1)
    known = make_report(state, about)
    assert sum(parts_of(known.wall)) == pytest.approx(known.wall.total)
    assert known.wall.spans["restart"] == pytest.approx(29) and known.wall.between_steps == pytest.approx(0)
    now = open_work(state, about, known.outcome)
    assert now.restarting == pytest.approx(29) and now.spans == [("load", 9.0)] and now.step is None
    assert known.progress.steps_done == 10, "nothing is taken back before it is known where it begins"


def test_a_restart_that_comes_to_no_step_is_a_stall() -> None:
    first = life("a", 1, 10, 100.0)
    second = Story("b", restart=1)
    second.now = first.now + 20
    second.events[0].t = second.now
    second.pulse(spans=[("rendezvous", 0.5)])
    state = folded(first, second)
    assert "stalled" not in [each.code for each in judged_state(state, now=second.now + 2)[0]]
    second.wait(300).pulse(spans=[("rendezvous", 300.5)])
    found, told = judged_state(folded(first, second))
    assert told.code == "stalled" and "5 min 20 s" in told.title and "restart" in told.title
    assert "rendezvous" in told.evidence[-1] and told in found


@pytest.mark.parametrize("seed", range(20))
def test_it_adds_up_in_any_life(seed: int) -> None:
    pick = random.Random(seed)
    stories, begin, first = [], 100.0, 1
    for restart in range(pick.randint(1, 4)):
        last = first + pick.randint(0, 12)
        told = life(f"p{restart}", first, last, begin, restart)
        if pick.random() < 0.3:
            told.step_with({"index": last + 1, "status": "skipped", "reason": "x"}, data=1)
            last += 1
        begin = told.now + pick.uniform(0, 30)
        first = max(1, last + 1 - pick.randint(0, 8))
        stories.append(told)
    known = report_of(*stories)
    check(known)
    assert known.progress.steps_done == last
    assert all(part >= -1e-6 for part in parts_of(known.wall))
