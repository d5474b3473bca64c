"""Private directories are checked, not assumed; nobody but their owner reads or writes anything."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from monitor.errors import UserError
from monitor.running.stopping import stop_training
from monitor.runs import catalogue
from tests.launch.conftest import ROOT, State, python, wait_for
from tests.signals import send_group_signal
from trainhooks.protocol import process_identity, rundir

pytestmark = pytest.mark.long

NOBODY = 65534
TRAINING = """
import sys, time
sys.path.insert(0, {root!r})
import trainhooks as th
for _ in th.steps(range({steps})):
    time.sleep(0.01)
print("trained")
"""

# Tries all that there is to try, and prints what worked.
INTRUDER = """
import os, socket, sys
def attempt(name, what):
    try:
        what()
        print(name)
    except OSError:
        pass
pid, *paths = sys.argv[1:]
attempt("kill", lambda: os.kill(int(pid), 15))
for path in paths:
    attempt(f"read:{path}", lambda: open(path, "rb"))
    attempt(f"write:{path}", lambda: open(path, "ab"))
    attempt(f"list:{path}", lambda: os.listdir(path))
    attempt(f"make:{path}", lambda: os.mkdir(path + "/x"))
    attempt(f"remove:{path}", lambda: os.unlink(path))
    attempt(f"connect:{path}", lambda: socket.socket(socket.AF_UNIX).connect(path))
