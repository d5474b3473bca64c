"""Where the time goes: it belongs to the innermost open thing, and the parts add up."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Trainings, phases_of

TOUCH = 1e-6  # seconds; rounding of times that are added


def other(step: dict[str, Any]) -> float:
    return float(step["duration"]) - sum(phases_of(step).values())


def test_parts_of_a_step_add_up_and_belong_to_the_innermost(train: Trainings) -> None:
    told = train(
        """
        @th.phase('reward')
        def reward(): sleep(0.03)
        for _ in th.steps(range(2)):
            with th.phase('outer'):
                sleep(0.01)
                with th.phase('inner'): sleep(0.05)
                reward()
            sleep(0.02)
        """
    )
    for step in told.steps:
        parts = phases_of(step)
        assert list(parts) == ["data", "outer", "inner", "reward"]
        assert parts["inner"] >= 0.05 and parts["reward"] >= 0.03 and other(step) >= 0.02 - TOUCH
        # The outer phase has its own time only: what the inner ones and the rest took is not in it.
        assert 0.01 <= parts["outer"] <= step["duration"] - 0.1 + TOUCH


def test_waiting_for_the_item_is_the_phase_data(train: Trainings) -> None:
    told = train(
        """
        def loader():
            for i in range(2):
                sleep(0.03)
                yield i
        for _ in th.steps(loader()): sleep(0.01)
        """
    )
    for step in told.steps:
        assert phases_of(step)["data"] >= 0.03
        assert other(step) >= 0.01 - TOUCH


def test_the_same_phase_again_and_inside_itself(train: Trainings) -> None:
    told = train(
        """
        a = th.phase('a')
        with th.step():
            for _ in range(3):
                with a: sleep(0.01)
            with a:
                with a: sleep(0.01)
        """
    )
    (step,) = told.steps
    ((name, seconds, clock, times),) = step["phases"]
    assert (name, clock, times) == ("a", "host", 5)
    assert 0.04 <= seconds <= step["duration"]


def test_decorators_pass_arguments_results_and_errors_on(train: Trainings) -> None:
    told = train(
        """
        @th.span('load')
        def load(a, *, b): 'its doc'; return a + b
        @th.phase('bad')
        def bad(): raise KeyError('k')
        print(load(1, b=2), load.__name__, load.__doc__)
        try: bad()
        except KeyError as error: print(error)
        """
    )
    assert told.out == "3 load its doc\n'k'\n"
    assert set(told.spans) == {"load", "bad"}


def test_a_decorator_times_the_body_of_every_kind_of_function(train: Trainings) -> None:
    told = train(
        """
        import asyncio
        @th.phase('items')
        def items():
            got = []
            for i in range(2):
                sleep(0.02)
                try: got.append((yield i))
                except KeyError: got.append('thrown')
            return got
        @th.phase('awaited')
        async def awaited(): await asyncio.sleep(0.02); return 5
        @th.phase('stream')
        async def stream():
            try:
                for i in range(2): await asyncio.sleep(0.02); yield i
            finally: print('closed')
        async def first():
            async for item in stream(): return item
        with th.step():
            def outer(): print((yield from items()))
            through = outer(); next(through); through.send('sent')
            sleep(0.2)  # the generator waits: that is no time of its own
            try: through.throw(KeyError())
            except StopIteration: pass
            print(list(items()), asyncio.run(awaited()), asyncio.run(first()))
            early = items(); next(early); early.close()
        """
    )
    assert told.out.splitlines() == ["['sent', 'thrown']", "closed", "[0, 1] 5 0"]
    phases = phases_of(told.steps[0])
    assert phases["items"] >= 0.1
    assert phases["awaited"] >= 0.02 and phases["stream"] >= 0.02
    assert phases["items"] < told.steps[0]["duration"] - 0.2


def test_a_phase_outside_a_step_is_a_span(train: Trainings) -> None:
    told = train("with th.phase('tokenize'): sleep(0.02)\nwith th.step(): pass")
    span = told.spans["tokenize"]
    assert span["own"] == pytest.approx(span["duration"], abs=TOUCH) and span["duration"] >= 0.02


def test_a_span_in_a_step_is_a_phase_of_it_too(train: Trainings) -> None:
    told = train("for _ in th.steps([0]):\n    with th.span('checkpoint'): sleep(0.02)")
    assert phases_of(told.steps[0])["checkpoint"] >= 0.02
    span = told.spans["checkpoint"]
    assert (span["own"], span["step"]) == (0, 1)
    assert told.report.wall.spans == {}


def test_a_span_inside_a_phase_of_its_name_is_told_once(train: Trainings) -> None:
    told = train(
        """
        with th.step():
            with th.phase('eval'):
                with th.span('eval'): sleep(0.01)
                sleep(0.01)
            with th.phase('eval'): pass
        """
    )
    assert len(told.kind("span")) == 1


def test_nested_spans_own_what_no_inner_one_has(train: Trainings) -> None:
    told = train(
        """
        with th.span('load'):
            sleep(0.01)
            with th.span('download'): sleep(0.05)
        """
    )
    load, download = told.spans["load"], told.spans["download"]
    assert load["duration"] >= download["duration"] + 0.01
    assert load["own"] == pytest.approx(load["duration"] - download["duration"], abs=TOUCH)


def test_a_span_around_the_steps_owns_what_lies_between_them(train: Trainings) -> None:
    told = train(
        """
        for _ in th.steps([0]): pass
        with th.span('stage'):
            for _ in range(3):
                with th.step(): sleep(0.02)
                sleep(0.01)
        """
    )
    inside = sum(step["duration"] for step in told.steps[1:])
    stage = told.spans["stage"]
    assert stage["own"] == pytest.approx(stage["duration"] - inside, abs=TOUCH)
    assert stage["own"] >= 0.03


def test_a_span_that_overlaps_a_step_s_end(train: Trainings) -> None:
    told = train(
        """
        span = th.span('odd')
        with th.step():
            sleep(0.01)
            span.__enter__(); sleep(0.02)
        sleep(0.03)
        span.__exit__(None, None, None)
        """
    )
    assert phases_of(told.steps[0])["odd"] >= 0.02
    assert 0.03 <= told.spans["odd"]["own"] <= told.spans["odd"]["duration"] - 0.02 + TOUCH


LIFE = """
sleep(0.05)
with th.span('load'): sleep(0.1)
sleep(0.02)
with th.span('all'):
    with th.span('warm'): sleep(0.05)
    for i in th.steps(range(10)):
        with th.phase('forward'): sleep(0.01)
        if i % 4 == 3:
            with th.span('checkpoint'): sleep(0.03)
    with th.span('eval'): sleep(0.1)
    for i in range(3):
        with th.step(): sleep(0.01)
        sleep(0.01)
