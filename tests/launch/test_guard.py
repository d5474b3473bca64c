"""`run --stop-on`: a training that meets a condition is stopped, and the report and the exit code say why."""

from __future__ import annotations

import json
import signal

import pytest

from monitor.guard import EXIT_CODE, STACKS
from monitor.running.stopping import stop_training
from monitor.settings import FILE_NAME

from .conftest import State, python

PRINTS = "import time\nfor i in range(1, 2000): print(f'step {i}/9000 loss', LOSS, flush=True); time.sleep(0.03)"
NAN = PRINTS.replace("LOSS", "'nan' if i > 30 else 1.5")
SHORT = (0.5, 0.5, 5.0)


def outcome(state: State) -> dict[str, object]:
    told: dict[str, object] = json.loads(state.call("report", "--json").stdout)["outcome"]
    return told


@pytest.mark.long
def test_a_loss_that_is_not_finite_ends_the_run(state: State) -> None:
    done = state.run(*python(NAN), options=("--stop-on", "cost=9,nonfinite-loss", "--price", "1"))
    told = outcome(state)
    assert done.returncode == EXIT_CODE and told["state"] == "killed"
    assert str(told["error"]).startswith("stopped by --stop-on nonfinite-loss")
    assert b"stopped by --stop-on nonfinite-loss" in done.stderr
    assert b"rashed" not in state.call("report", "--full").stdout
    assert "SIGINT" in (state.only / "stop-on.log").read_text() and (state.only / STACKS).read_text()
    assert json.loads(state.call("ls", "--json").stdout)[0]["state"] == "killed"


@pytest.mark.long
def test_the_configuration_names_conditions_too_and_the_option_wins(state: State) -> None:
    state.path.mkdir(exist_ok=True)
    (state.path / FILE_NAME).write_text('[run]\nstop_on = "ends-after=1s"\n')
    assert state.run("sleep", "60").returncode == EXIT_CODE
    assert state.run("sleep", "4", options=("--stop-on", "ends-after=1h")).returncode == 0


def test_a_program_that_ends_by_itself_keeps_its_exit_code(state: State) -> None:
    assert state.run(*python("raise SystemExit(3)"), options=("--stop-on", "stalled=20m,ends-after=6h")).returncode == 3
    assert outcome(state)["error"] is None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--stop-on", "stald=20m"), b"cannot stop on 'stald=20m'"),
        (("--stop-on", "stalled=soon"), b"'soon' is no time"),
        (("--stop-on", "cost=50"), b"--price"),
        (("--stop-on", "eta.below=3m"), b"cannot stop on"),
        (("--stop-on", "ends-after=1h", "--stop-kill-after", "x"), b"'x' is no time"),
    ],
)
def test_a_mistake_is_one_line_and_nothing_is_started(state: State, words: tuple[str, ...], says: bytes) -> None:
    done = state.run("true", options=words)
    assert done.returncode == 2 and says in done.stderr and b"Traceback" not in done.stderr
    assert not state.runs()


SAVES = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
print("ready")
with open(os.devnull, "wb") as file:
    for _ in range(WRITES): file.write(b"x" * 1_000_000); file.flush(); time.sleep(0.1)
time.sleep(SECONDS)
"""


@pytest.mark.long
@pytest.mark.parametrize(("writes", "killed"), [(40, False), (0, True)])
def test_what_still_writes_is_not_killed(state: State, writes: int, killed: bool) -> None:
    code = SAVES.replace("WRITES", str(writes)).replace("SECONDS", "60" if killed else "0")
    front = state.start(*python(code))
    front.stdout.readline()
    said: list[str] = []
    assert stop_training(state.only, said.append, SHORT, "stalled", quiet=1.5)
    assert front.wait(20) == (128 + signal.SIGKILL if killed else 0)
    assert ("SIGKILL" in " ".join(said)) is killed
    assert outcome(state)["error"] == "stopped by --stop-on stalled"
