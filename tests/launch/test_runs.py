"""Which run is meant, and how it stands."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from monitor.errors import UserError
from monitor.running.run_name import run_name
from monitor.runs import catalogue
from monitor.runs.follow import load
from tests.model.conftest import Story
from trainhooks.protocol import process_identity, rundir

from .conftest import State, python


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
    with pytest.raises(UserError, match="matches 2 runs: rl-0102-bbbb, rl-0101-aaaa"):
        catalogue.resolve("rl-0")
    with pytest.raises(UserError, match="`trainmon ls` lists the runs"):
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
    made(
        "a",
        "a",
        1.0,
        pid=os.getpid(),
        start_ticks=process_identity.start_ticks(os.getpid()),
        boot_id=process_identity.boot_id(),
    )
    made("b", "b", 2.0, pid=os.getpid(), start_ticks=1, boot_id=process_identity.boot_id())
    assert [entry.id for entry in catalogue.live_runs()] == ["a"]


def test_a_run_that_another_machine_writes(here: Path) -> None:
    path = made("a", "a", 1.0, host="elsewhere")
    journal = path / "rank-0-x.jsonl"
    journal.write_text("{}\n")
    assert catalogue.state(path)[0] == "running"
    os.utime(journal, (1, 1))
    assert catalogue.state(path)[0] == "lost"


@pytest.mark.parametrize("together", [1, 50])
def test_progress_from_a_long_journal(here: Path, together: int) -> None:
    path = made("a", "a", 1.0)
    with open(path / "rank-0-x.jsonl", "w") as journal:
        journal.write(line("hello") + line("facts", total_steps=9000) + "not json\n")
        for first in range(1, 5001, together):
            starts = [i * 0.5 for i in range(first, first + together)]
            if together == 1:
                journal.write(line("step", index=first, start=starts[0], duration=0.4, metrics={"x": 1}))
            else:
                columns = {"start": starts, "duration": [0.4] * together, "metrics": {"x": [1] * together}}
                journal.write(line("steps", index=first, **columns))
        journal.write('{"kind":"step","index":50')
    entry = catalogue.entry(path)
    assert (entry.step, entry.steps_total) == (5000, 9000)
    assert entry.steps_per_second == pytest.approx(2.0, rel=0.01)


def test_speed_in_the_list_is_the_report_s(here: Path) -> None:
    """A loop that collects, then makes many short steps, ends with short ones."""
    path, loop = made("a", "a", 1.0), Story()
    for _ in range(6):
        loop.wait(90.0)
        for _ in range(500):
            loop.step(forward=0.009, backward=0.001)
    loop.bye().write(path)
    told = load(path, measured=False).report.throughput.steps_per_second
    assert told is not None and told < 7.0
    assert catalogue.entry(path).steps_per_second == pytest.approx(told, rel=0.01)


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
    assert run_name(command.split()) == expected


@pytest.mark.long
@pytest.mark.parametrize("name", ["run.json", "exit.json", "rank-1-q.jsonl", "rank-1-q.lock", "console.log"])
def test_a_pipe_in_a_file_s_place_holds_nobody_up(state: State, name: str) -> None:
    assert state.run(*python("import trainhooks as th\nfor _ in th.steps(range(3)): pass")).returncode == 0
    run = state.only
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    for words in (("ls",), ("report", str(run)), ("attach", str(run), "--once")):
        assert state.call(*words, timeout=60).returncode == 0, words


@pytest.mark.long
def test_a_run_on_another_machine_stands_the_same_in_all_places(state: State) -> None:
    """As far as its journals tell: it goes on while they grow, until the last word was a farewell."""
    assert state.run(*python("import trainhooks as th\nfor _ in th.steps(range(3)): pass")).returncode == 0
    run = state.only
    known = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**known, "host": "elsewhere", "boot_id": "another", "pid": 1}))
    (run / "exit.json").unlink()
    (node,) = run.glob("node-*.jsonl")
    node.write_text("".join(line for line in node.read_text().splitlines(True) if '"exit"' not in line))

    def states() -> set[str]:
        listed = json.loads(state.call("ls", "--json").stdout)[0]["state"]
        return {listed, json.loads(state.call("report", str(run), "--json").stdout)["outcome"]["state"]}

    assert states() == {"finished"}
    (journal,) = run.glob("rank-0-*.jsonl")
    journal.write_text("".join(line for line in journal.read_text().splitlines(True) if '"bye"' not in line))
    assert states() == {"running"}
    stopped = state.call("stop", str(run))
    assert stopped.returncode == 1 and b"another machine" in stopped.stderr
    for path in run.iterdir():
        os.utime(path, (1e9, 1e9))
    assert states() == {"lost"}


@pytest.mark.long
def test_an_exit_that_tells_nothing_is_none(state: State) -> None:
    assert state.run(*python("import trainhooks as th\nfor _ in th.steps(range(3)): pass")).returncode == 0
    run = state.only
    (node,) = run.glob("node-*.jsonl")
    node.write_text("".join(line for line in node.read_text().splitlines(True) if '"exit"' not in line))
    told = {"{}": "finished", '{"exit_code": 0, "signal": 0}': "finished", '{"signal": 9}': "killed"}
    for text, expected in told.items():
        (run / "exit.json").write_text(text)
        listed = json.loads(state.call("ls", "--json").stdout)[0]["state"]
        reported = json.loads(state.call("report", str(run), "--json").stdout)["outcome"]["state"]
        assert (listed, reported) == (expected, expected), text
