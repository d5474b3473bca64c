"""Results of an evaluation have names of their own, and its lines move no training on."""

from __future__ import annotations

import pytest

from tests.console.conftest import Live, one, parse

TRAINING = "Epoch 1 batch 19/20 loss 2.5\nEpoch 1 batch 20/20 loss 2.4\n"


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("Validation | Loss: 2.9 | Perplexity: 18.3", {"val_loss": 2.9, "val_perplexity": 18.3}),
        ("Epoch 1/2 | Validation | Loss: 2.9 | Acc: 0.7", {"val_loss": 2.9, "val_acc": 0.7}),
        ("Train loss 2.5 | Validation | Loss 2.9", {"train_loss": 2.5, "val_loss": 2.9}),
        ("[Val]: loss 2.9 acc 0.7", {"val_loss": 2.9, "val_acc": 0.7}),
        ("Test: [41/50]\tLoss 4.5e+00 (4.5e+00)", {"test_loss": 4.5}),
        ("Epoch(val)  [1][ 50/100]  loss: 2.9", {"val_loss": 2.9}),
        ("Val. Loss: 2.9 | Val. Acc: 70%", {"val_loss": 2.9, "val_acc": 70}),
        ("val Loss: 2.9 Acc: 0.8", {"val_loss": 2.9, "val_acc": 0.8}),
        ("val loss 2.9, lr 0.1", {"val_loss": 2.9, "lr": 0.1}),
        ("valid_loss 2.9 loss 2.5", {"valid_loss": 2.9, "loss": 2.5}),
        ("train loss 2.5, val loss 2.9", {"train_loss": 2.5, "val_loss": 2.9}),
        ("loss 2.5 | val: 2.9", {"loss": 2.5, "val": 2.9}),
        ("Loss (test): 2.9", {"loss": 2.9}),
    ],
)
def test_results_are_named_by_their_evaluation(line: str, metrics: dict[str, float]) -> None:
    reading = one(line)
    assert (reading.metrics, reading.step) == (metrics, None)


@pytest.mark.parametrize(
    "line", ["Test: [ 41/50] Loss 4.5", "Validation batch 41/50 loss 4.5", "val | step 41 | loss 4.5"]
)
def test_an_evaluation_moves_no_training_on(line: str) -> None:
    assert [step.index for step in parse((TRAINING + line + "\n").encode()).steps][-1] == 20


def test_block_belongs_to_the_step_that_it_names() -> None:
    live = Live()
    live.at(1.0, "step 10 loss 2.0\n")
    live.at(1.9, "SLOW STEP 17: 600 ms\n  forward: 500 ms\n")
    live.at(2.5, "step 20 loss 1.9\n")
    log = live.end()
    (slow,) = [step for step in log.steps if step.phases]
    assert (slow.index, slow.duration) == (17, pytest.approx(0.6))
    assert sum(step.duration for step in log.steps if step.index > 10) == pytest.approx(1.5)
    assert log.notes == []


def test_block_longer_than_the_mean_of_its_steps_contradicts_nothing() -> None:
    live = Live()
    live.at(1.0, "step 10 loss 2.0\n")
    live.at(2.0, "step 20 loss 1.9\nSlow step (0.6s):\n  forward: 0.5s\n\n")
    live.at(3.0, "step 30 loss 1.9\n")
    assert live.end().notes == []
