"""A run keeps within its budget on disk: what is freed, what stays, and what readers make of the rest."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.running import disk_budget, disk_space
from monitor.runs import compaction, retention, state_cache
from monitor.sources import journal_reader
from monitor.sources.recording import Recording
from monitor.sources.run_directory import RunDirectory
from monitor.sources.sparse_files import free_space, used_bytes
from monitor.sources.tail_file import TailedFile
from tests.launch.conftest import State, python, wait_for
from trainhooks.protocol import rundir

MIB = 1 << 20
STEPS = """
import time, trainhooks as th
for n in range({count}):
    if n % 500 == 0: time.sleep(0.06)  # a loop without work is faster than its events can be written
    with th.step():
        with th.phase("forward"): pass
        th.log(loss=1.0 / (1 + n), tokens=7)
"""
CHATTY = """
import os, sys
for number in range({lines}):
    print(f"{{number:09}} " + "x" * 4085)
sys.stdout.flush()
while not os.path.exists({go!r}): __import__("time").sleep(0.02)
print("end")
"""


@pytest.fixture(autouse=True)
def _frees_files(tmp_path: Path) -> None:
    path = tmp_path / "tried"
    path.write_bytes(b"x" * MIB)
    if not free_space(path, 0, MIB // 2):
        pytest.skip("LOUD: this file system cannot free a part of a file")


def report(state: State, run: Path) -> dict[str, Any]:
    known = json.loads(state.call("report", run.name, "--json").stdout)
    assert isinstance(known, dict)
    return known


def recorded(state: State, steps: int) -> Path:
    assert state.run(*python(STEPS.format(count=steps))).returncode == 0
    return state.only


@pytest.mark.long
def test_totals_and_curves_are_the_same_when_older_steps_are_freed(state: State) -> None:
    run = recorded(state, 30_000)
    before = report(state, run)
    (journal,) = run.glob("rank-*.jsonl")
    size = journal.stat().st_size
    assert compaction.compact(run, 2 * MIB) > size // 2
    assert used_bytes(journal) < 2 * MIB and journal.stat().st_size == size
    assert report(state, run) == before
    assert before["progress"]["steps_ok"] == 30_000


@pytest.mark.long
def test_without_the_cached_state_the_freed_steps_are_missing_and_it_is_said(state: State) -> None:
    run = recorded(state, 30_000)
    compaction.compact(run, 2 * MIB)
    (run / "state.cache").unlink()
    left = report(state, run)["progress"]["steps_ok"]
    assert 0 < left < 30_000
    text = state.call("report", run.name).stdout.decode()
    missing = int(text.split("missing or unreadable in the journals: ")[1].split()[0].replace(",", ""))
    assert abs(left + missing - 30_000) < 1000  # pulses and the like are lines, too
    assert not (run / "state.cache").exists()  # a state without these steps is not kept


@pytest.mark.long
def test_what_is_left_of_a_journal_is_exported_and_replayed(state: State) -> None:
    run = recorded(state, 30_000)
    compaction.compact(run, 2 * MIB)
    rows = state.call("export", run.name, "--format", "csv").stdout.splitlines()
    assert rows[-1].split(b",")[0:1] and 1000 < len(rows) < 29_000
    recording = Recording(rundir.journals(run))
    assert len(recording.steps) == len(rows) - 1
    assert recording.missing >= 30_000 - len(recording.steps)


@pytest.mark.long
def test_a_reader_that_was_behind_goes_on_after_the_freed_part(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_reader, "JOURNAL_CHUNK", 64 * 1024)  # it has read a small part
    run = recorded(state, 30_000)
    behind = RunDirectory(run)
    behind.find_journals()
    some = behind.poll()
    assert some and behind.share_read() is not None
    compaction.compact(run, MIB)
    rest = []
    while more := behind.poll():
        rest += more
    steps = [event.index for event in [*some, *rest] if hasattr(event, "index")]
    assert steps == sorted(steps) and steps[-1] == 30_000
    assert behind.has_gap and behind.missing >= 30_000 - len(steps) > 0
    behind.close()


@pytest.mark.long
def test_a_second_compaction_frees_more_and_keeps_the_totals(state: State) -> None:
    run = recorded(state, 30_000)
    before = report(state, run)
    compaction.compact(run, 4 * MIB)
    assert compaction.compact(run, 2 * MIB) > 0
    assert compaction.compact(run, 2 * MIB) == 0
    assert report(state, run) == before


@pytest.mark.long
def test_output_is_freed_while_the_program_prints_and_passes_on_whole(state: State, tmp_path: Path) -> None:
    (state.path).mkdir()
    (state.path / "config.toml").write_text("[retention]\nrun_gib = 0.0625\n")
    go, lines = tmp_path / "go", 40_000
    with open(tmp_path / "passed", "wb") as passed:
        front = state.start(*python(CHATTY.format(lines=lines, go=str(go))), stdout=passed)
        run = state.only
        size = lines * 4096
        wait_for(lambda: (tmp_path / "passed").stat().st_size == size)
        console, stdout = run / rundir.CONSOLE, run / "stdout.log"
        wait_for(lambda: used_bytes(stdout) < disk_budget.STREAM_BYTES + 4 * disk_space.PREALLOCATED_BYTES)
        wait_for(lambda: used_bytes(console) < 16 * MIB + 4 * disk_space.PREALLOCATED_BYTES)
        go.touch()
        assert front.wait(60) == 0
    expected = b"".join(b"%09d " % number + b"x" * 4085 + b"\n" for number in range(lines)) + b"end\n"
    assert (tmp_path / "passed").read_bytes() == expected
    kept = console.read_bytes()
    assert len(kept) == len(expected) and kept.startswith(b"000000000 x") and kept.endswith(b"end\n")
    notes = b"".join(path.read_bytes() for path in run.glob("node-*.jsonl"))
    assert notes.count(b'"code":"disk-budget"') == 1


@pytest.fixture
def small_disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of 640 MiB, or of another size."""
    place, size = tmp_path / "disk", getattr(request, "param", "640m")
    place.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], capture_output=True
    ).returncode:
        pytest.skip("LOUD: no tmpfs can be mounted here (not root?)")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def passed_on(state: State, place: Path, program: str) -> subprocess.CompletedProcess[bytes]:
    """Run a program that prints 240,000 lines, with its output in the file `passed`."""
    (place / "go").touch()
    with open(place / "passed", "wb") as passed:
        command = python(program.format(lines=240_000, go=str(place / "go")))
        return state.run(*command, capture_output=False, stdout=passed, stderr=subprocess.PIPE)


