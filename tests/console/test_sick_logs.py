"""Logs as people paste them, each with a healthy twin: what an imported run says of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from monitor.model.report import Finding, Report
from monitor.reports import run_text
from monitor.running.log_import import import_log
from monitor.runs.follow import load

Told = Callable[[Iterable[str]], "Imported"]


class Imported:
    """What a report says of an imported log."""

    def __init__(self, run: Path) -> None:
        view = load(run, measured=False)
        self.report: Report = view.report
        self.findings: dict[str, Finding] = {finding.code: finding for finding in view.report.findings}

    @property
    def codes(self) -> set[str]:
        return set(self.findings) - {"nothing-reports"}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Told:
    monkeypatch.setenv("TRAINMON_DIR", str(tmp_path / "state"))

    def read(lines: Iterable[str]) -> Imported:
        log = tmp_path / "log"
        log.write_text("\n".join(lines) + "\n")
        return Imported(import_log(log, None, ())[0])

    return read


def clock(seconds: float) -> str:
    """Return a time of day behind a date, as loggers write it."""
    return f"2024-03-01 {10 + int(seconds) // 3600}:{int(seconds) // 60 % 60:02d}:{seconds % 60:06.3f}".replace(
        ".", ","
    )


def bar(done: int, total: int, elapsed: int, label: str = "") -> str:
    spent = f"{elapsed // 60:02d}:{elapsed % 60:02d}"
    return f"{label}{100 * done // total:3d}%|{'#' * 10}| {done}/{total} [{spent}<00:09, 1.00it/s]"


# A run that learns nothing


def trainer(loss: Callable[[int], object], norm: Callable[[int], object] | None, rate: object = 5e-5) -> list[str]:
    """Return what Hugging Face's Trainer prints without its bar."""
    rows = [{"loss": loss(at), "learning_rate": rate, "epoch": at / 50} for at in range(50)]
    for at, row in enumerate(rows):
        row |= {} if norm is None else {"grad_norm": norm(at)}
    return [repr(row) for row in rows]


def test_a_nan_that_is_printed_as_0(told: Told) -> None:
    nan = float("nan")
    for late in (
        told(trainer(lambda at: 0.0 if at > 20 else 2.0 - at / 50, lambda at: nan if at > 20 else 1.0)),
        told(trainer(lambda at: 0.0, lambda at: nan)),
    ):
        assert late.codes == {"nonfinite-loss"} and late.findings["nonfinite-loss"].severity == "critical"
    assert told(trainer(lambda at: 0.0 if at > 20 else 2.0 - at / 50, None)).codes == {"nonfinite-loss"}


def test_a_loss_that_is_learned_down_to_0_is_no_nan(told: Told) -> None:
    assert told(trainer(lambda at: round(2.0 * 0.7**at, 4), None)).codes == set()
    assert told(trainer(lambda at: round(2.0 * 0.7**at, 4), lambda at: 0.1)).codes == set()
    assert told(trainer(lambda at: 2.0 - at / 50, lambda at: float("inf") if at in (0, 1, 30) else 1.0)).codes == set()


def test_a_learning_rate_that_is_printed_as_0(told: Told) -> None:
    assert told(trainer(lambda at: 2.0 + at % 3 / 10, lambda at: 1.0, rate=0.0)).codes == {"learning-rate-zero"}
    rounded = [f"step {at} loss {2.0 - at / 100:.4f} lr 0.0000" for at in range(1, 51)]
    assert told(rounded).codes == told([line.replace("lr 0", "lr: 0") for line in rounded]).codes == set()


OVERFLOW = "[INFO] [deepspeed] OVERFLOW! Rank {} Skipping step. Attempted loss scale: 65536, reducing to 32768"


def scaled(skips: Callable[[int], bool]) -> list[str]:
    lines = []
    for at in range(1, 101):
        lines += [f"[{clock(at)}] " + OVERFLOW.format(rank) for rank in (0, 1) if skips(at)]
        lines.append(f"[{clock(at)}] [INFO] [Rank 0] step={at}, skipped=0, lr=[1e-05], mom=[(0.9, 0.999)]")
    return lines


def test_steps_that_a_loss_scaler_skips_are_skipped(told: Told) -> None:
    sick = told(scaled(lambda at: at % 2 == 0))
    assert sick.report.progress.steps_skipped == 50 and sick.codes == {"steps-skipped"}
    searching = told(scaled(lambda at: at < 6))
    assert searching.report.progress.steps_skipped == 5 and searching.codes == set()


def test_steps_that_are_skipped_beside_a_bar(told: Told) -> None:
    lines = [line for at in range(1, 61) for line in (OVERFLOW.format(0), bar(at, 60, at))]
    assert told(lines).report.progress.steps_skipped == 60


