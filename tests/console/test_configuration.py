"""Printed arguments give no step and no metric; what a training measures does, in lines that look alike."""

from __future__ import annotations

import pytest

from tests.console.conftest import fixture, parse, readings

START = "step 1/10 loss 2.5\nstep 2/10 loss 2.4\n"

ARGUMENTS = [
    "Config: vocab=32000 dim=256 layers=4 heads=8 batch=8 seq=128 lr=0.001 epochs=3",
    "  batch=8  seq_len=256  lr=3.0e-04  epochs=2  accum=4",
    "epochs: 2, batch: 32, lr: 0.01",
    "batch: 32",
    "batch_size = 64",
    "learning_rate = 1e-3 # with baby networks can afford to go a bit higher",
    "learning_rate=5e-05,",
    "max_grad_norm=1.0,",
    "lr: 0.001",
    "Namespace(lr=0.1, batch_size=32, epochs=10, momentum=0.9, seed=1)",
    "Namespace(batchSize=64, imageSize=64, nz=100, niter=25, lr=0.0002, beta1=0.5, dry_run=False, netG='')",
    "optimizer: AdamW(lr=0.000119, momentum=0.9) with parameter groups 57 weight(decay=0.0)",
    "task=detect, mode=train, epochs=3, time=None, batch=8, imgsz=640, save=True, iou=0.7, conf=None, box=7.5",
    "hyperparameters: lr0=0.01, lrf=0.01, momentum=0.937, weight_decay=0.0005, warmup_epochs=3.0, box=0.05, iou_t=0.2",
    "{'objective': 'binary', 'metric': 'binary_logloss', 'learning_rate': 0.05, 'num_leaves': 31}",
    '{"train_batch_size": 32, "learning_rate": 0.001, "gradient_clipping": 1.0}',
    "[learning_rate: 0.1]",
]


@pytest.mark.parametrize("line", ARGUMENTS)
def test_arguments_are_neither_step_nor_metrics(line: str) -> None:
    log = parse(f"{line}\n{START}".encode())
    assert log.summary is not None
    assert (log.summary.metrics, [step.index for step in log.steps]) == (["loss"], [1, 2])


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("step 3/10 lr=0.001 loss=2.3 momentum=0.9", {"lr": 0.001, "loss": 2.3, "momentum": 0.9}),
        ("epoch=1 batch=8 loss=2.3 lr=0.001", {"loss": 2.3, "lr": 0.001}),
        ("loss=2.3, lr=0.001, momentum=0.9", {"loss": 2.3, "lr": 0.001, "momentum": 0.9}),
        ("role=actor stage=warmup | reward=0.5 loss=2.3", {"reward": 0.5, "loss": 2.3}),
        ("loss: 2.3, best: True, lr: 0.001", {"loss": 2.3, "lr": 0.001}),
        ("loss=2.3 95.1ms/it tok/s=1200", {"loss": 2.3}),
        ("SPS: 901", {"sps": 901}),
        ("box_loss=1.2 cls_loss=0.5 dfl_loss=1.4", {"box_loss": 1.2, "cls_loss": 0.5, "dfl_loss": 1.4}),
        ("loss=tensor(2.3) acc=np.float64(0.5)", {"loss": 2.3, "acc": 0.5}),
        ("{'loss': 2.3, 'learning_rate': 0.001}", {"loss": 2.3, "learning_rate": 0.001}),
    ],
)
def test_reports_with_arguments_in_them_are_metrics(line: str, metrics: dict[str, float]) -> None:
    (reading,) = readings(line.encode())
    assert reading.metrics == metrics


def test_learning_rate_alone_is_a_metric_once_a_training_runs() -> None:
    assert parse(f"{START}current lr: 0.001\n".encode()).metric("current_lr") == [0.001]


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("epochs=3 batch=8 lr=0.1\nEpoch 1 batch 1/20 loss 2\nEpoch 1 batch 2/20 loss 2\n", 60),
        ("Starting training for 3 epochs...\nEpoch 1 batch 1/20 loss 2\nEpoch 1 batch 2/20 loss 2\n", 60),
        ("no improvement for 5 epochs\nEpoch 1 batch 1/20 loss 2\nEpoch 1 batch 2/20 loss 2\n", None),
        ("epochs=3 batch=8\nEpoch 4 batch 1/20 loss 2\nEpoch 4 batch 2/20 loss 2\n", None),  # contradicted
        ("Epoch 0/2 batch 1/20 loss 2\nEpoch 0/2 batch 2/20 loss 2\n", None),  # two epochs, or three
        ("epochs=3 lr=1\nEpoch 0/2 batch 1/20 loss 2\nEpoch 0/2 batch 2/20 loss 2\n", 60),
    ],
)
def test_epochs_of_a_configuration_bound_the_training(text: str, total: int | None) -> None:
    assert parse(text.encode()).total == total


def test_yolo_prints_its_losses_and_scores_and_no_arguments() -> None:
    log = fixture("yolov8_arguments")
    assert log.summary is not None
    names = set(log.summary.metrics)
    assert {"val_precision", "val_recall", "val_map50", "val_map50-95", "box_loss"} <= names
    assert not names & {"lr0", "iou", "box", "epochs", "imgsz", "momentum", "lr", "decay"}
