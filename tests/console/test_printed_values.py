"""Rates, impossible values and single lines: what is read from each, and what is ignored."""

from __future__ import annotations

import pytest

from tests.console.conftest import Live, fixture, one, parse, readings

# Rates and impossible values


def test_cumulative_average_becomes_interval_rate() -> None:
    # 400/s over 75 s, 600/s over 100 s, 750/s over 120 s: 30,000 tokens in intervals of 75, 25 and 20 seconds
    assert fixture("cpp_tokens").metric("tokens_per_second") == [400, 1200, 1500]


def test_step_tokens_are_rate_times_duration() -> None:
    log = fixture("torchtitan")
    assert {step.tokens for step in log.steps if step.duration} == {5438}


def test_step_samples_are_the_batch_size() -> None:
    assert {step.samples for step in fixture("megatron").steps if step.duration} == {16}


@pytest.mark.parametrize(("name", "value", "count"), [("nanogpt", "mfu", 5), ("lr_sweep", "tok/s", 1)])
def test_impossible_values_are_ignored_and_counted(name: str, value: str, count: int) -> None:
    log = fixture(name)
    assert log.summary is not None
    assert log.summary.impossible == {value: count}
    assert all(isinstance(value, str) or value >= 0 for value in log.metric("mfu") + log.metric("tokens_per_second"))


def test_bar_beyond_its_total_gives_no_step() -> None:
    log = parse(b"\rTraining:  50%|#####     | 11/10 [00:05<00:05,  1.00it/s]\n")
    assert not log.steps
    assert log.summary is not None
    assert sum(log.summary.impossible.values()) == 1


# Positions


def test_rows_without_numbers_are_not_counted_as_steps() -> None:
    log = parse(b"".join(b"loss: %d.5 lr: 1e-4\n" % row for row in range(50)))
    assert not log.steps
    assert len(log.metric("loss")) == 50


def test_lines_of_other_ranks_are_ignored() -> None:
    log = fixture("torchtitan")
    assert log.metric("loss") == [pytest.approx(7.9), pytest.approx(7.0), pytest.approx(6.0)]
    assert log.summary is not None
    assert log.summary.other_ranks == 2  # the first line came before any of rank 0


def test_resumed_run_starts_at_its_first_step() -> None:
    log = parse(b"".join(b"step: %d loss: 1.5\n" % step for step in (5010, 5020, 5030)))
    assert log.start_step == 5009
    assert [step.index for step in log.steps] == list(range(5010, 5031))


def test_steps_numbered_from_zero_count_from_one() -> None:
    log = parse(b"".join(b"Step %d/4 loss: 1.5\n" % step for step in range(4)))
    assert [step.index for step in log.steps] == [1, 2, 3, 4]


def test_new_stage_continues_the_count() -> None:
    text = "".join(f"Step {n}/3 - {role} Reward: 0.5\n" for role in ("Generator", "Discriminator") for n in (1, 2, 3))
    log = parse(text.encode())
    assert [step.index for step in log.steps] == [1, 2, 3, 4, 5, 6]
    assert log.total == 6


def test_roles_with_one_step_number_make_one_step() -> None:
    text = "".join(f"Step {n}/3 - {role} Reward: 0.{n}\n" for n in (1, 2, 3) for role in ("Generator", "Discriminator"))
    log = parse(text.encode())
    assert len(log.steps) == 3
    assert log.steps[0].metrics == {"reward": 0.1, "discriminator/reward": 0.1}


def test_leading_rank_numbers_are_not_steps() -> None:
    lines = [f"[{rank}] loss: {9 - step / 10:.1f}\n" for step in range(50) for rank in range(4)]
    assert len(parse("".join(lines).encode()).steps) <= 4
    assert not parse("".join(f"[{n % 2}] loss: {9 - n / 100}\n" for n in range(100)).encode()).steps


def test_two_leading_numbers_are_not_steps_but_metrics_are_kept() -> None:
    log = parse(b"[1]\ttrain-rmse:0.5\n[2]\ttrain-rmse:0.4\n")
    assert not log.steps
    assert log.metric("train-rmse") == [0.5, 0.4]


