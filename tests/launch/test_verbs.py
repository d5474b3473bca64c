"""compare, export and prune, as a person types them."""

from __future__ import annotations

import csv
import io
import json

import pytest

from .conftest import State, python

pytestmark = pytest.mark.long

TRAINING = """
import sys, time
import trainhooks as th
th.init(name=sys.argv[1] if len(sys.argv) > 1 else "t", config={"workers": WORKERS})
for _ in th.steps(range(60)):
    with th.phase("forward"):
        time.sleep(SECONDS)
    th.count(tokens=10)
"""


def training(seconds: float, workers: int) -> list[str]:
    return python(TRAINING.replace("SECONDS", str(seconds)).replace("WORKERS", str(workers)))


@pytest.fixture
def two_runs(state: State) -> State:
    state.run(*training(0.002, 4), options=("--name", "before"))
    state.run(*training(0.05, 0), options=("--name", "after"))  # beyond what a busy machine makes of the first
    return state


def test_compare_says_what_made_it_slower_and_fails_for_ci(two_runs: State) -> None:
    done = two_runs.call("compare", "before", "after", "--fail-slower", "20")
    assert done.returncode == 1
    text = done.stdout.decode() or done.stderr.decode()
    assert "x slower per token (" in text and "; forward explains" in text and "config.workers: 4 → 0" in text
    assert two_runs.call("compare", "after", "before", "--fail-slower", "20").returncode == 0
    told = json.loads(two_runs.call("compare", "before", "after", "--json").stdout)
    (row,) = told["comparisons"]
    assert row["slower"] > 2 and row["more_than_noise"] is True
    assert {"name": "config.workers", "before": 4, "after": 0} in row["changed"]


def test_a_gate_that_cannot_tell_does_not_pass(state: State) -> None:
    state.run(*training(0.002, 4), options=("--name", "before"))
    state.run("true", options=("--name", "after"))
    done = state.call("compare", "before", "after", "--fail-slower", "20")
    assert done.returncode == 2 and done.stderr.decode().count("\n") == 1


@pytest.mark.parametrize(
    "words", [("run", "--price", "nan", "--", "true"), ("run", "--expect-tps", "inf", "--", "true")]
)
def test_an_amount_is_a_number(state: State, words: tuple[str, ...]) -> None:
    done = state.call(*words)
    assert done.returncode == 2 and "is not a number" in done.stderr.decode()


def test_journals_alone_are_a_run(state: State) -> None:
    """A program that prints its journal itself knows of no `run.json`."""
    run = state.path / "runs" / "mine"
    run.mkdir(parents=True, mode=0o700)
    run.parent.chmod(0o700)
    lines = [{"kind": "hello", "producer": "p", "seq": 0, "t": 1.0, "protocol": 1}]
    for at in range(1, 4):
        times = {"t": 1.0 + at, "start": float(at), "duration": 1.0}
        lines.append({"kind": "step", "producer": "p", "seq": at, "index": at, **times})
    (run / "rank-0-p.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    for name in ("mine", "last", str(run)):
        told = json.loads(state.call("report", name, "--json").stdout)
        assert (told["run"]["id"], told["run"]["started"], told["progress"]["steps_done"]) == ("mine", None, 3)


def test_compare_wants_two(two_runs: State) -> None:
    for runs in (["before"], ["before", "before"]):
        done = two_runs.call("compare", *runs)
        assert done.returncode == 2 and done.stderr.decode().count("\n") == 1


def test_export_to_a_pipe_and_to_a_file(two_runs: State) -> None:
    rows = list(csv.DictReader(io.StringIO(two_runs.call("export", "before", "--format", "csv").stdout.decode())))
    assert [row["step"] for row in rows] == [str(step) for step in range(1, 61)]
    target = two_runs.path / "trace.json"
    assert two_runs.call("export", "after", "--format", "chrome", "-o", str(target)).returncode == 0
    assert sum(row["ph"] == "X" for row in json.loads(target.read_text())["traceEvents"]) >= 120
    done = two_runs.call("export", "after", "--format", "csv", "-o", "/nowhere/at/all")
    assert done.returncode == 2 and done.stderr.decode().startswith("trainmon: /nowhere/at/all: ")


def test_prune_says_what_it_would_do_and_does_it(two_runs: State) -> None:
    asked = two_runs.call("prune", "--dry-run", "--keep", "1").stdout.decode()
    assert "would remove  before-" in asked and len(two_runs.runs()) == 2
    two_runs.call("prune", "--keep", "1")
    assert [path.name.split("-")[0] for path in two_runs.runs()] == ["after"]
