"""What a program waits for before its first step is told while it waits, and after it was stopped there."""

from __future__ import annotations

import fcntl
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from monitor.model.starting import StartWait
from monitor.runs.follow import load
from tests.auto.watched import LIMIT, environment

UNTIL_GO = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.02)\n"

IMPORTS = "import torch\nimport slowly\n"
# A loader with more workers than there are cores, each of which takes its time.
WORKERS = """
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __init__(self):
            self.ready = False
        def __len__(self):
            return 24
        def __getitem__(self, i):
            return torch.ones(4)

    def begin(number):
        import slowly

    torch.set_num_threads(1)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
    for batch in DataLoader(Rows(), batch_size=4, num_workers=6, worker_init_fn=begin):
        model(batch).sum().backward()
        optimizer.step()
"""
GROUP = """
    import torch.distributed as dist

    dist.init_process_group("gloo", rank=0, world_size=2, init_method="file://" + __file__ + ".store")
"""
LOCK = """
    import torch, fcntl

    with open("held.lock", "w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
"""
FILE_LOCK = """
    import torch
    from filelock import FileLock

    with FileLock("held.lock"):
        pass
"""
OUTSIDE = UNTIL_GO


@pytest.fixture
def held(tmp_path: Path) -> Iterator[None]:
    with open(tmp_path / "held.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class Started:
    """A program that `trainmon run` has started."""

    def __init__(self, place: Path, text: str) -> None:
        self.place = place
        (place / "slowly.py").write_text(UNTIL_GO)
        (place / "train.py").write_text(dedent(text))
        command = [sys.executable, "-m", "monitor", "run", "--no-tui", "--", sys.executable, "train.py"]
        self.process = subprocess.Popen(
            command,
            env=environment(place / "state"),
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    @property
    def run(self) -> Path:
        (run,) = (self.place / "state" / "runs").iterdir()
        return run

    def seen(self, is_meant: Callable[[StartWait], bool]) -> StartWait:
        until, last = time.monotonic() + LIMIT, None
        while time.monotonic() < until:
            if list(self.place.glob("state/runs/*/run.json")):
                last = load(self.run, measured=False).open.start or last
                if last is not None and is_meant(last):
                    return last
            time.sleep(0.1)
        raise AssertionError(f"it was not told; last: {last}")

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Started]]:
    started: list[Started] = []

    def begin(text: str) -> Started:
        started.append(Started(tmp_path, text))
        return started[-1]

    yield begin
    (tmp_path / "go").touch()
    for each in started:
        each.stop()


def test_an_import_of_any_module_is_told_with_its_line(start: Callable[[str], Started]) -> None:
    wait = start(IMPORTS).seen(lambda wait: "slowly" in wait.text)
    assert wait.text == "importing slowly" and "slowly.py:3 (time.sleep)" in wait.place


@pytest.mark.long
def test_workers_are_told_with_their_number_and_forgotten_with_the_first_step(start: Callable[[str], Started]) -> None:
    started = start(WORKERS)
    wait = started.seen(lambda wait: "6 loader workers on" in wait.text)
    assert wait.text.startswith("waiting for the first batch") and wait.place.startswith("train.py:19")
    (started.place / "go").touch()
    assert started.process.wait(LIMIT) == 0
    view = load(started.run)
    assert view.report.progress.steps_done == 6 and view.open.start is None


def test_a_rank_that_does_not_come_is_named(start: Callable[[str], Started]) -> None:
    started = start(GROUP)
    wait = started.seen(lambda wait: "rank 1 has not reported in" in wait.text)
    assert wait.text.startswith("waiting for other ranks (process group of 2)") and "train.py:4" in wait.place
    started.stop()
    view = load(started.run)
    assert view.report.outcome.state == "killed"
    (finding,) = [each for each in view.report.findings if each.code == "nothing-reports"]
    assert "rank 1 has not reported in" in finding.title


@pytest.mark.long
@pytest.mark.usefixtures("held")
@pytest.mark.parametrize("text", [LOCK, FILE_LOCK], ids=["fcntl", "filelock"])
def test_a_lock_that_is_held_is_told(start: Callable[[str], Started], text: str) -> None:
    if text is FILE_LOCK:
        pytest.importorskip("filelock")
    wait = start(text).seen(lambda wait: "a lock" in wait.text)
    assert wait.text == "waiting for a lock file" and wait.place.startswith("train.py:5")


def test_a_program_that_has_imported_nothing_is_seen_from_outside(start: Callable[[str], Started]) -> None:
    wait = start(OUTSIDE).seen(lambda wait: wait.seconds is None)
    assert "1 process" in wait.text
