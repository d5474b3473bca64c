"""Whatever happens to trainmon's own processes, the training goes on, and how it ended is known where it can be."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
from pathlib import Path

import pytest

from tests.signals import send_signal
from trainhooks.protocol import process_identity, rundir

from .conftest import ROOT, TRAINMON, State, python, wait_for

# Counts into a file, ends with 6 once it is told to; output all the while.
COUNTS = """
import os, sys, time
n = 0
while not os.path.exists(sys.argv[1] + '/done'):
    n += 1
    print('line', n)
    open(sys.argv[1] + '/count', 'w').write(str(n))
    time.sleep(0.02)
sys.exit(6)
"""


class Training:
    """A run of `COUNTS`, as a test sees it."""

    def __init__(self, state: State, tmp_path: Path, options: tuple[str, ...] = (), **more: object) -> None:
        self.state, self._at = state, tmp_path
        self.front = state.start(*python(COUNTS), str(tmp_path), options=options, **more)
        wait_for(lambda: self.count > 3)
        self.run = state.only
        wait_for(lambda: state.supervisor(self.run))

    @property
    def count(self) -> int:
        with contextlib.suppress(OSError, ValueError):
            return int((self._at / "count").read_text())
        return 0

    def goes_on(self) -> None:
        before = self.count
        wait_for(lambda: self.count > before + 10)

    def finish(self) -> None:
        (self._at / "done").touch()
        wait_for(lambda: not rundir.run_alive(self.run))


def exit_events(run: Path) -> int:
    return rundir.node_journal(run).read_text().count('"kind":"exit"')


def test_the_front_killed(state: State, tmp_path: Path) -> None:
    training = Training(state, tmp_path)
    training.front.kill()
    training.goes_on()
    training.finish()
    wait_for(lambda: state.ended(training.run))
    assert state.ended(training.run)["exit_code"] == 6
    assert (training.run / "console.log").read_text().splitlines()[-1] == f"line {training.count}"


def test_the_supervisor_killed(state: State, tmp_path: Path) -> None:
    training = Training(state, tmp_path)
    first = state.strike(training.run, signal.SIGKILL)
    training.goes_on()
    wait_for(lambda: state.supervisor(training.run) not in (0, first))  # another records
    (tmp_path / "done").touch()
    out, _ = training.front.communicate(timeout=30)
    assert training.front.returncode == 6
    assert out.decode().splitlines() == [f"line {n + 1}" for n in range(training.count)]
    assert state.ended(training.run)["exit_code"] == 6
    assert exit_events(training.run) == 1
    wait_for(lambda: not (training.run / "stdout.log").exists())
    assert (training.run / "console.log").read_bytes() == out


# The command, with a supervisor that is killed when it has started the training and has not told so.
KILLED_BEFORE_ITS_ANSWER = """
import os, signal, sys
from monitor.running import supervise
from monitor.cli import main

