"""Run directories, private places, locks and liveness."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import platformdirs
import pytest

from tests.signals import send_signal
from trainhooks.protocol import process_identity, rundir

from .conftest import Trainings, wait_for

# Private directories


def test_a_private_directory_is_made_and_accepted_again(tmp_path: Path) -> None:
    made = rundir.private_directory(tmp_path / "p")
    assert made.stat().st_mode & 0o777 == 0o700
    assert rundir.private_directory(made) == made


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(rundir.UnsafeDirectory, match="not a directory"):
        rundir.private_directory(tmp_path / "link")


def test_a_link_to_nowhere_and_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch(0o700)
    for name in ("dangling", "file"):
        with pytest.raises(rundir.UnsafeDirectory):
            rundir.private_directory(tmp_path / name)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("mode", [0o777, 0o755, 0o750, 0o701, 0o1777])
def test_a_directory_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p").chmod(mode)
    with pytest.raises(rundir.UnsafeDirectory, match=f"chmod 700 {tmp_path / 'p'}"):
        rundir.private_directory(tmp_path / "p")


def test_a_foreign_directory_is_refused(tmp_path: Path) -> None:
    foreign = Path("/root")
    if os.getuid() == 0:
        foreign = tmp_path / "foreign"
        foreign.mkdir(mode=0o700)
        os.chown(foreign, 65534, -1)
    elif not foreign.is_dir():
        pytest.skip("LOUD: no directory of another user is at hand")
    with pytest.raises(rundir.UnsafeDirectory, match="another user"):
        rundir.private_directory(foreign)


def test_socket_paths_fit_the_system_s_limit(tmp_path: Path) -> None:
    for place in (rundir.socket_path(tmp_path), rundir.inbox_path(tmp_path)):
        assert len(bytes(place)) + 2 * (16 - 4) < 107  # device and inode may have sixteen digits each


# The state directory


@pytest.mark.parametrize("base", [None, "", "   ", "/somewhere/else"])
def test_the_state_directory_is_the_platform_s(monkeypatch: pytest.MonkeyPatch, base: str | None) -> None:
    monkeypatch.delenv(rundir.STATE_VARIABLE, raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    if base is not None:
        monkeypatch.setenv("XDG_STATE_HOME", base)
    assert rundir.state_dir() == Path(platformdirs.user_state_dir("trainmon"))


def test_the_state_directory_of_one_s_choice(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for given, meant in ((str(tmp_path), tmp_path), ("here", tmp_path / "here"), ("~/there", tmp_path / "home/there")):
        monkeypatch.setenv(rundir.STATE_VARIABLE, given)
        assert rundir.state_dir() == meant


# Runs


def test_runs_made_in_one_second_are_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    made = [rundir.new_run("naïve / name") for _ in range(20)]
    assert len(set(made)) == 20
    for path in made:
        assert path.stat().st_mode & 0o777 == 0o700
        assert re.fullmatch(r"na-ve-name-\d{4}-\d{6}-[0-9a-f]{4}", path.name)
        identity = rundir.read_json(path / rundir.IDENTITY)
        assert identity is not None and identity["id"] == path.name and identity["name"] == "naïve / name"


@pytest.mark.parametrize("text", ["", "...", "/", "\x00", "-", "日本"])
def test_a_slug_is_never_empty_nor_a_path(text: str) -> None:
    assert rundir.slug(text) == "run"


def test_a_rename_yields_to_the_name_given_by_a_person(tmp_path: Path) -> None:
    rundir.write_json(tmp_path / rundir.IDENTITY, {"name": "old"})
    rundir.rename(tmp_path, "new")
    assert rundir.read_json(tmp_path / rundir.IDENTITY) == {"name": "new"}
    rundir.write_json(tmp_path / rundir.IDENTITY, {"name": "mine", "named": True})
    rundir.rename(tmp_path, "new")
    assert rundir.read_json(tmp_path / rundir.IDENTITY) == {"name": "mine", "named": True}
    assert os.listdir(tmp_path) == [rundir.IDENTITY]


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a": 1}x'])
def test_a_file_that_holds_no_mapping_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "f").write_bytes(content)
    assert rundir.read_json(tmp_path / "f") is None
    assert rundir.read_json(tmp_path) is None


# Locks and liveness

HOLDS = """
import os, sys, time
from pathlib import Path
from trainhooks.protocol import rundir
lock = rundir.Lock.acquire(Path(sys.argv[1]))
assert lock is not None
if sys.argv[2] == 'forks' and not (worker := os.fork()):
    time.sleep(60)
print(os.getpid(), worker if sys.argv[2] == 'forks' else 0, flush=True)
time.sleep(60)
"""


def test_a_lock_lives_as_long_as_its_process(tmp_path: Path) -> None:
    """Also where a forked worker, with the file still open, lives on."""
    path = tmp_path / "rank-0-x.lock"
    for how in ("alone", "forks"):
        holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(path), how], stdout=subprocess.PIPE, text=True)
        assert holder.stdout is not None
        _, worker = map(int, holder.stdout.readline().split())
        try:
            assert rundir.lock_held(path)
            assert rundir.run_alive(tmp_path)
            assert rundir.Lock.acquire(path) is None
            holder.kill()
            holder.wait()
            assert not rundir.lock_held(path)
            assert not rundir.run_alive(tmp_path)
            if worker:
                assert process_identity.process_alive(worker, process_identity.start_ticks(worker), None)
        finally:
            holder.kill()
            if worker:
                send_signal(worker, 9)
            holder.stdout.close()
    mine = rundir.Lock.acquire(path)
    assert mine is not None
    mine.release()


def test_a_training_is_alive_while_it_lives(train: Trainings) -> None:
    process = train.start("with th.step(): pass\nsleep(60)")
    wait_for(lambda: list(train.state.glob("runs/*/rank-*.lock")))
    (run,) = train.state.glob("runs/*")
    wait_for(lambda: rundir.run_alive(run))
    process.kill()
    process.wait()
    assert not rundir.run_alive(run)


def test_exactly_this_process_is_alive() -> None:
    me, ticks, boot = os.getpid(), process_identity.start_ticks(os.getpid()), process_identity.boot_id()
    assert process_identity.process_alive(me, ticks, boot)
    assert not process_identity.process_alive(me, (ticks or 0) + 1, boot), "the pid was used again"
    assert not process_identity.process_alive(me, ticks, "another-boot")
    for odd in (None, 0, -1, "1", 2**31 - 1):
        assert not process_identity.process_alive(odd, None, None)


def test_a_zombie_is_dead() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    ticks = process_identity.start_ticks(child.pid)
    wait_for(lambda: not process_identity.process_alive(child.pid, ticks, process_identity.boot_id()))
    child.wait()


def test_the_start_of_a_process_is_on_the_monotonic_clock() -> None:
    before = time.monotonic()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    after = time.monotonic()
    started = process_identity.started_monotonic(child.pid)
    child.communicate(b"\n")
    assert started is not None
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert before - 2 * tick <= started <= after + 2 * tick