with th.span('save'): sleep(0.06)
sleep(0.1)
print(time.monotonic())
"""


def test_the_whole_wall_time_is_accounted_for(train: Trainings) -> None:
    told = train(LIFE)
    wall = told.report.wall
    assert wall.total is not None and wall.startup is not None
    parts = [wall.startup, wall.steps, *wall.spans.values(), wall.between_steps, wall.teardown]
    assert all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(wall.total, rel=1e-6)
    # The total is not a sum of the parts by definition alone: the process itself says when it was near its end.
    began = told.events[0]["process_started"]
    assert float(told.out) - began == pytest.approx(wall.total, rel=0.01, abs=0.2)
    assert wall.startup >= 0.22 and wall.steps >= 10 * 0.01 + 2 * 0.03 + 3 * 0.01
    assert wall.spans["eval"] >= 0.1 and wall.spans["save"] >= 0.06 and wall.spans["all"] >= 0.02
    assert "load" not in wall.spans and "checkpoint" not in wall.spans
    assert wall.teardown >= 0.1
    named = {row.name: row.seconds for row in told.report.startup}
    assert named["load"] >= 0.1 and named["warm"] >= 0.05
    assert sum(named.values()) == pytest.approx(wall.startup, rel=0.01)


def test_pulses_tell_what_is_open_while_it_lasts(train: Trainings) -> None:
    told = train(
        """
        with th.span('run'):
            for _ in th.steps([0], role='generator', stage='2'):
                with th.phase('generation'): sleep(2.5)
        """
    )
    open_ = [pulse for pulse in told.kind("pulse") if pulse.get("phase") == "generation"]
    assert len(open_) >= 2
    for pulse in open_:
        assert (pulse["step"], pulse["role"], pulse["stage"]) == (1, "generator", "2")
        assert 0 < pulse["phase_open"] <= pulse["step_open"] <= pulse["spans"][0][1] + TOUCH or pulse["spans"]
    ages = [pulse["phase_open"] for pulse in open_]
    assert ages == sorted(ages) and ages[-1] > 1