@pytest.mark.parametrize(
    ("lines", "steps", "duration"),
    [
        ("05/05/2024 10:00:{0:02d} - INFO - __main__ - epoch 0: step {0} loss 2.0\n", 9, 1.0),  # transformers' examples
        ("31/12/2024 10:00:{0:02d} INFO step {0} loss 2.0\n", 9, 1.0),
        ("Iter {0}: Train loss 3.0, It/sec 0.5, Tokens/sec 293.2\n", 9, 2.0),  # mlx
        ("Epoch {0}/9\n10/10 - 2s - loss: 0.5 - val_loss: 0.6 - 2s/epoch - 200ms/step\n", 90, 0.2),  # Keras, verbose=2
        ("Epoch {0}/9\n10/10 - 2s - loss: 0.5 - val_loss: 0.6\n", 90, None),
    ],
)
def test_lines_without_a_bar_give_durations(lines: str, steps: int, duration: float | None) -> None:
    log = parse("".join(lines.format(n) for n in range(1, 10)).encode()).steps
    assert [step.index for step in log] == list(range(1, steps + 1))
    if duration is not None:
        assert [step.duration for step in log[10:]] == [pytest.approx(duration)] * len(log[10:])
        assert log[-1].duration == pytest.approx(duration)


@pytest.mark.parametrize(
    ("line", "log"),
    [
        ("step {} loss 0.5 1234.0 samples/s", (None, 1234.0, None)),
        ("step {} loss 0.5 lr 1e-3 1.2k tok/s 12.5 ms", (1200.0, None, 0.0125)),
        ("step {} loss 0.5 12.5ms/step", (None, None, 0.0125)),
    ],
)
def test_trailing_rate_or_time_is_read(line: str, log: tuple[float | None, ...]) -> None:
    reading = one(line.format(7) + "\n")
    assert (reading.step, reading.metrics["loss"]) == (7, 0.5)
    assert (reading.tokens_rate, reading.samples_rate, reading.seconds) == log


@pytest.mark.parametrize(
    "line",
    [
        "generation {} mean_return 31.4",
        "Gen {}/40: best 7.0",
        "Episode {}/40: reward 0.5",
        "Episode: {}, Reward: 3.0",
        '{{"episode": {}, "reward": 1.5}}',
    ],
)
def test_episodes_are_steps_without_finer_counter(line: str) -> None:
    log = parse("".join(line.format(n) + "\n" for n in range(1, 41)).encode())
    assert [step.index for step in log.steps] == list(range(1, 41))
    assert log.total == (40 if "/40" in line else None)
    finer = parse(b"".join(b"Episode %d Step %d reward 0.5\n" % (n, k) for n in (1, 2, 3) for k in range(1, 21)))
    assert len(finer.steps) == 60


def test_torch_tutorial_lines_give_steps_and_loss() -> None:
    log = parse(b"".join(b"[%d, %5d] loss: 1.%d\n" % (e, n, e) for e in (1, 2) for n in (2000, 4000, 6000)))
    assert len(log.steps) == 12_000 and log.metric("loss")[-1] == 1.2
    assert readings(b"[1, 2000] rows were read, 5 skipped\n") == []


def test_scikit_learn_table_gives_steps_and_loss() -> None:
    head = "      Iter       Train Loss   Remaining Time \n"
    log = parse((head + "".join(f"{n:10d} {1 - n / 100:16.4f} {10 - n:14.2f}s\n" for n in range(1, 9))).encode())
    assert [step.index for step in log.steps] == list(range(1, 9))
    assert log.metric("train_loss")[-1] == pytest.approx(0.92)


def test_rows_without_header_are_ignored() -> None:
    assert readings(b"1  0.5  0.25\n2  0.4  0.5\nname  loss  size\n3  0.3  0.75\n") == []


def test_line_beside_a_bar_adds_tokens_and_phases() -> None:
    live = Live()
    for step in range(1, 4):
        live.at(step * 2.0, f"\rTraining: 10%|#  | {step}/9 [00:0{2 * step}<00:09,  2.00s/it]\r ")
        live.at(step * 2.0 + 0.01, f"\nstep:{step} - loss:0.5 - perf/total_num_tokens:700 - timing_s/gen:1.5\n")
    log = live.end()
    assert [step.index for step in log.steps] == [1, 2, 3]
    assert {step.tokens for step in log.steps} == {700}
    assert [step.phases for step in log.steps] == [[("generation", 1.5, "host", 1)]] * 3


def test_per_device_rate_is_not_the_rate_of_the_run() -> None:
    for called in ("tokens_per_second_per_gpu", "Tokens/s/device", "tgs"):
        reading = one(f"step: 5 loss: 2.0, {called}: 3000\n")
        assert reading.tokens_rate is None
        assert reading.metrics["tokens_per_second_per_device"] == 3000


