"""Stopping: politely first, by force at last, and never the wrong process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from monitor.running.stopping import stop_training
from trainhooks.protocol import process_identity, rundir

from .conftest import State, python, wait_for

SHORT = (0.5, 0.5, 5.0)


def stubborn(*numbers: str) -> list[str]:
    ignored = "".join(f"signal.signal(signal.{number}, signal.SIG_IGN); " for number in numbers)
    return python(f"import signal, time; {ignored}print('ready'); time.sleep(60)")


@pytest.mark.long
@pytest.mark.parametrize(
    ("ignored", "status", "sent"),
    [
        ((), 130, ["SIGINT"]),
        (("SIGINT",), 143, ["SIGINT", "SIGTERM"]),
        (("SIGINT", "SIGTERM"), 137, ["SIGINT", "SIGTERM", "SIGKILL"]),
    ],
)
def test_it_escalates(state: State, ignored: tuple[str, ...], status: int, sent: list[str]) -> None:
    front = state.start(*stubborn(*ignored))
    front.stdout.readline()
    said: list[str] = []
    assert stop_training(state.only, said.append, SHORT)
    assert front.wait(20) == status
    assert [line.split()[1] for line in said[:-1]] == sent
    assert "ended after" in said[-1]


def test_the_verb(state: State) -> None:
    front = state.start("sleep", "60")
    ended = state.call("stop", "last")
    assert ended.returncode == 0
    assert b"SIGINT" in ended.stderr
    assert front.wait(20) == 128 + signal.SIGINT
    again = state.call("stop", state.only.name)
    assert b"is not running" in again.stderr


def test_another_process_with_the_same_pid_is_left_alone(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        ticks = process_identity.start_ticks(bystander.pid)
        rundir.write_json(tmp_path / "run.json", {"pid": bystander.pid, "start_ticks": (ticks or 0) - 1})
        said: list[str] = []
        assert stop_training(tmp_path, said.append, SHORT)
        assert "not running" in said[0]
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_process_that_is_not_of_the_run_is_left_alone(tmp_path: Path) -> None:
    """Files of a run may be written by whoever wants another process stopped."""
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        known = {**process_identity.identity_of(bystander.pid), "group": bystander.pid, "launched": True}
        rundir.write_json(tmp_path / "run.json", known)
        said: list[str] = []
        assert not stop_training(tmp_path, said.append, SHORT)
        assert f"process {bystander.pid}" in said[0] and bystander.poll() is None
        rundir.write_json(tmp_path / "run.json", process_identity.identity_of(1))
        assert stop_training(tmp_path, said.append, (0.1, 0.1, 0.1)) is False or "not running" in said[-1]
    finally:
        bystander.kill()
        bystander.wait()


def test_a_program_without_environment_and_output_is_known_by_its_supervisor(state: State) -> None:
    front = state.start("sh", "-c", "exec env -i sleep 60 >/dev/null 2>&1")
    wait_for(lambda: Path(f"/proc/{state.pid(state.only)}/environ").read_bytes() == b"")
    assert state.call("stop", "last").returncode == 0
    assert front.wait(20) == 128 + signal.SIGINT


def test_a_process_that_leads_no_group_is_signaled_alone(tmp_path: Path) -> None:
    """A training that nobody launched may share its group with the shell it was started from."""
    training = subprocess.Popen(["sleep", "60"], env={**os.environ, rundir.RUN_VARIABLE: str(tmp_path)})
    assert os.getpgid(training.pid) == os.getpgid(0)
    rundir.write_json(
        tmp_path / "run.json", {"pid": training.pid, "start_ticks": process_identity.start_ticks(training.pid)}
    )
    assert stop_training(tmp_path, lambda _: None, SHORT)
    assert training.wait(10) == -signal.SIGINT


def test_processes_known_by_their_locks(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from trainhooks.protocol.rundir import Lock\n"
        "lock = Lock.acquire(Path(sys.argv[1])); print('ready'); time.sleep(60)"
    )
    rundir.write_json(tmp_path / "run.json", {})
    lock = tmp_path / "rank-0-abc.lock"
    training = subprocess.Popen([*python(script), str(lock)], stdout=subprocess.PIPE)
    wait_for(lambda: training.stdout.readline() == b"ready\n")
    assert stop_training(tmp_path, lambda _: None, SHORT)
    assert training.wait(10) in (-signal.SIGINT, 1, 130)


@pytest.mark.long
def test_a_run_that_was_stopped_is_not_finished_though_its_program_ends_with_0(state: State) -> None:
    code = (
        "import signal, sys, time; signal.signal(signal.SIGINT, lambda *_: sys.exit(0)); print('ready'); time.sleep(60)"
    )
    front = state.start(*python(code))
    front.stdout.readline()
    assert state.call("stop", "last").returncode == 0
    assert front.wait(20) == 0
    told = json.loads(state.call("report", "--json").stdout)["outcome"]
    assert (told["state"], told["exit_code"], told["error"]) == ("killed", 0, "stopped by you")
    assert b"killed (exit code 0)" in state.call("report").stdout and b"stopped by you" in state.call("report").stdout
    assert json.loads(state.call("ls", "--json").stdout)[0]["state"] == "killed"


def test_a_run_that_was_not_stopped_stays_finished(state: State) -> None:
    state.run("true")
    state.call("stop", "last")
    assert json.loads(state.call("report", "--json").stdout)["outcome"]["state"] == "finished"