@pytest.mark.parametrize("skipped, nan", [(4, 0), (4, 4), (0, 0)])
def test_iterations_that_are_skipped_by_a_line_of_ten(told: Told, skipped: int, nan: int) -> None:
    read = told(
        f" [{clock(at)}] iteration {at:8d}/ 1000 | elapsed time per iteration (ms): 800.1 | learning rate: 1.5E-04 |"
        f" lm loss: {9 - at / 300:.6E} | grad norm: 1.2 | number of skipped iterations: {skipped:3d} |"
        f" number of nan iterations: {nan:3d} |"
        for at in range(10, 1001, 10)
    )
    assert read.report.progress.steps_done == 1000
    assert read.report.progress.steps_skipped == pytest.approx(100 * skipped, rel=0.02)
    assert read.codes == ({"steps-skipped"} if skipped else set())


# Where the time goes


def saving(seconds: float, every: int) -> list[str]:
    """Return what torchtitan prints of 200 steps of a second."""
    lines, now = [], 0.0
    for at in range(1, 201):
        now += 1.0
        if at % 10 == 0:
            lines.append(f"[rank0]:{clock(now)} - root - INFO - step: {at:2d}  loss: {8 - at / 100:7.4f}  tps: 6,000")
        if at % every == 0:
            lines.append(
                f"[rank0]:{clock(now)} - root - INFO - Saving the checkpoint (or staging if async is enabled)."
            )
            now += seconds
            said = f"Finished saving the checkpoint (or staging if async is enabled)in {seconds:.2f} seconds."
            lines.append(f"[rank0]:{clock(now)} - root - INFO - {said}")
    return lines


def test_saves_whose_seconds_are_printed_are_checkpoints(told: Told) -> None:
    sick = told(saving(26.5, 20))
    assert sick.codes == {"checkpoint-stall"}
    assert sick.report.wall.spans == pytest.approx({"checkpoint": 265.0})
    assert sick.report.wall.steps == pytest.approx(190.0)  # the first ten are not timed
    healthy = told(saving(1.0, 100))
    assert healthy.codes == set() and healthy.report.wall.spans == pytest.approx({"checkpoint": 2.0})


@pytest.mark.parametrize(
    "form", ["time: 0.400  data_time: {:.3f}", "data_time: {:.3f}s", "Time: 0.400s  Data: {:.3f} (0.3)"]
)
def test_a_loader_s_seconds_are_those_of_each_step_of_the_line(told: Told, form: str) -> None:
    def lines(data: float) -> list[str]:
        return [
            f"{clock(0.4 * at)} step {at}  loss {3 - at / 900:.4f}  {form.format(data)}" for at in range(50, 2001, 50)
        ]

    waits = told(lines(0.284))
    assert {row.name: row.share for row in waits.report.phases}["data"] == pytest.approx(0.71, abs=0.01)
    assert waits.codes == {"input-bound"}
    computes = told(lines(0.009))
    assert {row.name: row.share for row in computes.report.phases}["data"] == pytest.approx(0.0225, abs=0.001)
    assert computes.codes == set(), "what a program does not time is not unaccounted for"


def test_a_loader_s_seconds_that_were_added_up(told: Told) -> None:
    read = told(f"{clock(0.4 * at)} step {at} loss {3 - at / 900:.4f} data_time: 14.2s" for at in range(50, 2001, 50))
    assert {row.name: row.share for row in read.report.phases}["data"] == pytest.approx(0.71, abs=0.01)


def test_a_step_that_a_program_divides_has_time_that_is_unaccounted_for(told: Told) -> None:
    parts = "forward: 0.1s backward: 0.2s optimizer: 0.05s"
    lines = [f"{clock(at)} step {at} loss {3 - at / 90:.4f} {parts}" for at in range(1, 101)]
    assert told(lines).codes == {"unaccounted-time"}


@pytest.mark.parametrize("form", ["[{}/3558 {}<09:45, 3.50it/s]", "[ {}/3558 {} < 09:45, 3.50 it/s, Epoch 0.13/3]"])
def test_a_bar_of_which_only_the_brackets_are_left(told: Told, form: str) -> None:
    lines = [form.format(at, f"{int(at / 3.5) // 60:02d}:{int(at / 3.5) % 60:02d}") for at in range(7, 1401, 7)]
    progress = told(lines).report.progress
    assert (progress.steps_done, progress.steps_total) == (1400, 3558)
    assert told(lines).report.throughput.steps_per_second == pytest.approx(3.5, rel=0.02)


# How it ended


def test_a_traceback_at_the_end_of_a_log_is_its_outcome(told: Told) -> None:
    steps = [f"[{clock(at)}] step {at} loss {3 - at / 100:.4f}" for at in range(1, 41)]
    error = [
        "Traceback (most recent call last):",
        '  File "train.py", line 44, in <module>',
        "    main()",
        "ValueError: batch of 3 rows",
    ]
    failed = told([*steps, *error])
    assert (failed.report.outcome.state, failed.report.outcome.exit_code) == ("failed", 1)
    assert "crashed" in failed.codes and "train.py:44" in failed.findings["crashed"].title
    survived = told([*steps[:20], *error, *steps[20:]])
    assert survived.report.outcome.state == "lost" and survived.codes == set()


