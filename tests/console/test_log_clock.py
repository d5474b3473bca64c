"""Finished logs: the seconds of their steps, by whatever times their lines have."""

from __future__ import annotations

import pytest

from tests.console.conftest import parse


def clock(seconds: float) -> str:
    return f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"


def bar(step: int, total: int, elapsed: float, label: str = "") -> str:
    percent = 100 * step // total
    return f"{label}{percent:3d}%|{'#' * (percent // 10):10s}| {step}/{total} [{clock(elapsed)}<00:00, 1.00it/s]"


def seconds_of(text: str) -> list[float]:
    return [round(step.duration, 3) for step in parse(text.encode()).steps]


def test_times_of_day_beside_a_bar_leave_it_its_time() -> None:
    lines = ["[2024-03-01 10:00:00,000] [INFO] lr: 0.1 loss scale: 1.0"]  # the bar begins a minute later
    lines += [bar(step, 60, 2 * step) for step in range(31)]
    lines += ["[2024-03-01 10:02:01,000] [INFO] learning rate: 0.03"]
    lines += [bar(step, 60, 2 * step) for step in range(31, 61)]
    lines += ["[2024-03-01 10:03:31,000] [INFO] val loss: 0.4"]  # half a minute after its end
    log = parse("\n".join([*lines, ""]).encode())
    assert [step.duration for step in log.steps] == pytest.approx([2.0] * 60)
    assert log.summary is not None
    assert log.summary.seconds == pytest.approx(150.0)


def test_times_of_day_in_the_lines_of_steps_come_before_a_bar() -> None:
    lines = []
    for step in range(1, 31):
        lines += [f"2024-03-01 10:00:{step:02d},000 INFO step {step} loss 0.5", bar(step, 30, 5 * step)]
    assert seconds_of("\n".join([*lines, ""]))[1:] == pytest.approx([1.0] * 29)


def test_elapsed_times_count_from_where_the_time_of_day_ends() -> None:
    lines = ["2024-03-01 10:00:00 INFO lr=0.1", "2024-03-01 10:05:00 INFO model loaded, acc=0.0"]
    lines += [f"step {step} loss 0.5 elapsed {4 * step}s" for step in range(1, 11)]
    assert seconds_of("\n".join([*lines, ""]))[1:] == pytest.approx([4.0] * 9)


def test_a_time_without_a_name_that_does_not_grow_is_the_time_since_the_line_before() -> None:
    times = [13.1, 12.9, 13.2, 13.0, 13.1, 13.3]
    of_lines = [f"step {10 * at}: loss 4.{at} ({time}s)" for at, time in enumerate(times, 1)]
    assert seconds_of("\n".join([*of_lines, ""]))[10:] == [round(time / 10, 3) for time in times[1:] for _ in range(10)]
    grows = [f"step {10 * at}: loss 4.{at} ({13.0 * at:.1f}s)" for at in range(1, 7)]
    assert seconds_of("\n".join([*grows, ""]))[10:] == [1.3] * 50
    each_epoch = [f"epoch {epoch} step {at} loss 0.5 ({2.0 * at:.1f}s)" for epoch in (1, 2) for at in range(1, 6)]
    assert seconds_of("\n".join([*each_epoch, ""]))[1:] == [2.0] * 9


@pytest.mark.parametrize("times", [[131, 132, 135, 140, 150], [150, 140, 135, 132, 131], [131] * 5])
@pytest.mark.parametrize("steps", [1, 100])
@pytest.mark.parametrize("label", ["", "Epoch {}: "])
def test_bar_drawn_only_at_its_end_is_a_new_one_with_each_epoch(times: list[int], steps: int, label: str) -> None:
    lines = []
    for epoch, spent in enumerate(times, 1):
        lines += [f"Epoch {epoch}/5", bar(steps, steps, spent, label.format(epoch)), f"loss: {1 / epoch:.3f}"]
    expected = [spent / steps for spent in times for _ in range(steps)]
    assert seconds_of("\n".join([*lines, ""])) == pytest.approx(expected, abs=1e-3)


def test_bars_of_evaluations_drawn_only_at_their_end_are_as_many_evaluations() -> None:
    lines = []
    for epoch in range(1, 6):
        lines += [bar(50, 50, 345, "Train: "), bar(10, 10, 20, "Eval: "), f"Epoch {epoch}: train_loss=0.5 val_loss=0.4"]
    log = parse("\n".join([*lines, ""]).encode())
    assert [round(step.duration, 3) for step in log.steps] == [6.9] * 250
    assert log.summary is not None
    assert log.summary.spans["eval"] == pytest.approx(100.0)


def test_full_bar_drawn_again_at_its_end_is_no_other_one() -> None:
    drawn = [bar(step, 1000, step / 10) for step in (0, 500, 1000)]
    log = parse("\r".join(drawn).encode() + b"\nEpoch 3/3 loss 0.5\n" + bar(1000, 1000, 101).encode() + b"\n")
    assert len(log.steps) == 1000
    assert sum(step.duration for step in log.steps) == pytest.approx(100.0)