print("done")
"""

needs_root = pytest.mark.skipif(
    os.getuid() != 0 or not shutil.which("setpriv"),
    reason="LOUD: only root, with setpriv, can become another user to try it",
)


def training(steps: int = 5) -> list[str]:
    return python(TRAINING.format(root=str(ROOT), steps=steps))


def as_nobody(*command: str) -> subprocess.CompletedProcess[bytes]:
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *command]
    return subprocess.run(words, capture_output=True, timeout=60, cwd="/")


def commands(processes: list[psutil.Process]) -> Iterator[str]:
    for process in processes:
        with contextlib.suppress(psutil.Error):  # one that has ended is none
            yield " ".join(process.cmdline())


def refused(state: State, *hints: str) -> None:
    """Nothing is recorded there, which one line says; the program runs, under `trainmon run` and with hooks."""
    done = state.run(*training())
    assert (done.returncode, done.stdout) == (0, b"trained\n"), done.stderr
    line = done.stderr.decode()
    assert line.count("\n") == 1 and all(hint in line for hint in hints), line
    alone = subprocess.run(training(), env=state.environment, capture_output=True, timeout=60)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, b"trained\n", b"")
    doctor = state.call("doctor")
    assert doctor.returncode == 1 and hints[0] in " ".join(doctor.stdout.decode().split())


def test_a_link_in_the_place_of_the_runs_is_refused(state: State, tmp_path: Path) -> None:
    state.path.mkdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (state.path / "runs").symlink_to(tmp_path / "elsewhere")
    refused(state, "is not a directory", "remove it")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_runs_that_are_open_to_others_are_refused(state: State) -> None:
    (state.path / "runs").mkdir(parents=True)
    (state.path / "runs").chmod(0o755)
    refused(state, "is open to other users", "chmod 700")
    assert not list((state.path / "runs").iterdir())


def test_a_state_directory_that_everybody_may_change_is_refused(state: State) -> None:
    state.path.mkdir()
    state.path.chmod(0o777)
    refused(state, "everybody may exchange", "chmod o-w")
    state.path.chmod(0o1777)  # as /tmp has it
    assert state.run(*training()).returncode == 0


@needs_root
@pytest.mark.parametrize("which", ["state", "runs"])
def test_a_foreign_directory_is_refused(state: State, which: str) -> None:
    path = state.path if which == "state" else state.path / "runs"
    path.mkdir(parents=True, mode=0o700)
    os.chown(path, NOBODY, -1)
    refused(state, "another user")
    assert not [each for each in path.rglob("*") if each.is_file()]


@needs_root
def test_settings_that_another_user_wrote_are_refused(state: State, tmp_path: Path) -> None:
    """They may name a command, which is run as us."""
    state.path.mkdir()
    state.path.chmod(0o1777)
    marker = tmp_path / "ran"
    (tmp_path / "evil.sh").write_text(f"#!/bin/sh\ntouch {marker}\n")
    (tmp_path / "evil.sh").chmod(0o755)
    config = state.path / "config.toml"
    config.write_text(f'[alerts]\ncommand = "{tmp_path}/evil.sh"\n')
    os.chown(config, NOBODY, -1)
    for words, code in ((("run", "--no-tui", "--", "true"), 0), (("prune", "--dry-run"), 2)):
        done = state.call(*words)
        assert done.returncode == code, words
        assert b"belongs to another user" in done.stderr.splitlines()[0]
    os.chown(config, os.getuid(), -1)
    config.chmod(0o666)
    assert b"chmod o-w" in state.call("prune").stderr
    assert not marker.exists()
    config.chmod(0o644)
    assert state.run("true").returncode == 0
    os.chown(config, NOBODY, -1)
    state.environment["SUDO_UID"] = str(NOBODY)  # by sudo: they are the settings of who asks
    assert state.run("true").returncode == 0


def test_settings_are_no_pipe(state: State) -> None:
    state.path.mkdir()
    os.mkfifo(state.path / "config.toml")
    done = state.call("prune", "--dry-run", timeout=60)
    assert done.returncode == 2 and b"not a regular file" in done.stderr


def test_directories_above_are_made_for_us_alone(state: State, tmp_path: Path) -> None:
    state.environment["TRAINMON_DIR"] = str(tmp_path / "a" / "b" / "state")
    assert state.call("run", "--no-tui", "--", "true", preexec_fn=lambda: os.umask(0)).returncode == 0
    for path in (tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "state"):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o700, path


def test_nothing_is_removed_behind_a_link_in_the_place_of_the_runs(state: State, tmp_path: Path) -> None:
    state.path.mkdir()
    (tmp_path / "elsewhere" / "victim").mkdir(parents=True, mode=0o700)
    (tmp_path / "elsewhere" / "victim" / "run.json").write_text("{}")
    (state.path / "runs").symlink_to(tmp_path / "elsewhere")
    for words in (("prune", "--keep", "0"), ("prune", "--keep", "0", "--dry-run")):
        done = state.call(*words)
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"nothing was removed" in done.stderr
    assert (tmp_path / "elsewhere" / "victim" / "run.json").exists()


def test_a_state_directory_may_be_a_link_of_ones_own(state: State, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir(mode=0o755)
    state.path.symlink_to(tmp_path / "disk")
    assert state.run(*training()).returncode == 0
    assert len(list((tmp_path / "disk" / "runs").iterdir())) == 1


def test_everything_that_is_written_is_private(state: State) -> None:
    """Whatever the umask: directories 0700, files 0600 or less, all of them ours."""
    look = "import os; run = os.environ['TRAINMON_RUN']; open_ = [n for n in os.listdir(run)"
    look += " if os.lstat(f'{run}/{n}').st_mode & 0o077]; assert not open_, open_"  # while it runs, too
    code = f"{look}; os.umask(0); os.execv({sys.executable!r}, {[sys.executable, *training(40)[1:]]!r})"
    assert (
        state.call("run", "--no-tui", "--", sys.executable, "-c", code, preexec_fn=lambda: os.umask(0)).returncode == 0
    )
    state.call("report")
    found = [state.path / "runs", *(state.path / "runs").rglob("*")]
    assert len(found) > 5
    for path in found:
        mode = stat.S_IMODE(path.lstat().st_mode)
        assert mode & 0o077 == 0, f"{path} has mode {mode:o}"
        assert path.lstat().st_uid == os.getuid()


def test_the_sockets_lie_in_a_private_directory(state: State) -> None:
    front = state.start(*training(2000))
    try:
        wait_for(lambda: list(state.only.glob("rank-*.jsonl")))
        found = rundir.socket_dir()
        assert stat.S_IMODE(found.lstat().st_mode) == 0o700 and found.lstat().st_uid == os.getuid()
    finally:
        send_group_signal(state.pid(state.only), signal.SIGKILL)
        front.wait()


def test_sockets_go_into_no_directory_that_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "SOCKETS", tmp_path)
    place = rundir.socket_dir()
    assert stat.S_IMODE(place.lstat().st_mode) == 0o700
    place.chmod(0o770)
    with pytest.raises(rundir.UnsafeDirectory, match="open to other users"):
        rundir.socket_dir()
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(rundir.UnsafeDirectory, match="not a directory"):
        rundir.socket_dir()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that other users can reach (the test's own is not)."""
    path = Path(tempfile.mkdtemp(dir="/tmp", prefix="trainmon-test-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@needs_root
def test_a_second_user_reads_and_writes_nothing(shared: Path) -> None:
    """With a living run: its files, its sockets, its process."""
    state = State(shared / "state")
    front = state.start(*training(10_000))
    run = state.only
    try:
        wait_for(lambda: list(run.glob("rank-*.jsonl")) and list(rundir.socket_dir().glob("*.sock")))
        assert as_nobody("ls", str(shared)).returncode == 0, "the way there is open"
        paths = [run, *run.iterdir(), rundir.socket_dir(), *rundir.socket_dir().glob("*.sock")]
        tried = as_nobody(sys.executable, "-I", "-c", INTRUDER, str(state.pid(run)), *map(str, paths))
        assert tried.stdout.decode().split() == ["done"], tried.stdout + tried.stderr
        assert psutil.pid_exists(state.pid(run))
    finally:
        with contextlib.suppress(ProcessLookupError):
            send_group_signal(state.pid(run), signal.SIGKILL)
        front.wait()


@needs_root
def test_another_user_s_run_cannot_have_a_process_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run directory says which process is its training. Root believes that only of processes of the same owner."""
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    run = rundir.new_run("evil")
    environment = {**os.environ, rundir.RUN_VARIABLE: str(run)}
    victim = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environment)
    try:
        rundir.write_json(run / rundir.IDENTITY, process_identity.identity_of(victim.pid))
        os.chown(run, NOBODY, -1)
        told: list[str] = []
        assert not stop_training(run, told.append, (0.1, 0.1, 0.1))
        assert "different users" in told[0] and victim.poll() is None
        os.chown(run, os.getuid(), -1)
        os.chown(run / rundir.IDENTITY, NOBODY, -1)  # a file of theirs, in a directory that everybody may write to
        assert not stop_training(run, told.append, (0.1, 0.1, 0.1))
        os.chown(run / rundir.IDENTITY, os.getuid(), -1)
        link = tmp_path / "link"
        link.symlink_to(run)
        os.lchown(link, NOBODY, -1)
        assert not stop_training(link, told.append, (0.1, 0.1, 0.1))
        assert victim.poll() is None
        assert stop_training(run, told.append, (5.0, 5.0, 5.0))
    finally:
        victim.kill()
        victim.wait()


@needs_root
def test_nothing_is_written_into_another_user_s_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner could put links in the way of what root writes there."""
    from monitor.running import recorder_process

    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    run = rundir.new_run("evil", pid=os.getpid(), start_ticks=process_identity.start_ticks(os.getpid()))
    os.chown(run, NOBODY, -1)
    before = sorted(run.iterdir())
    recorder_process.ensure_recorder(run)
    assert catalogue.state(run)[0] == "running"
    assert not any("monitor.running.recorder" in command for command in commands(psutil.Process().children()))
    assert sorted(run.iterdir()) == before


@needs_root
def test_a_report_leaves_nothing_in_another_user_s_run(state: State) -> None:
    assert state.run(*training()).returncode == 0
    run = state.only
    assert state.call("report", str(run)).returncode == 0 and (run / "figures.cache").exists()
    (run / "figures.cache").unlink()
    os.chown(run, NOBODY, -1)
    before = sorted(run.iterdir())
    for words in (("report", str(run)), ("attach", str(run), "--once")):
        assert state.call(*words).returncode == 0
    assert sorted(run.iterdir()) == before


@needs_root
def test_a_run_that_may_not_be_read_is_one_line(state: State, shared: Path) -> None:
    assert state.run(*training()).returncode == 0
    shutil.move(state.only, shared / "run")
    (shared / "run").chmod(0o700)
    os.seteuid(NOBODY)
    try:
        with pytest.raises(UserError, match="permission denied"):
            catalogue.resolve(str(shared / "run"))
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("name", ["run.json", "exit.json", "state.cache", "figures.cache"])
def test_a_file_without_an_end_in_a_run_takes_no_memory(state: State, name: str) -> None:
    state.run("true")
    path = state.only / name
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")
    for words in (("ls",), ("report", state.only.name)):
        limited = ["prlimit", f"--as={2 << 30}", "--", sys.executable, "-m", "monitor", *words]
        done = subprocess.run(limited, env=state.environment, cwd=ROOT, capture_output=True, timeout=60)
        assert done.returncode in (0, 2) and b"MemoryError" not in done.stderr, done.stderr


@needs_root
def test_root_in_the_home_of_a_user_leaves_the_directories_above_to_that_user(state: State, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    os.chown(home, NOBODY, NOBODY)
    del state.environment["TRAINMON_DIR"]
    state.environment.pop("XDG_STATE_HOME", None)
    state.environment["HOME"] = str(home)
    assert state.run("true").returncode == 0
    owners = [(home / path).stat().st_uid for path in (".local", ".local/state", ".local/state/trainmon")]
    assert owners == [NOBODY, NOBODY, 0]


@needs_root
def test_directories_above_that_root_makes_for_itself_are_roots(state: State, tmp_path: Path) -> None:
    state.environment["TRAINMON_DIR"] = str(tmp_path / "a" / "b" / "c")
    assert state.run("true").returncode == 0
    assert (tmp_path / "a").stat().st_uid == os.stat(tmp_path).st_uid == 0
