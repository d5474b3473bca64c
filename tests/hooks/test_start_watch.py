"""The thread that watches a program until its first step: what it tells, and that it is gone while a process forks."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trainhooks.protocol import rundir
from trainhooks.recording import start_watch
from trainhooks.recording.start_watch import _Watch

from .conftest import wait_for


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., _Watch]]:
    monkeypatch.setattr(start_watch, "PERIOD", 0.02)
    made: list[_Watch] = []

    def watch(has_stepped: Callable[[], bool] = lambda: False) -> _Watch:
        made.append(_Watch(str(tmp_path), threading.get_ident(), has_stepped))
        made[-1].own.start()
        return made[-1]

    yield watch
    for each in made:
        each.own.pause()
        each.own.join(5)


def told(run: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_bytes()) for path in run.glob(f"{rundir.LOOK}*.json")]


def test_a_look_is_told_and_forgotten_with_the_first_step(tmp_path: Path, watched: Callable[..., _Watch]) -> None:
    steps: list[int] = []
    watched(lambda: bool(steps))
    wait_for(lambda: told(tmp_path))
    (look,) = told(tmp_path)
    assert look["pid"] == os.getpid() and look["place"]
    steps.append(1)
    wait_for(lambda: not told(tmp_path))


def test_there_is_no_thread_while_the_process_forks(tmp_path: Path, watched: Callable[..., _Watch]) -> None:
    watch = watched()
    wait_for(lambda: told(tmp_path))
    for _ in range(20):
        assert not watch.own.join(0)
        watch.own.pause()
        assert watch.own.join(5)
        watch.own.start()


def test_what_is_told_begins_when_it_was_seen_first(tmp_path: Path, watched: Callable[..., _Watch]) -> None:
    def stand() -> None:
        time.sleep(0.3)

    watched()
    stand()
    (before,) = told(tmp_path)
    assert before["what"] == "sleep"
    stand()
    (after,) = told(tmp_path)
    assert after["since"] == before["since"]


@pytest.mark.parametrize("cuda", [False, True])
def test_a_model_goes_to_the_gpu_only_where_cuda_runs(
    cuda: bool, tmp_path: Path, watched: Callable[..., _Watch], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`model.double()` goes through the same function of torch."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(start_watch, "started_cuda", lambda: torch.cuda if cuda else None)
    kinds: list[str] = []

    def convert(tensor: Any) -> Any:
        wait_for(lambda: any("_apply" in look["place"] or look["what"] for look in told(tmp_path)))
        kinds.extend(look["what"] for look in told(tmp_path))
        return tensor

    model = torch.nn.Linear(1, 1, bias=False)
    watched()
    model._apply(convert)
    assert (kinds == ["model to GPU"]) is cuda and kinds


def test_a_run_that_is_gone_ends_the_watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_watch, "PERIOD", 0.02)
    watch = _Watch(str(tmp_path / "gone"), threading.get_ident(), lambda: False)
    watch.own.start()
    wait_for(lambda: watch.own.over and watch.own.join(0))


def test_nothing_is_watched_outside_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rundir.RUN_VARIABLE, raising=False)
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    start_watch.watch_start(threading.get_ident(), lambda: False)
    assert (threading.active_count(), len(os.listdir("/proc/self/task"))) == before
