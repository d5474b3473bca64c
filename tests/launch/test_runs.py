"""Which run is meant, and how it stands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from monitor.errors import UserError
from monitor.running.command import name
from monitor.runs import catalogue
from trainhooks import rundir


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(rundir.STATE_VARIABLE, str(tmp_path))
    return tmp_path


def made(run_id: str, called: str, started: float, **more: object) -> Path:
    path = rundir.runs_dir() / run_id
    path.mkdir(parents=True)
    rundir.write_json(path / "run.json", {"id": run_id, "name": called, "started": started, **more})
    return path


def line(kind: str, **fields: object) -> str:
    return json.dumps({"kind": kind, "producer": "p", "seq": 1, "t": 1.0, **fields}) + "\n"


def test_none_yet(here: Path) -> None:
    assert catalogue.list_runs() == []
    with pytest.raises(UserError, match="no runs yet"):
        catalogue.resolve(None)


def test_what_a_person_may_say(here: Path) -> None:
    old = made("rl-0101-aaaa", "rl", 1.0)
    new = made("rl-0102-bbbb", "rl", 2.0)
    other = made("sweep-0103-cccc", "lr sweep", 3.0)
    assert catalogue.resolve(None) == catalogue.resolve("last") == other
    assert catalogue.resolve("rl-0101-aaaa") == old
    assert catalogue.resolve("rl") == new, "the newest of that name"
    assert catalogue.resolve("lr sweep") == other
    assert catalogue.resolve("sw") == other
    assert catalogue.resolve(str(old)) == old
    assert [entry.id for entry in catalogue.list_runs()] == [other.name, new.name, old.name]
    with pytest.raises(UserError, match="may be any of 2 runs: rl-0102-bbbb, rl-0101-aaaa"):
        catalogue.resolve("rl-0")
    with pytest.raises(UserError, match="`trainmon ls` lists them"):
        catalogue.resolve("nothing")


@pytest.mark.parametrize(
    ("ended", "farewell", "expected"),
    [
        ({"exit_code": 0, "signal": None}, None, "finished"),
        ({"exit_code": 3, "signal": None}, None, "failed"),
        ({"exit_code": None, "signal": 9}, None, "killed"),
        (None, None, "lost"),
        (None, {"kind": "bye"}, "finished"),
        (None, {"kind": "bye", "error": "ValueError"}, "failed"),
        (None, {"kind": "step"}, "lost"),
    ],
)
def test_states(here: Path, ended: object, farewell: dict[str, str] | None, expected: str) -> None:
    path = made("a", "a", 1.0)
    if ended:
        (path / "exit.json").write_text(json.dumps(ended))
    if farewell:
        (path / "rank-0-x.jsonl").write_text(line("hello") + line(**farewell))
    assert catalogue.list_runs()[0].state == expected


def test_a_living_process_is_a_running_run(here: Path) -> None:
    made("a", "a", 1.0, pid=os.getpid(), start_ticks=rundir.start_ticks(os.getpid()), boot_id=rundir.boot_id())
    made("b", "b", 2.0, pid=os.getpid(), start_ticks=1, boot_id=rundir.boot_id())
    assert [entry.id for entry in catalogue.live_runs()] == ["a"]


def test_a_run_that_another_machine_writes(here: Path) -> None:
    path = made("a", "a", 1.0, host="elsewhere")
    journal = path / "rank-0-x.jsonl"
    journal.write_text("{}\n")
    assert catalogue.state(path)[0] == "running"
    os.utime(journal, (1, 1))
    assert catalogue.state(path)[0] == "lost"


def test_progress_from_a_long_journal(here: Path) -> None:
    path = made("a", "a", 1.0)
    with open(path / "rank-0-x.jsonl", "w") as journal:
        journal.write(line("hello") + line("facts", total_steps=9000) + "not json\n")
        for i in range(1, 5001):
            journal.write(line("step", index=i, start=i * 0.5, duration=0.4, metrics={"x": 1}))
        journal.write('{"kind":"step","index":50')
    entry = catalogue.entry(path)
    assert (entry.step, entry.steps_total) == (5000, 9000)
    assert entry.steps_per_second == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python demo/rl_code.py --x y.py", "rl_code"),
        ("/usr/bin/python3.11 -u -X dev train.py", "train"),
        ("python -m pkg.train --config x.py", "pkg.train"),
        ("python -m torch.distributed.run --nproc 2 train.py", "train"),
        ("python -c pass", "python"),
        ("torchrun --nproc-per-node 8 scripts/fit.py", "fit"),
        ("bash go.sh", "go"),
        ("./build/transformer --train", "transformer"),
    ],
)
def test_names(command: str, expected: str) -> None:
    assert name(command.split()) == expected
