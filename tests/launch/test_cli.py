"""The command line: what it loads, what it says, and what it does with a dashboard."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest

from monitor import __version__
from trainhooks.protocol import rundir

from .conftest import ROOT, TRAINMON, State, python, wait_for


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "sys.argv = ['trainmon', '--help']\n"
        "import monitor.cli\n"
        "try: monitor.cli.main()\n"
        "except SystemExit: pass\n"
        "heavy = {'textual', 'rich', 'plotext', 'psutil', 'zmq', 'msgspec', 'pynvml', 'torch', 'asyncio'}\n"
        "print('heavy:', sorted(heavy & set(sys.modules)))\n"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True).stdout.decode()
    assert told.endswith("heavy: []\n")
    assert "attach" in told


def test_the_front_of_a_run_loads_nothing_heavy_before_it_forks() -> None:
    script = (
        "import os, sys\n"
        "def fork():\n"
        "    print('heavy:', sorted({'textual', 'rich', 'numpy', 'psutil', 'zmq', 'pynvml'} & set(sys.modules)))\n"
        "    os._exit(0)\n"
        "os.fork = fork\n"
        "import monitor.cli\n"
        "sys.argv = ['trainmon', 'run', '--no-tui', 'true']\n"
        "sys.stdout.flush = lambda: None\n"
        "sys.stdout = open(1, 'w', buffering=1)\n"
        "monitor.cli.main()\n"
    )
    told = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True).stdout.decode()
    assert told == "heavy: []\n"


def test_the_version(state: State) -> None:
    assert state.call("--version").stdout.decode() == f"trainmon {__version__}\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["attach"], "no training is running here"),
        (["attach", "nothing"], "no runs yet"),
        (["report"], "no runs yet"),
        (["report", "x" * 300], "no runs yet"),
        (["attach", "--once", "1" * 5000], "no runs yet"),
        (["stop"], "Missing argument"),
        (["fly"], "No such command 'fly'"),
        (["run", "--nme", "x", "true"], "No such option"),
        (["run", "--tag", "x", "true"], "not of the form KEY=VALUE"),
        (["run", "--price", "cheap", "true"], "'cheap' is not a valid float"),
    ],
)
def test_mistakes_end_in_one_line(state: State, words: list[str], says: str) -> None:
    ended = state.call(*words)
    (line,) = ended.stderr.decode().splitlines()
    assert (ended.returncode, says in line, ended.stdout) == (2, True, b""), line


@pytest.mark.parametrize(("words", "code"), [(("run", "--no-tui", "--", "true"), 0), (("ls",), 2), (("report",), 2)])
def test_a_home_that_nobody_knows(state: State, words: tuple[str, ...], code: int) -> None:
    state.environment["TRAINMON_DIR"] = "~no-such-user/state"
    ended = state.call(*words)
    (line,) = ended.stderr.decode().splitlines()
    assert ended.returncode == code and "set TRAINMON_DIR" in line


@pytest.mark.long
def test_reports_of_a_run(state: State) -> None:
    state.run("sh", "-c", "exit 3", options=("--name", "a_run"))
    assert b"failed (exit code 3)" in state.call("report").stdout
    assert state.call("report", "a_run", "--markdown").stdout.startswith(b"# a_run (")
    told = json.loads(state.call("report", "--json").stdout)
    assert told["outcome"]["state"] == "failed"
    (listed,) = json.loads(state.call("ls", "--json").stdout)
    assert (listed["name"], listed["state"], listed["exit_code"]) == ("a_run", "failed", 3)
    assert b"failed (code 3)" in state.call("ls").stdout
    assert b"PROBLEM" in state.call("attach", "last", "--once").stdout


def test_attach_without_a_terminal_prints_until_the_end(state: State, tmp_path: Path) -> None:
    done = tmp_path / "done"
    front = state.start("sh", "-c", f"until [ -e {done} ]; do sleep 0.1; done")
    watching = subprocess.Popen(
        [*TRAINMON, "attach"], env=state.environment, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert watching.stdout and watching.stdout.readline(), "the first line comes while it runs"
    done.touch()
    out, told = watching.communicate(timeout=60)
    assert watching.returncode == 0
    assert b"no terminal to draw on" in told
    assert b"sh   finished (exit code 0)" in out
    front.wait(20)


@pytest.mark.long
def test_attach_asks_which_of_several(state: State) -> None:
    fronts = [state.start("sleep", "60", options=("--name", name)) for name in ("one", "two")]
    ended = state.call("attach", "--once")
    assert ended.returncode == 2
    assert b"2 trainings are running: two-" in ended.stderr
    command = [*TRAINMON, "attach", "--once"]
    asked = pexpect.spawn(command[0], command[1:], env=state.environment, cwd=str(ROOT), timeout=20)
    asked.expect("1  two-.*2  one-.*Which one")
    asked.sendline("2")
    asked.expect("one +running")
    asked.expect(pexpect.EOF)
    asked.close()
    assert asked.exitstatus == 0
    for front in fronts:
        front.terminate()
        front.wait(20)


def test_a_closed_pipe_is_no_error(state: State) -> None:
    state.run("true")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "capture_output": False}
    ended = state.call("report", preexec_fn=_no_reader, **pipes)
    assert b"Traceback" not in ended.stderr


def _no_reader() -> None:
    reading, writing = os.pipe()
    os.dup2(writing, 1)
    os.close(reading)


# With a dashboard


def dashboard(
    state: State, what: str, *command: str, verb: tuple[str, ...] = ("run", "--"), term: str = "xterm"
) -> pexpect.spawn:
    environment = {
        **state.environment,
        "TERM": term,
        "TRAINMON_FAKE_APP": what,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).with_name("fake_app")), str(ROOT)]),
    }
    words = [*TRAINMON, *verb, *command]
    return pexpect.spawn(words[0], words[1:], env=environment, cwd=str(ROOT), timeout=20, dimensions=(30, 120))


def finished(front: pexpect.spawn) -> tuple[int, str]:
    told = front.read().decode()
    front.close()
    return front.exitstatus, told


def test_detaching_leaves_the_training_and_says_the_way_back(state: State) -> None:
    front = dashboard(state, "detach", "sleep", "60")
    code, told = finished(front)
    run = state.only
    assert code == 0
    assert f"trainmon attach {run.name}" in told
    assert rundir.run_alive(run)
    code, told = finished(dashboard(state, "detach", run.name, verb=("attach",)))
    assert (code, f"trainmon attach {run.name}" in told) == (0, True)
    assert rundir.run_alive(run)


def test_the_code_comes_through_the_dashboard(state: State) -> None:
    code, told = finished(dashboard(state, "end", "sh", "-c", "echo kept; sleep 0.3; exit 9"))
    assert code == 9
    assert "failed (exit code 9)" in told
    assert (state.only / "console.log").read_bytes() == b"kept\n"


def test_a_dashboard_that_crashes_leaves_the_training(state: State) -> None:
    code, told = finished(dashboard(state, "crash", "sleep", "60"))
    assert code == 1
    assert "the dashboard crashed (ValueError: no such widget); the training is not affected" in told
    assert f"trainmon attach {state.only.name}" in told
    assert rundir.run_alive(state.only)


def test_the_dashboard_can_stop_the_training(state: State) -> None:
    code, told = finished(dashboard(state, "stop", "sleep", "60"))
    assert code == 128 + signal.SIGINT
    assert "said sent SIGINT" in told


def test_sigterm_ends_the_training_and_then_the_dashboard(state: State) -> None:
    front = dashboard(state, "wait", "sleep", "60")
    front.expect("shown")
    front.kill(signal.SIGTERM)
    assert finished(front)[0] == 128 + signal.SIGTERM


def test_a_terminal_that_closes_under_the_dashboard(state: State) -> None:
    front = dashboard(state, "wait", *python("import time; time.sleep(0.7); raise SystemExit(5)"))
    front.expect("shown")
    front.close(force=False)
    run = state.only
    wait_for(lambda: state.ended(run))
    assert state.ended(run)["exit_code"] == 5


def test_the_program_keeps_its_environment_and_has_no_stdin(state: State) -> None:
    script = "import os, sys; print(os.environ.get('NO_COLOR'), sys.stdin.read() == ''); raise SystemExit(2)"
    state.environment["NO_COLOR"] = "1"
    assert finished(dashboard(state, "end", *python(script)))[0] == 2
    assert (state.only / "console.log").read_text() == "1 True\n"


def test_a_dumb_terminal_gets_no_dashboard(state: State) -> None:
    code, told = finished(dashboard(state, "detach", "sh", "-c", "echo plain; exit 6", term="dumb"))
    assert code == 6, told
    assert told.startswith("plain\r\ntrainmon: sh failed (exit code 6)")


@pytest.mark.parametrize(("words", "says"), [(["ls", "--nope"], "trainmon: No such option"), ([], "Usage: trainmon")])
def test_mistakes_are_one_line_with_the_oldest_click_too(state: State, words: list[str], says: str) -> None:
    """click 8.1 lacks some exceptions of later versions."""
    newer = ("NoArgsIsHelpError", "NoSuchCommand")
    code = (
        f"import sys, click.exceptions as e; [delattr(e, n) for n in {newer} if hasattr(e, n)];"
        "from monitor.entry import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], env=state.environment, cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2 and done.stderr.startswith(says), done.stderr