def test_table_of_model_layers_gives_no_metrics() -> None:
    head = "┃   ┃ Name ┃ Type       ┃ Params ┃ Mode  ┃ FLOPs ┃\n"
    rows = "│ 0 │ n    │ Sequential │  789 K │ train │     0 │\n│ 1 │ m    │ Linear │ 12 │ train │ 7 │\n"
    assert readings((head + rows).encode()) == []
    (log,) = readings(b"| split | loss | f1   |\n| train | 0.31 | 0.9 |\n")
    assert log.metrics == {"loss": 0.31, "f1": 0.9}


def test_printed_configuration_gives_only_the_total() -> None:
    table = b"| max_sequence_length T | 1024 |\n| num_layers | 12 |\n\n"
    (total,) = readings(table + b"training starts at step 1, with local batch size 8, total steps 1000 (warmup 200)\n")
    assert (total.total, total.step, total.metrics) == (1000, None, {})
    assert readings(b"Learning rate set to 0.03\n") == []


def test_prose_about_steps_gives_no_step() -> None:
    for text in ("Step 1: load the data", "saving at step 500", "every 10 steps", "running 3 steps of 12 on 4 GPUs"):
        assert not parse(text.encode()).steps, text


def test_inner_bar_gives_no_steps() -> None:
    bar = "\rTraining:  {0}0%|##   | {0}/10 [00:0{0}<00:09,  1.00s/it]"
    inner = "\n\rGenerating:  20%|##   | {1}/5 [00:00<00:04,  1.00it/s]\x1b[A"
    log = parse("".join(bar.format(n) + inner.format(n, k) for n in range(1, 5) for k in range(1, 6)).encode())
    assert len(log.steps) == 4
    assert log.total == 10


# Times in the text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("46:47", 2807), ("1:02:03", 3723), ("1m16s", 76), ("00:05", 5), ("1h 2m", 3720), ("2 days, 1:00:00", 176400)],
)
def test_elapsed_time_is_in_seconds_for_every_unit(text: str, seconds: float) -> None:
    assert one(f"loss: 0.5 | elapsed: {text}\n").elapsed == seconds


@pytest.mark.parametrize(("text", "seconds"), [("45.2ms", 0.0452), ("65.3s", 65.3), ("120us", 0.00012), ("2 min", 120)])
def test_step_time_is_in_seconds_for_every_unit(text: str, seconds: float) -> None:
    assert one(f"step 5: loss 0.5, time {text}\n").seconds == pytest.approx(seconds)


def test_steps_across_midnight_have_their_duration() -> None:
    log = parse(b"23:59:50 step 1/3 loss 1.0\n00:00:00 step 2/3 loss 1.0\n00:00:10 step 3/3 loss 1.0\n")
    assert [step.duration for step in log.steps] == [0, 10, 10]


# What is drawn


def test_colors_titles_and_links_are_removed() -> None:
    (reading,) = readings(b"\x1b]0;title 5\x07\x1b[31mstep\x1b[0m \x1b[1;32m7\x1b[0m/9 loss: \x1b[4m0.5\x1b[24m\n")
    assert (reading.step, reading.total, reading.metrics) == (7, 9, {"loss": 0.5})


def test_dict_is_parsed_and_not_evaluated() -> None:
    (reading,) = readings(b"{'loss': 0.5, 'x': __import__('os').system('exit 3'), 'epoch': 1.0}\n")
    assert reading.metrics == {"loss": 0.5}


def test_printed_config_dict_gives_nothing() -> None:
    assert readings(b"{'num_layers': 12, 'hidden_size': 768}\nbatch_size: 16\nnum_workers=8\n") == []


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("iter   2 reward   47.77 loss   0.036 entropy 0.457", {"reward": 47.77, "loss": 0.036, "entropy": 0.457}),
        ("step   10   loss  -0.668   lr   1e-4", {"loss": -0.668, "lr": 1e-4}),
        ("step 3 | reward 2.175 +- 1.741 | loss 0.5", {"reward": 2.175, "loss": 0.5}),
        ("step 3: acc 0.93 +/- 0.02, loss=0.5 ± 0.1", {"acc": 0.93, "loss": 0.5}),
    ],
)
def test_aligned_columns_and_spreads_behind_means(line: str, metrics: dict[str, float]) -> None:
    assert one(line).metrics == metrics
