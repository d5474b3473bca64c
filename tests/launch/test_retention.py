"""Old runs go, oldest first; live and pinned ones stay."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monitor.errors import UserError
from monitor.runs import catalogue, retention
from monitor.runs.retention import Stored, surplus
from tests.signals import send_signal
from trainhooks.protocol import rundir

from .conftest import State, python, wait_for

STORED = st.lists(
    st.builds(Stored, st.just(Path("run")), st.floats(0, 1e9), st.integers(0, 1000), st.booleans()), max_size=30
)


@given(STORED, st.integers(0, 10), st.integers(0, 3000))
def test_what_is_left_fits_and_nothing_kept_is_touched(runs: list[Stored], number: int, size: int) -> None:
    gone = surplus(runs, number, size)
    assert not any(each.kept for each in gone)
    left = [each for each in runs if not any(each is one for one in gone)]
    loose = [each for each in left if not each.kept]
    assert len(left) <= max(number, sum(each.kept for each in left))
    assert not loose or sum(each.size for each in left) <= size


@given(STORED)
def test_the_oldest_go_first(runs: list[Stored]) -> None:
    gone = surplus(runs, 5, 5000)
    left = [each for each in runs if not each.kept and not any(each is one for one in gone)]
    assert not gone or not left or max(each.started for each in gone) <= min(each.started for each in left)


@pytest.mark.long
def test_pruning_leaves_the_live_and_the_pinned(state: State, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    for _ in range(3):
        state.run(*python("pass"))
    oldest, middle, newest = sorted(state.runs(), key=lambda path: path.stat().st_mtime)
    (oldest / retention.PIN_NAME).touch()
    living = state.start(*python("import time; time.sleep(60)"))
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state.path))
    gone = surplus(retention.stored(), keep_runs=0)
    assert [each.path for each in gone] == [middle, newest]
    assert all(retention.remove(each) for each in gone)
    assert oldest.exists() and not middle.exists() and not newest.exists()
    assert len(state.runs()) == 2
    living.terminate()
    living.wait()


# By itself


def old_run(state: Path, name: str, days: float, size: int = 10) -> Path:
    """A run that ended so long ago."""
    run = state / "runs" / name
    run.mkdir(parents=True, mode=0o700)
    (state / "runs").chmod(0o700)
    then = time.time() - days * 86_400
    rundir.write_json(run / rundir.IDENTITY, {"id": name, "name": name, "started": then})
    rundir.write_json(run / rundir.EXIT, {"exit_code": 0, "signal": None})
    (run / "rank-0-x.jsonl").write_bytes(b"x" * size)
    for path in run.iterdir():
        os.utime(path, (then, then))
    return run


def configure(state: Path, text: str) -> None:
    (state / "config.toml").write_text(f"[retention]\n{text}\n")


def test_old_runs_go_when_a_run_begins(state: State) -> None:
    """Those beyond the limit, but no pinned one, no link, and nothing that was touched within a day."""
    days = {"a": 2.0, "b": 3.0, "c": 9.0, "d": 0.9}
    old, older, pinned, young = (old_run(state.path, name, each) for name, each in days.items())
    (pinned / retention.PIN_NAME).touch()
    elsewhere = old_run(state.path / "elsewhere", "e", 9)
    (state.path / "runs" / "e").symlink_to(elsewhere)
    left_over = state.path / "runs" / f"{retention.REMOVED_PREFIX}z"
    left_over.mkdir()
    configure(state.path, "runs = 0")
    training = state.start(*python("import time; time.sleep(60)"))
    wait_for(lambda: not old.exists() and not older.exists() and not left_over.exists())
    assert pinned.exists() and young.exists() and (elsewhere / rundir.IDENTITY).exists()
    wait_for(lambda: len(state.runs()) == 4)  # these two, the link, the new run; the removed ones are renamed first
    training.terminate()
    training.wait()


def test_a_run_that_nobody_touched_for_a_day_but_lives_stays(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state.path))
    living = state.start(*python("import time; time.sleep(60)"))
    then = time.time() - 5 * 86_400
    gone = old_run(state.path, "a", 5)
    run = next(path for path in state.runs() if path != gone)
    (run / retention.PIN_NAME).unlink(missing_ok=True)
    configure(state.path, "runs = 0")
    monkeypatch.setattr(retention, "MIN_AGE", -1e9)  # so that only being alive keeps it
    assert then < time.time()
    retention.prune(lambda: False)
    assert run.exists() and not gone.exists()
    living.terminate()
    living.wait()


def test_size_counts_too_and_the_oldest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    runs = [old_run(tmp_path, f"r{days}", days, size=1 << 20) for days in (2, 3, 4, 5)]
    configure(tmp_path, f"gib = {2.5 / 1024}")
    retention.prune(lambda: False)
    assert [run.exists() for run in runs] == [True, True, False, False]


def test_what_is_larger_than_all_room_does_not_send_newer_ones_away(tmp_path: Path) -> None:
    sizes = {30: 1, 20: 1, 10: 50, 5: 1}  # days ago: size
    runs = [Stored(tmp_path / str(days), -days, size, False) for days, size in sizes.items()]
    assert [each.path.name for each in surplus(runs, 400, 20)] == ["30", "20", "10"], "oldest first, until all fits"


def test_a_training_that_outlived_the_launched_program_stays(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its run is no finished one, whatever the exit code says."""
    program = "import time, trainhooks as th\nfor _ in th.steps(range(100_000)): time.sleep(0.01)"
    words = " ".join(f"'{word}'" for word in python(program))
    assert state.run("sh", "-c", f"{words} >/dev/null 2>&1 & sleep 1").returncode == 0
    wait_for(lambda: list(state.only.glob("rank-*.lock")))
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state.path))
    run = state.only
    (training,) = catalogue.processes(run)
    try:
        assert state.call("prune", "--keep", "0").returncode == 0 and run.exists()
        assert json.loads(state.call("ls", "--json").stdout)[0]["state"] == "running"
        assert json.loads(state.call("report", "--json").stdout)["outcome"]["state"] == "running"
    finally:
        send_signal(training.pid, signal.SIGKILL)
    wait_for(lambda: not rundir.run_alive(run))
    assert state.call("prune", "--keep", "0").returncode == 0 and not run.exists()


