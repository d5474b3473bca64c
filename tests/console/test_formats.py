"""Each format that programs print: a log in that form, and what has to be read from it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.console.conftest import fixture, imported, one, readings

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
}


@pytest.mark.parametrize("name", FORMATS)
def test_steps_total_times_and_metrics(name: str) -> None:
    steps, total, timed, metrics = FORMATS[name]
    told = fixture(name)
    assert [step.index for step in told.steps] == list(range(1, steps + 1))
    assert told.start_step == 0
    assert told.total == total
    assert sum(step.duration > 0 for step in told.steps) == timed
    for metric, value in metrics.items():
        last = told.metric(metric)[-1]
        assert last == (value if isinstance(value, str) else pytest.approx(value))


def test_every_fixture_is_expected_to_say_something() -> None:
    from tests.console.conftest import FIXTURES

    assert {path.stem for path in FIXTURES.glob("*.log")} == set(FORMATS)


# Times and phases


def test_the_times_of_steps_add_up_to_what_the_bar_says_has_elapsed() -> None:
    told = fixture("tqdm_nested")
    assert sum(step.duration for step in told.steps) == pytest.approx(30)
    ends = [step.start + step.duration for step in told.steps]
    assert ends == sorted(ends)


def test_loading_and_evaluating_are_spans_and_no_part_of_a_step() -> None:
    told = fixture("hf_trainer")
    assert told.spans == {"load": 8.0, "eval": 3.0}
    assert max(step.duration for step in told.steps) == pytest.approx(1.0)


def test_bars_of_preparation_are_no_steps() -> None:
    assert fixture("preparation").spans == {"tokenize": 4.0, "download": 4.0, "eval": 2.0}


def test_a_slow_step_has_its_phases() -> None:
    (slow,) = [step for step in fixture("rl_steps").steps if step.phases]
    assert (slow.index, slow.duration, slow.role) == (4, pytest.approx(65.3), "generator")
    assert [(name, seconds) for name, seconds, *_ in slow.phases] == [
        ("generation", 45.2),
        ("test_generation", 3.4),
        ("execution", 12.0),
    ]


def test_a_skipped_step_counts_as_one_with_its_reason() -> None:
    first, *others = fixture("rl_steps").steps
    assert (first.status, first.reason, first.role) == ("skipped", "empty code generated", "generator")
    assert {step.status for step in others} == {"ok"}
    assert [step.role for step in others] == ["generator", "discriminator", "generator", "generator"]


def test_a_step_line_of_the_demo() -> None:
    reading = one("Step 3/10 - Discriminator Reward: 0.35 (gen_passed=2/5, val_passed=4/5)\n")
    assert (reading.step, reading.total, reading.role) == (3, 10, "discriminator")
    assert reading.metrics == {"reward": 0.35, "gen_passed": 2, "gen_total": 5, "val_passed": 4, "val_total": 5}


def test_windows_line_ends_do_not_end_a_block() -> None:
    (slow,) = [step for step in fixture("crlf").steps if step.phases]
    assert slow.phases == [("forward", 1.5, "host", 1)]


def test_phases_in_the_step_line() -> None:
    assert {step.phases[0][:2] for step in fixture("imagenet").steps} == {("data", 0.01)}


def test_a_breakdown_that_exceeds_the_whole_is_told_and_not_believed() -> None:
    told = fixture("cpp_tokens")
    assert any("adds up to 185 %" in note for note in told.notes)
    assert told.metric("loss_seconds") == [76.45]


# Rates and impossible figures


def test_a_cumulative_average_becomes_the_rate_of_each_interval() -> None:
    # 400/s over 75 s, 600/s over 100 s, 750/s over 120 s: 30,000 tokens in each stretch of 75, 25 and 20 seconds
    assert fixture("cpp_tokens").metric("tokens_per_second") == [400, 1200, 1500]


def test_tokens_of_a_step_from_the_rate_and_the_time() -> None:
    told = fixture("torchtitan")
    assert {step.tokens for step in told.steps if step.duration} == {5438}


def test_samples_from_the_batch_size() -> None:
    assert {step.samples for step in fixture("megatron").steps if step.duration} == {16}


@pytest.mark.parametrize(("name", "figure", "count"), [("nanogpt", "mfu", 5), ("lr_sweep", "tok/s", 1)])
def test_figures_that_cannot_be_true_are_left_out_and_counted(name: str, figure: str, count: int) -> None:
    told = fixture(name)
    assert told.summary is not None
    assert told.summary.impossible == {figure: count}
    assert all(isinstance(value, str) or value >= 0 for value in told.metric("mfu") + told.metric("tokens_per_second"))


def test_a_bar_beyond_its_total_says_no_position() -> None:
    told = imported(b"\rTraining:  50%|#####     | 11/10 [00:05<00:05,  1.00it/s]\n")
    assert not told.steps
    assert told.summary is not None
    assert sum(told.summary.impossible.values()) == 1


# Positions


def test_log_rows_are_no_steps() -> None:
    told = imported(b"".join(b"loss: %d.5 lr: 1e-4\n" % row for row in range(50)))
    assert not told.steps
    assert len(told.metric("loss")) == 50


def test_lines_of_other_ranks_are_passed_over_whoever_speaks_first() -> None:
    told = fixture("torchtitan")
    assert told.metric("loss") == [pytest.approx(7.9), pytest.approx(7.0), pytest.approx(6.0)]
    assert told.summary is not None
    assert told.summary.other_ranks == 2  # the first line came before any of rank 0


def test_a_resumed_run_begins_where_it_says() -> None:
    told = imported(b"".join(b"step: %d loss: 1.5\n" % step for step in (5010, 5020, 5030)))
    assert told.start_step == 5009
    assert [step.index for step in told.steps] == list(range(5010, 5031))


def test_steps_that_begin_at_nought() -> None:
    told = imported(b"".join(b"Step %d/4 loss: 1.5\n" % step for step in range(4)))
    assert [step.index for step in told.steps] == [1, 2, 3, 4]


def test_a_new_stage_goes_on_counting() -> None:
    text = "".join(f"Step {n}/3 - {role} Reward: 0.5\n" for role in ("Generator", "Discriminator") for n in (1, 2, 3))
    told = imported(text.encode())
    assert [step.index for step in told.steps] == [1, 2, 3, 4, 5, 6]
    assert told.total == 6


def test_two_roles_that_share_a_step_number_are_one_step() -> None:
    text = "".join(f"Step {n}/3 - {role} Reward: 0.{n}\n" for n in (1, 2, 3) for role in ("Generator", "Discriminator"))
    told = imported(text.encode())
    assert len(told.steps) == 3
    assert told.steps[0].metrics == {"reward": 0.1, "discriminator/reward": 0.1}


def test_prose_about_steps_is_no_step() -> None:
    for text in ("Step 1: load the data", "saving at step 500", "every 10 steps", "running 3 steps of 12 on 4 GPUs"):
        assert not imported(text.encode()).steps, text


def test_an_inner_bar_of_a_step_is_not_the_training() -> None:
    bar = "\rTraining:  {0}0%|##   | {0}/10 [00:0{0}<00:09,  1.00s/it]"
    inner = "\n\rGenerating:  20%|##   | {1}/5 [00:00<00:04,  1.00it/s]\x1b[A"
    told = imported("".join(bar.format(n) + inner.format(n, k) for n in range(1, 5) for k in range(1, 6)).encode())
    assert len(told.steps) == 4
    assert told.total == 10


# Times in the text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("46:47", 2807), ("1:02:03", 3723), ("1m16s", 76), ("00:05", 5), ("1h 2m", 3720), ("2 days, 1:00:00", 176400)],
)
def test_a_time_is_read_with_its_unit(text: str, seconds: float) -> None:
    assert one(f"loss: 0.5 | elapsed: {text}\n").elapsed == seconds


@pytest.mark.parametrize(("text", "seconds"), [("45.2ms", 0.0452), ("65.3s", 65.3), ("120us", 0.00012), ("2 min", 120)])
def test_the_time_of_a_step(text: str, seconds: float) -> None:
    assert one(f"step 5: loss 0.5, time {text}\n").seconds == pytest.approx(seconds)


def test_a_log_that_passes_midnight() -> None:
    told = imported(b"23:59:50 step 1/3 loss 1.0\n00:00:00 step 2/3 loss 1.0\n00:00:10 step 3/3 loss 1.0\n")
    assert [step.duration for step in told.steps] == [0, 10, 10]


# What is drawn


def test_colours_titles_and_links_leave_the_text() -> None:
    (reading,) = readings(b"\x1b]0;title 5\x07\x1b[31mstep\x1b[0m \x1b[1;32m7\x1b[0m/9 loss: \x1b[4m0.5\x1b[24m\n")
    assert (reading.step, reading.total, reading.metrics) == (7, 9, {"loss": 0.5})


def test_nothing_of_a_dict_is_evaluated() -> None:
    (reading,) = readings(b"{'loss': 0.5, 'x': __import__('os').system('exit 3'), 'epoch': 1.0}\n")
    assert reading.metrics == {"loss": 0.5}


def test_a_config_that_is_printed_is_no_metric() -> None:
    assert readings(b"{'num_layers': 12, 'hidden_size': 768}\nbatch_size: 16\nnum_workers=8\n") == []
