"""`trainmon lines`, `trainmon import`, and programs in any language under `trainmon run`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.sources.decode import decode
from tests.console.conftest import FIXTURES
from tests.launch.conftest import ROOT, State, wait_for
from tests.launch.conftest import state as state
from trainhooks import rundir
from trainhooks.events import Event

STEPS = """
i=1; while [ $i -le 8 ]; do sleep 0.3
  if [ $i = 3 ]; then echo "⚠ Skipping generator step 3/8: empty code" >&2
  else echo "Step $i/8 - Generator Reward: 0.$i (gen_passed=2/5)"; fi
  i=$((i+1)); done
"""


def report(state: State, *words: str) -> dict[str, Any]:
    done = state.call("report", *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def events(run: Path) -> list[dict[str, Any]]:
    (journal,) = run.glob("console-*.jsonl")
    return [json.loads(line) for line in journal.read_bytes().splitlines()]


# Under trainmon run


def test_one_single_line_does_not_tell_where_the_time_went(state: State) -> None:
    done = state.run("sh", "-c", "sleep 0.5; echo 'step 7/10 loss 2.0'; sleep 0.5")
    assert b"not known" in done.stderr and b"start-up" not in done.stderr
    told = report(state)
    assert told["progress"]["steps_done"] == 7
    assert told["wall"]["startup"] is None and told["wall"]["total"] > 1.0
    assert told["startup"] == [] and told["throughput"]["steps_per_second"] is None
    text = state.call("report").stdout
    assert b"start-up" not in text and b"does not tell when a step began" in text


def test_figures_without_a_step_do_not_tell_where_the_time_went(state: State) -> None:
    state.run("sh", "-c", "sleep 0.3; echo 'Epoch 1 loss: 2.5'; sleep 0.3")
    told = report(state)
    assert told["metrics"]["loss"]["last"] == 2.5
    assert told["wall"]["startup"] is None and told["startup"] == []
    assert b"start-up" not in state.call("report").stdout


def test_a_shell_script_that_prints_steps(state: State) -> None:
    done = state.run("sh", "-c", STEPS)
    assert done.returncode == 0
    assert done.stdout.count(b"Reward") == 7
    told = report(state)
    assert told["run"]["source"] == "console"
    progress = told["progress"]
    assert (progress["steps_done"], progress["steps_total"], progress["steps_ok"]) == (8, 8, 7)
    assert progress["skipped"] == {"empty code": 1}
    assert told["metrics"]["generator/reward"]["last"] == 0.8
    assert told["throughput"]["steps_per_second"] > 0
    wall = told["wall"]
    parts = wall["startup"] + wall["steps"] + sum(wall["spans"].values()) + wall["between_steps"] + wall["teardown"]
    assert parts == pytest.approx(wall["total"], rel=1e-6)
    first, *others = events(state.only)
    assert (first["kind"], first["source"], first["rank"]) == ("hello", "console", 0)
    assert {each["kind"] for each in others} <= {"facts", "step", "pulse", "metrics", "note"}
    for line in next(iter(state.only.glob("console-*.jsonl"))).read_bytes().splitlines():
        assert isinstance(decode(line), Event)


def test_a_progress_bar_that_never_ends_its_line(state: State) -> None:
    program = (
        "import sys, time\n"
        "from tqdm import tqdm\n"
        "for _ in tqdm(range(3), desc='Loading checkpoint shards'): time.sleep(0.1)\n"
        "for _ in tqdm(range(12), mininterval=0): time.sleep(0.1)\n"
    )
    assert state.run(sys.executable, "-c", program).returncode == 0
    told = report(state)
    assert (told["progress"]["steps_done"], told["progress"]["steps_total"]) == (12, 12)
    assert "load" in [part["name"] for part in told["startup"]]
    assert told["wall"]["steps"] > 0


def test_a_program_that_says_nothing_of_steps_has_no_such_journal(state: State) -> None:
    state.run("sh", "-c", "echo hello 5; echo port 80")
    assert not list(state.only.glob("console-*"))
    assert report(state)["run"]["source"] is None


def test_hooks_win_over_the_console(state: State) -> None:
    program = (
        "import time, trainhooks as th\n"
        "for i in th.steps(range(4)):\n"
        "    time.sleep(0.05); print(f'Step {10 * i}/400 loss: 0.5', flush=True)\n"
    )
    state.run(sys.executable, "-c", program)
    told = report(state)
    assert told["run"]["source"] == "hooks"
    assert told["progress"]["steps_done"] == 4


def test_a_dead_supervisors_successor_counts_no_step_twice(state: State) -> None:
    slow = STEPS.replace("sleep 0.1", "sleep 0.4")
    front = state.start("sh", "-c", slow)
    wait_for(
        lambda: any(e["kind"] == "step" for run in state.runs() for _ in run.glob("console-*") for e in events(run))
    )
    state.strike(state.only, signal.SIGKILL)
    front.wait(60)
    wait_for(lambda: len([e for e in events(state.only) if e["kind"] == "step"]) >= 8)
    steps = sorted(event["index"] for event in events(state.only) if event["kind"] == "step")
    assert steps == list(range(1, 9))


def test_a_bad_pattern_is_a_warning_in_a_run(state: State) -> None:
    state.path.mkdir(parents=True)
    (state.path / "config.toml").write_text("[[console.pattern]]\nregex = '(?P<step>'\n")
    assert state.run("sh", "-c", STEPS).returncode == 0
    (note,) = [event for event in events(state.only) if event["kind"] == "note"]
    assert "patterns of your own are not used" in note["text"]
    assert report(state)["progress"]["steps_done"] == 8


# trainmon lines


def test_lines_shows_what_would_be_read(state: State) -> None:
    done = state.call("lines", str(FIXTURES / "rl_steps.log"))
    text = done.stdout.decode()
    assert done.returncode == 0
    assert "      3  step     2/10          generator, reward 0.2000" in text
    assert "skipped: empty code generated" in text
    assert "generation 45.2 s" in text
    assert "5 of 10, 1 skipped" in text


def test_lines_names_what_it_does_not_understand(state: State) -> None:
    done = state.call("lines", "-", input=b"round 5 of 9: energy 1.5\nstep 1/3 loss 0.5\n", stdin=None)
    text = done.stdout.decode()
    assert "      1  round 5 of 9: energy 1.5" in text
    assert "[[console.pattern]]" in text
    assert str(state.path / "config.toml") in text


def test_lines_uses_the_users_patterns(state: State) -> None:
    state.path.mkdir(parents=True)
    pattern = r"regex = 'round (?P<step>\d+) of (?P<total>\d+): energy (?P<energy>\S+)'"
    (state.path / "config.toml").write_text(f"[[console.pattern]]\n{pattern}\n")
    done = state.call("lines", "--json", "-", input=b"round 5 of 9: energy 1.5\n", stdin=None)
    found = json.loads(done.stdout)
    (reading,) = found["readings"]
    assert (reading["kind"], reading["step"], reading["metrics"]) == ("pattern", 5, {"energy": 1.5})
    assert found["summary"]["total"] == 9


def test_lines_of_every_fixture_as_json(state: State) -> None:
    whole = b"".join(path.read_bytes() for path in sorted(FIXTURES.glob("*.log")))
    done = state.call("lines", "--json", "-", input=whole, stdin=None)
    found = json.loads(done.stdout)
    assert found["summary"]["lines"] > 100
    assert all(reading["line"] > 0 for reading in found["readings"])


@pytest.mark.parametrize(
    ("words", "config"),
    [
        (["lines", "/nowhere/x.log"], None),
        (["import", "/nowhere/x.log"], None),
        (["lines", str(ROOT)], None),
        (["import", str(ROOT)], None),
        (["lines", str(FIXTURES / "gan.log")], "[[console.pattern]]\nregex = '('\n"),
        (["import", str(FIXTURES / "gan.log")], "[[console.pattern]]\nregex = '('\n"),
    ],
)
def test_bad_input_is_one_line_and_2(state: State, words: list[str], config: str | None) -> None:
    if config is not None:
        state.path.mkdir(parents=True)
        (state.path / "config.toml").write_text(config)
    done = state.call(*words)
    assert done.returncode == 2
    assert done.stderr.count(b"\n") == 1
    assert not state.runs()


# trainmon import


def test_import_makes_a_run(state: State) -> None:
    done = state.call("import", str(FIXTURES / "timestamps.log"), "--name", "old")
    assert done.returncode == 0
    run_id = done.stdout.decode().strip()
    assert f"trainmon report {run_id}" in done.stderr.decode()
    assert (state.only / rundir.CONSOLE).read_bytes() == (FIXTURES / "timestamps.log").read_bytes()
    told = report(state, run_id)
    assert (told["run"]["name"], told["run"]["imported"], told["run"]["source"]) == ("old", True, "console")
    assert told["outcome"]["state"] == "lost"  # a log does not say how its program ended
    assert told["progress"]["steps_done"] == 12
    assert told["throughput"]["steps_per_second"] == pytest.approx(0.1)
    assert told["wall"]["total"] == pytest.approx(110.0)
    assert json.loads(state.call("ls", "--json").stdout)[0]["step"] == 12
    assert state.call("report", "last").returncode == 0


def test_import_of_a_log_without_times_invents_none(state: State) -> None:
    state.call("import", str(FIXTURES / "lr_sweep.log"))
    told = report(state)
    assert (told["progress"]["steps_done"], told["progress"]["steps_total"]) == (400, 400)
    assert told["metrics"]["loss"]["last"] == 3.0
    assert told["progress"]["elapsed_seconds"] is None
    assert told["throughput"]["steps_per_second"] is None
    assert told["run"]["started"] is None
    assert told["phases"] == []
    assert told["startup"] == []
