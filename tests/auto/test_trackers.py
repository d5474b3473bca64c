"""What a program logs to a tracker is a metric of the run, and `--mirror` adds figures to the tracker's run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from monitor.runs.follow import load
from monitor.sources import tracker_files

from .watched import environment, watched

# Sixty steps, of which the program logs each; for `--mirror` they have to last until figures are there.
LOOP = """
import sys, time, torch
OPEN
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, batch in enumerate(torch.utils.data.DataLoader(torch.randn(240, 4), batch_size=4), 1):
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(float(sys.argv[1]))
    LOG
CLOSE
"""
WANDB = LOOP.replace("OPEN", "import wandb\nrun = wandb.init(project='p', mode='offline', dir=sys.argv[2])")
WANDB = WANDB.replace(
    "LOG", "wandb.log({'my/loss': loss, 'nested': {'lr': 0.01}, 'text': 'no', 'epoch': 1}, step=step)"
)
WANDB = WANDB.replace("CLOSE", "run.finish()")
BOARD = LOOP.replace("OPEN", "from torch.utils.tensorboard import SummaryWriter\nw = SummaryWriter(sys.argv[2])")
BOARD = BOARD.replace("LOG", "w.add_scalar('my/loss', loss, step); w.add_scalar('nested/lr', 0.01, step)")
BOARD = BOARD.replace("CLOSE", "w.close()")
MLFLOW = LOOP.replace("OPEN", "import mlflow\nmlflow.set_tracking_uri('file:' + sys.argv[2] + '/mlruns')")
MLFLOW = MLFLOW.replace("LOG", "mlflow.log_metrics({'my/loss': loss.item(), 'nested/lr': 0.01}, step=step)")
MLFLOW = MLFLOW.replace("CLOSE", "mlflow.end_run()")
TRACKIO = LOOP.replace("OPEN", "import trackio\ntrackio.init(project='p')")
TRACKIO = TRACKIO.replace("LOG", "trackio.log({'my/loss': loss.item(), 'nested/lr': 0.01})")
TRACKIO = TRACKIO.replace("CLOSE", "trackio.finish()")
SETTINGS = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
PROGRAMS = {"wandb": WANDB, "tensorboard": BOARD, "mlflow": MLFLOW, "trackio": TRACKIO}


def program(tracker: str, folder: Path) -> str:
    pytest.importorskip(tracker, reason=f"{tracker} is not installed")
    script = folder / "train.py"
    script.write_text(PROGRAMS[tracker])
    return str(script)


@pytest.mark.parametrize("tracker", [pytest.param(name, marks=pytest.mark.long) for name in PROGRAMS])
def test_what_is_logged_there_is_a_metric_of_the_run(tracker: str, tmp_path: Path) -> None:
    script = program(tracker, tmp_path)
    run = watched(
        tmp_path / "state", script, "0.001", str(tmp_path), env=SETTINGS | {"TRACKIO_DIR": str(tmp_path / "t")}
    )
    assert run.code == 0, run.err
    metrics = run.report.metrics
    assert metrics["my/loss"].count == 60 and metrics["nested/lr"].last == 0.01
    assert not {"text", "epoch"} & set(metrics)
    assert len(run.steps()) == 60
    curve = load(run.run).metrics["my/loss"]
    assert (curve.x[0], curve.end) == (1, 60)


@pytest.mark.long
@pytest.mark.parametrize("tracker", ["wandb", "tensorboard", "mlflow"])
def test_figures_go_along_in_rows_of_the_program(tracker: str, tmp_path: Path) -> None:
    script = program(tracker, tmp_path)
    command = ["run", "--no-tui", "--mirror", tracker, "--", sys.executable, script, "0.2", str(tmp_path / "log")]
    done = subprocess.run(
        [sys.executable, "-m", "monitor", *command],
        env=environment(tmp_path / "state") | SETTINGS,
        cwd=tmp_path,
        capture_output=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    if tracker == "mlflow":
        (speed,) = tmp_path.glob("log/mlruns/*/*/metrics/trainmon/steps_per_second")
        assert 0 < float(speed.read_text().split()[-2]) < 5.1
        return
    folder = next((tmp_path / "log").glob("wandb/offline-run*"), tmp_path / "log")
    lines = tracker_files.as_lines(folder)
    assert lines is not None
    rows = [tracker_files.json.loads(line) for line in lines]
    assert [row["step"] for row in rows] == list(range(1, 61))  # ours has made no row of its own
    mirrored = [row for row in rows if "trainmon/steps_per_second" in row]
    speed = mirrored[-1]["trainmon/steps_per_second"]
    assert 0 < speed < 5.1  # each step sleeps for 0.2 s
    assert 0 < mirrored[-1]["trainmon/phase_seconds/forward"] < 1 / speed


def test_another_mirror_is_a_mistake(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "monitor", "run", "--mirror", "paper", "--", "true"],
        env=environment(tmp_path),
        capture_output=True,
    )
    assert done.returncode == 2 and b"wandb" in done.stderr


TRAINER = """
import sys, torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
model = LlamaForCausalLM(
    LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2))
row = {"input_ids": torch.arange(16), "labels": torch.arange(16)}
settings = TrainingArguments(
    sys.argv[1], max_steps=8, logging_steps=2, eval_strategy="steps", eval_steps=4, report_to=["tensorboard"],
    use_cpu=True, disable_tqdm=True)
Trainer(model, settings, train_dataset=[row] * 64, eval_dataset=[row] * 8).train()
"""


@pytest.mark.long
def test_what_a_trainer_passes_on_is_not_told_twice(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="tensorboard is not installed")
    (tmp_path / "train.py").write_text(TRAINER)
    run = watched(tmp_path / "state", str(tmp_path / "train.py"), str(tmp_path / "out"))
    assert run.code == 0, run.err
    metrics = run.report.metrics
    assert metrics["loss"].count == 4 and metrics["eval_loss"].count == 2
    assert not {"train/loss", "eval/loss", "train/learning_rate", "train/epoch"} & set(metrics)
