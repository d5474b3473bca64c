"""A run on another host, watched from here: the host is a command that sets another state directory and PATH."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.remote import bundle
from tests.launch.conftest import ROOT, TRAINMON, State, wait_for
from tests.remote.conftest import configure, relays, trainings, via
from tests.signals import send_signal


def _report(state: State, run: str) -> dict[str, Any]:
    done = state.call("report", "--json", run)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_report_of_a_copy_is_that_of_the_run(far: State, near: State) -> None:
    far.run(*trainings(60, 0.005))
    configure(near, box=via(far))
    copied, local = _report(near, f"box:{far.only.name}"), _report(far, "last")
    (host,) = copied["run"].pop("hosts")
    assert host["name"] == "box" and not local["run"].pop("hosts")
    assert copied == local


@pytest.mark.parametrize("with_trainmon", [True, False])
def test_attach_needs_trainmon_or_a_bare_python_there(far: State, near: State, with_trainmon: bool) -> None:
    far.run(*trainings(30, 0.005))
    done = near.call("attach", "--via", via(far, with_trainmon), "box:", "--once", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["run"]["name"] == "far training" and report["progress"]["steps_done"] == 30
    (copy,) = near.path.glob("copies/box/*")
    assert copy.stat().st_mode & 0o777 == 0o700
    assert copy.parent.stat().st_mode & 0o777 == 0o700


def test_the_far_side_writes_nothing(far: State, near: State) -> None:
    far.run(*trainings(10, 0.005))
    before = {path: path.stat().st_mtime_ns for path in far.path.rglob("*")}
    near.call("attach", "--via", via(far), "--once")
    assert {path: path.stat().st_mtime_ns for path in far.path.rglob("*")} == before


@pytest.mark.long
def test_a_job_is_found_before_a_rank_has_reported(far: State, near: State) -> None:
    """Loading a model takes minutes; on one host or on several."""
    hosts = [far, State(far.path.parent / "other")]
    configure(near, **{f"box-{rank}": via(host) for rank, host in enumerate(hosts)})
    fronts = []
    for rank, host in enumerate(hosts):
        host.environment.update(SLURM_JOB_ID="7", SLURM_STEP_ID="0", SLURM_PROCID=str(rank), SLURM_NTASKS="2")
        fronts.append(host.start(sys.executable, "-c", "import time; time.sleep(300)"))
    try:
        for named in ("box-1", "box-1,box-0"):
            done = near.call("attach", "--job", "7", "--host", named, "--once", "--json")
            assert done.returncode == 0, done.stderr
            report = json.loads(done.stdout)
            assert report["outcome"]["state"] == "running"
        assert [host["name"] for host in report["run"]["hosts"]] == ["box-0", "box-1"]
    finally:
        for host, front in zip(hosts, fronts, strict=True):
            host.call("stop", "last")
            front.communicate()


@pytest.mark.long
def test_a_living_run_is_followed_to_its_end(far: State, near: State) -> None:
    front = far.start(*trainings(120, 0.1))
    done = near.call("attach", "--via", via(far), far.only.name, "--json")
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert reports[0]["outcome"]["state"] == "running"
    assert reports[-1]["outcome"] == {**reports[-1]["outcome"], "state": "finished", "exit_code": 0}
    assert reports[-1]["progress"]["steps_done"] == 120 and not any(reports[-1]["dropped"].values())
    assert front.wait() == 0


def test_a_copy_names_no_process_of_this_host(far: State, near: State) -> None:
    """Its pids are those of another machine: nothing here is signalled or looked up by them."""
    front = far.start(*trainings(2000, 0.02))
    configure(near, box=via(far))
    near.call("attach", "box:", "--once")
    (copy,) = near.path.glob("copies/box/*")
    identity = json.loads((copy / "run.json").read_text())
    assert not {"pid", "start_ticks", "pid_namespace"} & set(identity)
    assert not list(copy.glob("rank-*.lock"))
    refused = near.call("stop", str(copy))
    assert refused.returncode == 1 and b"runs on box; there: trainmon stop" in refused.stderr
    assert b"ask there" in near.call("stack", str(copy)).stderr
    assert front.poll() is None


def test_stop_and_stack_are_done_there(far: State, near: State) -> None:
    front = far.start(*trainings(2000, 0.02))
    configure(near, box=via(far))
    wait_for(lambda: list(far.only.glob("rank-*.jsonl")))
    name = far.only.name
    assert b"-c" in near.call("stack", f"box:{name}").stdout or near.call("stack", f"box:{name}").returncode == 0
    stopped = near.call("stop", f"box:{name}")
    assert stopped.returncode == 0, stopped.stderr
    assert front.wait() != 0


def test_wait_is_for_a_run_there(far: State, near: State) -> None:
    far.start(*trainings(2000, 0.02))
    configure(near, box=via(far))
    done = near.call("wait", "box:", "--until", "step=20", "--timeout", "50s")
    assert done.returncode == 0, done.stderr


def test_compare_and_metrics_take_a_run_there(far: State, near: State) -> None:
    far.run(*trainings(60, 0.005))
    near.run(*trainings(60, 0.010))
    configure(near, box=via(far))
    done = near.call("compare", f"box:{far.only.name}", "last")
    assert done.returncode == 0, done.stderr
    figures = near.call("metrics", f"box:{far.only.name}")
    assert figures.returncode == 0 and b'name="far training"' in figures.stdout, figures.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("box:nothing",), b"box: no run named 'nothing'"),
        (("--via", "false", "x"), b"the line was cut"),
        (("--via", "'", "x"), b"--via"),
        (("--via", "no-such-command-here", "x"), b"no-such-command-here: No such file"),
        (("-oProxyCommand=id:x",), b"No such option"),
    ],
)
def test_a_mistake_is_one_line(far: State, near: State, words: tuple[str, ...], says: bytes) -> None:
    far.run(*trainings(3, 0.0))
    configure(near, box=via(far))
    done = near.call("attach", *words, "--once")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert says in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("ls", "--host", ""), b"--host names no host"),
        (("ls", "--host", ","), b"--host names no host"),
        (("attach", "--job", "", "--host", "box"), b"--job names no job"),
        (("stop", ""), b"RUN is empty"),
        (("stop", "away:x"), b"away: no way there; this must work: sh -c 'exit 255' true"),
        (("memory", "bare:x"), b"bare: there is no trainmon on the PATH there"),
    ],
)
def test_what_names_nothing_is_one_line(near: State, words: tuple[str, ...], says: bytes) -> None:
    configure(near, away="sh -c 'exit 255'", bare="sh -c 'exit 127'")
    done = near.call(*words)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and says in done.stderr


@pytest.mark.parametrize("place", ["file", "missing", "lock"])
def test_a_copy_that_cannot_be_kept_is_one_line(far: State, near: State, place: str) -> None:
    """As on a read-only disk."""
    far.run(*trainings(3, 0.0))
    if place == "file":
        near.path.write_text("")
    elif place == "missing":
        near.environment["TRAINMON_DIR"] = "/proc/nowhere"
    else:
        near.call("attach", "--via", via(far), "box:", "--once")
        (lock,) = near.path.glob("copies/box/*/copy.lock")
        lock.unlink()
        lock.mkdir()
    done = near.call("attach", "--via", via(far), "box:", "--once")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1, done.stderr
    assert b"no copy can be kept: " in done.stderr and b"; set TRAINMON_DIR to" in done.stderr


def test_a_host_that_cannot_be_reached_leaves_the_copy(far: State, near: State) -> None:
    far.run(*trainings(30, 0.005))
    configure(near, box=via(far))
    before = _report(near, f"box:{far.only.name}")
    configure(near, box="false")
    done = near.call("report", "--json", f"box:{far.only.name}")
    assert json.loads(done.stdout) == before
    assert b"this is the copy of" in done.stderr


def test_ssh_is_found_on_the_path(far: State, near: State, tmp_path: Path) -> None:
    """`ssh HOST COMMAND...`, so that ~/.ssh/config holds. This one hands the words to a shell, as sshd does."""
    far.run(*trainings(10, 0.005))
    fake = tmp_path / "bin" / "ssh"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\n[ "$1" = me@box ] || exit 255\nshift\nexec {via(far)} sh -c "$*"\n')
    fake.chmod(0o755)
    near.environment["PATH"] = f"{fake.parent}:{os.environ['PATH']}"
    done = near.call("attach", "me@box:last", "--once")
    assert done.returncode == 0 and b"10 of 10 steps" in done.stdout, done.stderr
    assert near.call("attach", "other:last", "--once").returncode == 2


def test_a_login_shell_may_print_a_banner(far: State, near: State) -> None:
    far.run(*trainings(10, 0.005))
    greeting = "sh -c 'echo Welcome to box; exec \"$@\"' sh"
    done = near.call("attach", "--via", f"{greeting} {via(far)}", "--once")
    assert done.returncode == 0, done.stderr


def test_relay_is_not_for_people(near: State) -> None:
    primary, secondary = os.openpty()
    try:
        done = near.call("relay", stdin=secondary)
    finally:
        os.close(primary)
        os.close(secondary)
    assert done.returncode == 2 and b"trainmon attach HOST:RUN" in done.stderr


def test_what_is_sent_is_python_3_9() -> None:
    for name in bundle.MODULES:
        ast.parse((ROOT / (name.replace(".", "/") + ".py")).read_text(), feature_version=(3, 9))


def test_the_far_side_ends_with_its_line(far: State) -> None:
    words = [*TRAINMON, "relay"]
    relay = subprocess.Popen(words, env=far.environment, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert relay.stdin is not None and relay.stdout is not None
    relay.stdout.read(1)
    relay.stdin.close()
    assert relay.wait(20) == 0
    relay.stdout.close()


def test_an_attached_viewer_leaves_no_process(far: State, near: State) -> None:
    front = far.start(*trainings(2000, 0.02))
    viewer = subprocess.Popen(
        [*TRAINMON, "attach", "--via", via(far), far.only.name, "--json"],
        env=near.environment,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert viewer.stdout is not None
    assert json.loads(viewer.stdout.readline())
    send_signal(viewer.pid, signal.SIGKILL)
    viewer.wait()
    viewer.stdout.close()
    wait_for(lambda: not relays(far))
    assert front.poll() is None