supervise._say = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
sys.exit(main())
"""


def test_the_supervisor_killed_before_its_answer(state: State) -> None:
    words = [*python(KILLED_BEFORE_ITS_ANSWER), "run", "--no-tui", "--", "sh", "-c", "sleep 1; echo line; exit 6"]
    ended = subprocess.run(words, env=state.environment, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True)
    assert (ended.returncode, ended.stdout) == (6, b"line\n"), ended.stderr
    assert state.ended(state.only)["exit_code"] == 6


def test_the_supervisor_killed_and_a_signal_ends_it(state: State, tmp_path: Path) -> None:
    training = Training(state, tmp_path)
    state.strike(training.run, signal.SIGKILL)
    training.front.terminate()
    _, said = training.front.communicate(timeout=30)
    assert training.front.returncode == 128 + signal.SIGTERM, said
    assert state.ended(training.run)["signal"] == signal.SIGTERM


def test_both_killed(state: State, tmp_path: Path) -> None:
    training = Training(state, tmp_path)
    send_signal(training.front.pid, signal.SIGSTOP)  # lest it takes over
    state.strike(training.run, signal.SIGKILL)
    training.front.kill()
    training.goes_on()
    assert state.call("attach", "--once").returncode == 0  # starts a recorder
    wait_for(lambda: rundir.lock_held(next(training.run.glob("node-*.lock"))))
    training.finish()
    wait_for(lambda: not (training.run / "stdout.log").exists())
    assert (training.run / "console.log").read_text().splitlines()[-1] == f"line {training.count}"
    assert state.ended(training.run) is None, "nobody saw it end"
    assert b"lost" in state.call("ls").stdout


def test_stopped_processes_hold_nothing_up(state: State, tmp_path: Path) -> None:
    training = Training(state, tmp_path)
    stopped = (training.front.pid, state.supervisor(training.run))
    for pid in stopped:
        send_signal(pid, signal.SIGSTOP)
    training.goes_on()
    for pid in stopped:
        send_signal(pid, signal.SIGCONT)
    (tmp_path / "done").touch()
    training.front.communicate(timeout=30)
    assert training.front.returncode == 6


def test_a_hangup_detaches(state: State, tmp_path: Path) -> None:
    training = Training(state, tmp_path)
    training.front.send_signal(signal.SIGHUP)
    training.front.wait(20)
    training.goes_on()
    training.finish()
    wait_for(lambda: state.ended(training.run))
    assert state.ended(training.run)["exit_code"] == 6


def test_a_closed_terminal_detaches(state: State, tmp_path: Path) -> None:
    """The terminal goes away under trainmon, as with a dropped connection."""
    front, terminal = pty.fork()
    if front == 0:
        os.chdir(ROOT)
        command = [*TRAINMON, "run", "--no-tui", "--", *python(COUNTS), str(tmp_path)]
        os.execve(command[0], command, state.environment)
    wait_for(lambda: (tmp_path / "count").exists() and state.runs() and state.pid(state.only))
    run = state.only
    os.close(terminal)
    os.waitpid(front, 0)
    before = int((tmp_path / "count").read_text() or 0)
    wait_for(lambda: int((tmp_path / "count").read_text() or 0) > before + 10)
    (tmp_path / "done").touch()
    wait_for(lambda: state.ended(run))
    assert state.ended(run)["exit_code"] == 6


def test_sigterm_to_the_supervisor_is_not_heeded(state: State, tmp_path: Path) -> None:
    training = Training(state, tmp_path)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        state.strike(training.run, number)
    training.goes_on()
    (tmp_path / "done").touch()
    training.front.communicate(timeout=20)
    assert training.front.returncode == 6


@pytest.mark.long
def test_the_recorder_of_a_run_without_a_launcher(state: State) -> None:
    """A training that only the hooks tell of gets a recorder from `attach`; killed, it gets another."""
    training = subprocess.Popen(["sleep", "60"])
    try:
        os.environ[rundir.STATE_VARIABLE] = str(state.path)
        ticks = process_identity.start_ticks(training.pid)
        run = rundir.new_run("bare", pid=training.pid, start_ticks=ticks, command=["sleep"])
    finally:
        del os.environ[rundir.STATE_VARIABLE]
    for _ in range(2):
        assert state.call("attach", "--once").returncode == 0
        wait_for(rundir.node_journal(run).exists)
        state.strike(run, signal.SIGKILL)
        wait_for(lambda: not rundir.lock_held(next(run.glob("node-*.lock"))))
        assert training.poll() is None
    assert state.call("attach", "--once").returncode == 0
    wait_for(lambda: rundir.lock_held(next(run.glob("node-*.lock"))))
    training.kill()
    training.wait()
    wait_for(lambda: not rundir.lock_held(next(run.glob("node-*.lock"))))  # it ends with the training
    assert state.ended(run) is None
    assert exit_events(run) == 0, "who did not wait for the training does not say how it ended"


def test_orphans_of_the_training_are_reaped(state: State) -> None:
    script = "for i in 1 2 3; do (sleep 0.05 &) ; done; sleep 60"
    front = state.start("sh", "-c", script)
    import psutil

    parent = psutil.Process(front.pid)
    wait_for(lambda: not [c for c in parent.children() if c.status() == psutil.STATUS_ZOMBIE])
    front.terminate()
    assert front.wait(20) == 128 + signal.SIGTERM
