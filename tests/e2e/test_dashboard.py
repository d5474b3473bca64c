"""The dashboard as people meet it: started, left, killed, closed and come back to."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from tests.bench.journals import write_run
from tests.e2e.conftest import PATIENCE, ROOT, Box
from tests.journal_lines import events_in, steps_in
from trainhooks.protocol import rundir

# A training of ten steps a second with everything the screen shows.
TRAINING = """
import sys, time
import trainhooks as th
th.init(name="pulsar", total_steps=int(sys.argv[1]))
with th.span("load models"):
    time.sleep(0.2)
for index in th.steps(range(int(sys.argv[1]))):
    with th.phase("generation"):
        time.sleep(0.06)
    with th.phase("training"):
        time.sleep(0.03)
    if index % 10 == 9:
        th.skip("empty code generated")
        continue
    th.log(reward=index / 100, loss=1 / (index + 1))
    th.count(tokens=100)
    print("line", index, flush=True)
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(TRAINING)
    return str(path)


def report(box: Box) -> dict[str, object]:
    command = [sys.executable, "-m", "monitor", "report", "last", "--json"]
    found = subprocess.run(command, env=box.environment, cwd=ROOT, check=True, capture_output=True)
    out: dict[str, object] = msgspec.json.decode(found.stdout)
    return out


def steps_done(run: Path) -> int:
    journal = next(run.glob("rank-*.jsonl"))
    return steps_in(journal)


def wait_for_steps(run: Path, count: int) -> None:
    until = time.monotonic() + PATIENCE
    while steps_done(run) < count:
        assert time.monotonic() < until, "the training has stopped"
        time.sleep(0.05)


def test_run_shows_the_run_and_leaving_detaches(box: Box, script: str) -> None:
    terminal = box.trainmon("run", "--", sys.executable, script, "2000")
    text = terminal.wait_for(lambda screen: "generation" in screen and "line " in screen)
    assert "pulsar" in text
    terminal.wait_for("empty code generated")
    terminal.press("q")
    assert terminal.exit_code() == 0
    assert f"trainmon attach {box.run().name}" in terminal.raw.decode(errors="replace")
    wait_for_steps(box.run(), steps_done(box.run()) + 5)


def test_bytes_that_are_no_text_are_no_keys(box: Box, script: str) -> None:
    terminal = box.trainmon("run", "--", sys.executable, script, "2000")
    terminal.wait_for("generation")
    for typed in (b"\xff\x80", b"\xe1"):  # an old encoding, Alt and a letter
        os.write(terminal.master, typed)
        terminal.read(0.3)
    terminal.press("q")
    assert terminal.exit_code() == 0 and "Traceback" not in terminal.text


@pytest.mark.long
def test_kill_minus_9_of_the_dashboard_leaves_the_training(box: Box, script: str) -> None:
    terminal = box.trainmon("run", "--", sys.executable, script, "60")
    terminal.wait_for("generation")
    terminal.kill()
    wait_for_steps(box.run(), 60)
    again = box.trainmon("attach", "last")
    again.wait_for(lambda screen: "FINISHED" in screen and "60" in screen)
    found = report(box)
    assert found["outcome"]["state"] == "finished"  # type: ignore[index]
    assert found["outcome"]["exit_code"] == 0  # type: ignore[index]
    assert found["progress"]["steps_done"] == 60  # type: ignore[index]


@pytest.mark.long
def test_a_closed_terminal_leaves_the_training(box: Box, script: str) -> None:
    terminal = box.trainmon("run", "--", sys.executable, script, "80")
    terminal.wait_for("generation")
    terminal.close()
    wait_for_steps(box.run(), 80)


@pytest.mark.parametrize("heeded", [":", ""])
def test_a_dashboard_ends_with_its_terminal_though_nobody_tells_it(box: Box, script: str, heeded: str) -> None:
    """A hangup is told to the session's leader alone; where that one is a `make`, it waits for us. Or it is ignored."""
    waits = ["/bin/sh", "-c", f'trap "{heeded}" HUP; "$@"; exit', "sh"]
    terminal = box.trainmon("run", "--", sys.executable, script, "2000", within=waits)
    terminal.wait_for("generation")
    terminal.close()
    until = time.monotonic() + PATIENCE
    while os.waitpid(terminal.pid, os.WNOHANG) == (0, 0):
        assert time.monotonic() < until, "the dashboard is still there"
        time.sleep(0.05)
    wait_for_steps(box.run(), steps_done(box.run()) + 5)


