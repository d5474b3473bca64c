"""Each format that programs print: a log in that format, and what must be read from it."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

import pytest

from monitor.console import formats
from tests.console.conftest import FIXTURES, Live, fixture, one, parse
from trainhooks.protocol.events import Span

# Log -> steps, total, steps with a duration, and the last value of some metrics.
FORMATS: dict[str, tuple[int, int | None, int, dict[str, Any]]] = {
    "tqdm_nested": (15, 15, 15, {"loss": 0.6}),
    "tqdm_unlabelled": (8, 8, 8, {}),
    "hf_trainer": (12, 12, 12, {"loss": 1.4, "grad_norm": 1.25, "eval_loss": 2.2, "train_loss": 2.2}),
    "lightning": (8, None, 8, {"train_loss": 0.77}),
    "shared_line": (3, 3, 3, {"loss": 0.8}),
    "preparation": (0, None, 0, {}),
    "rich_bar": (6, 6, 0, {"loss": 1.5}),
    "rich_table": (30, None, 0, {"loss": 1.5, "lr": 0.0001}),
    "sb3_table": (0, None, 0, {"ep_rew_mean": 23, "loss": 0.333}),
    "keras2": (8, 8, 4, {"loss": 0.3, "accuracy": 0.54, "val_loss": 0.4}),
    "keras3": (8, 8, 8, {"loss": 0.2, "accuracy": 0.54}),
    "cargo": (5, 5, 0, {"loss": 0.5}),
    "rl_steps": (5, 10, 1, {"reward": 0.6, "gen_passed": 3, "gen_total": 5, "val_passed": 4}),
    "json_lines": (5, None, 0, {"loss": 2.5, "lr": 0.0001, "tokens_per_second": 1000}),
    "json_moments": (5, None, 4, {"loss": 1.5}),
    "key_values": (40, 40, 31, {"loss": 1.0, "lr": 0.0001, "grad_norm": 1.4}),
    "epochs": (4, None, 0, {"loss": 0.46, "tokens_per_second": 334}),
    "cpp_tokens": (0, None, 0, {"loss": 4.1, "tokens": 90000, "samples": 2142}),
    "lr_sweep": (400, 400, 0, {"loss": 3.0, "lr": 0.000905, "tokens_per_second": 19799}),
    "nanogpt": (101, None, 100, {"loss": 3.2, "val_loss": 3.2, "mfu": 11.3}),
    "megatron": (40, 100, 30, {"lm_loss": 8.6, "learning_rate": 1.5e-05, "grad_norm": 2.1}),
    "torchtitan": (20, None, 19, {"loss": 6.0, "mfu": 10.5, "tokens_per_second": 5438}),
    "imagenet": (16, None, 16, {"loss": 5.2}),
    "gan": (8, 8, 0, {"d_loss": 0.8, "g_loss": 0.4}),
    "fractions": (6, 6, 0, {"loss": 1.9, "acc": 0.6}),
    "srun": (6, 6, 0, {"loss": 2.4}),
    "timestamps": (12, 12, 11, {"loss": 1.8}),
    "prose": (0, None, 0, {}),
    "crlf": (3, 3, 1, {"loss": "nan"}),
    "verl": (6, 105, 6, {"critic/rewards/mean": 0.36, "actor/grad_norm": 0.234}),
    "inner_bar": (8, 10, 8, {"reward": 0.8, "kl": 0.008}),
    "xgboost": (25, None, 0, {"train-rmse": 0.42, "eval-rmse": 0.47}),
    "catboost": (25, None, 24, {"learn": 0.45, "best": 0.44}),
    "flax": (600, None, 500, {"train_loss": 5.4, "train_accuracy": 0.16}),
    "fastai": (5, None, 5, {"train_loss": 1.3, "valid_loss": 1.2, "accuracy": 0.541}),
    "comma_separated": (12, None, 12, {"loss": 1.8, "lr": 0.001, "tokens_per_second": 1180}),
    "lightgbm": (6, None, 0, {"training_s_l2": 0.17, "valid_0_s_l2": 0.21}),
    "spacy": (1001, None, 0, {"loss_ner": 50.0, "score": 0.6}),
    "yolo": (24, 24, 24, {"box_loss": 0.9, "cls_loss": 1.78}),
    "detectron2": (199, None, 180, {"total_loss": 1.105, "lr": 1.9981e-05}),
    "fairseq": (700, None, 600, {"loss": 6.9, "ppl": 230}),
    "fairseq_text": (700, None, 600, {"loss": 6.9, "ppl": 230}),
    "llmc": (8, 100, 8, {"loss": 3.9, "val_loss": 5.325, "tokens_per_second": 183521}),
    "llamacpp": (29, 120, 0, {"loss": 3.11, "acc": 40.29}),
    "nanochat": (30, 21400, 30, {"loss": 8.55, "mfu": 48.21}),
    "timm": (200, None, 200, {"loss": 4.91}),
    "torchtitan_total": (30, 1000, 29, {"loss": 10.7, "mfu": 30.14}),
    "dcgan": (80, 1000, 0, {"loss_d": 2.2303, "loss_g": 2.2503}),
    "word_language_model": (8766, None, 8567, {"loss": 5.27, "test_loss": 4.9}),
    "llama2c": (110, None, 109, {"loss": 0.775, "train_loss": 0.8442, "val_loss": 0.8581, "mfu": 22.1}),
    "yolov5": (24, 24, 24, {"box_loss": 0.0452, "obj_loss": 0.0682, "cls_loss": 0.0172, "val_map50": 0.718}),
    "yolov8_arguments": (24, 24, 24, {"box_loss": 1.92, "cls_loss": 2.82, "dfl_loss": 1.48, "val_map50-95": 0.45}),
    "mmengine": (1000, None, 950, {"loss": 2.0809, "coco/bbox_map": 0.223}),
    "cpp_batches": (90, 90, 89, {"loss": 0.7045, "val_loss": 0.974, "val_ppl": 12.3, "tokens_per_second": 1230}),
    "cpp_configuration": (2, 2, 1, {"loss": 1.262, "val_loss": 2.91, "tokens_per_second": 2600}),
    "sweep_epochs": (225, 225, 0, {"loss": 1.8048}),
    "cleanrl": (7552, None, 0, {"sps": 959, "episodic_return": 68}),
    "tinygrad": (0, None, 0, {"loss": 438.74, "lr": 0.000199}),
    "deepspeed": (70, None, 60, {"loss": 2.6, "samples_per_second": 21.333}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_fixture_has_expected_steps_total_durations_and_metrics(name: str) -> None:
    steps, total, timed, metrics = FORMATS[name]
    log = fixture(name)
    assert [step.index for step in log.steps] == list(range(1, steps + 1))
    assert log.start_step == 0
    assert log.total == total
    assert sum(step.duration > 0 for step in log.steps) == timed
    for metric, value in metrics.items():
        last = log.metric(metric)[-1]
        assert last == (value if isinstance(value, str) else pytest.approx(value))


def test_every_fixture_is_used_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    assert [path.stem for path in FIXTURES.glob("*.log") if f'"{path.stem}"' not in tests] == []


# The registry


def test_every_module_of_the_package_registers_a_format() -> None:
    modules = {f"{formats.__name__}.{module.name}" for module in pkgutil.iter_modules(formats.__path__)}
    assert {form.__module__ for form in formats.registered()} == modules


def test_formats_are_asked_in_their_order() -> None:
    orders = [form.order for form in formats.registered()]
    assert orders == sorted(set(orders))


def test_two_formats_of_one_order_are_refused() -> None:
    rival = type("Rival", (formats.Format,), {"order": formats.registered()[0].order})
    with pytest.raises(ValueError, match="Rival"):
        formats.register(rival)
    assert rival not in formats.registered()


# Times and phases


def test_step_durations_add_up_to_elapsed_time_of_bar() -> None:
    log = fixture("tqdm_nested")
    assert sum(step.duration for step in log.steps) == pytest.approx(30)
    ends = [step.start + step.duration for step in log.steps]
    assert ends == sorted(ends)


def test_loading_and_evaluation_are_spans_outside_steps() -> None:
    log = fixture("hf_trainer")
    assert log.spans == {"load": 8.0, "eval": 3.0}
    assert max(step.duration for step in log.steps) == pytest.approx(1.0)


def test_preparation_bars_are_spans() -> None:
    assert fixture("preparation").spans == {"tokenize": 4.0, "download": 4.0, "eval": 2.0}


def test_dataset_and_validation_bars_are_spans() -> None:
    log = fixture("yolo")
    assert {event.name for event in log.events if isinstance(event, Span)} == {"preparation", "eval"}
    assert sum(step.duration for step in log.steps) == pytest.approx(3 * 4.0)


def test_verl_timings_are_phases() -> None:
    step = fixture("verl").steps[-1]
    log = {name: seconds for name, seconds, *_ in step.phases}
    assert log == {"generation": 25.1, "reward": 1.2, "log_probs": 4.1, "advantage": 0.2, "training": 12.4}
    assert step.tokens == 589000
    assert step.duration == pytest.approx(43.5)


def test_step_time_is_preferred_to_coarse_elapsed_time() -> None:
    log = fixture("nanochat")
    assert [step.duration for step in log.steps] == [pytest.approx(0.41233)] * 30
    assert {step.tokens for step in log.steps[1:]} == {round(1271553 * 0.41233)}


def test_average_in_brackets_is_not_elapsed_time() -> None:
    assert {round(step.duration, 6) for step in fixture("timm").steps} == {0.25}


def test_full_bar_redrawn_with_results_is_an_evaluation() -> None:
    bar = "\r{0}/2 [====>.....] - ETA: 0s - loss: 0.{0}"
    full = "\r2/2 [==========] - 2s 1s/step - loss: 0.2 - val_loss: 0.3\n"
    live = Live()
    for now, text in ((1.0, bar.format(1)), (2.0, bar.format(2)), (3.0, "\r "), (7.0, full), (8.0, "Epoch 2/3\n")):
        live.at(now, text)
    log = live.end()
    assert log.spans == {"eval": pytest.approx(4.0)}
    assert log.metric("val_loss") == [0.3]


def test_slow_step_has_its_phases() -> None:
    (slow,) = [step for step in fixture("rl_steps").steps if step.phases]
    assert (slow.index, slow.duration, slow.role) == (4, pytest.approx(65.3), "generator")
    assert [(name, seconds) for name, seconds, *_ in slow.phases] == [
        ("generation", 45.2),
        ("test_generation", 3.4),
        ("execution", 12.0),
    ]


def test_skipped_step_counts_and_has_its_reason() -> None:
    first, *others = fixture("rl_steps").steps
    assert (first.status, first.reason, first.role) == ("skipped", "empty code generated", "generator")
    assert {step.status for step in others} == {"ok"}
    assert [step.role for step in others] == ["generator", "discriminator", "generator", "generator"]


@pytest.mark.parametrize(
    "line",
    [
        "[INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0, lr=[1e-05], mom=[(0.9, 0.95)]",
        "step 10/100 | loss 2.1 | skipped 3",
        "step 10/100 (skipped: 0) loss 2.1",
    ],
)
def test_count_of_skipped_steps_skips_none(line: str) -> None:
    reading = one(line + "\n")
    assert (reading.family, reading.step, reading.reason) == ("step", 10, None)


@pytest.mark.parametrize("line", ["Step 7 skipped: 0 valid samples", "Skipping step 7: 3 tokens only"])
def test_skip_reason_may_start_with_a_number(line: str) -> None:
    reading = one(line + "\n")
    assert (reading.family, reading.step) == ("skip", 7) and reading.reason is not None
    assert reading.reason[1:] in (" valid samples", " tokens only")


@pytest.mark.parametrize("number", [1, 7])
def test_short_phase_names_and_their_total_are_read(number: int) -> None:
    line = f"Step {number}: gen 12.3s | logprob 2.1s | exec 4.5s | train 6.7s | total 25.6s | reward 0.41"
    reading = one(line + "\n")
    assert reading.phases == {"generation": 12.3, "log_probs": 2.1, "execution": 4.5, "training": 6.7}
    assert (reading.seconds, reading.elapsed, reading.metrics) == (25.6, None, {"reward": 0.41})


@pytest.mark.parametrize(
    ("line", "phases", "seconds", "elapsed"),
    [
        ("step=3 loss=0.3 gen_time=12.3s train_time=4.5s", {"generation": 12.3, "training": 4.5}, None, None),
        ("step:3/1770 train_time:250ms step_avg:125ms", {}, None, 0.25),
        ("step 9 loss 0.3 data_time: 0.1s train_time: 84s", {"data": 0.1}, None, 84.0),
        ("step 9 loss 0.3 forward: 0.4s backward: 0.5s total: 84s", {"forward": 0.4, "backward": 0.5}, None, 84.0),
        ("step 9 | loss 0.3 | 0s", {}, None, 0.0),
        ("step 9 loss 0.3 forward: 0.4s backward: 0.5s | 1.0s", {"forward": 0.4, "backward": 0.5}, 1.0, None),
    ],
)
def test_ambiguous_time_is_decided_by_the_other_values(
    line: str, phases: dict[str, float], seconds: float | None, elapsed: float | None
) -> None:
    reading = one(line + "\n")
    assert (reading.phases, reading.seconds, reading.elapsed) == (phases, seconds, elapsed)


def test_single_value_in_brackets_is_a_metric() -> None:
    reading = one("global_step=500, episodic_return=[21.5]\n")
    assert (reading.step, reading.metrics) == (500, {"episodic_return": 21.5})
    assert one("step=10, lr=[1e-05, 1e-05], loss=[0.3]\n").metrics == {"loss": 0.3}


def test_demo_step_line_gives_role_and_metrics() -> None:
    reading = one("Step 3/10 - Discriminator Reward: 0.35 (gen_passed=2/5, val_passed=4/5)\n")
    assert (reading.step, reading.total, reading.role) == (3, 10, "discriminator")
    assert reading.metrics == {"reward": 0.35, "gen_passed": 2, "gen_total": 5, "val_passed": 4, "val_total": 5}


@pytest.mark.parametrize(
    ("line", "log"),
    [
        (
            "Test set: Average loss: 0.0512, Accuracy: 9832/10000 (98%)\n",
            {"test_loss": 0.0512, "test_accuracy": pytest.approx(0.9832)},
        ),
        ("val_acc: 20/200 (10%)\n", {"val_acc": pytest.approx(0.1)}),
        ("accuracy: 0/0\n", {"accuracy": 0, "accuracy_total": 0}),
        ("loss: 1.5, solved: 3/8\n", {"loss": 1.5, "solved": 3, "solved_total": 8}),
    ],
)
def test_fraction_is_accuracy_or_two_metrics(line: str, log: dict[str, float]) -> None:
    assert one(line).metrics == log


def test_windows_line_ends_do_not_end_a_block() -> None:
    (slow,) = [step for step in fixture("crlf").steps if step.phases]
    assert slow.phases == [("forward", 1.5, "host", 1)]


def test_step_line_gives_phases() -> None:
    assert {step.phases[0][:2] for step in fixture("imagenet").steps} == {("data", 0.01)}


def test_breakdown_above_100_percent_is_noted_and_not_used() -> None:
    log = fixture("cpp_tokens")
    assert "inconsistent-console" in log.note_codes
    assert log.metric("loss_seconds") == [76.45]


@pytest.mark.parametrize(
    ("line", "whole"),
    [
        ("Timing: data 40% forward 60% backward 70% optimizer 15%", "185%"),
        ("forward=80.5%, backward=90%", "170%"),
        ("step 9 | loss 0.4 | data 40% | fwd 60% | bwd 70% | opt 15%", "185%"),
        ("Timing: data 10% forward 30% backward 45% optimizer 15%", None),
        ("generation 90% execution 80% reward 70%", None),  # rates of success
    ],
)
def test_percents_above_100_in_one_row_are_noted(line: str, whole: str | None) -> None:
    log = parse(f"step 8 | loss 0.5\n{line}\nstep 10 | loss 0.4\n".encode())
    if whole is None:
        assert log.notes == []
    else:
        (note,) = log.notes
        assert (note.code, whole in note.text) == ("inconsistent-console", True)
    assert log.steps[-1].index == 10


def test_lines_that_ray_passes_on_from_workers_are_not_the_drivers() -> None:
    driver, worker = "step {} loss 0.5\n", "\x1b[36m(Learner pid={})\x1b[0m step 99 loss 7.0\n"
    log = parse("".join(worker.format(1) + driver.format(step) + worker.format(2) for step in range(1, 9)).encode())
    assert [step.index for step in log.steps] == list(range(1, 9)) and set(log.metric("loss")) == {0.5}
    log = parse(
        "".join(f"(Rank pid={pid}) step {step} loss {pid}.0\n" for step in range(1, 9) for pid in (1, 2)).encode()
    )
    assert [step.index for step in log.steps] == list(range(1, 9)) and set(log.metric("loss")) == {1.0}
