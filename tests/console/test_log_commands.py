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
from trainhooks.protocol import rundir
from trainhooks.protocol.events import Event

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


@pytest.mark.long
def test_single_line_leaves_wall_time_unknown(state: State) -> None:
    done = state.run("sh", "-c", "sleep 0.5; echo 'step 7/10 loss 2.0'; sleep 0.5")
    assert done.returncode == 0
    result = report(state)
    assert result["progress"]["steps_done"] == 7
    assert result["wall"]["startup"] is None and result["wall"]["total"] > 1.0
    assert result["startup"] == [] and result["throughput"]["steps_per_second"] is None
    for text in (done.stderr, state.call("report").stdout):
        assert b"unknown" in text and b"start-up" not in text


def test_metrics_without_a_step_leave_wall_time_unknown(state: State) -> None:
    state.run("sh", "-c", "sleep 0.3; echo 'Epoch 1 loss: 2.5'; sleep 0.3")
    result = report(state)
    assert result["metrics"]["loss"]["last"] == 2.5
    assert result["wall"]["startup"] is None and result["startup"] == []
    assert b"start-up" not in state.call("report").stdout


def test_shell_script_has_steps_skips_and_wall_time(state: State) -> None:
    done = state.run("sh", "-c", STEPS)
    assert done.returncode == 0
    assert done.stdout.count(b"Reward") == 7
    result = report(state)
    assert result["run"]["source"] == "console"
    progress = result["progress"]
    assert (progress["steps_done"], progress["steps_total"], progress["steps_ok"]) == (8, 8, 7)
    assert progress["skipped"] == {"empty code": 1}
    assert result["metrics"]["generator/reward"]["last"] == 0.8
    assert result["throughput"]["steps_per_second"] > 0
    wall = result["wall"]
    parts = wall["startup"] + wall["steps"] + sum(wall["spans"].values()) + wall["between_steps"] + wall["teardown"]
    assert parts == pytest.approx(wall["total"], rel=1e-6)
    first, *others = events(state.only)
    assert (first["kind"], first["source"], first["rank"]) == ("hello", "console", 0)
    assert {event["kind"] for event in others} <= {"facts", "step", "pulse", "metrics", "note"}
    for line in next(iter(state.only.glob("console-*.jsonl"))).read_bytes().splitlines():
        assert isinstance(decode(line), Event)


def test_progress_bar_without_line_end_gives_steps(state: State) -> None:
    program = (
        "import sys, time\n"
        "from tqdm import tqdm\n"
        "for _ in tqdm(range(3), desc='Loading checkpoint shards'): time.sleep(0.5)\n"
        "for _ in tqdm(range(12), mininterval=0): time.sleep(0.1)\n"
    )
    assert state.run(sys.executable, "-c", program).returncode == 0
    result = report(state)
    assert (result["progress"]["steps_done"], result["progress"]["steps_total"]) == (12, 12)
    assert "load" in [part["name"] for part in result["startup"]]
    assert result["wall"]["steps"] > 0


def test_program_without_steps_has_no_console_journal(state: State) -> None:
    state.run("sh", "-c", "echo hello 5; echo port 80")
    assert not list(state.only.glob("console-*"))
    assert report(state)["run"]["source"] is None


def test_hooks_are_preferred_to_the_console(state: State) -> None:
    program = (
        "import time, trainhooks as th\n"
        "for i in th.steps(range(4)):\n"
        "    time.sleep(0.05); print(f'Step {10 * i}/400 loss: 0.5', flush=True)\n"
    )
    state.run(sys.executable, "-c", program)
    result = report(state)
    assert result["run"]["source"] == "hooks"
    assert result["progress"]["steps_done"] == 4


def test_successor_of_dead_supervisor_counts_each_step_once(state: State) -> None:
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


def test_bad_pattern_is_a_note_in_a_run(state: State) -> None:
    state.path.mkdir(parents=True)
    (state.path / "config.toml").write_text("[[console.pattern]]\nregex = '(?P<step>'\n")
    assert state.run("sh", "-c", STEPS).returncode == 0
    (note,) = [event for event in events(state.only) if event["kind"] == "note"]
    assert note["code"] == "console-pattern"
    assert report(state)["progress"]["steps_done"] == 8


# trainmon lines


def test_lines_shows_readings_and_summary(state: State) -> None:
    done = state.call("lines", str(FIXTURES / "rl_steps.log"))
    text = done.stdout.decode()
    assert done.returncode == 0
    assert "      3  step     2/10          generator, reward 0.2000" in text
    assert "skipped: empty code generated" in text
    assert "generation 45.2 s" in text
    assert "5 of 10, 1 skipped" in text


def test_lines_shows_unread_lines_and_a_pattern(state: State) -> None:
    done = state.call("lines", "-", input=b"round 5 of 9: energy 1.5\nstep 1/3 loss 0.5\n", stdin=None)
    text = done.stdout.decode()
    assert "      1  round 5 of 9: energy 1.5" in text
    assert "[[console.pattern]]" in text
    assert str(state.path / "config.toml") in text


def test_lines_uses_user_patterns(state: State) -> None:
    state.path.mkdir(parents=True)
    pattern = r"regex = 'round (?P<step>\d+) of (?P<total>\d+): energy (?P<energy>\S+)'"
    (state.path / "config.toml").write_text(f"[[console.pattern]]\n{pattern}\n")
    done = state.call("lines", "--json", "-", input=b"round 5 of 9: energy 1.5\n", stdin=None)
    found = json.loads(done.stdout)
    (reading,) = found["readings"]
    assert (reading["kind"], reading["step"], reading["metrics"]) == ("pattern", 5, {"energy": 1.5})
    assert found["summary"]["total"] == 9


def test_lines_json_reads_every_fixture(state: State) -> None:
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
def test_bad_input_is_one_line_and_exit_2(state: State, words: list[str], config: str | None) -> None:
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
    result = report(state, run_id)
    assert (result["run"]["name"], result["run"]["imported"], result["run"]["source"]) == ("old", True, "console")
    assert result["outcome"]["state"] == "lost"  # a log does not say how its program ended
    assert result["progress"]["steps_done"] == 12
    assert result["throughput"]["steps_per_second"] == pytest.approx(0.1)
    assert result["wall"]["total"] == pytest.approx(110.0)
    assert json.loads(state.call("ls", "--json").stdout)[0]["step"] == 12
    assert state.call("report", "last").returncode == 0


def test_import_without_times_leaves_times_unknown(state: State) -> None:
    state.call("import", str(FIXTURES / "lr_sweep.log"))
    result = report(state)
    assert (result["progress"]["steps_done"], result["progress"]["steps_total"]) == (400, 400)
    assert result["metrics"]["loss"]["last"] == 3.0
    assert result["progress"]["elapsed_seconds"] is None
    assert result["throughput"]["steps_per_second"] is None
    assert result["run"]["started"] is None
    assert result["phases"] == []
    assert "Steps are counted" in result["verdict"]
    assert result["startup"] == []