@pytest.mark.long
def test_a_program_that_prints_more_than_the_disk_holds_ends_well(small_disk: Path, tmp_path: Path) -> None:
    state = State(small_disk / "state")
    slow = CHATTY.replace('"x" * 4085)', '"x" * 4085); number % 64 or __import__("time").sleep(0.002)')
    ended = passed_on(state, tmp_path, slow)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "passed").stat().st_size == 240_000 * 4096 + 4


def test_prints_that_are_faster_than_their_reader_do_not_fail_on_a_small_disk(small_disk: Path, tmp_path: Path) -> None:
    """What no longer had a place is said to be missing."""
    state = State(small_disk / "state")
    ended = passed_on(state, tmp_path, CHATTY)
    assert ended.returncode == 0, ended.stderr
    whole = (tmp_path / "passed").stat().st_size == 240_000 * 4096 + 4
    assert whole != (b"of the output were not passed on: the disk was full" in ended.stderr)


@pytest.mark.parametrize("small_disk", ["40m"], indirect=True)
def test_on_a_disk_that_is_too_small_for_output_it_is_passed_on_unrecorded(small_disk: Path, tmp_path: Path) -> None:
    state = State(small_disk / "state")
    (tmp_path / "go").touch()
    ended = state.run(*python(CHATTY.format(lines=20_000, go=str(tmp_path / "go"))))
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout) == 20_000 * 4096 + 4
    assert ended.stderr.startswith(b"trainmon: the output is not recorded: less than 512 MiB are free on its disk\n")


def test_output_is_passed_on_unrecorded_where_files_are_limited(state: State) -> None:
    limited = ["sh", "-c", 'ulimit -f 100; exec "$@"', "sh"]
    # "end" is not printed before trainmon, another process, has had the time to speak.
    loud = python("import sys, time; print('x' * 1_000_000); time.sleep(2); print('end', file=sys.stderr)")
    words = [*limited, sys.executable, "-m", "monitor", "run", "--no-tui", "--", *loud]
    ended = subprocess.run(words, env=state.environment, capture_output=True, timeout=60)
    assert ended.returncode == 0
    assert ended.stdout == b"x" * 1_000_000 + b"\n"
    said = ended.stderr.decode().splitlines()
    assert said[0] == "trainmon: the output is not recorded: the size of files is limited (ulimit -f)"
    assert said[1] == "end"
    assert report(state, state.only)["outcome"]["state"] == "finished"


def test_a_program_that_a_limit_of_files_would_end_is_not_ended_by_its_journal(state: State) -> None:
    ends = """
import resource, signal, time, trainhooks as th
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
th.note("begun")
time.sleep(0.3)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for n in range(2000):
    with th.step(): pass
time.sleep(0.3)
"""
    assert state.run(*python(ends)).returncode == 0
    (journal,) = state.only.glob("rank-*.jsonl")
    assert journal.stat().st_size <= 20_000


def test_the_state_is_cached_while_the_run_lives(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a viewer that comes late does not read from the start."""
    run = recorded(state, 30_000)
    monkeypatch.setattr(disk_budget, "RENEWED_BYTES", MIB)
    monkeypatch.setattr(disk_budget, "MAX_CHECK_SECONDS", 0.0)
    budget = disk_budget.DiskBudget(run, lambda _: None)

    def is_cached() -> bool:
        budget.step()
        return (run / "state.cache").exists()

    wait_for(is_cached)
    source = RunDirectory(run)
    source.find_journals()
    assert state_cache.recall_state(source) is not None
    assert (source.share_read() or 0.0) > 0.99
    source.close()


def test_a_freed_part_is_skipped_by_who_follows_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"a" * MIB + b"b" * MIB)
    tail = TailedFile(path)
    assert tail.read(4096)[0] == b"a" * 4096
    assert free_space(path, 0, MIB)
    assert tail.read(10)[0] == b"b" * 10
    fresh = TailedFile(path)
    assert fresh.read(10)[0] == b"b" * 10
    tail.close()
    fresh.close()


@pytest.mark.parametrize("value", ["0.01", '"big"', "true", "-1"])
def test_a_budget_that_is_too_small_or_no_size_is_refused(state: State, value: str) -> None:
    state.path.mkdir()
    (state.path / "config.toml").write_text(f"[retention]\nrun_gib = {value}\n")
    ended = state.call("prune", "--dry-run")
    assert ended.returncode == 2
    assert b"retention.run_gib must be a size in GiB, 0.0625 or more" in ended.stderr


@pytest.mark.long
def test_the_size_of_a_run_is_what_it_takes_on_disk(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(state.path))
    run = recorded(state, 60_000)  # a saved state takes its part, too
    (before,) = (row.size for row in retention.stored())
    freed = compaction.compact(run, 2 * MIB)
    (after,) = (row.size for row in retention.stored())
    assert before - after > freed // 2
