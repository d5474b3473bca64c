"""Programs that know nothing of trainmon, bare and under `trainmon run`: the same output, and the right steps."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.journal_lines import steps_in

from .watched import TORCHRUN, Watched, both, entered, long, phases, watched

PARTS = {"data", "forward", "backward", "optimizer"}


def losses(run: Watched) -> list[float]:
    return [float.fromhex(line) for line in run.out.splitlines() if line.startswith("0x")]


def logged(run: Watched) -> list[float]:
    return [step["metrics"]["loss"] for step in run.steps()]


@pytest.mark.parametrize("workers", ["0", long("2")])
@pytest.mark.long
def test_a_plain_loop_with_evaluations(tmp_path: Path, workers: str) -> None:
    run = both(tmp_path, "plain_loop.py", workers)
    steps = run.steps()
    assert len(steps) == 18
    assert all(set(phases(step)) == PARTS for step in steps)
    assert all(entered(step)["forward"] == entered(step)["backward"] == 1 for step in steps)
    assert logged(run) == losses(run)
    assert run.counted("samples") == 3 * 96
    assert run.counted("tokens") == 0
    assert len(run.spans("eval")) == 3
    assert all("step" not in span for span in run.spans("eval"))


@pytest.mark.long
def test_the_account_of_time(tmp_path: Path) -> None:
    run = both(tmp_path, "plain_loop.py")
    report = run.report
    wall = report.wall
    assert wall.total is not None and wall.startup is not None
    parts = wall.startup + wall.steps + sum(wall.spans.values()) + wall.between_steps + wall.teardown
    assert parts == pytest.approx(wall.total, rel=0.02)
    assert wall.total == pytest.approx(report.progress.elapsed_seconds, rel=0.02)
    assert wall.steps == pytest.approx(sum(step["duration"] for step in run.steps()), rel=1e-6)
    assert sum(row.share for row in report.phases) == pytest.approx(1, abs=0.02)
    assert {row.name for row in report.phases} == {*PARTS, "other"}
    assert any(row.name == "import torch" and row.seconds > 0 for row in report.startup)


@pytest.mark.long
def test_accumulation(tmp_path: Path) -> None:
    run = both(tmp_path, "plain_accumulation.py")
    steps = run.steps()
    assert len(steps) == 12
    assert all(entered(step)["forward"] == entered(step)["backward"] == entered(step)["data"] == 4 for step in steps)
    assert all((step["samples"], step["forwards"]) == (16, 4) for step in steps)
    # The mean of its four batches, not a quarter of each: about that of the whole batch.
    assert all(set(step["metrics"]) == {"loss"} for step in steps)
    assert len(run.spans("eval")) == 2


IN_EVAL_MODE = """
import sys
import torch

torch.set_num_threads(1)
learns = sys.argv[1] == "learns"
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(60):
    model.train(not learns)
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    if not learns and step % 3 == 0:
        model.eval()
        print(sum(model(torch.randn(8, 4)).square().mean().item() for _ in range(4)) > 0)
"""


BY_ITS_WRAPPER = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
torch.set_num_threads(1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
    if step % 10 == 5:
        model.eval()
        with torch.no_grad():
            print(sum(model.module(torch.randn(8, 4)).square().mean().item() for _ in range(4)) > 0)
        model.train()
dist.destroy_process_group()
"""


@pytest.mark.long
def test_an_evaluation_of_the_model_inside_its_wrapper_is_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(BY_ITS_WRAPPER)
    run = both(tmp_path, str(tmp_path / "train.py"))
    assert len(run.spans("eval")) == 4
    assert len(run.steps()) == 40 and all(step["samples"] == 8 for step in run.steps())


@pytest.mark.parametrize("form", ["learns", "evaluates"])
def test_passes_in_evaluation_mode_are_the_steps_where_they_are_learned_from(tmp_path: Path, form: str) -> None:
    (tmp_path / "script.py").write_text(IN_EVAL_MODE)
    run = watched(tmp_path, str(tmp_path / "script.py"), form)
    assert run.code == 0, run.err
    steps = run.steps()
    assert len(steps) == 60
    assert all(entered(step).get("forward") == 1 for step in steps[1:])  # what the first one is for is not known yet


@pytest.mark.long
def test_a_loop_without_a_loader(tmp_path: Path) -> None:
    run = both(tmp_path, "nanogpt.py")
    steps = run.steps()
    assert len(steps) == 12
    assert all(entered(step)["forward"] == entered(step)["backward"] == 2 for step in steps)
    assert all("data" not in phases(step) for step in steps)
    assert all(step["tokens"] == 2 * 4 * 16 for step in steps)
    assert len(run.spans("eval")) == 3
    assert all("step" not in span for span in run.spans("eval"))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["loader", *map(long, ("memory", "critics"))])
def test_two_optimizers_that_take_turns(tmp_path: Path, kind: str) -> None:
    run = both(tmp_path, "gan.py", kind)
    steps = run.steps()
    assert len(steps) == 20
    assert all("metrics" not in step for step in steps), "which of the losses would it be?"
    backwards = [entered(step)["backward"] for step in steps]
    assert backwards == [3] * 20 if kind != "critics" else [2, 2, 2, 2, 3] * 4
    if kind != "memory":
        assert run.counted("samples") == 160
        assert all(entered(step)["data"] == 1 for step in steps)


@pytest.mark.long
def test_a_closure(tmp_path: Path) -> None:
    run = both(tmp_path, "lbfgs.py")
    steps = run.steps()
    assert len(steps) == 7
    assert all({"forward", "backward", "optimizer"} == set(phases(step)) for step in steps)
    assert all(entered(step)["backward"] > 1 for step in steps)
    assert all(step["samples"] == 32 for step in steps)