EPOCH_LINES = [
    ("Epoch {epoch}/40 loss 0.5 time: {own:.1f}s", True),  # values with and without a sign in one segment
    ("Epoch {epoch}/40 | time: {own:.1f}s | loss 0.5", True),
    ("Epoch {epoch}: loss 0.5 ({own:.1f}s)", True),
    ("Epoch {epoch:3d} | loss 0.5 | 6350 tok/s | {own:.2f}s", True),
    ("Epoch {epoch}: train loss 0.5, val loss 1.2, elapsed {all:.1f}s", False),
    ("Epoch {epoch} | loss 0.5 | {all:.1f}s", False),
]


@pytest.mark.parametrize(("template", "is_own"), EPOCH_LINES)
def test_time_of_an_epoch_is_its_own_unless_it_grows(template: str, is_own: bool) -> None:
    own = [60.5 + epoch % 3 if is_own else 60.0 for epoch in range(20)]
    lines = [template.format(epoch=epoch + 1, own=own[epoch], all=sum(own[: epoch + 1])) for epoch in range(20)]
    assert seconds_of("\n".join([*lines, ""])) == pytest.approx(own)


def test_rates_of_epochs_that_tell_their_time_are_the_printed_ones() -> None:
    lines = [
        f"Epoch {epoch} completed - Avg Loss: 3.1 | Avg tokens/sec: {6350 + epoch:.3f} | Total time: {12 + epoch % 2}s"
        for epoch in range(1, 9)
    ]
    steps = parse("\n".join([*lines, ""]).encode()).steps
    assert [(step.tokens or 0) / step.duration for step in steps] == pytest.approx(
        [6350 + epoch for epoch in range(1, 9)], rel=1e-3
    )


def test_breakdown_behind_the_first_epoch_belongs_to_it() -> None:
    parts = "Timing breakdown - Forward: 6.00s (60.00%), Loss: 3.00s (30.00%)"
    told = [
        line for epoch in range(1, 6) for line in (f"Epoch {epoch} completed - Loss: 0.5 | Total time: 10.0s", parts)
    ]
    steps = parse("\n".join([*told, ""]).encode()).steps
    phases = [{name: seconds for name, seconds, *_ in step.phases} for step in steps]
    assert phases == [{"forward": 6.0, "loss": 3.0}] * 5
    once = parse("\n".join([*told[:2], ""]).encode())  # epochs are steps once there are two
    assert (once.steps, once.metric("forward_seconds")) == ([], [6.0])


@pytest.mark.parametrize("unit", ["0.250s/batch", "0.250s/it", "0.25 sec/step", "250 ms/iter"])
def test_seconds_of_one_step_stand_behind_the_values(unit: str) -> None:
    lines = [f"epoch {epoch} batch {batch}/50 loss 0.5 {unit}" for epoch in (1, 2, 3) for batch in range(1, 51)]
    assert seconds_of("\n".join([*lines, ""])) == pytest.approx([0.25] * 150)


@pytest.mark.parametrize(
    "prefix",
    [
        "10:00:01 trainer.py line:120 INFO ",
        "2024-03-01 10:00:01 - train.py[line:120] - INFO: ",
        "[2024-03-01 10:00:01 swin_tiny](main.py 231): INFO ",
        "2024-03-01 10:00:01.000 | INFO     | __main__:train:45 - ",
        "INFO trainer.py:120 lineno: 120 ",
    ],
)
def test_line_of_a_logger_is_no_metric(prefix: str) -> None:
    log = parse("".join(f"{prefix}step {step} loss 0.5\n" for step in range(1, 6)).encode())
    assert log.steps[0].metrics.keys() == {"loss"}
    assert len(log.steps) == 5


@pytest.mark.parametrize("every", [7, 10, 150])
def test_round_whose_next_line_would_lie_beyond_its_total_was_complete(every: int) -> None:
    lines = []
    for rate in ("1e-3", "3e-4", "1e-4"):
        lines += [f"lr {rate}"] + [f"iter {step}/300 | loss 0.5" for step in range(0, 300, every)]
    log = parse("\n".join([*lines, "iter 299/300 | loss 0.5", ""]).encode())
    assert (len(log.steps), log.total) == (900, 900)


def test_round_that_ended_early_is_as_long_as_it_was() -> None:
    lines = [f"iter {step}/300 | loss 0.5" for step in range(0, 100, 10)]
    assert len(parse("\n".join([*lines, *lines, ""]).encode()).steps) == 182


def test_block_of_a_slow_step_takes_no_time_beside_elapsed_times() -> None:
    lines, spent = [], 0.0
    for step in range(1, 41):
        spent += 65.3 if step % 10 == 0 else 8.0
        lines.append(f"Step {step}/40 reward=0.5 loss=0.5 elapsed={spent:.1f}s")
        if step % 10 == 0:
            lines.append("Slow step (65.3s): Generation: 45.2s, Reward: 12.1s, Training: 8.0s")
    steps = parse("\n".join([*lines, ""]).encode()).steps
    assert sum(step.duration for step in steps) == pytest.approx(spent - 8.0, abs=0.5)
    assert [{name: seconds for name, seconds, *_ in step.phases} for step in steps if step.phases] == [
        {"generation": 45.2, "reward": 12.1, "training": 8.0}
    ] * 4
    assert [step.index for step in steps if step.phases] == [10, 20, 30, 40]
