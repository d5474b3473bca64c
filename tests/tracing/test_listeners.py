"""Who is asked for a trace: the living processes of the run's owner, rank 0 first."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.errors import UserError
from monitor.running import asking, trace_requests
from monitor.running.trace_requests import NotTraced
from tests.hooks.conftest import Trainings, wait_for
from trainhooks.protocol import control, rundir
from trainhooks.protocol.control import TraceRequest

STEPS = "for _ in th.steps(range(1_000_000)): sleep(0.005)"
NO_STEPS = "th.note('here')\nsleep(600)"


@pytest.fixture
def train(tmp_path: Path) -> Iterator[Trainings]:
    """Scripts whose state directory has a short path, and which are killed afterwards."""
    with tempfile.TemporaryDirectory(prefix="th-", dir="/tmp") as directory:
        trainings = Trainings(Path(directory), tmp_path)
        yield trainings
        for process in trainings.started:
            process.kill()
            process.communicate()


def job(train: Trainings, *sources: str) -> Path:
    """Start a script for each rank of one run, and wait until each listens and the last one is known to step."""
    run = train.state / "runs" / "job"
    run.mkdir(parents=True, mode=0o700)
    rundir.write_json(run / rundir.IDENTITY, {"id": "job", "name": "job", "started": 1.0})
    for rank, source in enumerate(sources):
        train.start(source, TRAINMON_RUN=str(run), RANK=str(rank), WORLD_SIZE=str(len(sources)))
    wait_for(lambda: len(list(run.glob("control-*"))) == len(sources))
    if STEPS in sources:
        wait_for(lambda: any(b'"steps"' in path.read_bytes() for path in run.glob("rank-*.jsonl")))
    return run


def why(run: Path) -> str:
    with pytest.raises(NotTraced) as told, trace_requests.asked(run, TraceRequest()):
        pass
    return str(told.value)


@pytest.mark.parametrize(
    ("sources", "says"),
    [
        ((STEPS, NO_STEPS), "job refuses: torch is not loaded"),
        ((NO_STEPS, STEPS), "job refuses: torch is not loaded"),
        ((NO_STEPS, NO_STEPS), "job refuses: no step has begun in this process"),
    ],
)
def test_rank_0_is_asked_first_and_others_where_it_has_no_steps(
    train: Trainings, sources: tuple[str, ...], says: str
) -> None:
    assert why(job(train, *sources)) == says


def test_what_a_killed_process_left_is_not_asked(train: Trainings) -> None:
    run = job(train, STEPS, STEPS)
    assert [listener.rank for listener in asking.listeners(run)] == [0, 1]
    train.started[0].kill()
    train.started[0].wait()
    assert [listener.rank for listener in asking.listeners(run)] == [1]
    train.started[1].kill()
    train.started[1].wait()
    with pytest.raises(UserError, match="job is not running"), trace_requests.asked(run, TraceRequest()):
        pass


def test_only_the_owner_of_the_run_is_asked(train: Trainings, monkeypatch: pytest.MonkeyPatch) -> None:
    run = job(train, STEPS)
    monkeypatch.setattr(control, "peer_uid", lambda connection: os.getuid() + 1)
    with pytest.raises(UserError, match="cannot be asked"), trace_requests.asked(run, TraceRequest()):
        pass


def test_a_link_in_place_of_the_socket_is_not_followed(train: Trainings, tmp_path: Path) -> None:
    run = job(train, STEPS)
    (path,) = run.glob("control-*")
    path.rename(run / "elsewhere")
    path.symlink_to(run / "elsewhere")
    assert not asking.listeners(run)


@pytest.mark.parametrize("answer", [b"", b"garbage\n", b"{}\n", b'{"status":"accepted"}\n', b"x" * 9_000])
def test_an_answer_that_is_none_is_one_line(train: Trainings, answer: bytes) -> None:
    run = job(train, STEPS)
    (path,) = run.glob("control-*")
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        if os.fork() == 0:
            connection, _ = server.accept()
            connection.recv(4096)
            connection.sendall(answer)
            os._exit(0)
        assert why(run) == "job gave no answer; it ended, or its hooks are of another version"
        os.wait()


def test_control_characters_of_an_answer_are_not_shown() -> None:
    answer = control.read_answer(b'{"status":"refused","reasons":["\\u001b[31mred", 7]}\n')
    assert answer is not None and answer.reasons == ["[31mred"]