@pytest.mark.long
def test_steps_that_the_loss_scaler_skips(tmp_path: Path) -> None:
    run = both(tmp_path, "scaler.py")
    steps = run.steps()
    assert [step["index"] for step in steps if step["status"] == "skipped"] == [1, 7]
    assert len(steps) == 10
    assert {step.get("reason") for step in steps} == {None, "gradient overflow (loss scaler)"}
    losses = [float(step["metrics"]["loss"]) for step in steps]
    assert [step["index"] for step, loss in zip(steps, losses, strict=True) if not math.isfinite(loss)] == [1, 7]


@pytest.mark.long
def test_tokens_and_padding(tmp_path: Path) -> None:
    run = both(tmp_path, "tokens.py")
    assert len(run.steps()) == 12
    told = run.out.splitlines()[-1].split()
    assert [run.counted("tokens"), run.counted("padded_tokens")] == [int(told[1]), int(told[3])]
    assert run.counted("samples") == 48
    assert len(run.spans("checkpoint")) == 2


@pytest.mark.long
@pytest.mark.parametrize("kind", ["loader", long("memory")])
def test_an_optimizer_that_never_steps(tmp_path: Path, kind: str) -> None:
    run = both(tmp_path, "idle_optimizer.py", kind)
    assert len(run.steps()) == 9
    assert run.counted("samples") == 36


@pytest.mark.long
def test_updates_by_hand(tmp_path: Path) -> None:
    run = both(tmp_path, "by_hand.py")
    assert len(run.steps()) == 24
    assert all(set(phases(step)) >= {"data", "forward", "backward"} for step in run.steps())


@pytest.mark.long
def test_updates_by_hand_of_plain_tensors(tmp_path: Path) -> None:
    run = both(tmp_path, "no_loader.py", "by_hand")
    assert len(run.steps()) == 20
    assert all(entered(step)["backward"] == 2 for step in run.steps())


@pytest.mark.long
def test_gradients_from_which_nothing_is_learned_are_no_training(tmp_path: Path) -> None:
    assert both(tmp_path, "no_loader.py", "looked_at").journals == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "steps", "samples"),
    [("agent", 20, 640), long("one_state", 20, 0), ("again", 30, 240), long("sharpness", 10, 80)],
)
def test_what_a_step_learns_from(tmp_path: Path, kind: str, steps: int, samples: int) -> None:
    run = both(tmp_path, "no_loader.py", kind)
    assert (len(run.steps()), run.counted("samples")) == (steps, samples)


@pytest.mark.long
def test_a_model_that_no_optimizer_holds_has_a_forward(tmp_path: Path) -> None:
    run = both(tmp_path, "no_loader.py", "old_model")
    steps = run.steps()
    assert len(steps) == 20 and run.counted("samples") == 15 * 8
    assert all("forward" in phases(step) for step in steps[5:])


@pytest.mark.long
def test_a_program_that_tells_its_steps_itself(tmp_path: Path) -> None:
    run = both(tmp_path, "explicit.py")
    steps = run.steps()
    assert len(steps) == 15
    assert {name for step in steps for name in phases(step)} == {"data", "training"}


@pytest.mark.parametrize(("where", "done"), [("program", 5), long("backward", 5), long("data", 5)])
@pytest.mark.long
def test_a_program_that_fails(tmp_path: Path, where: str, done: int) -> None:
    run = both(tmp_path, "failing.py", where, code=1)
    assert len(run.steps()) == done
    (bye,) = run.events("bye")
    assert bye["error"].split(":")[0] in ("ValueError", "RuntimeError", "OSError")
    line = {"program": "34 in", "backward": "(loss.backward)", "data": "18 in __getitem__"}[where]
    assert bye["place"].startswith("tests/auto/scripts/failing.py:") and line in bye["place"]
    assert (run.report.findings[0].code, run.report.outcome.place) == ("crashed", bye["place"])


def test_an_error_before_the_first_step_is_read_from_the_output(tmp_path: Path) -> None:
    seen = watched(tmp_path, "-c", "def load(): raise KeyError('model')\nload()")
    assert seen.code == 1 and not seen.journals
    assert [finding.code for finding in seen.report.findings] == ["crashed"]
    assert seen.report.outcome.error == "KeyError: 'model'"


@pytest.mark.long
@pytest.mark.parametrize("way", ["torchrun", long("spawn")])
def test_two_ranks(tmp_path: Path, way: str) -> None:
    run = both(tmp_path, "ddp.py", *([way] if way == "spawn" else []), launcher=TORCHRUN if way == "torchrun" else ())
    ranks = [0, 1] if way == "torchrun" else [0]
    assert len(run.journals) == 2, "the launcher is no training"
    if way == "torchrun":
        for rank in ranks:
            assert len(run.steps(rank)) == 12
            assert run.counted("tokens", rank) == 2 * 24 * 6
        speed = run.report.throughput
        assert speed.rank == 0 and speed.job is not None and speed.samples_per_second is not None
        assert speed.job.samples_per_second == pytest.approx(2 * speed.samples_per_second)
    else:
        texts = [journal.read_text() for journal in run.journals]
        assert [steps_in(journal) for journal in run.journals] == [12, 12]
        assert all('"kind":"bye"' in text for text in texts)


@pytest.mark.long
def test_modes_of_the_program_see_no_operation_of_ours(tmp_path: Path) -> None:
    """Questions for shapes and dtypes pass through them. Where a mode would see a loss read, it is not read."""
    run = both(tmp_path, "plain_under_modes.py")
    assert len(run.steps()) == 36
    read = [step["index"] for step in run.steps() if "loss" in step.get("metrics", {})]
    assert read == [*range(1, 13), *range(25, 37)]  # a function mode is away while it passes `backward` on
