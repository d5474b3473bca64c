"""Containers that share a state directory: each sees the other's runs as they are, and pids mean nothing across."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from monitor.errors import UserError
from monitor.running.stopping import stop_training
from monitor.runs import catalogue
from tests.signals import send_signal
from trainhooks.protocol import process_identity, rundir

from .conftest import ROOT, TRAINMON, State, python, wait_for

APART = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc"]
AS_ROOT = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]


def able(words: list[str]) -> bool:
    try:
        return subprocess.run([*words, "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


UNSHARE = AS_ROOT if able(AS_ROOT) else APART
pytestmark = pytest.mark.skipif(not able(UNSHARE), reason="this machine lets nobody make a PID namespace")


@pytest.fixture
def elsewhere(state: State) -> Iterator[subprocess.Popen[bytes]]:
    """A run in a namespace of its own, up and counting signals."""
    script = "import signal, time\nprint('ready', flush=True)\ntime.sleep(120)"
    words = [*UNSHARE, *TRAINMON, "run", "--no-tui", "--name", "far", "--", *python(script)]
    front = subprocess.Popen(
        words,
        env=state.environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert front.stdout is not None and front.stdout.readline() == b"ready\n"
    yield front
    front.kill()
    front.communicate(timeout=30)


def test_a_run_of_another_namespace_is_running(state: State, elsewhere: subprocess.Popen[bytes]) -> None:
    known = rundir.read_json(state.only / rundir.IDENTITY) or {}
    assert known["pid_namespace"] != process_identity.pid_namespace() == os.readlink("/proc/self/ns/pid")
    assert catalogue.state(state.only) == ("running", None, None)
    assert catalogue.processes(state.only) == []
    assert b"running" in state.call("ls").stdout


def test_it_is_stopped_through_its_own_trainmon(state: State, elsewhere: subprocess.Popen[bytes]) -> None:
    ended = state.call("stop", "far")
    assert ended.returncode == 0, ended.stderr
    assert b"another container" in ended.stderr and b"ended after" in ended.stderr
    assert elsewhere.wait(30) == 128 + signal.SIGINT
    assert catalogue.state(state.only)[0] == "killed" and not (state.only / rundir.STOP_REQUEST).exists()


@pytest.mark.long
def test_nobody_there_answers(state: State, elsewhere: subprocess.Popen[bytes]) -> None:
    (supervisor,) = _supervisors(elsewhere.pid, state.only)
    send_signal(supervisor, signal.SIGSTOP)
    try:
        ended = state.call("stop", "far")
    finally:
        send_signal(supervisor, signal.SIGCONT)
    assert ended.returncode == 2 and ended.stderr.splitlines()[-1].startswith(b"trainmon: ")
    assert b"stop it there" in ended.stderr
    time.sleep(1.5)
    assert catalogue.state(state.only)[0] == "running", "a request that was given up stops nothing later"


def _supervisors(front: int, run: Path) -> list[int]:
    """The supervisor, as this namespace numbers it: a descendant of the front that holds the recorder's lock."""
    inside = (rundir.read_json(next(run.glob("node-*.lock"))) or {})["pid"]
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":\t", 1) for line in status.read_text().splitlines() if ":\t" in line)
        except OSError:
            continue
        if lines.get("NSpid", "").split()[1:] == [str(inside)] and _descends(int(status.parent.name), front):
            found.append(int(status.parent.name))
    return found


def _descends(pid: int, ancestor: int) -> bool:
    while pid > 1:
        if pid == ancestor:
            return True
        pid = process_identity.parent(pid) or 0
    return False


def test_a_run_of_another_time_namespace(state: State) -> None:
    shift = ["unshare", "--time", "--boottime", "100000", "--monotonic", "100000", "--fork"]
    if not able(shift):
        pytest.skip("this machine lets nobody make a time namespace")
    words = [*shift, *TRAINMON, "run", "--no-tui", "--", "sleep", "60"]
    front = subprocess.Popen(words, env=state.environment, cwd=ROOT, stderr=subprocess.PIPE)
    try:
        wait_for(lambda: state.runs() and state.pid(state.only))
        assert catalogue.state(state.only)[0] == "running"
        wait_for(lambda: b"sleep" in (said := state.call("report", "--json").stdout) and json.loads(said)["run"])
        seconds = json.loads(state.call("report", "--json").stdout)["wall"]["total"]
        assert 0 <= seconds < 1000, "the times of the two clocks are not mixed"
        assert state.call("stop", "last").returncode == 0
        assert front.wait(30) == 128 + signal.SIGINT
    finally:
        front.kill()
        front.communicate()


def test_a_dead_namespace_is_lost(state: State, elsewhere: subprocess.Popen[bytes]) -> None:
    elsewhere.kill()  # and with it all in the namespace
    elsewhere.wait(30)
    wait_for(lambda: catalogue.state(state.only)[0] == "lost", 20)


def test_a_pid_of_another_namespace_is_never_signaled(tmp_path: Path) -> None:
    """The same number, start and boot, in another namespace: it is somebody else here."""
    bystander = subprocess.Popen(["sleep", "60"])
    try:
        known = {**process_identity.identity_of(bystander.pid), "pid_namespace": "pid:[1]", "group": bystander.pid}
        rundir.write_json(tmp_path / rundir.IDENTITY, known)
        assert catalogue.processes(tmp_path) == [] and not rundir.run_alive(tmp_path)
        said: list[str] = []
        assert stop_training(tmp_path, said.append, (0.1, 0.1, 0.1))
        assert bystander.poll() is None and "not running" in said[0]
    finally:
        bystander.kill()
        bystander.wait()


def test_a_training_that_nobody_records_there(tmp_path: Path) -> None:
    rundir.write_json(tmp_path / rundir.IDENTITY, {"pid": 2, "pid_namespace": "pid:[1]"})
    hold = "import sys, time; from pathlib import Path; from trainhooks.protocol.rundir import Lock\n"
    hold += "lock = Lock.acquire(Path(sys.argv[1])); print('ready', flush=True); time.sleep(60)"
    lock = tmp_path / "rank-0-x.lock"
    holder = subprocess.Popen([*python(hold), str(lock)], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert holder.stdout is not None and holder.stdout.readline()
        owner = {**(rundir.read_json(lock) or {}), "pid_namespace": "pid:[1]"}
        with open(lock, "r+") as out:  # closing it here releases no lock of the holder's
            out.write(json.dumps(owner))
            out.truncate()
        with pytest.raises(UserError, match="stop it there"):
            stop_training(tmp_path, lambda _: None, (0.1, 0.1, 0.1))
        assert holder.poll() is None
    finally:
        holder.kill()
        holder.wait()
