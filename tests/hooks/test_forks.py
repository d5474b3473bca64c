"""Forked and spawned children: no deadlock, silent unless they step, and the parent unharmed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from .conftest import Trainings, lines_of


def by_pid(train: Trainings) -> dict[int, list[dict[str, Any]]]:
    journals = [lines_of(path) for path in train.state.glob("runs/*/rank-*.jsonl")]
    for events in journals:
        assert [event["seq"] for event in events] == list(range(len(events)))
    return {events[0]["pid"]: events for events in journals if events}  # a child may end before its first word


def steps_of(events: list[dict[str, Any]]) -> int:
    return sum(event["kind"] == "step" for event in events)


def test_a_forked_child_is_silent_and_the_parent_goes_on(train: Trainings) -> None:
    told = train(
        """
        for i in th.steps(range(6)):
            with th.phase('work'):
                if i == 2:
                    if not (child := os.fork()):
                        th.log(a=1); th.count(tokens=1)
                        with th.phase('x'): pass
                        with th.span('y'): sleep(0.1)
                        sys.exit(0)
                    assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert told.indices == [1, 2, 3, 4, 5, 6]
    assert told.spans == {}


def test_a_forked_child_that_steps_is_a_producer_of_its_own(train: Trainings) -> None:
    train(
        """
        for _ in th.steps(range(3)): pass
        if not (child := os.fork()):
            for _ in th.steps(range(5)): pass
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        for _ in th.steps(range(2)): pass
        """
    )
    assert sorted(map(steps_of, by_pid(train).values())) == [5, 5]
    assert Counter(event["kind"] for events in by_pid(train).values() for event in events)["bye"] == 2


def test_a_fork_waits_until_the_encoder_is_imported(train: Trainings) -> None:
    told = train(
        """
        class Slow:
            def find_spec(self, name, *_):
                if name.startswith('msgspec.'): began.set(); sleep(0.3)
        began = threading.Event()
        sys.meta_path.insert(0, Slow())
        with th.step(): pass
        assert began.wait(20)
        if not (child := os.fork()):
            for _ in th.steps(range(5)): pass
            sys.exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """
    )
    assert sorted(map(steps_of, by_pid(train).values())) == [1, 5]
    assert told.err == ""


def test_a_child_forked_inside_everything_leaves_it_quietly(train: Trainings) -> None:
    told = train(
        """
        with th.span('around'):
            for i in th.steps(range(2)):
                with th.phase('a'), th.step(role='inner'), th.span('b'):
                    child = os.fork()
                if not child: os._exit(0)
                os.waitpid(child, 0)
        """
    )
    assert told.indices == [1, 2]
    assert len(told.journals) == 1


def test_forks_while_another_thread_hammers_the_api(train: Trainings) -> None:
    told = train(
        """
        going = True
        def hammer():
            while going:
                for _ in range(20):
                    with th.phase('p'): th.log(a=1)
                sleep(0.001)  # or the end comes with more to write than is waited for
        threads = [threading.Thread(target=hammer) for _ in range(2)]
        for each in threads: each.start()
        for i in th.steps(range(30)):
            sleep(0.002)
            child = os.fork()
            if not child:
                th.log(a=1)
                with th.phase('q'): pass
                if i % 10 == 9:
                    with th.step(): pass
                os._exit(0)
            until = time.monotonic() + 20
            while os.waitpid(child, os.WNOHANG) == (0, 0):
                assert time.monotonic() < until, 'a child hangs'
                sleep(0.001)
        going = False
        """
    )
    parent = max(by_pid(train).values(), key=len)
    assert steps_of(parent) == 30
    assert parent[-1]["kind"] == "bye"
    assert told.err == ""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_of_multiprocessing(train: Trainings, method: str) -> None:
    """Workers that only log stay silent; a worker that trains tells all it did, and how it ended."""
    train(
        f"""
        import multiprocessing
        def helps(): th.log(a=1); th.phase('p')(int)()
        def trains():
            for _ in th.steps(range(40)): th.log(a=1)
        def fails():
            for i in th.steps(range(40)):
                th.log(a=1)
                if i == 3: sys.stderr = open(os.devnull, "w"); raise ValueError('no')
        if __name__ == '__main__':
            with th.step(): pass
            for target, code in ((helps, 0), (trains, 0), (fails, 1)):
                worker = multiprocessing.get_context('{method}').Process(target=target)
                worker.start(); worker.join(30)
                assert worker.exitcode == code, worker.exitcode
        """
    )
    told = sorted(by_pid(train).values(), key=steps_of)
    assert [steps_of(events) for events in told] == [1, 3, 40]
    assert [events[-1]["kind"] for events in told] == ["bye"] * 3
    assert told[1][-1]["error"] == "ValueError: no"


def test_workers_of_a_data_loader(train: Trainings) -> None:
    told = train(
        """
        import torch.utils.data
        class Words(torch.utils.data.Dataset):
            def __len__(self): return 16
            @th.phase('tokenize')
            def __getitem__(self, i): th.log(seen=i); return i
        loader = torch.utils.data.DataLoader(Words(), batch_size=2, num_workers=2)
        for epoch in range(2):
            for batch in th.steps(loader, epoch=epoch):
                with th.phase('forward'): th.log(mean=batch.float().mean())
        """
    )
    assert told.indices == list(range(1, 17))
    assert all(isinstance(step["metrics"]["mean"], float) for step in told.steps)
    assert told.kind("bye")
