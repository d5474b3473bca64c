"""Who is believed: what a process tells of itself before what is read from its console."""

from __future__ import annotations

import pytest

from monitor.diagnosis.rules import stalls
from monitor.hooks_reach import NOT_LOADED, command_obstacle
from monitor.model.report import Report
from trainhooks.protocol.events import Facts, Metrics, Note

from .conftest import Story, folded, judged_state, parts_of, report_of


def console(steps: int = 30, **fields: float) -> Story:
    told = Story("c", source="console", name="console")
    told.tell(Facts, total_steps=100)
    for i in range(steps):
        told.step_with({"metrics": {"loss": 2.0 - i / 100}, **fields}, forward=0.5, other=0.5)
    return told


def hooks(steps: int = 0) -> Story:
    told = Story("h", name="train").span("import torch", 2)
    for _ in range(steps):
        told.step_with({"metrics": {"loss": 0.5}}, backward=1)
    return told


def figures(known: Report) -> tuple[object, ...]:
    return known.progress.steps_done, known.progress.steps_total, set(known.metrics), len(known.phases)


def test_the_console_counts_while_nobody_else_steps() -> None:
    known = report_of(console(), hooks())
    assert figures(known) == (30, 100, {"loss"}, 2)
    assert known.run.source == "console" and known.run.name == "train"
    assert sum(parts_of(known.wall)) == pytest.approx(known.wall.total)
    assert [row.name for row in known.startup if row.name != "other"] == ["import torch"]


@pytest.mark.parametrize("order", [1, -1])
def test_one_step_that_a_process_tells_replaces_all_steps_that_were_read(order: int) -> None:
    known = report_of(*[console(), hooks(7)][::order])
    assert figures(known) == (7, None, {"loss"}, 2)
    assert known.run.source == "hooks"
    assert known.metrics["loss"].mean == pytest.approx(1.855), "the hooks' is a tensor's, in units of its own"
    late = console()
    late.now += 100
    late.tell(Metrics, values={"accuracy": 1.0})
    known = report_of(*[hooks(7), late][::order])
    assert figures(known) == (7, None, {"loss", "accuracy"}, 2), "what the program prints and does not log is kept"
    assert known.metrics["loss"].mean == pytest.approx(1.855)
    diverged = Story("h", name="train").step_with({"metrics": {"loss": "nan"}}, backward=1)
    assert report_of(*[diverged, late][::order]).metrics["loss"].nonfinite == 1, "no print hides that it diverged"
    logs = Story("h", name="train")
    for _ in range(7):
        logs.step_with({"metrics": {"reward": 0.5}}, backward=1)
    assert set(report_of(*[logs, late][::order]).metrics) == {"reward"}, "of what it logs itself, no print is needed"


def test_the_loss_of_every_step_is_kept_where_the_printed_one_is_in_its_unit() -> None:
    same = Story("h", name="train")
    for _ in range(7):
        same.step_with({"metrics": {"loss": 1.6}}, backward=1)
    assert report_of(console(), same).metrics["loss"].count == 7


def test_a_native_writer_is_believed_like_the_hooks() -> None:
    native = Story("n", source="native")
    native.step(forward=1).step(forward=1)
    known = report_of(console(), native)
    assert known.progress.steps_done == 2 and known.run.source == "native"


def test_nobody_steps() -> None:
    known = report_of(hooks())
    assert known.run.source is None and known.progress.steps_done == 0


def test_the_console_s_reader_is_no_rank_and_no_training() -> None:
    told = hooks(7).bye()
    known = report_of(console(), told)
    assert known.run.ranks == 1 and [row.rank for row in known.ranks] == [0]
    assert known.outcome.state == "finished"


def test_the_row_of_a_run_without_hooks_has_its_printed_steps() -> None:
    rows = report_of(console(4)).ranks
    assert [(row.rank, row.steps, row.step_seconds) for row in rows] == [(0, 4, pytest.approx(1.0, rel=0.02))]


def test_a_log_that_was_imported() -> None:
    known = report_of(console().bye(), imported=True)
    assert known.run.imported and known.run.source == "console" and known.outcome.state == "finished"
    assert known.progress.steps_done == 30


# Nobody reports in


