"""Formats of more programs, each as a template of its lines: what is read of as many of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import Live, parse

# Template, values of `i`; steps, total, the last value of some metrics. `falling` and `rising` are measured values.
TEMPLATES: dict[str, tuple[str, range, int, int | None, dict[str, Any]]] = {
    "RSL-RL": (
        "      Learning iteration {i}/1500\n\n"
        "            Computation: 9{i:04d} steps/s (collection: 0.832s, learning 0.214s)\n"
        "            Mean reward: {rising:.2f}\n",
        range(20),
        20,
        1500,
        {"mean_reward": 1.9, "env_steps_per_second": 90019},
    ),
    "Isaac Lab": (
        "      Learning iteration {i}/30\n\n      Total steps: 1608\n      Steps per second: 101\n"
        "      Collection time: 0.183s\n      Learning time: 0.054s\n      Mean value loss: {falling:.4f}\n",
        range(20),
        20,
        30,
        {"mean_value_loss": 2.1, "env_steps_per_second": 101},
    ),
    "rl_games": (
        "fps step: 12{i:04d} fps step and policy inference: 80019 fps total: 60019 epoch: {i}/500 frames: 6",
        range(1, 21),
        20,
        500,
        {"fps_total": 60019},
    ),
    "PPO of ikostrikov": (
        "Updates {i}0, num timesteps {i}80, FPS 1501 \n Last 10 training episodes: mean/median reward 20.0/21.0\n",
        range(1, 21),
        200,
        None,
        {"fps": 1501},
    ),
    "ms-swift": (
        "{{'loss': {falling:.4f}, 'memory(GiB)': 69.19, 'epoch': 0.{i:02d}, 'global_step/max_steps': '{i}/94',"
        " 'percentage': '{i}.70%', 'elapsed_time': '16m 51s'}}",
        range(1, 21),
        20,
        94,
        {"loss": 2.0},
    ),
    "sd-scripts": (
        "INFO     epoch is incremented. current_epoch: {i}, epoch: 1    train_util.py:779\n"
        "steps:   1%|7      | {i}/3280 [00:{i:02d}<1:06:54,  1.24s/it, avr_loss={falling:.3f}]",
        range(1, 21),
        20,
        3280,
        {"avr_loss": 2.0, "train_util.py": None, "current_epoch": None},
    ),
    "PaddleOCR": (
        "[2020/11/16 11:{i:02d}:26] root INFO: epoch: [0/100], iter: {i}0, lr: 0.001, acc: 0.5, loss: {falling:.4f},"
        " reader_cost: 0.01444 s, batch_cost: 0.59982 s, samples: 5632, ips: 89.4",
        range(1, 21),
        200,
        None,
        {"loss": 2.0, "samples_per_second": 89.4, "batch_cost": None},
    ),
    "PaddleClas": (
        "[2022/08/05 01:{i:02d}:06] ppcls INFO: [Train][Epoch 3/360][Iter: {i}0/2503]lr(LinearWarmup): 0.3, top1: 0.2,"
        " CELoss: {falling:.4f}, loss: {falling:.4f}, batch_cost: 1.152s, reader_cost: 0.855, ips: 444.4 samples/s",
        range(20),
        191,
        360 * 2503,
        {"loss": 2.1, "samples_per_second": 444.4},
    ),
    "Marian": (
        "[2017-10-18 18:{i:02d}:31] Ep. 1 : Up. {i}00 : Sen. 12,800 : Cost {falling:.2f} * 13,341 @ 5,120 after 5,203"
        " : Time 6.91s : 13596.73 words/s : gNorm 0.43 : L.r. 4.6154e-05",
        range(1, 21),
        2000,
        None,
        {"cost": 2.0, "tokens_per_second": 13596.73, "lr": 4.6154e-05, "grad_norm": 0.43},
    ),
    "ESPnet": (
        "[gpu01:0/2] 2020-07-19 08:{i:02d}:04,080 (trainer:464) INFO: 1epoch:train:1-{i}00batch: iter_time=2.9e-04,"
        " forward_time=0.134, loss={falling:.3f}, backward_time=0.111, optim_step_time=0.030, train_time=1.8",
        range(1, 21),
        2000,
        None,
        {"loss": 2.0, "trainer": None, "gpu01": None},
    ),
    "OpenNMT": (
        "Epoch  1, {i}0/37527; acc:   4.48; ppl: {falling:.2f}; xent:  9.46; 3438 src tok/s;   9823 s elapsed",
        range(1, 21),
        200,
        None,
        {"ppl": 2.0},
    ),
    "MXNet": (
        "INFO:root:Epoch[0] Batch [0-{i}0]\tSpeed: 1234.56 samples/sec\taccuracy={rising:.4f}",
        range(1, 21),
        200,
        None,
        {"accuracy": 2.0, "samples_per_second": 1234.56},
    ),
    "Flair": (
        "epoch 1 - iter {i}0/300 - loss {falling:.8f} - time (sec): 3.20 - samples/sec: 100.20 - lr: 0.1"
        " - momentum: 0.0",
        range(1, 21),
        200,
        300,
        {"loss": 2.0, "samples_per_second": 100.2},
    ),
    "BMTrain": (
        "|Iter:   {i} | loss: {falling:.4f} average_loss: 3.1 | lr: 1.0e-04 | scale: 65536.0 | time: 0.1234 |",
        range(1, 21),
        20,
        None,
        {"loss": 2.0, "lr": 0.0001},
    ),
    "AudioCraft": (
        "[flashy.solver][INFO] - Train | Epoch 1 | {i}00/3000 | 1.23 it/sec | ce {falling:.3f} | ppl 400.0",
        range(1, 21),
        2000,
        None,
        {"ce": 2.0},
    ),
    "char-rnn": (
        "{i}/21200 (epoch 0.00{i}), train_loss = {falling:.4f}, grad/param norm = 5.2e-01, time/batch = 0.12s",
        range(1, 21),
        20,
        21200,
        {"train_loss": 2.0},
    ),
    "candle": (
        "  {i:2d} train loss:  {falling:.5f} test acc: 50.00%",
        range(1, 21),
        20,
        None,
        {"train_loss": 2.0, "test_acc": 50},
    ),
    "OLMo": (
        "host:0\tolmo.train:816\tINFO\t[step={i}/1000,epoch=0] loss={falling:.3f}",
        range(1, 21),
        20,
        1000,
        {"loss": 2.0, "host": None, "olmo.train": None},
    ),
    "DreamerV3": (
        "episode/length 500 / episode/score {rising:.2f} / train/loss/image 99.5",
        range(1, 21),
        0,
        None,
        {"episode/score": 2.0, "train/loss/image": 99.5},
    ),
    "Brax": (
        "num_steps: {i}0000, eval/episode_reward: {rising:.2f}, training/sps: 123456.0",
        range(1, 21),
        0,
        None,
        {"eval/episode_reward": 2.0},
    ),
    "a bar of percents": (
        "Epoch 1 [=====     ] {i}% loss={falling:.2f}",
        range(1, 21),
        0,
        None,
        {"loss": 2.0},
    ),
}


@pytest.mark.parametrize("name", TEMPLATES)
def test_steps_total_and_metrics_are_read(name: str) -> None:
    template, numbers, steps, total, metrics = TEMPLATES[name]
    lines = [template.format(i=i, falling=4.0 - i / 10, rising=i / 10) for i in numbers]
    log = parse("\n".join([*lines, ""]).encode())
    assert (len(log.steps), log.total) == (steps, total)
    assert {key: (log.metric(key) or [None])[-1] for key in metrics} == pytest.approx(metrics)


def read_live(lines: list[str], seconds: float) -> Live:
    live = Live()
    for number, line in enumerate(lines):
        live.at(seconds * (number + 1), line)
    return live


def test_the_parts_of_an_iteration_are_its_phases() -> None:
    for name in ("RSL-RL", "Isaac Lab"):
        template, numbers, *_ = TEMPLATES[name]
        log = read_live([template.format(i=i, falling=1.0, rising=1.0) for i in numbers], 1.1).end()
        phases = {phase: seconds for phase, seconds, *_ in log.steps[-1].phases}
        assert phases.keys() == {"rollout", "training"} and phases["rollout"] > phases["training"], name


def test_steps_per_second_elsewhere_are_steps_of_the_training() -> None:
    log = parse("".join(f"step {i} loss 2.{i:02d}\nSteps per second: 12.5\n" for i in range(1, 21)).encode())
    assert not log.metric("env_steps_per_second")


EPOCHS = [(epoch, step) for epoch in (1, 2, 3) for step in range(1, 21)]


@pytest.mark.parametrize(
    ("lines", "totals"),
    [
        # Of one epoch; known once it is beyond a third of the way in the first of three epochs.
        ([f"Epoch {epoch}/3, Step {step}/20, Loss: 1.5" for epoch, step in EPOCHS], [60]),
        # Of the whole run; known once the second epoch goes on from it.
        ([f"Epoch {epoch}/3, Step {20 * (epoch - 1) + step}/60, Loss: 1.5" for epoch, step in EPOCHS], [60]),
        ([f"Epoch 1/1, Step {step}/20, Loss: 1.5" for step in range(1, 10)], [20]),
    ],
)
def test_a_total_beside_epochs_is_claimed_once_it_is_known_whose_it_is(lines: list[str], totals: list[int]) -> None:
    log = parse("\n".join([*lines, ""]).encode())
    told = [event.total_steps for event in log.events if getattr(event, "total_steps", None)]
    assert told == totals