# Steps and epochs that are longer than the others


def stepping(seconds: Callable[[int], float], first: float = 0.0, steps: int = 300) -> list[str]:
    """Return lines with a time of day; every step has a length of its own."""
    now, lines = 0.0, [f"[{clock(0.0)}] INFO lr: 0.1"]
    for step in range(1, steps + 1):
        now += seconds(step) + step % 7 / 100 + (first if step == 1 else 0.0)
        lines.append(f"[{clock(now)}] INFO step {step} loss {3 - step / 150:.4f}")
    return lines


def test_long_steps_in_a_rhythm(told: Told) -> None:
    found = told(stepping(lambda step: 22.0 if step % 50 == 0 else 1.0)).findings["slow-steps"]
    assert found.severity == "warning"
    assert "50" in found.title
    assert found.lost_fraction == pytest.approx(6 * 21 / (294 + 6 * 22), abs=0.02)
    assert set(found.steps) <= set(range(50, 301, 50))
    assert not told(stepping(lambda step: 1.7 if step % 50 == 0 else 1.0)).codes  # costs 1%
    assert not told(stepping(lambda step: 1.0)).codes


def test_whole_epochs_that_are_slow(told: Told) -> None:
    def epochs(slow: tuple[int, ...]) -> list[str]:
        seconds = {epoch: 412.0 if epoch in slow else 60.1 + epoch % 5 / 10 for epoch in range(1, 31)}
        return [f"Epoch {epoch}/30 loss {2 - epoch / 40:.4f} time: {took:.1f}s" for epoch, took in seconds.items()]

    found = told(epochs((17, 25))).findings["slow-steps"]
    assert found.steps == [17, 25]
    assert not told(epochs(())).codes


def test_whole_epochs_of_slow_steps(told: Told) -> None:
    def seconds(slow: range, ratio: float) -> Callable[[int], float]:
        return lambda step: ratio if (step - 1) // 100 in slow else 1.0

    found = told(stepping(seconds(range(3, 5), 5.0), steps=1000)).findings["slow-steps"]
    assert found.severity == "warning" and "stretch" in found.title
    assert found.lost_fraction == pytest.approx(200 * 4 / 1800, abs=0.03)
    assert found.steps[0] == pytest.approx(300, abs=8)
    for healthy in (range(0), range(10)):  # none, and all of them
        assert not told(stepping(seconds(healthy, 5.0), steps=1000)).codes
    assert not told(stepping(seconds(range(3, 5), 1.3), steps=1000)).codes
    noise = random.Random(5)
    varied = told(stepping(lambda step: noise.lognormvariate(0, 0.8), steps=1000)).findings.values()
    assert not any("stretch" in found.title for found in varied)


def test_wait_for_the_first_batch_is_a_start_up(told: Told) -> None:
    def drawn(first: int) -> list[str]:
        return [bar(step, 200, 0 if step == 0 else first + step) for step in range(201)]

    found = told(drawn(140)).findings["slow-startup"]
    assert found.lost_fraction == pytest.approx(140 / 340, abs=0.02)
    assert found.evidence[0].startswith("first steps")
    assert not told(drawn(5)).codes


# What the report says of its own figures


def test_report_says_when_its_steps_are_epochs(told: Told) -> None:
    epochs = told(f"Epoch {epoch}/20 | loss {2 - epoch / 40:.3f} | 60.0s" for epoch in range(1, 21)).report
    assert epochs.progress.by_epochs
    assert "epoch" in run_text.progress(epochs)
    steps = told(f"Epoch 1/20 | batch {step}/20 | loss 0.5 | 60 ms" for step in range(1, 21)).report
    assert not steps.progress.by_epochs
    assert "epoch" not in run_text.progress(steps)


def test_only_the_figure_that_contradicts_itself_is_doubted(told: Told) -> None:
    slow = ["Slow step (8.0s): Generation: 45.2s, Reward: 1.1s"]
    lines = [f"Step {step}/20 reward=0.{step} loss=0.5 elapsed={8 * step}s" for step in range(1, 21)]
    broken = told([*lines[:10], *slow, *lines[10:]])
    advice = broken.findings["inconsistent-console"].advice
    assert "breakdown" in advice and "rate" not in advice.partition(";")[0]
    assert broken.report.throughput.steps_per_second == pytest.approx(1 / 8)
    impossible = told(f"step {step} loss 0.5 mfu -3.0" for step in range(1, 21))
    assert impossible.findings["inconsistent-console"].advice.partition(";")[0].endswith("mfu")
    assert "inconsistent-console" not in told(lines).codes
