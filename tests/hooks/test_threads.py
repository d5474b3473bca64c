"""Calls from many threads: none lost, and none mistaken for the main loop's time."""

from __future__ import annotations

import pytest

from .conftest import Trainings, phases_of


def test_eight_threads_log_at_once_and_nothing_is_lost(train: Trainings) -> None:
    told = train(
        """
        def work(k):
            for i in range(2000): th.log(**{f'm{k}': i})
        threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
        for each in threads: each.start()
        for each in threads: each.join()
        """
    )
    seen: dict[str, list[int]] = {}
    for event in told.kind("metrics"):
        for name, value in event["values"].items():
            seen.setdefault(name, []).append(value)
    assert seen == {f"m{k}": list(range(2000)) for k in range(8)}
    assert told.kind("bye")[0].get("dropped", 0) == 0


def test_phases_of_other_threads_run_beside_the_steps(train: Trainings) -> None:
    told = train(
        """
        def score():
            with th.phase('reward'):
                sleep(0.02)
                with th.phase('execution'): sleep(0.04)
            th.count(samples=3)
        with th.step():
            thread = threading.Thread(target=score)
            with th.phase('generation'):
                thread.start(); thread.join()
        written()
        with th.step(): pass
        """
    )
    assert not told.kind("span")
    rows = [row for step in told.steps for row in step.get("background", [])]
    beside = {name: seconds for name, seconds, _, _ in rows}
    assert set(beside) == {"reward", "execution"}
    # The generation waited for the whole of the thread, and the thread's own parts do not overlap.
    assert beside["execution"] >= 0.04 and beside["reward"] >= 0.02
    assert sum(beside.values()) <= phases_of(told.steps[0])["generation"]
    assert sum(step.get("samples", 0) for step in told.steps) == 3


def test_steps_in_another_thread_are_told_apart(train: Trainings) -> None:
    told = train(
        """
        def judge():
            for _ in th.steps(range(4), role='judge'): sleep(0.01)
        with th.step(): sleep(0.001)
        written()  # the main loop is known to be the main one
        thread = threading.Thread(target=judge, name='judging')
        thread.start()
        for _ in th.steps(range(3), role='main'): sleep(0.02)
        thread.join()
        """
    )
    assert sorted(told.indices) == list(range(1, 9))
    assert [step.get("thread") for step in told.steps if step.get("role") == "judge"] == ["judging"] * 4
    own = sum(step["duration"] for step in told.steps if "thread" not in step)
    assert told.report.wall.steps == pytest.approx(own)


def test_a_training_in_a_thread_and_its_successor_are_the_run(train: Trainings) -> None:
    """Some programs start each epoch in a thread of its own: each is the main loop in its time."""
    told = train(
        """
        from trainhooks import session
        def epoch():
            for _ in th.steps(range(3)): sleep(0.01)
        for _ in range(2):
            thread = threading.Thread(target=epoch); thread.start(); thread.join()
            until = time.monotonic() + 10
            while session._session.lanes and time.monotonic() < until: sleep(0.01)
        """
    )
    assert told.indices == [1, 2, 3, 4, 5, 6]
    assert told.report.wall.steps == pytest.approx(sum(step["duration"] for step in told.steps))


def test_threads_by_the_thousand_leave_nothing_behind(train: Trainings) -> None:
    told = train(
        """
        from trainhooks import session
        for i in range(3000):
            thread = threading.Thread(target=th.log, kwargs={'i': i}); thread.start(); thread.join()
        until = time.monotonic() + 10
        while len(session._session.lanes) > 1 and time.monotonic() < until: sleep(0.05)
        print(len(session._session.lanes))
        """
    )
    assert int(told.out) <= 1
    assert [event["values"]["i"] for event in told.kind("metrics")] == list(range(3000))


def test_hostile_thread_names(train: Trainings) -> None:
    told = train(
        r"""
        with th.step(): pass
        written()
        def work():
            with th.step(): pass
            with th.span('s'): pass
        for name in ('\ud800\x1b[2J', 'n' * 100000):
            thread = threading.Thread(target=work, name=name); thread.start(); thread.join()
        """
    )
    names = [step["thread"] for step in told.steps if "thread" in step]
    assert names == ["[2J", "n" * 128]