def test_what_could_not_be_removed_is_told(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state.path))
    run = old_run(state.path, "a", 9)
    monkeypatch.setattr(retention.shutil, "rmtree", lambda path, ignore_errors: None)
    (stored,) = retention.stored()
    assert not retention.remove(stored) and not run.exists()


def test_it_can_be_turned_off_and_stops_when_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    run = old_run(tmp_path, "a", 9)
    configure(tmp_path, "runs = 0\nautomatic = false")
    retention.prune(lambda: False)
    assert run.exists()
    configure(tmp_path, "runs = 0")
    retention.prune(lambda: True)
    assert run.exists()


def test_sockets_of_the_dead_go_and_those_of_the_living_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rundir, "socket_dir", lambda: tmp_path)
    now = time.time()

    def bound(name: str, age: float) -> socket.socket:
        inbox = name.endswith(".inbox")
        made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if inbox else socket.SOCK_STREAM)
        made.bind(str(tmp_path / name))
        if not inbox:
            made.listen()
        os.utime(tmp_path / name, (now - age, now - age))
        return made

    bound("dead.sock", 90_000).close()
    bound("dead-today.sock", 60).close()
    bound("dead.inbox", 90_000).close()
    (tmp_path / "other.txt").touch()
    with bound("living.sock", 90_000), bound("living.inbox", 90_000):
        retention.sweep_sockets(now - retention.MIN_AGE)
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"dead-today.sock", "living.sock", "living.inbox", "other.txt"}


def test_the_defaults_are_those_that_are_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: State) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    assert retention.limits() == retention.Limits(400, 20 * 2**30, True)
    told = " ".join(state.call("prune", "--help").stdout.decode().split())
    assert "runs = 400, gib = 20, automatic = true" in told and "for a day" in told
    assert "limits: 400 runs, 20.0 GiB" in state.call("prune", "--dry-run").stdout.decode()


@pytest.mark.parametrize(
    "text", ["runs = -1", "runs = 1.5", "runs = true", "gib = -1", 'gib = "x"', "gib = nan", "automatic = 1"]
)
def test_limits_that_cannot_be_used_are_said_and_remove_nothing(state: State, monkeypatch, text: str) -> None:  # type: ignore[no-untyped-def]
    run = old_run(state.path, "a", 9)
    configure(state.path, text)
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state.path))
    with pytest.raises(UserError, match=f"config.toml: retention.{text.split()[0]} must be "):
        retention.prune(lambda: False)
    assert run.exists()


def test_a_configuration_that_cannot_be_used_hurts_no_run(state: State) -> None:
    kept = old_run(state.path, "a", 9)
    configure(state.path, "runs = 'many'")
    assert state.call("prune").returncode == 2
    done = state.run(*python("import time; time.sleep(1); print('done')"))
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert kept.exists()
    (new,) = (run for run in state.runs() if run != kept)
    assert "retention.runs" in (next(new.glob("node-*.jsonl"))).read_text()


def test_a_dry_run_removes_nothing(state: State) -> None:
    run = old_run(state.path, "a", 9)
    left_over = state.path / "runs" / f"{retention.REMOVED_PREFIX}z"
    left_over.mkdir()
    assert "would remove  a" in state.call("prune", "--dry-run", "--keep", "0").stdout.decode()
    assert run.exists() and left_over.exists()
    assert state.call("prune", "--keep", "0").returncode == 0
    assert not run.exists() and not left_over.exists()
