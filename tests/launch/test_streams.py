"""Several trainings under one command: told apart, one of them shown, and nothing concluded from their mixture."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.model.view import View
from monitor.running import output
from monitor.runs.follow import Run, load
from tests.signals import send_group_signal

from .conftest import State, wait_for

# A real training of a linear model, a step of about `pause` seconds. A third word other than "crash" names a file: it
# is written after some steps, and the training ends when somebody removes it.
TRAIN = """
import os, sys, time, torch
from torch.utils.data import DataLoader
count, pause = int(sys.argv[1]), float(sys.argv[2])
mark = (sys.argv[3:] + [""])[0]
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step, batch in enumerate(DataLoader(torch.randn(count, 4), batch_size=1)):
    if mark not in ("", "crash"):
        if step == 5:
            open(mark, "w").close()
        elif step > 5 and not os.path.exists(mark):
            break
    time.sleep(pause)
    loss = model(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
if mark == "crash":
    raise SystemExit(1)
"""


@pytest.fixture
def scripts(tmp_path: Path) -> dict[str, str]:
    paths = {}
    for name in ("train", "tune"):
        path = tmp_path / f"{name}.py"
        path.write_text(TRAIN)
        paths[name] = f"{sys.executable} {path}"
    return paths


def reported(state: State, which: str = "last") -> dict[str, Any]:
    ended = state.call("report", which, "--json")
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)  # type: ignore[no-any-return]


def figures(report: dict[str, Any]) -> tuple[int, int]:
    return report["progress"]["steps_done"], report["run"]["ranks"]


@pytest.mark.long
def test_two_at_once(state: State, scripts: dict[str, str]) -> None:
    command = f"{scripts['train']} 60 0.05 & {scripts['tune']} 25 0.02; wait"
    assert state.run("sh", "-c", command).returncode == 0
    known = reported(state)
    assert figures(known) == (60, 1), "the one that reported most, without a step of the other"
    line = known["run"]["trainings"]
    assert (
        line.startswith("2 trainings ran under this command: #1 t") and "train (pid " in line and "tune (pid " in line
    )
    assert [row["text"] for row in known["alerts"] if row["code"] == "several-trainings"] == [line]
    assert known["progress"]["restarts"] == 0 and not known["dropped"]["lines"]
    both = {figures(reported(state, f"last#{number}"))[0] for number in (1, 2)}
    assert both == {60, 25}
    assert [(row["name"], row["steps_done"]) for row in known["group"]["members"]] in (
        [("train", 60), ("tune", 25)],
        [("tune", 25), ("train", 60)],
    )
    assert b"Trainings 2, all done" in state.call("report").stdout
    none = state.call("report", "last#3")
    assert none.returncode == 2 and none.stderr.count(b"\n") == 1 and b"from 1 to 2" in none.stderr


@pytest.mark.long
def test_the_mixture_gives_no_findings(state: State, scripts: dict[str, str]) -> None:
    """Steps of 10 ms and 200 ms, interleaved, look like a training whose every other step is slow."""
    state.run("sh", "-c", f"{scripts['train']} 200 0.01 & {scripts['tune']} 12 0.2; wait")
    known = reported(state)
    assert figures(known) == (200, 1)
    assert not {row["code"] for row in known["findings"]} & {"slow-steps", "slow-drift", "straggler", "stalled"}
    assert sum(row["seconds"] > 0.2 for row in known["slow_steps"]) < 12, "not the other's; a busy machine makes some"


@pytest.mark.long
def test_one_after_the_other(state: State, scripts: dict[str, str]) -> None:
    assert state.run("sh", "-c", f"{scripts['train']} 30 0.01 && {scripts['tune']} 12 0.01").returncode == 0
    known = reported(state)
    assert figures(known) == (30, 1)
    assert figures(reported(state, "last#2")) == (12, 1)
    assert known["run"]["facts"]["command"][1].endswith("train.py"), "facts are its own, too"


@pytest.mark.long
def test_the_same_script_with_other_arguments_is_another_training(state: State, scripts: dict[str, str]) -> None:
    state.run("sh", "-c", f"{scripts['train']} 30 0.01; {scripts['train']} 12 0.01")
    assert figures(reported(state)) == (30, 1) and figures(reported(state, "last#2")) == (12, 1)


@pytest.mark.long
def test_a_command_that_is_tried_again_is_one_training(state: State, scripts: dict[str, str]) -> None:
    state.run("sh", "-c", f"for n in 1 2; do {scripts['train']} 10 0.01 crash; done")
    known = reported(state)
    assert known["run"]["trainings"] is None and known["run"]["ranks"] == 1
    assert known["progress"]["steps_done"] >= 10


@pytest.mark.long
def test_ranks_of_one_job_are_one_training(state: State, tmp_path: Path) -> None:
    script = tmp_path / "ddp.py"
    script.write_text("import torch.distributed as dist\ndist.init_process_group('gloo')\nimport sys\n" + TRAIN)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    assert state.run(*torchrun, str(script), "10", "0.02").returncode == 0
    known = reported(state)
    assert known["run"]["trainings"] is None and figures(known) == (10, 2)


# A training of one phase, without torch; what it publishes reaches a viewer before its journal is searched for.
PHASE = """
import time, trainhooks as th
for _ in th.steps(range(4000)):
    with th.phase("{phase}"):
        time.sleep(0.02)
"""


def test_while_both_run_no_step_of_the_other_is_shown(state: State, tmp_path: Path) -> None:
    for phase in ("generation", "training"):
        (tmp_path / f"{phase}.py").write_text(PHASE.format(phase=phase))
    one, other = (f"{sys.executable} {tmp_path / phase}.py" for phase in ("generation", "training"))
    front = state.start("sh", "-c", f"{one} & sleep 1.5; {other} & wait")
    followed = Run(state.only)

    def look() -> View:
        followed.source.wait(0.02)
        while followed.advance():
            pass
        return followed.view()

    def phases(view: View) -> set[str]:
        return {phase.name for phase in view.report.phases} & {"generation", "training"}

    try:
        wait_for(lambda: look().report.run.trainings is not None)
        steps = look().report.progress.steps_done
        wait_for(lambda: look().report.progress.steps_done > steps + 40)
        assert phases(look()) == {"generation"}
        assert followed.source.missing == 0
    finally:
        followed.close()
        send_group_signal(state.pid(state.only), signal.SIGKILL)
        front.wait(30)


@pytest.mark.long
def test_while_they_run_the_first_is_shown_then_the_one_that_is_left(
    state: State, scripts: dict[str, str], tmp_path: Path
) -> None:
    mark = tmp_path / "mark"
    began = f"until [ -e {mark} ]; do sleep 0.1; done"
    command = f"{scripts['train']} 4000 0.05 {mark} & {began}; {scripts['tune']} 4000 0.05; wait"
    front = state.start("sh", "-c", command)
    followed = Run(state.only)
    shown: list[tuple[str | None, str | None]] = []

    def look() -> str:
        while followed.advance():
            pass
        run = followed.view().report.run
        shown.append((run.trainings, (run.facts.command or [None, None])[1]))
        return str(shown[-1])

    try:
        wait_for(lambda: "tune" in (look(), shown[-1][0] or "")[1])
        assert str(shown[-1][1]).endswith("train.py") and "shown is #1" in str(shown[-1][0])
        mark.unlink()
        wait_for(lambda: (look(), str(shown[-1][1]).endswith("tune.py"))[1])
        assert "shown is #2" in str(shown[-1][0])
        steps = followed.view().report.progress
        assert steps.steps_done > 0 and steps.restarts == 0 and followed.source.missing == 0
    finally:
        followed.close()
        send_group_signal(state.pid(state.only), signal.SIGKILL)
        front.wait(30)
    assert load(state.only).report.run.trainings is not None


def test_who_takes_a_merge_over_goes_on_where_the_other_was_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A position that is being written was there before: nobody begins with the first line again."""
    out = tmp_path / output.STDOUT
    (tmp_path / output.STDERR).touch()
    out.write_text("line 1\n")
    first = output.Merge(tmp_path)
    assert first.step()
    with out.open("a") as more:
        more.write("line 2\n")
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)  # as if it was killed before it had written
    assert first.step()
    monkeypatch.undo()
    assert output.Merge(tmp_path).position(output.STDOUT) == len("line 1\n")
