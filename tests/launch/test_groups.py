"""The program leads its process group exactly where it would without trainmon, so setsid(1) behaves as it does bare."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from functools import partial
from pathlib import Path

import pytest

from monitor.running import group
from tests.signals import send_signal

from .conftest import ROOT, TRAINMON, State, python, wait_for

needs_setsid = pytest.mark.skipif(shutil.which("setsid") is None, reason="setsid(1) is not installed")

SLOW = "sleep 0.5; echo out; echo err >&2; exit 7"
WHO = "import os; print(os.getpgrp() == os.getpid(), os.getsid(0) == os.getpid(), os.getppid() > 1)"


def from_script(state: State, *command: str, lead: bool = False) -> tuple[int, bytes, bytes]:
    """Run a command as a script does, or as a shell with job control does; its exit code and output at its exit."""
    ended = subprocess.run(
        command,
        env=state.environment,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        start_new_session=lead,
    )
    return ended.returncode, ended.stdout, ended.stderr


def under(*command: str) -> list[str]:
    return [*TRAINMON, "run", "--no-tui", "--", *command]


@pytest.mark.long
@needs_setsid
@pytest.mark.parametrize("options", [(), ("--wait",)])
def test_setsid_waits_as_it_does_bare(state: State, options: tuple[str, ...]) -> None:
    command = ["setsid", *options, "sh", "-c", SLOW]
    bare, watched = from_script(state, *command), from_script(state, *under(*command))
    assert bare == (7, b"out\n", b"err\n")
    assert watched[:2] == bare[:2] and watched[2].startswith(bare[2])


@needs_setsid
def test_setsid_within_the_program(state: State) -> None:
    command = ["sh", "-c", f"setsid sh -c '{SLOW}'; echo code $?"]
    assert from_script(state, *under(*command))[:2] == from_script(state, *command)[:2]


@pytest.mark.parametrize("lead", [False, True])
def test_it_leads_a_group_where_it_would_bare(state: State, lead: bool) -> None:
    bare = from_script(state, *python(WHO), lead=lead)[1].split()
    watched = from_script(state, *under(*python(WHO)), lead=lead)[1].split()
    assert bare[0] == watched[0] == str(lead).encode()


def test_its_group_is_its_own_and_it_keeps_one_parent(state: State) -> None:
    source = "import os, time\nfirst = os.getppid()\nprint(os.getpgrp(), os.getsid(0), flush=True)\n"
    source += "time.sleep(0.3)\nprint(first == os.getppid())"
    _, out, _ = from_script(state, *under(*python(source)))
    ids, same = out.splitlines()
    group, session = map(int, ids.split())
    assert same == b"True" and group == session
    assert session not in (os.getsid(0), os.getpgrp())


def test_what_cannot_be_started_is_told(state: State, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    code, _, said = from_script(state, *under(str(script)))
    assert code == 127 and said.count(b"\n") == 1 and b"its interpreter" in said


def test_stop_reaches_its_whole_group(state: State) -> None:
    front = state.start("sh", "-c", "sleep 600 & echo ready; wait; wait")
    assert front.stdout is not None and front.stdout.readline() == b"ready\n"
    assert state.call("stop", "last").returncode == 0
    assert front.wait(20) in (130, 0)


def test_its_exit_survives_the_supervisor(state: State) -> None:
    front = state.start("sh", "-c", "sleep 1; exit 9")
    state.strike(state.only, signal.SIGKILL)
    assert front.wait(30) == 9


def test_ctrl_z_and_a_dead_supervisor_leave_it_alive(state: State) -> None:
    front = state.start(*python("import time; time.sleep(60)"))
    pid = state.pid(state.only)
    send_signal(front.pid, signal.SIGTSTP)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T")
    state.strike(state.only, signal.SIGKILL)
    time.sleep(0.3)
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] == "T"
    send_signal(front.pid, signal.SIGCONT)
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "SR")
    send_signal(pid, signal.SIGKILL)
    assert front.wait(30) == 128 + signal.SIGKILL


def test_the_exit_status_of_a_program_that_ended_at_once_is_kept() -> None:
    """A Popen that is dropped takes it."""
    pid = group.start_leader(partial(subprocess.Popen, ["sh", "-c", "exit 6"]))
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    subprocess.run(["true"], check=True)  # a new one takes the statuses of those that were dropped
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 6
