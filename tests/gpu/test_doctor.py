"""`trainmon doctor`: what it says of a machine, and its exit code."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from monitor.doctor import directory_checks, examination
from monitor.doctor.checks import READINGS, Check
from monitor.doctor.examination import mapping, text
from monitor.doctor.terminal_check import check_terminal
from monitor.errors import UserError
from tests.gpu.conftest import ROOT, Stub, changed, scene
from trainhooks.protocol import rundir

# The Python that the virtual environment was made of: without torch, whose import takes seconds.
BARE = getattr(sys, "_base_executable", sys.executable)
XTERM = {"TERM": "xterm-256color"}


def doctor(
    environment: dict[str, str], *words: str, state: Path, python: str = BARE
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "monitor", "doctor", "--python", python, *words],
        env={**environment, "TRAINMON_DIR": str(state)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def found(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    told = json.loads(done.stdout)
    assert told["ok"] is (done.returncode == 0)
    return {check["part"]: check for check in told["checks"]}


def test_a_machine_with_everything(stub: Stub, tmp_path: Path) -> None:
    stub.file.write_text(scene("h200x8"))
    done = doctor(stub.environment, "--json", state=tmp_path, python=sys.executable)
    checks = found(done)
    assert done.returncode == 0
    driver, cards = checks["NVIDIA driver"], checks["GPUs 0-7 readings"]
    assert driver["state"] == "works" and "SIMULATED" in driver["text"] and driver["details"]["gpus"] == 8
    assert cards["state"] == "works" and len(cards["details"]["uuids"]) == 8
    assert set(cards["details"]["readings"]) | set(cards["details"]["missing"]) == set(READINGS)
    assert {"thermal_violation", "pcie_rx", "tensor_active", "processes"} <= set(cards["details"]["readings"])
    for part in ("trainmon itself", "Python of the training", "hooks without code changes", "run directory", "locks",
                 "sockets"):  # fmt: skip
        assert checks[part]["state"] == "works", checks[part]
    assert checks["torch"]["state"] == "limited"  # built for the CPU, and there are GPUs
    assert checks["torch"]["advice"]
    assert list((tmp_path / "runs").iterdir()) == []


def test_as_text_each_part_has_a_line(stub: Stub, tmp_path: Path) -> None:
    stub.file.write_text(changed(scene("laptop"), gpu0__name="Card\x1b[2J"))
    done = doctor(stub.environment, state=tmp_path)
    assert done.returncode == 0
    assert "GPU 0 readings" in done.stdout and "Card [2J" in done.stdout and "\x1b" not in done.stdout
    assert "missing: power, power limit," in " ".join(done.stdout.split())
    assert all(len(line) <= 100 for line in done.stdout.splitlines())


def test_no_driver_is_no_fault(tmp_path: Path) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": "/nonexistent"}
    done = doctor(environment, "--json", state=tmp_path)
    assert done.returncode == 0
    assert found(done)["NVIDIA driver"]["state"] in ("missing", "works")  # works: on a machine that has one


def test_a_driver_that_is_not_loaded_says_what_to_do(stub: Stub, tmp_path: Path) -> None:
    stub.file.write_text(changed(scene("h200x8"), driver__init=18))
    check = found(doctor(stub.environment, "--json", state=tmp_path))["NVIDIA driver"]
    assert check["state"] == "broken" and "Reboot" in check["advice"]


def test_a_run_directory_that_cannot_be_written_is_fatal(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    done = doctor(dict(os.environ), "--json", state=blocked / "state")
    assert done.returncode == 1
    check = found(done)["run directory"]
    assert check["state"] == "broken" and "TRAINMON_DIR" in check["advice"]


def test_a_python_that_does_not_exist_is_the_users_error(tmp_path: Path) -> None:
    done = doctor(dict(os.environ), state=tmp_path, python="/nonexistent/python")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    with pytest.raises(UserError):
        examination.training_python("/nonexistent/python", 0)


def test_a_python_that_hooks_do_not_reach(tmp_path: Path) -> None:
    isolated = tmp_path / "python"
    isolated.write_text(f'#!/bin/sh\nexec {BARE} -I "$@"\n')
    isolated.chmod(0o755)
    checks = {check.part: check for check in examination.training_python(str(isolated), 0)}
    assert checks["hooks without code changes"].state == "missing"
    assert checks["Python of the training"].state == "works"


@pytest.mark.parametrize("answer", ["exit 3", "echo no json", "echo '[1]'", "echo Segfault >&2; exit 139"])
def test_a_program_that_is_no_python(tmp_path: Path, answer: str) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\n{answer}\n")
    fake.chmod(0o755)
    (check,) = examination.training_python(str(fake), 0)
    assert check.state == "broken"


def test_little_room_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    for free, state in (
        (directory_checks.MIN_RUN_SPACE - 1, "broken"),
        (directory_checks.LOW_RUN_SPACE - 1, "limited"),
        (directory_checks.LOW_RUN_SPACE, "works"),
    ):
        monkeypatch.setattr(shutil, "disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        (room, locks) = directory_checks.run_directory()
        assert (room.state, room.fatal) == (state, state == "broken")
        assert locks.state == "works"


@pytest.mark.parametrize(
    ("environment", "on_terminal", "encoding", "room", "state"),
    [
        (XTERM, True, "utf-8", (120, 40), "works"),
        ({**XTERM, "NO_COLOR": "1"}, True, "UTF-8", (120, 40), "works"),
        ({"TERM": "tmux-direct"}, True, "UTF8", (0, 0), "works"),
        (XTERM, True, "ascii", (120, 40), "limited"),
        (XTERM, True, "utf-8", (60, 20), "limited"),
        ({"TERM": "dumb"}, True, "utf-8", (120, 40), "broken"),
        ({}, True, "utf-8", (120, 40), "broken"),
        (XTERM, False, "utf-8", (0, 0), "missing"),
    ],
)
def test_terminals(
    environment: dict[str, str], on_terminal: bool, encoding: str, room: tuple[int, int], state: str
) -> None:
    check = check_terminal(environment, on_terminal, encoding, room)
    assert check.state == state
    assert not check.fatal  # plain output is always left
    assert (check.advice is not None) == (state in ("limited", "broken"))


def test_only_what_is_essential_decides() -> None:
    broken = Check("a", "broken", "text", "do this")
    fatal = Check("b", "broken", "text", "do that", essential=True)
    assert mapping([broken])["ok"] is True
    assert mapping([broken, fatal])["ok"] is False
    assert text([broken, fatal], 80).endswith("trainmon cannot work: b broken\n")
