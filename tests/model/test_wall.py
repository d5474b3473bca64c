"""The account of the elapsed time, in every life a run can have: the parts add up, and none is negative."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.model.report import Report
from monitor.model.state import Ending
from monitor.model.steps.baseline import MIN_SLOW_RATIO
from monitor.model.summary import make_report, open_work
from trainhooks.protocol.events import Exit, Hello, Pulse, Span, Step

from .conftest import Story, around, folded, folded_events, parts_of, report_of

TOUCH = 1e-6


def check(known: Report) -> None:
    wall = known.wall
    assert wall.total is not None
    if wall.startup is None:
        assert known.progress.steps_done and not any(parts_of(replace(wall, startup=0.0)))
        return
    parts = parts_of(wall)
    assert sum(parts) == pytest.approx(wall.total)
    assert all(part >= -TOUCH for part in parts), wall
    if wall.steps:
        assert sum(row.share for row in known.phases) == pytest.approx(1)
        assert [row.name for row in known.phases].index("other") == len(known.phases) - 1
    assert sum(row.seconds for row in known.startup) == pytest.approx(wall.startup, abs=TOUCH)


def test_a_life_without_steps_is_start_up() -> None:
    known = report_of(Story().wait(1).span("load", 5).wait(1).bye())
    check(known)
    assert known.wall.startup == known.wall.total == pytest.approx(8)
    assert {row.name: row.seconds for row in known.startup} == {"load": 5, "other": pytest.approx(3)}


def test_a_process_that_only_said_hello() -> None:
    check(report_of(Story()))
    check(report_of(Story(), alive=True, now=150.0))


def test_one_step() -> None:
    known = report_of(Story().wait(2).step(forward=3, other=1).wait(5).bye())
    check(known)
    wall = known.wall
    assert (wall.startup, wall.steps, wall.between_steps, wall.teardown) == pytest.approx((3, 4, 0, 5))


def test_a_whole_life() -> None:
    told = Story().span("load", 4)
    for _ in range(10):
        told.step(data=0.5, forward=1, other=0.25).wait(0.1)
    told.span("eval", 6).wait(1).step(forward=2).span("save", 3).wait(2).bye()
    known = report_of(told)
    check(known)
    wall = known.wall
    assert wall.startup == pytest.approx(5)
    assert wall.steps == pytest.approx(19.5)
    assert wall.spans == pytest.approx({"eval": 6, "save": 3})
    assert (wall.between_steps, wall.teardown) == pytest.approx((2, 2))


def test_a_span_around_the_steps_owns_only_what_is_its_own() -> None:
    told = Story().step(forward=1)
    start = told.now
    for _ in range(5):
        told.step(forward=1).wait(0.5)
    told.tell_span("stage", start, own=2.5)
    known = report_of(told.wait(3).bye())
    check(known)
    assert known.wall.spans == {"stage": 2.5}
    assert known.wall.teardown == pytest.approx(3)


def test_a_span_owns_no_more_than_it_lasts() -> None:
    told = Story()
    for _ in range(20):
        told.step(forward=1)
    known = report_of(told.span("eval", 2, own=99).bye())
    check(known)
    assert (known.wall.steps, known.wall.spans) == (pytest.approx(20), {"eval": 2})


def test_killed_in_the_middle_of_a_step() -> None:
    told = Story().step(forward=1).step(forward=1).wait(7).pulse(step=3, step_open=7.0, phase="forward", phase_open=6.5)
    alive = folded(told)
    about = around(alive, alive=True, now=told.now + 2)
    known = make_report(alive, about)
    check(known)
    assert known.wall.teardown == 0, "a step is open: no end is in sight"
    now = open_work(alive, about, known.outcome)
    assert (now.step, now.step_seconds, now.phase, now.phase_seconds) == (3, 9.0, "forward", 8.5)
    dead = report_of(told)
    check(dead)
    assert dead.outcome.state == "lost" and dead.wall.total == pytest.approx(told.now - 99)


def test_the_open_step_knows_from_when_on_it_will_be_a_slow_one() -> None:
    told = Story()
    for _ in range(20):
        told.step(forward=1.0)
    told.wait(1.2).pulse(step=21, step_open=1.2, phase="forward", phase_open=1.2)
    state = folded(told)
    about = around(state, alive=True, now=told.now)
    now = open_work(state, about, make_report(state, about).outcome)
    assert (now.typical, now.limit) == (1.0, MIN_SLOW_RATIO)


@pytest.mark.parametrize("passed", [0.5, 10.0, 60.0])
def test_an_open_stop_counts_as_what_it_is_from_its_first_pulse_on(passed: float) -> None:
    told = Story().step(forward=1.0).wait(0.1).step(forward=1.0)
    told.wait(0.2 + passed).pulse(spans=[("eval", passed), ("checkpoint", passed / 2)])
    known = report_of(told, alive=True, now=told.now + 0.4)
    check(known)
    half = passed / 2
    assert known.wall.spans == pytest.approx({"eval": half, "checkpoint": half + 0.4})
    assert known.wall.between_steps == pytest.approx(0.3)
    ended = (
        told.wait(1.0)
        .tell_span("checkpoint", told.now - half - 1.0, half + 1.0)
        .tell_span("eval", told.now - passed - 1.0, half)
    )
    after = report_of(ended, alive=True)
    check(after)
    assert after.wall.spans == pytest.approx({"eval": half, "checkpoint": half + 1.0}), "nothing moves when it ends"


def test_what_no_pulse_has_told_of_yet_is_the_next_step_and_no_gap() -> None:
    told = Story().step(forward=1.0).pulse(step=2, step_open=0.0).step(forward=1.0).step(forward=1.0)
    for passed, steps in ((0.0, 3.0), (0.6, 3.6), (5.0, 4.0)):
        known = report_of(told, alive=True, now=told.now + passed)
        check(known)
        assert known.wall.steps == pytest.approx(steps, abs=0.02), "no longer than a step usually is"
        assert known.wall.between_steps == pytest.approx(3.0 + passed - steps, abs=0.02)
    told.wait(5.0).pulse()
    assert report_of(told, alive=True).wall.between_steps == pytest.approx(5.0), "now it is known to be a gap"


def test_a_span_around_the_steps_is_none_that_goes_on_after_the_last() -> None:
    told = Story().step(forward=1.0).step(forward=1.0).wait(0.5).pulse(spans=[("epoch", 2.5)])
    known = report_of(told, alive=True)
    check(known)
    assert known.wall.spans == {} and known.wall.between_steps == pytest.approx(0.5)


def test_the_lead_s_time_is_the_run_s() -> None:
    ranks = [Story(f"p{rank}", rank) for rank in range(4)]
    for rank, told in enumerate(ranks):
        for _ in range(10):
            told.step(forward=1 + rank, all_reduce=4 - rank)
        told.span("save", 1).bye()
    known = report_of(*ranks)
    check(known)
    assert known.run.ranks == 4
    assert known.progress.steps_done == 10 and known.wall.steps == pytest.approx(50)
    assert [row.rank for row in known.ranks] == [0, 1, 2, 3]
    assert [row.steps for row in known.ranks] == [10] * 4


def test_steps_without_a_time_leave_their_start_unknown() -> None:
    told = Story(source="native")
    for index in range(20):
        told.wait(1).tell(Step, index=index + 1)
    known = report_of(told.wait(1).bye())
    assert (known.wall.total, known.wall.startup, known.wall.steps) == (pytest.approx(22), None, 0.0)
    assert known.progress.steps_done == 20 and known.startup == []
    loading = report_of(Story(source="native").wait(5).bye())
    assert loading.wall.startup == loading.wall.total


def test_two_processes_of_one_rank_at_a_time() -> None:
    """They claim more than the elapsed time; the parts must stay parts all the same."""
    twins = [Story(name).step(forward=10).span("eval", 5, own=5).step(forward=10).wait(1).bye() for name in ("a", "b")]
    known = report_of(*twins)
    check(known)
    assert known.progress.steps_done == 4 and known.wall.steps == pytest.approx(26 * 40 / 50)


def test_a_launched_run_begins_with_its_launch() -> None:
    told = Story().step(forward=1).bye()
    assert report_of(told, launched=True, started_monotonic=90.0).wall.startup == pytest.approx(10)
    assert report_of(told, started_monotonic=90.0).wall.startup == pytest.approx(1)
    nothing = report_of(started_monotonic=90.0, alive=True, now=95.0).wall
    assert (nothing.total, nothing.startup) == (5, 5)


def test_parts_that_exceed_their_step_are_scaled() -> None:
    told = Story().step_with({"duration": 1.0}, forward=3, backward=1)
    known = report_of(told.bye())
    assert {row.name: row.share for row in known.phases} == pytest.approx(
        {"forward": 0.75, "backward": 0.25, "other": 0}
    )


def test_steps_beside_the_main_loop_take_none_of_its_time() -> None:
    told = Story().step(forward=2)
    told.step_with({"thread": "judge", "start": 100.5, "duration": 1.0}, judge=0.0).step(forward=2).bye()
    known = report_of(told)
    check(known)
    assert known.wall.steps == pytest.approx(4) and known.progress.steps_done == 3


ACTS = st.sampled_from(["step", "skipped", "span", "part", "wait", "pulse", "again"])


@given(st.lists(st.tuples(ACTS, st.floats(0, 50)), max_size=40), st.booleans(), st.booleans())
def test_it_adds_up_in_any_life(acts: list[tuple[str, float]], ends: bool, alive: bool) -> None:
    told = Story()
    for act, seconds in acts:
        if act == "step":
            told.step(forward=seconds, other=seconds / 2)
        elif act == "skipped":
            told.step_with({"status": "skipped", "reason": "x"}, data=seconds)
        elif act == "span":
            told.span("s", seconds)
        elif act == "part":
            told.span("nested", seconds, own=seconds / 3)
        elif act == "wait":
            told.wait(seconds)
        elif act == "pulse":
            told.pulse()
        else:
            told.step_with({"metrics": {"loss": seconds}})
    if ends:
        told.bye()
    known = report_of(told, alive=alive, now=told.now + 1 if alive else None)
    check(known)
    assert known.progress.steps_done == known.progress.steps_ok + known.progress.steps_skipped


# How it ended


def test_outcomes() -> None:
    told = Story().step(forward=1)
    assert report_of(told, alive=True).outcome.state == "running"
    assert report_of(told).outcome.state == "lost"
    assert report_of(told.bye()).outcome.state == "finished"
    failed = report_of(Story().bye("ValueError: no")).outcome
    assert (failed.state, failed.error) == ("failed", "ValueError: no")


@pytest.mark.parametrize(
    ("code", "signal", "state"),
    [
        (0, None, "finished"), (0, 0, "finished"), (3, None, "failed"), (3, 0, "failed"), (None, 9, "killed"),
        (-9, 9, "killed"),
    ],
)  # fmt: skip
def test_the_exit_as_the_parent_saw_it_decides(code: int | None, signal: int | None, state: str) -> None:
    told = Story().step(forward=1)
    recorder = Story("node", source="recorder")
    recorder.now = told.now + 3
    recorder.tell(Exit, exit_code=code, signal=signal)
    known = report_of(told, recorder)
    assert (known.outcome.state, known.outcome.exit_code, known.outcome.signal) == (state, code, signal or None)
    left_behind = report_of(told, recorder, alive=True)  # by a launched program that did not wait for it
    assert (left_behind.outcome.state, left_behind.outcome.exit_code) == (state, code)  # it makes no further steps
    assert left_behind.outcome.left == "a process lives on"
    told.tell(Pulse, step=2, step_open=3.0)
    still_trains = report_of(told, recorder, alive=True)
    assert (still_trains.outcome.state, still_trains.outcome.exit_code) == ("running", code)
    assert known.wall.teardown == pytest.approx(3)
    check(known)


def test_the_recorder_is_no_training() -> None:
    known = report_of(Story("node", source="recorder", name="host"), Story(name="mine").step(forward=1).bye())
    assert known.run.ranks == 1 and known.run.name == "mine" and known.outcome.state == "finished"


def native(*events: tuple[str, float, float]) -> Report:
    """A run of a program that prints its journal itself: (name or "step", begin, end), in the order of the ends."""
    told, index = Story(source="native"), 0
    for name, start, end in sorted(events, key=lambda each: each[2]):
        told.now = end
        if name == "step":
            index += 1
            told.tell(Step, index=index, start=start, duration=end - start)
        else:
            told.tell(Span, name=name, start=start, duration=end - start)
    return report_of(told.bye())


def test_a_span_that_does_not_tell_its_own_part_yields_to_the_step_that_it_lies_in() -> None:
    known = native(("step", 101, 103), ("eval", 103.5, 104), ("step", 103, 105), ("eval", 105, 107), ("step", 107, 108))
    check(known)
    assert known.wall.spans == pytest.approx({"eval": 2}) and known.wall.steps == pytest.approx(5)
    first = native(("load", 99, 101), ("compile", 101.5, 103), ("step", 101, 104))
    check(first)
    assert {row.name: row.seconds for row in first.startup} == pytest.approx({"load": 2})


def test_a_span_around_steps_and_start_up_owns_what_they_leave() -> None:
    steps = [("step", 101.0 + at, 101.5 + at) for at in range(10)]
    known = native(("load", 99.5, 100), ("train", 99, 111.5), *steps)
    check(known)
    assert known.wall.steps == pytest.approx(5) and known.wall.spans == pytest.approx({"train": 5.5})
    assert {row.name: row.seconds for row in known.startup} == pytest.approx({"load": 0.5, "train": 1.5})


def test_time_that_two_spans_share_counts_once() -> None:
    known = native(("step", 99, 100), ("inner", 101, 102), ("outer", 100, 103), ("late", 102, 104), ("step", 104, 105))
    check(known)
    assert known.wall.spans == pytest.approx({"inner": 1, "outer": 2, "late": 1})


def test_a_journal_without_its_first_line_begins_with_its_first_step() -> None:
    state = folded_events(event for event in Story().step(forward=1).step(forward=1).events[1:])
    known = make_report(state, around(state))
    check(known)
    assert known.wall.total == known.wall.steps == pytest.approx(2)
    assert known.run.started is None, "nobody told the time of day"
    written = make_report(state, around(state, started_monotonic=99.5))
    check(written)
    assert (written.wall.total, written.wall.startup) == (pytest.approx(2.5), pytest.approx(0.5))
    assert make_report(state, around(state, started_monotonic=500.0)).wall == known.wall, "it cannot have begun later"


@pytest.mark.parametrize("again", [{}, {"process_started": 110.0}])
def test_a_process_that_says_hello_again_began_when_it_first_did(again: dict[str, float]) -> None:
    told = Story(source="native")
    for half in range(2):
        if half:
            told.tell(Hello, wall=1e9 + 10, source="native", **again)
        for _ in range(10):
            told.step(forward=1)
    known = report_of(told.wait(1).bye())
    check(known)
    assert (known.wall.total, known.wall.startup) == (pytest.approx(22), pytest.approx(1))
    assert (known.wall.steps, known.wall.teardown) == (pytest.approx(20), pytest.approx(1))
    assert known.run.started == pytest.approx(1e9)


def killed(told: Story) -> Report:
    told.wait(1.0)
    state = folded(told)
    state.ending = Ending(signal=9, t=told.now)
    return make_report(state, around(state))


@pytest.mark.parametrize(("each", "after"), [(0.0, 9.0), (3.0, 6.0)])
def test_what_a_kill_breaks_off_after_the_last_step_is_not_the_loops(each: float, after: float) -> None:
    """As much of it as evaluations between the steps take belongs to the loop, as of one that came to its end."""
    told = Story()
    for _ in range(4):
        told.step(forward=1.0)
        if each:
            told.span("eval", each).step(forward=1.0)
    wall = killed(told.wait(9.0).pulse(spans=[("eval", 9.0)])).wall
    assert wall.afterwards == {"eval": pytest.approx(after)}
    assert wall.in_loop.get("eval", 0.0) == pytest.approx(5 * each)


def test_a_run_that_was_killed_was_in_the_middle_of_what_its_last_pulse_told() -> None:
    """It was no teardown: a step that hung for an hour is where the hour went."""
    step = killed(Story().step(forward=1).step(forward=1).wait(60).pulse(step=3, step_open=59.5, phase="forward"))
    check(step)
    assert (step.wall.steps, step.wall.between_steps, step.wall.teardown) == pytest.approx((61.5, 0.5, 1))
    stop = killed(Story().step(forward=1).wait(60).pulse(spans=[("eval", 59.0)]))
    check(stop)
    assert stop.wall.spans == pytest.approx({"eval": 59}) and stop.wall.teardown == pytest.approx(1)
    load = killed(Story().wait(60).pulse(spans=[("load", 58.0)]))
    check(load)
    assert {row.name: row.seconds for row in load.startup} == pytest.approx({"load": 58, "other": 4})
    bye = report_of(Story().step(forward=1).wait(9).pulse(step=2, step_open=8.0).wait(1).bye())
    assert bye.wall.teardown == pytest.approx(10), "it left the step and said so"
