"""Rates, impossible figures and lines of single forms: what is read from each, and what is left out."""

from __future__ import annotations

import pytest

from tests.console.conftest import Live, fixture, imported, one, readings

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


def test_ranks_at_the_head_of_a_line_are_no_steps_for_long() -> None:
    lines = [f"[{rank}] loss: {9 - step / 10:.1f}\n" for step in range(50) for rank in range(4)]
    assert len(imported("".join(lines).encode()).steps) <= 4
    assert not imported("".join(f"[{n % 2}] loss: {9 - n / 100}\n" for n in range(100)).encode()).steps


def test_two_numbers_at_the_head_of_lines_are_too_few_to_be_steps_and_their_figures_are_kept() -> None:
    told = imported(b"[1]\ttrain-rmse:0.5\n[2]\ttrain-rmse:0.4\n")
    assert not told.steps
    assert told.metric("train-rmse") == [0.5, 0.4]


@pytest.mark.parametrize(
    ("lines", "steps", "each"),
    [
        ("05/05/2024 10:00:{0:02d} - INFO - __main__ - epoch 0: step {0} loss 2.0\n", 9, 1.0),  # transformers' examples
        ("31/12/2024 10:00:{0:02d} INFO step {0} loss 2.0\n", 9, 1.0),
        ("Iter {0}: Train loss 3.0, It/sec 0.5, Tokens/sec 293.2\n", 9, 2.0),  # mlx
        ("Epoch {0}/9\n10/10 - 2s - loss: 0.5 - val_loss: 0.6 - 2s/epoch - 200ms/step\n", 90, 0.2),  # Keras, verbose=2
        ("Epoch {0}/9\n10/10 - 2s - loss: 0.5 - val_loss: 0.6\n", 90, None),
    ],
)
def test_lines_without_a_bar_tell_their_times(lines: str, steps: int, each: float | None) -> None:
    told = imported("".join(lines.format(n) for n in range(1, 10)).encode()).steps
    assert [step.index for step in told] == list(range(1, steps + 1))
    if each is not None:
        assert [step.duration for step in told[10:]] == [pytest.approx(each)] * len(told[10:])
        assert told[-1].duration == pytest.approx(each)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("step {} loss 0.5 1234.0 samples/s", (None, 1234.0, None)),
        ("step {} loss 0.5 lr 1e-3 1.2k tok/s 12.5 ms", (1200.0, None, 0.0125)),
        ("step {} loss 0.5 12.5ms/step", (None, None, 0.0125)),
    ],
)
def test_a_rate_or_a_time_behind_pairs_with_nothing_between(line: str, told: tuple[float | None, ...]) -> None:
    reading = one(line.format(7) + "\n")
    assert (reading.step, reading.metrics["loss"]) == (7, 0.5)
    assert (reading.tokens_rate, reading.samples_rate, reading.seconds) == told


@pytest.mark.parametrize(
    "line", ["Episode {}/40: reward 0.5", "Episode: {}, Reward: 3.0", '{{"episode": {}, "reward": 1.5}}']
)
def test_episodes_are_the_steps_where_nothing_finer_is_numbered(line: str) -> None:
    told = imported("".join(line.format(n) + "\n" for n in range(1, 41)).encode())
    assert [step.index for step in told.steps] == list(range(1, 41))
    assert told.total == (40 if "/40" in line else None)
    finer = imported(b"".join(b"Episode %d Step %d reward 0.5\n" % (n, k) for n in (1, 2, 3) for k in range(1, 21)))
    assert len(finer.steps) == 60


def test_the_lines_of_torchs_tutorial() -> None:
    told = imported(b"".join(b"[%d, %5d] loss: 1.%d\n" % (e, n, e) for e in (1, 2) for n in (2000, 4000, 6000)))
    assert len(told.steps) == 12_000 and told.metric("loss")[-1] == 1.2
    assert readings(b"[1, 2000] rows were read, 5 skipped\n") == []


def test_a_table_of_scikit_learn() -> None:
    head = "      Iter       Train Loss   Remaining Time \n"
    told = imported((head + "".join(f"{n:10d} {1 - n / 100:16.4f} {10 - n:14.2f}s\n" for n in range(1, 9))).encode())
    assert [step.index for step in told.steps] == list(range(1, 9))
    assert told.metric("train_loss")[-1] == pytest.approx(0.92)


def test_rows_of_numbers_without_a_head_are_nothing() -> None:
    assert readings(b"1  0.5  0.25\n2  0.4  0.5\nname  loss  size\n3  0.3  0.75\n") == []


def test_what_a_bar_leaves_open_the_line_beside_it_completes() -> None:
    live = Live()
    for step in range(1, 4):
        live.at(step * 2.0, f"\rTraining: 10%|#  | {step}/9 [00:0{2 * step}<00:09,  2.00s/it]\r ")
        live.at(step * 2.0 + 0.01, f"\nstep:{step} - loss:0.5 - perf/total_num_tokens:700 - timing_s/gen:1.5\n")
    told = live.end()
    assert [step.index for step in told.steps] == [1, 2, 3]
    assert {step.tokens for step in told.steps} == {700}
    assert [step.phases for step in told.steps] == [[("generation", 1.5, "host", 1)]] * 3


def test_a_rate_of_one_device_is_not_taken_for_the_runs() -> None:
    for called in ("tokens_per_second_per_gpu", "Tokens/s/device", "tgs"):
        reading = one(f"step: 5 loss: 2.0, {called}: 3000\n")
        assert reading.tokens_rate is None
        assert reading.metrics["tokens_per_second_per_device"] == 3000


def test_the_layers_of_a_model_in_a_table_are_no_metrics() -> None:
    head = "┃   ┃ Name ┃ Type       ┃ Params ┃ Mode  ┃ FLOPs ┃\n"
    rows = "│ 0 │ n    │ Sequential │  789 K │ train │     0 │\n│ 1 │ m    │ Linear │ 12 │ train │ 7 │\n"
    assert readings((head + rows).encode()) == []
    (told,) = readings(b"| split | loss | f1   |\n| train | 0.31 | 0.9 |\n")
    assert told.metrics == {"loss": 0.31, "f1": 0.9}


def test_a_configuration_in_a_table_or_a_sentence_is_no_metric() -> None:
    table = b"| max_sequence_length T | 1024 |\n| num_layers | 12 |\n\n"
    (total,) = readings(table + b"training starts at step 1, with local batch size 8, total steps 1000 (warmup 200)\n")
    assert (total.total, total.step, total.metrics) == (1000, None, {})
    assert readings(b"Learning rate set to 0.03\n") == []


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