def quiet(seconds: float, *command: str, alive: bool = True, imported: bool = False) -> list[str]:
    """Title, evidence and advice of the verdict on a launched run of which nothing has been heard."""
    recorder = Story("node", source="recorder")
    launched = {"launched": True, "started_monotonic": 100.0, "command": list(command), "imported": imported}
    state = folded(recorder)
    found, told = judged_state(state, alive=alive, now=100.0 + seconds, **launched)
    assert not found or found == [told]
    return [told.title, *told.evidence, told.advice]


def test_a_silent_program_is_explained_after_a_while() -> None:
    assert quiet(5, "python", "train.py") == ["Waiting for the first step", ""]
    told = quiet(130, "python", "train.py")
    assert "2 min 10 s" in told[0]
    assert told[1:] == [stalls.STARTING_ADVICE, stalls.OUT_OF_REACH, stalls.NOT_PYTHON, stalls.BY_HAND]


def test_a_program_that_ended_unheard() -> None:
    told = quiet(130, "./train", alive=False)
    assert "2 min" not in told[0]
    assert stalls.STARTING_ADVICE not in told and stalls.NOT_PYTHON in told


def test_a_log_in_which_nothing_was_read() -> None:
    assert quiet(1, imported=True, alive=False)[0] == "No steps could be read from this log"


def test_a_process_that_has_reported_in_is_not_out_of_reach() -> None:
    found, told = judged_state(folded(hooks().wait(300).pulse(spans=[("load", 9.0)])), now=405.0)
    assert found == [] and told.title.startswith("Starting: load for ")


def test_the_first_step_while_it_lasts() -> None:
    told = hooks().wait(3).pulse(step=1, step_open=2.0, phase="forward", phase_open=1.5)
    known = report_of(told, alive=True, now=told.now + 20)
    assert {row.name: row.seconds for row in known.startup}["first step, still open"] == pytest.approx(22)
    assert judged_state(folded(told), now=told.now + 20)[1].title.endswith("22 s, in forward")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("python -I train.py", "python -I"),
        ("python3.12 -uE train.py", "python3.12 -E"),
        ("env -i PATH=/bin python train.py", "env -i"),
        ("nice python -S -m train", "python -S"),
        ("sudo -u me python train.py", "sudo"),
        ("docker run image python train.py", "docker"),
        ("env PYTHONPATH=. python train.py", "PYTHONPATH was replaced"),
        ("env A=1 PYTHONPATH=src:lib nice python train.py", "PYTHONPATH was replaced"),
        ("env -u PYTHONPATH python train.py", "PYTHONPATH was replaced"),
        ("trainmon run -- python train.py", "another `trainmon run`"),
    ],
)
def test_what_the_command_itself_says(command: str, words: str) -> None:
    told = command_obstacle(command.split())
    assert told is not None and words in told
    assert quiet(130, *command.split())[1] == told


@pytest.mark.parametrize(
    "command",
    ["python train.py -I", "python -c pass -E", "python -m train -S", "python -W ignore train.py", "./sudo.sh", "",
     "env A=1 python t.py", "torchrun --nproc 2 train.py", "python -Xdev train.py -i", "bash -c x",
     "env PYTHONPATH=/x/trainhooks/auto/bootstrap:. python t.py", "env -u A python t.py PYTHONPATH=."],
)  # fmt: skip
def test_what_it_does_not_say(command: str) -> None:
    assert command_obstacle(command.split()) is None


def test_what_the_recorder_saw_comes_first() -> None:
    told = Story("h", source="recorder").tell(Note, text="hooks not loaded: seen", code=NOT_LOADED)
    assert folded(told).hooks_not_loaded == "hooks not loaded: seen"


# The start-up, live


def test_what_is_open_has_its_own_time_in_the_start_up() -> None:
    told = Story().wait(1).span("import torch", 8).wait(1)
    outer = told.now
    told.wait(2).span("tokenise", 5)
    told.wait(3).pulse(spans=[("load models", told.now - outer), ("shards", 3.0)])
    known = report_of(told, alive=True, now=told.now + 4)
    rows = {row.name: row.seconds for row in known.startup}
    assert rows == pytest.approx({"import torch": 8, "tokenise": 5, "load models": 2, "shards": 7, "other": 3})
    assert sum(rows.values()) == pytest.approx(known.wall.startup)
    dead = {row.name: row.seconds for row in report_of(told).startup}
    assert dead == pytest.approx({**rows, "shards": 3}), "a dead process was in it until its last pulse"
    assert "load models" not in [row.name for row in report_of(told.wait(1).bye()).startup], "it left it, and said so"
