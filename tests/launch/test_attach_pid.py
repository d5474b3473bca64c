"""`trainmon attach --pid`: real trainings that were started without trainmon, attached to in the middle."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.running import attaching
from monitor.running.foreign import Log
from tests.launch.conftest import State, wait_for
from trainhooks.protocol import rundir

TRAINING = """
import pathlib, sys, time, torch
torch.set_num_threads(1)
model = torch.nn.Linear(16, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
more = pathlib.Path("more")
def step(number, to=sys.stdout, before=""):
    optimizer.zero_grad(); loss = (model(torch.randn(4, 16)) ** 2).mean(); loss.backward(); optimizer.step()
    print(f"{before}step {number}/60 loss {loss.item():.4f}", file=to, flush=True)
def go():
    while not more.exists():
        time.sleep(0.02)
"""
HALVES = """
for number in range(1, 31):
    step(number); time.sleep(0.02)
go()
for number in range(31, 61):
    step(number); time.sleep(0.05)
"""

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(state: State, tmp_path: Path) -> Iterator[Start]:
    """Starts a program that prints to `log` in its directory; it waits for a file `more`."""
    started = []

    def begin(source: str, *words: str, log: str = "log", append: bool = False, **more: Any) -> subprocess.Popen[bytes]:
        (tmp_path / "train.py").write_text(TRAINING + source)
        command = [sys.executable, "-u", "train.py", *words]
        environment = {key: value for key, value in state.environment.items() if key != rundir.STATE_VARIABLE}
        with open(tmp_path / log, "ab" if append else "wb") as out:
            given = {"stdout": out, "stderr": subprocess.STDOUT, **more}
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=subprocess.DEVNULL, **given)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait()


def attached(state: State, pid: int, *more: str) -> Path:
    done = state.call("attach", "--pid", str(pid), "--yes", "--once", *more)
    assert done.returncode == 0, done.stderr
    run = state.runs()[-1]
    wait_for(lambda: state.supervisor(run))
    return run


def printed(path: Path, text: str) -> Callable[[], bool]:
    return lambda: path.exists() and text in path.read_text(errors="replace")


def attached_halfway(state: State, pid: int, where: Path) -> Path:
    wait_for(printed(where / "log", "step 30/60"))
    return attached(state, pid)


def report(state: State, run: Path) -> dict[str, Any]:
    return dict(json.loads(state.call("report", run.name, "--json").stdout))


def ended(state: State, run: Path) -> dict[str, Any]:
    wait_for(lambda: not state.supervisor(run))
    return report(state, run)


@pytest.mark.long
def test_a_training_is_recorded_from_the_middle_and_its_log_from_the_start(
    state: State, start: Start, tmp_path: Path
) -> None:
    process = start(HALVES)
    run = attached_halfway(state, process.pid, tmp_path)
    told = report(state, run)
    assert told["outcome"]["state"] == "running" and told["progress"]["steps_done"] == 30
    assert told["run"]["attached"] and told["run"]["source"] == "console"
    assert told["throughput"]["steps_per_second"] is None  # its lines have no times
    (tmp_path / "more").touch()
    process.wait(60)
    last = time.monotonic()
    told = ended(state, run)
    assert (told["outcome"]["state"], told["outcome"]["exit_code"], told["outcome"]["signal"]) == ("lost", None, None)
    assert told["progress"]["steps_done"] == told["progress"]["steps_total"] == 60
    assert told["metrics"]["loss"]["count"] == 60
    assert 0.05 < told["phases"][0]["mean"] < 1.0
    wall = told["wall"]
    assert wall["startup"] == 0.0  # the account begins with the first step whose time is known
    parts = (wall["steps"], wall["between_steps"], wall["teardown"], *wall["spans"].values())
    assert sum(parts) == pytest.approx(wall["total"])
    assert abs((state.ended(run) or {})["ended_monotonic"] - last) < 1.0  # type: ignore[operator]
    assert told["host"]["tree_processes"] == 1
    assert (run / rundir.CONSOLE).read_bytes() == (tmp_path / "log").read_bytes()
    words = state.call("report", run.name, "--full").stdout.decode()
    assert "exit code unknown" in words and "from its log, from outside" in words
    assert "lost" in state.call("ls").stdout.decode()


DATED = """
import datetime
for number in range(1, 61):
    step(number, before=f"{datetime.datetime.now():%Y-%m-%d %H:%M:%S,%f} "[:23] + " "); time.sleep(0.05)
    if number == 30:
        go()
raise ValueError("the end")
"""


@pytest.mark.long
def test_times_in_the_log_tell_what_came_before_and_a_traceback_how_it_ended(
    state: State, start: Start, tmp_path: Path
) -> None:
    process = start(DATED)
    run = attached_halfway(state, process.pid, tmp_path)
    told = report(state, run)
    assert told["wall"]["startup"] > 0.1  # the import of torch
    assert 5 < told["throughput"]["steps_per_second"] < 25
    (tmp_path / "more").touch()
    process.wait(60)
    told = ended(state, run)
    assert (told["outcome"]["state"], told["outcome"]["exit_code"]) == ("failed", 1)
    assert told["outcome"]["error"] == "ValueError: the end" and "train.py" in told["outcome"]["place"]
    assert told["progress"]["steps_done"] == 60


@pytest.mark.parametrize("dated", [False, True])
def test_what_another_program_wrote_to_the_log_before_is_not_its_own(tmp_path: Path, dated: bool) -> None:
    times = [f"2026-01-01 10:{number // 60:02}:{number % 60:02} " if dated else "" for number in range(200)]
    (tmp_path / "log").write_text("".join(f"{t}step {number}/900 loss 7.0\n" for number, t in enumerate(times)))
    size, now = (tmp_path / "log").stat().st_size, time.monotonic()

    def taken(appends: bool, age: float) -> tuple[int, int]:
        history = attaching._history(Log(str(tmp_path / "log"), "log", appends), now - age, ())
        return history.begin, len(history.data)

    assert taken(True, 300.0) == taken(False, 300.0) == (0, size)
    assert taken(True, -3600.0) == (size, 0)  # the process began long after the file, and adds to it
    # It emptied the file, unless times in it say otherwise: then a script's earlier command wrote them.
    assert taken(False, -3600.0) == ((size, 0) if dated else (0, size))
    assert taken(False, 100.0) == ((size, 0) if dated else (0, size))


@pytest.mark.long
def test_two_streams_in_two_files(state: State, start: Start, tmp_path: Path) -> None:
    with open(tmp_path / "errors", "wb") as errors:
        process = start(
            HALVES.replace("step(number);", "step(number); print('w', number, file=sys.stderr);"), stderr=errors
        )
    run = attached_halfway(state, process.pid, tmp_path)
    (tmp_path / "more").touch()
    process.wait(60)
    told = ended(state, run)
    assert told["progress"]["steps_done"] == 60 and told["metrics"]["loss"]["count"] == 60
    console = (run / rundir.CONSOLE).read_text()
    assert "step 60/60" in console and "w 60\n" in console


@pytest.mark.long
def test_its_log_is_only_read(state: State, start: Start, tmp_path: Path) -> None:
    process = start(HALVES)
    wait_for(printed(tmp_path / "log", "step 30/60"))
    before = (tmp_path / "log").stat()
    run = attached(state, process.pid)
    wait_for(lambda: (run / rundir.CONSOLE).stat().st_blocks > before.st_blocks)  # the copy has its reserve
    after = (tmp_path / "log").stat()
    assert (after.st_mtime_ns, after.st_ctime_ns, after.st_blocks) == (
        before.st_mtime_ns,
        before.st_ctime_ns,
        before.st_blocks,
    )
    opened = [
        os.readlink(f"/proc/{state.supervisor(run)}/fd/{fd}") for fd in os.listdir(f"/proc/{state.supervisor(run)}/fd")
    ]
    assert str(tmp_path / "log") in opened


@pytest.mark.long
def test_another_recorder_goes_on_where_one_was_killed(state: State, start: Start, tmp_path: Path) -> None:
    process = start(HALVES)
    run = attached_halfway(state, process.pid, tmp_path)
    state.strike(run, signal.SIGKILL)
    wait_for(lambda: not state.supervisor(run))
    (tmp_path / "more").touch()
    wait_for(printed(tmp_path / "log", "step 40/60"))
    assert attached(state, process.pid) == run  # the same process, no second run
    process.wait(60)
    told = ended(state, run)
    assert told["progress"]["steps_done"] == 60
    assert (run / rundir.CONSOLE).read_bytes() == (tmp_path / "log").read_bytes()


@pytest.mark.long
def test_without_a_log_it_is_still_seen(state: State, start: Start, tmp_path: Path) -> None:
    process = start(HALVES + "time.sleep(100)", stdout=subprocess.DEVNULL)
    time.sleep(1)
    run = attached(state, process.pid)
    wait_for(lambda: (report(state, run)["host"] or {}).get("tree_processes"))
    told = report(state, run)
    assert told["wall"]["startup"] is None and told["progress"]["steps_done"] == 0
    assert not any("hooks" in str(one) for one in told["findings"])
    stacks = json.loads(state.call("stack", run.name, "--json").stdout)
    (one,) = stacks["processes"]
    assert one["pid"] == process.pid and one["state"]
    process.kill()
    process.wait()
    told = ended(state, run)
    assert told["outcome"]["state"] == "lost"
    (silent,) = [one for one in told["findings"] if one["code"] == "nothing-reports"]
    assert "from outside" in silent["title"] and "--log FILE" in silent["advice"]


@pytest.mark.long
def test_a_log_named_by_hand(state: State, start: Start, tmp_path: Path) -> None:
    process = start(HALVES.replace("step(number)", 'step(number, open("mine.txt", "a"))'), stdout=subprocess.DEVNULL)
    wait_for(printed(tmp_path / "mine.txt", "step 30/60"))
    run = attached(state, process.pid, "--log", str(tmp_path / "mine.txt"))
    (tmp_path / "more").touch()
    process.wait(60)
    assert ended(state, run)["progress"]["steps_done"] == 60


def test_what_cannot_be_attached_to_is_one_line(state: State, tmp_path: Path) -> None:
    shell = subprocess.Popen(
        ["sh", "-c", f"{sys.executable} -c 'import time; time.sleep(99)' & wait"], start_new_session=True
    )
    dead = subprocess.Popen([sys.executable, "-c", ""])
    wait_for(lambda: Path(f"/proc/{dead.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    try:
        for pid, words in (
            ("999999999", "no process"),
            ("-5", "no process"),
            (str(dead.pid), "has ended"),
            (str(shell.pid), "is not Python; its Python is"),
        ):
            done = state.call("attach", "--pid", pid, "--yes", "--once")
            assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and words.encode() in done.stderr, done.stderr
        for words in (("--yes",), ("--pid", "1", "some-run"), ("--pid", "x")):  # type: ignore[assignment]
            assert state.call("attach", *words).returncode == 2
    finally:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        dead.wait()
    assert state.runs() == []


@pytest.mark.long
def test_nothing_is_sent_to_it_not_even_by_stop(state: State, start: Start) -> None:
    process = start("go()")
    run = attached(state, process.pid)
    done = state.call("stop", run.name)
    assert done.returncode == 1 and f"kill {process.pid}" in done.stderr.decode()
    assert process.poll() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root starts processes of another user")
def test_another_user_s_process_is_refused_even_to_root(state: State) -> None:
    foreign = subprocess.Popen(
        ["python3", "-c", "import time; time.sleep(99)"], user=65534, cwd="/", env={"PATH": os.defpath}
    )
    try:
        done = state.call("attach", "--pid", str(foreign.pid), "--yes", "--once")
        assert done.returncode == 2 and b"belongs to another user" in done.stderr and state.runs() == []
    finally:
        foreign.kill()
        foreign.wait()


@pytest.mark.long
def test_without_a_terminal_it_needs_a_yes(state: State, start: Start, tmp_path: Path) -> None:
    process = start("go()", "--api-key=hunter2hunter2", "\x1b]0;owned\x07\u202e\n")
    wait_for(lambda: b"train.py" in Path(f"/proc/{process.pid}/cmdline").read_bytes())
    done = state.call("attach", "--pid", str(process.pid), "--once")
    assert done.returncode == 2 and state.runs() == []
    text = done.stderr.decode()
    assert text.count("\n") == 1 and "add --yes to attach" in text and "nothing is changed" in text
    assert "hunter2" not in text and not any(sign in text for sign in "\x1b\x07\u202e")
    run = attached(state, process.pid)
    assert "hunter2" not in (run / rundir.IDENTITY).read_text()
    for words in (("ls",), ("report", run.name, "--full")):
        text = state.call(*words).stdout.decode()
        assert not any(sign in text for sign in "\x1b\x07\u202e")


@pytest.mark.long
def test_a_hostile_log_is_text(state: State, start: Start, tmp_path: Path) -> None:
    process = start(
        "sys.stdout.buffer.write(b'\\x1b]0;owned\\x07\\xff\\x00' * 1000 + b'\\n' + b'9' * 300000 + b'\\n')\n" + HALVES
    )
    run = attached_halfway(state, process.pid, tmp_path)
    (tmp_path / "more").touch()
    process.wait(60)
    assert ended(state, run)["progress"]["steps_done"] == 60
    text = state.call("attach", run.name, "--once").stdout.decode()
    assert "step 60/60" in text and not any(sign in text for sign in "\x1b\x07")


@pytest.mark.long
def test_the_list_shows_what_no_run_records(state: State, start: Start, tmp_path: Path) -> None:
    # Its worker, with torch, too, is a part of it.
    worker = "import os\nparent = os.getpid()\nif os.fork() == 0:\n    while os.getppid() == parent: time.sleep(0.1)\n"
    process = start(f"{worker}    os._exit(0)\n{HALVES}", "--token=hunter2hunter2", "\x1b[31m")
    wait_for(printed(tmp_path / "log", "step 30/60"))
    shown = state.call("ls").stdout.decode()
    row = next(row for row in shown.splitlines() if f"trainmon attach --pid {process.pid} " in row)
    assert "train.py" in row and "hunter2" not in shown and "\x1b" not in shown
    assert shown.count(row.partition("train.py")[0].split(maxsplit=4)[-1] + "train.py --token") == 1
    before = json.loads(state.call("ls", "--json").stdout)
    assert before == []
    attached(state, process.pid)
    assert f"--pid {process.pid} " not in state.call("ls").stdout.decode()


@pytest.mark.long
def test_one_that_trainmon_runs_is_opened_instead(state: State, tmp_path: Path) -> None:
    front = state.start(sys.executable, "-c", "import time; time.sleep(60)")
    try:
        done = state.call("attach", "--pid", str(state.pid(state.only)), "--once")
        assert done.returncode == 0 and b"recorded already" in done.stderr
        assert len(state.runs()) == 1
    finally:
        front.terminate()
        front.communicate()
