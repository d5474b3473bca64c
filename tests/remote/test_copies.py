"""What is kept of other hosts' runs, and which of them are one job."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import pytest

from monitor.errors import UserError
from monitor.remote.clocks import Clock, Exchange
from monitor.remote.copies import FAR, KEPT_DAYS, PARTS, Far, copy_path, far_of, parts_of, remove_old, write_far
from monitor.remote.joined import join, refresh
from monitor.runs import catalogue, jobs
from monitor.sources.host_clocks import move, shifts
from tests.launch.conftest import State
from tests.remote import hostile
from tests.remote.conftest import trainings
from trainhooks.protocol import rundir
from trainhooks.protocol.events import KINDS, Steps

MOMENTS = {"t", "start", "begin", "process_started"}  # fields that hold a reading of the host's clock


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path / "near"))


def _part(
    host: str, rank: int, began: float, ended: float | None, job: str = "job7", clock: float | None = 0.0
) -> Path:
    """Return the copy of a part of a job that torchrun has named.

    Args:
        clock: seconds that the host's clock is ahead; None: not known yet.
    """
    copy = copy_path(host, "train-1")
    rundir.write_json(copy / rundir.IDENTITY, {"started": began, "boot_id": host})
    if ended is not None:
        rundir.write_json(copy / rundir.EXIT, {"exit_code": 0, "ended": ended})
    environment = {"TORCHELASTIC_RUN_ID": job, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"}
    hello = {"kind": "hello", "producer": f"p{rank}", "seq": 0, "t": 1.0, "rank": rank, "local_rank": 0}
    line = json.dumps({**hello, "facts": {"environment": environment}})
    (copy / f"rank-{rank}-p{rank}.jsonl").write_text(line + "\n")
    far = Far(host, "train-1", alive=ended is None, ranks=ended is None, heard=time.time(), clock=clock)
    write_far(copy, far)
    return copy


def test_a_name_that_was_used_before_is_another_job() -> None:
    now = time.time()
    first, second = _part("a", 0, now - 1000, now - 600), _part("b", 1, now - 300, None)
    with pytest.raises(UserError, match="one ended before the other began"):
        join([first, second])


def test_parts_that_lived_together_are_one_job() -> None:
    now = time.time()
    run = join([_part("b", 1, now - 300, None), _part("a", 0, now - 299, None)])
    assert {journal.name for journal in rundir.journals(run)} == {"rank-0-p0.jsonl", "rank-1-p1.jsonl"}
    far = far_of(run)
    assert far is not None and far.host == "a" and far.alive


def test_a_part_is_read_once_its_clock_is_known() -> None:
    now = time.time()
    part = _part("b", 1, now - 300, None, clock=None)
    run = join([_part("a", 0, now - 299, None), part])
    assert {journal.name for journal in rundir.journals(run)} == {"rank-0-p0.jsonl"}
    write_far(part, Far("b", "train-1", alive=True, heard=now, clock=5000.0))
    until = time.monotonic() + 30
    while len(rundir.journals(run)) < 2 and time.monotonic() < until:
        refresh(run)  # a look at the parts is kept a while
        time.sleep(0.05)
    assert {journal.name for journal in rundir.journals(run)} == {"rank-0-p0.jsonl", "rank-1-p1.jsonl"}
    assert shifts(run)["rank-1-p1.jsonl"] == -5000.0


def test_a_rank_that_lives_twice_is_of_two_jobs() -> None:
    now = time.time()
    first, second = _part("a", 0, now - 300, None), _part("b", 0, now - 299, None)
    with pytest.raises(UserError, match="a:train-1 and b:train-1 are two jobs: both have a living rank 0"):
        join([first, second])
    hello = {"kind": "hello", "producer": "later", "seq": 0, "t": 9.0, "rank": 1, "local_rank": 0}
    (first / "rank-1-later.jsonl").write_text(json.dumps(hello) + "\n")  # torchrun began anew and gave it another rank
    join([first, second])


@pytest.mark.parametrize("job", ["none", ""])
def test_a_launcher_that_gives_no_name_joins_nothing(job: str) -> None:
    now = time.time()
    with pytest.raises(UserError, match="gives the job no name over hosts"):
        join([_part("a", 0, now, None, job), _part("b", 1, now, None, job)])


def test_old_copies_go_and_jobs_with_them() -> None:
    now = time.time()
    old, new = _part("a", 0, now - 9, None), _part("b", 1, now - 9, None)
    run = join([old, new])
    remove_old()
    assert old.is_dir() and new.is_dir() and (run / PARTS).is_file()
    before = now - (KEPT_DAYS + 1) * 24 * 3600
    os.utime(old / FAR, (before, before))
    remove_old()
    assert not old.exists() and new.is_dir() and not run.exists()


def test_every_time_of_every_kind_is_moved() -> None:
    """A new field that holds a reading of a clock has to be known here, or ranks of two hosts come apart."""
    for kind in KINDS.values():
        event = kind(producer="p", seq=0, t=1.0)
        names = {each.name for each in dataclasses.fields(event)}
        for name in MOMENTS & names:
            setattr(event, name, [1.0, 2.0] if isinstance(event, Steps) and name == "start" else 1.0)
        move([event], 10.0)
        for name in MOMENTS & names:
            moved = getattr(event, name)
            assert moved == ([11.0, 12.0] if isinstance(moved, list) else 11.0), (kind, name)


def test_the_shortest_way_tells_the_clock() -> None:
    clock = Clock()
    clock.add(Exchange(10.0, 10.4, 110.35))
    clock.add(Exchange(20.0, 20.002, 120.001))
    clock.add(Exchange(30.0, 30.3, 130.05))
    best = clock.best(30.3)
    assert best is not None and best.offset == pytest.approx(100.0) and best.uncertainty(20.002) == pytest.approx(0.001)


def test_a_clock_that_jumped_is_told_anew() -> None:
    clock = Clock()
    clock.add(Exchange(10.0, 10.002, 110.001))
    clock.add(Exchange(20.0, 20.4, 90.2))
    best = clock.best(20.4)
    assert best is not None and best.offset == pytest.approx(70.0)


def test_a_host_that_tells_nothing_ends_the_command(near: State) -> None:
    done = near.call("attach", "--via", f"{sys.executable} {hostile.__file__} garbage", "box:r")
    assert done.returncode == 2 and done.stderr.startswith(b"trainmon: box: ") and done.stderr.count(b"\n") == 1


def _task(
    rank: int, began: float, clock: float, ended: float | None = None, words: str = "train", **environment: str
) -> Path:
    """Return the run that a task of Slurm has left on a disk that hosts share."""
    own = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": str(rank), "SLURM_CLUSTER_NAME": "c"}
    known = {"command": words.split(), "started": began, "started_monotonic": clock, "boot_id": f"of host {rank}"}
    run = rundir.new_run("train", **known, environment={**own, **environment})
    hello = {"kind": "hello", "producer": run.name, "seq": 0, "t": clock, "rank": rank}
    (run / f"rank-{rank}-{run.name}.jsonl").write_text(json.dumps(hello) + "\n")
    if ended is not None:
        rundir.write_json(run / rundir.EXIT, {"exit_code": 0, "ended": ended})
    return run


def test_the_clocks_of_hosts_that_share_a_disk_are_compared_by_their_walls() -> None:
    now = time.time()
    _, other = _task(0, now - 60, 1000.0), _task(1, now - 58, 6002.0)
    (run,) = catalogue.runs()
    moved = shifts(run)
    assert moved[f"rank-1-{other.name}.jsonl"] == pytest.approx(-5000.0, abs=0.01)
    assert sorted(moved.values())[-1] == 0.0
    before = dict(moved)
    refresh(run)
    assert shifts(run) == before  # a little jitter moves nothing


def test_what_slurm_does_not_call_one_job_is_not_one() -> None:
    now = time.time()
    _task(0, now - 9000, 1.0, now - 8000)
    _task(0, now - 60, 1.0, SLURM_JOB_ID="8")
    _task(0, now - 60, 1.0, SLURM_STEP_ID="1")
    _task(1, now - 60, 1.0)  # of a job whose number was used before
    _task(0, now - 60, 1.0, SLURM_CLUSTER_NAME="d")
    assert len(catalogue.runs()) == 5
    _task(1, now - 10, 1.0, SLURM_RESTART_COUNT="1")
    assert len(catalogue.runs()) == 5  # the last one's, started again


def test_programs_after_each_other_in_a_step_are_runs_of_their_own(near: State) -> None:
    near.environment.update(SLURM_JOB_ID="7", SLURM_STEP_ID="0", SLURM_PROCID="0", SLURM_NTASKS="1")
    near.run(*trainings(20, 0.005), options=("--name", "a"))
    near.run(sys.executable, "-c", "raise SystemExit(3)", options=("--name", "b"))
    near.run(*trainings(30, 0.005), options=("--name", "a"))
    found = [(row["name"], row["state"], row["step"]) for row in json.loads(near.call("ls", "--json").stdout)]
    assert found == [("a", "finished", 30), ("b", "failed", None), ("a", "finished", 20)]


def test_each_program_of_a_script_is_joined_over_hosts_and_goes_on_after_a_restart() -> None:
    """The second one was running as the job was stopped."""
    now = time.time()
    first = [_task(rank, now - 100 + rank, 1.0, now - 95, "train 1") for rank in (0, 1)]
    second = [_task(rank, now - 94 + rank, 1.0, now - 50, "train 2") for rank in (1, 0)]
    again = [_task(rank, now - 40, 1.0, now - 30, "train 2 --resume", SLURM_RESTART_COUNT="1") for rank in (0, 1)]
    third = [_task(rank, now - 25, 1.0, None, "train 3", SLURM_RESTART_COUNT="1") for rank in (0, 1)]
    runs = catalogue.runs()
    assert [set(parts_of(run)) for run in runs] == [set(third), {*second, *again}, set(first)]
    assert [jobs.whole(parts[0]) for parts in (third, again, first)] == runs