def test_a_dashboard_that_was_stopped_goes_on_as_one(box: Box, tmp_path: Path) -> None:
    """SIGSTOP tells nobody: what ran before and what starts at SIGCONT would both read keys."""
    terminal = box.trainmon("attach", str(write_run(tmp_path / "runs", 1000)))
    terminal.wait_for("step 1,000")
    terminal.read(1.0)
    process = psutil.Process(terminal.pid)
    before = process.num_threads()
    for _ in range(3):
        process.suspend()
        terminal.read(0.5)
        begun = len(terminal.raw)
        process.resume()
        terminal.wait_for(lambda text, begun=begun: b"FINISHED" in terminal.raw[begun:])
    assert process.num_threads() <= before
    terminal.press("w")
    terminal.wait_for("overview")
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_late_attach_shows_the_whole_history(box: Box, script: str) -> None:
    """A training that trainmon did not start: it writes its own journal, and is found."""
    training = subprocess.Popen([sys.executable, script, "2000"], env=box.environment, stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE
        while not list(box.path.glob("runs/*/rank-*.jsonl")):
            assert time.monotonic() < until
            time.sleep(0.05)
        wait_for_steps(box.run(), 30)
        terminal = box.trainmon("attach")
        terminal.wait_for(lambda screen: "pulsar" in screen and re.search(r"step 1\b", screen) is not None)
        seqs = [event["seq"] for event in events_in(next(box.run().glob("rank-*.jsonl")))]
        assert seqs == list(range(len(seqs)))
        assert report(box)["dropped"] == {"events": 0, "lines": 0, "broken_off": 0, "parts": 0}
    finally:
        training.kill()
        training.wait()


def test_ctrl_c_asks_and_stop_ends_the_training(box: Box, script: str) -> None:
    terminal = box.trainmon("run", "--", sys.executable, script, "3000")
    terminal.wait_for("generation")
    terminal.press("\x03")
    terminal.wait_for(lambda screen: "detach" in screen.lower() and "cancel" in screen.lower())
    terminal.press("s")
    terminal.wait_for(lambda screen: "STOPPED by you" in screen)
    until = time.monotonic() + PATIENCE
    while not (box.run() / rundir.EXIT).exists():
        assert time.monotonic() < until
        time.sleep(0.05)


# It takes its time to end: a checkpoint on the way out.
SLOW_TO_END = """
import signal, sys, time
def leave(*_):
    time.sleep(4)
    sys.exit(3)
signal.signal(signal.SIGINT, leave)
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""


@pytest.mark.long
@pytest.mark.parametrize(("verb", "code"), [("run", 3), ("attach", 0)])
def test_a_stop_is_carried_through_when_the_dashboard_is_left(box: Box, verb: str, code: int) -> None:
    terminal = started = box.trainmon("run", "--", sys.executable, "-c", SLOW_TO_END)
    started.wait_for("ready")
    if verb == "attach":
        terminal = box.trainmon("attach")
        terminal.wait_for("ready")
    terminal.press("\x03")
    terminal.wait_for("Cancel")
    terminal.press("s")
    terminal.wait_for("sent SIGINT")
    terminal.press("\x1b")
    terminal.wait_for(lambda screen: "sent SIGINT" not in screen)
    terminal.press("q")
    assert terminal.exit_code() == code
    left = terminal.raw.rpartition(b"\x1b[?1049l")[2].decode()
    assert re.search(r"sent SIGINT to .*\s+.* ended after", left), left
    assert "come back with" not in left
    assert ("killed (exit code 3)" in left and "stopped by you" in left) == (verb == "run")


def test_when_a_stop_is_over_q_leaves(box: Box, script: str) -> None:
    terminal = box.trainmon("run", "--", sys.executable, script, "3000")
    terminal.wait_for("generation")
    terminal.press("\x03")
    terminal.wait_for("Cancel")
    terminal.press("s")
    terminal.wait_for("Done")
    terminal.press("q")
    assert terminal.exit_code() == 130
    assert b"come back with" not in terminal.raw


@pytest.mark.long
@pytest.mark.parametrize(("columns", "lines"), [(160, 45), (80, 24), (60, 15), (20, 5)])
def test_the_real_screen_holds_at_every_size(box: Box, script: str, columns: int, lines: int) -> None:
    terminal = box.trainmon("run", "--", sys.executable, script, "3000", columns=columns, lines=lines)
    terminal.wait_for(lambda screen: "pulsar" in screen)
    terminal.press("q")
    assert terminal.exit_code() == 0


def test_no_terminal_means_plain_lines(box: Box, script: str) -> None:
    command = [sys.executable, "-m", "monitor", "run", "--", sys.executable, script, "10"]
    environment = {**box.environment, "TERM": "dumb"}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0
    assert done.stdout == b"".join(b"line %d\n" % index for index in range(10) if index % 10 != 9)
    assert b"10 steps" in done.stderr
    assert os.path.exists(box.run() / rundir.CONSOLE)
