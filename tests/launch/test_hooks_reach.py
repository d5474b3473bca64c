"""Programs that the hooks do not reach: the report says why, whether the command itself or a process tells it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from monitor import hooks_reach
from monitor.running.hooks_check import HooksCheck
from trainhooks.protocol import rundir

from .conftest import ROOT, TRAINMON, State

SLOW = "import time; time.sleep(4)"  # two readings of the recorder see it
STEPS = "import trainhooks as th\nfor i in th.steps(range(3)): pass\n"
BOOT = rundir.BOOTSTRAP


def cause(state: State) -> tuple[str, str]:
    """What the report of the only run says first of a run without steps, and its title."""
    told = json.loads(state.call("report", "--json", "last").stdout)
    (finding,) = [row for row in told["findings"] if row["code"] == "nothing-reports"]
    assert told["alerts"] == []
    return finding["evidence"][0], finding["title"]


COMMANDS = {
    "env": ("env", "PYTHONPATH=.", sys.executable, "-c", "pass"),
    "env -i": ("env", "-i", sys.executable, "-c", "pass"),
    "isolated": (sys.executable, "-I", "-c", "pass"),
    "no environment": (sys.executable, "-E", "-c", "pass"),
    "no site": (sys.executable, "-S", "-c", "pass"),
    "in a shell": ("sh", "-c", f"PYTHONPATH=. {sys.executable} -c pass"),
}


@pytest.mark.long
@pytest.mark.parametrize("how", COMMANDS)
def test_the_command_tells_why_at_the_end_of_run_and_in_the_report(state: State, how: str) -> None:
    ended = state.run(*COMMANDS[how])
    assert ended.returncode == 0
    assert ended.stderr.count(b"hooks not loaded: ") == 1, ended.stderr
    assert cause(state)[0].startswith("hooks not loaded: ")


SCRIPTS = {
    "PYTHONPATH=. exec": hooks_reach.PATH_REPLACED,
    "env -i": hooks_reach.VARIABLES_REMOVED,
    "unset TRAINMON_RUN; exec": hooks_reach.RUN_REMOVED,
}


@pytest.mark.long
@pytest.mark.parametrize("how", SCRIPTS)
def test_a_process_tells_it_where_the_command_does_not(state: State, tmp_path: Path, how: str) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"{how} {sys.executable} -c '{SLOW}'\n")
    ended = state.run("sh", str(script))
    assert cause(state)[0] == SCRIPTS[how]
    assert SCRIPTS[how].encode() in ended.stderr


@pytest.mark.long
def test_a_program_that_is_reached_is_not_accused(state: State, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"PYTHONPATH=.:$PYTHONPATH exec {sys.executable} -c '{SLOW}'\n")
    state.run("sh", str(script))
    assert "hooks not loaded" not in cause(state)[0]


@pytest.mark.long
def test_children_of_a_program_may_be_isolated(state: State) -> None:
    children = f"import subprocess, sys; subprocess.run([sys.executable, '-I', '-c', {SLOW!r}])"
    state.run(sys.executable, "-c", children)
    assert "hooks not loaded" not in cause(state)[0]


# A run in a run


@pytest.mark.long
def test_the_inner_run_records_and_the_outer_one_says_so(state: State, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STEPS)
    inner = [*TRAINMON, "run", "--no-tui", "--name", "inner", "--", sys.executable, str(tmp_path / "train.py")]
    ended = state.run(*inner, options=("--name", "outer"))
    assert ended.returncode == 0, ended.stderr
    rows = {name: json.loads(state.call("report", "--json", name).stdout) for name in ("inner", "outer")}
    assert rows["inner"]["progress"]["steps_done"] == 3
    assert not rows["outer"]["progress"]["steps_done"]
    (finding,) = [row for row in rows["outer"]["findings"] if row["code"] == "nothing-reports"]
    assert finding["evidence"][0] == hooks_reach.INNER_RUN


@pytest.mark.parametrize(
    ("command", "environment", "told"),
    [
        ("python train.py", {"PYTHONPATH": BOOT, "TRAINMON_RUN": "/runs/a"}, None),
        ("python train.py", {"PYTHONPATH": f".:{BOOT}/", "TRAINMON_RUN": "/elsewhere/a"}, None),
        ("python train.py", {"PYTHONPATH": BOOT, "TRAINMON_RUN": "/runs/b"}, hooks_reach.INNER_RUN),
        ("python train.py", {"PYTHONPATH": ".", "TRAINMON_RUN": "/runs/a"}, hooks_reach.PATH_REPLACED),
        ("python train.py", {"TRAINMON_RUN": "/runs/a"}, hooks_reach.PATH_REPLACED),
        ("python train.py", {"PYTHONPATH": BOOT}, hooks_reach.RUN_REMOVED),
        ("python train.py", {"HOME": "/root"}, hooks_reach.VARIABLES_REMOVED),
        ("./train", {"HOME": "/root"}, None),
        ("", {}, None),
    ],
)
def test_what_an_environment_tells(command: str, environment: dict[str, str], told: str | None) -> None:
    assert hooks_reach.why_not_loaded(command.split(), environment, "/runs/a") == told


def test_a_process_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert [HooksCheck(tmp_path).check([2**22 + 1]) for _ in range(3)] == [None] * 3


def test_the_page_names_what_the_module_knows() -> None:
    page = (ROOT / "monitor" / "diagnosis" / "pages" / "nothing-reports.md").read_text()
    assert all(word in page for word in ("PYTHONPATH", "TRAINMON_RUN", "env -i", "-I"))
