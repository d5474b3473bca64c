"""The API as a training uses it: which steps are counted, with which numbers."""

from __future__ import annotations

import pytest

from .conftest import Trainings

ONE_TO = {n: list(range(1, n + 1)) for n in range(12)}


def test_each_item_is_a_step(train: Trainings) -> None:
    told = train("print(list(th.steps('abc')))")
    assert told.out == "['a', 'b', 'c']\n"
    assert told.indices == [1, 2, 3]


def test_a_loop_without_items_has_no_steps(train: Trainings) -> None:
    assert train("for _ in th.steps([]): pass\nth.note('x')").indices == []


def test_two_loops_count_on(train: Trainings) -> None:
    told = train(
        """
        for epoch in range(3):
            for _ in th.steps(range(2), epoch=epoch): pass
        """
    )
    assert [(step["index"], step["epoch"]) for step in told.steps] == [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (6, 2)]


def test_start_step_is_where_counting_begins(train: Trainings) -> None:
    told = train("th.init(start_step=100, total_steps=103)\nfor _ in th.steps(range(3)): pass")
    assert told.indices == [101, 102, 103]
    assert told.report.progress.steps_done == 103
    assert told.report.progress.fraction == 1.0


def test_break_at_the_top_does_not_count(train: Trainings) -> None:
    told = train(
        """
        for i in th.steps(range(10)):
            if i == 3: break
            sleep(0.02)
        th.note('on')
        """
    )
    assert told.indices == [1, 2, 3]


@pytest.mark.parametrize(
    "work", ["th.log(loss=1)", "th.count(tokens=1)", "th.skip('x')", "th.phase('a')(int)()", "sleep(0.02)"]
)
def test_break_after_work_counts(train: Trainings, work: str) -> None:
    told = train(f"for i in th.steps(range(10)):\n    {work}\n    if i == 3: break\n")
    assert told.indices == [1, 2, 3, 4]


def test_an_exception_that_ends_the_program_cuts_the_step(train: Trainings) -> None:
    told = train(
        """
        for i in th.steps(range(10)):
            sleep(0.01)
            if i == 3: raise ValueError('no')
        """,
        code=1,
        quiet=False,
    )
    assert told.indices == [1, 2, 3]
    assert told.kind("bye")[0]["error"] == "ValueError: no"


def test_an_exception_cuts_a_step_made_by_hand(train: Trainings) -> None:
    told = train(
        """
        for i in range(4):
            try:
                with th.step():
                    th.log(i=i)
                    if i == 1: raise ValueError
            except ValueError:
                pass
        """
    )
    assert told.indices == [1, 2, 3]
    assert [step["metrics"]["i"] for step in told.steps] == [0, 2, 3]


def test_a_stop_iteration_from_the_user_ends_the_loop_alone(train: Trainings) -> None:
    told = train(
        """
        def items():
            yield 1
            yield 2
        for _ in th.steps(items()): sleep(0.01)
        it = th.steps([1])
        next(it)
        try: next(it)
        except StopIteration: print('ended')
        """
    )
    assert told.indices == [1, 2, 3]
    assert told.out == "ended\n"


def test_an_error_of_the_loader_reaches_the_user(train: Trainings) -> None:
    told = train(
        """
        def items():
            yield 1
            raise OSError('gone')
        try:
            for _ in th.steps(items()): sleep(0.01)
        except OSError as error: print(error)
        """
    )
    assert told.out == "gone\n"
    assert told.indices == [1]


def test_a_loop_left_by_return(train: Trainings) -> None:
    told = train(
        """
        def epoch():
            for i in th.steps(range(9)):
                th.log(i=i)
                if i == 2: return i
        epoch(); epoch()
        """
    )
    assert [step["metrics"]["i"] for step in told.steps] == [0, 1, 2, 0, 1, 2]
    assert told.indices == ONE_TO[6]


def test_steps_inside_steps_are_phases_of_the_outer_one(train: Trainings) -> None:
    told = train(
        """
        for _ in th.steps(range(3)):
            for _ in th.steps(range(2), role='inner'): sleep(0.005)
            with th.step(role='other-inner'): pass
        """
    )
    assert told.indices == [1, 2, 3]
    for step in told.steps:
        assert {name: n for name, _, _, n in step["phases"]}["inner"] >= 2
    assert [note["code"] for note in told.kind("note")] == ["nested-step"]


def test_a_loop_inside_the_iterable_does_no_harm(train: Trainings) -> None:
    """A library that wraps its loader, in a script that wraps it again."""
    told = train(
        """
        def loader():
            for i in th.steps(range(8)):
                sleep(0.002)
                yield i
        for i in th.steps(loader()):
            with th.phase('work'): sleep(0.002)
        sleep(1.2)
        """
    )
    assert told.indices == ONE_TO[8]
    assert told.kind("pulse")[-1].get("spans", []) == []


def test_skipped_steps_say_why(train: Trainings) -> None:
    told = train(
        """
        for i in th.steps(range(6)):
            if i % 2: th.skip('empty code'); continue
            sleep(0.001)
        """
    )
    assert [step["status"] for step in told.steps] == ["ok", "skipped"] * 3
    assert told.report.progress.skipped == {"empty code": 3}
    assert told.report.progress.steps_ok == 3


def test_roles_stages_and_counts(train: Trainings) -> None:
    told = train(
        """
        with th.step(role='generator', stage='3', epoch=0.5):
            th.log(reward=1)
            th.count(tokens=10, padded_tokens=16, samples=2); th.count(tokens=5)
        """
    )
    (step,) = told.steps
    assert (step["role"], step["stage"], step["epoch"]) == ("generator", "3", 0.5)
    assert (step["tokens"], step["padded_tokens"], step["samples"]) == (15, 16, 2)
    assert told.report.metrics["generator/reward"].last == 1


def test_names_totals_notes_and_late_facts(train: Trainings) -> None:
    told = train(
        """
        th.init(name='first')
        th.note('look here')
        for _ in th.steps(range(2), total=7): pass
        th.init(name='second', config={'lr': 0.1, 'api_key': 'abc', 3: (1, 2)})
        """
    )
    assert told.report.run.name == "second"
    assert told.report.progress.steps_total == 7
    assert told.report.run.facts.table["config"] == {"lr": 0.1, "api_key": "***", "3": [1, 2]}
    assert told.kind("note")[0]["text"] == "look here"


def test_the_last_value_logged_in_a_step_wins(train: Trainings) -> None:
    told = train("for _ in th.steps([0]):\n    th.log(a=1, b=2)\n    th.log(a=3)\nth.log(after=4)")
    assert told.steps[0]["metrics"] == {"a": 3, "b": 2}
    assert told.kind("metrics")[0]["values"] == {"after": 4}
