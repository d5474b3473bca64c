"""A log that grows: its clock is the arrival of its lines."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest

from monitor.running.console_recorder import ConsoleRecorder, Stream
from monitor.sources.decode import decode
from monitor.sources.tail_file import TailedFile
from tests.console.conftest import Live, ParsedLog
from trainhooks.protocol.events import Metrics, Note, Span, Step


def test_steps_between_two_lines_share_the_time() -> None:
    live = Live()
    live.at(10.0, "iter 0: loss 2.0\n")
    live.at(20.0, "iter 10: loss 1.9\n")
    log = live.end()
    assert [step.index for step in log.steps] == list(range(1, 12))
    assert log.steps[0].duration == 0  # nobody knows when it began
    assert [step.duration for step in log.steps[1:]] == [pytest.approx(1.0)] * 10


def test_lines_that_arrive_together_share_the_time() -> None:
    live = Live()
    live.at(1.0, "step 1/9 loss 2.0\n")
    live.at(2.0, "step 2/9 loss 2.0\nstep 3/9 loss 2.0\nstep 4/9 loss 2.0\nstep 5/9 loss 2.0\n")
    assert [step.duration for step in live.end().steps] == [0, *[pytest.approx(0.25)] * 4]


def test_own_step_time_leaves_rest_between_steps() -> None:
    live = Live()
    live.at(1.0, "step 1: loss 2.0, time 500ms\n")
    live.at(3.0, "step 2: loss 2.0, time 500ms\n")
    first, second = live.end().steps
    assert (first.start, first.duration) == (0.5, 0.5)
    assert (second.start, second.duration) == (2.5, 0.5)


def test_own_step_time_beyond_the_clock_is_ignored() -> None:
    live = Live()
    live.at(1.0, "step 1: loss 2.0\n")
    live.at(2.0, "step 2: loss 2.0, time 30s\n")
    assert live.end().steps[1].duration == pytest.approx(1.0)


def test_phases_printed_before_their_step_belong_to_it() -> None:
    live = Live()
    block = "⚠ Slow step (9.5s):\n  generation: 8s\n  reward: 1s\n\n"
    live.at(101.0, block + "Step 1/3 - reward: 0.5\n")
    live.at(111.0, block + "Step 2/3 - reward: 0.5\n")
    live.at(112.0, "Step 3/3 - reward: 0.5\n")
    assert [bool(step.phases) for step in live.end().steps] == [True, True, False]


def test_phases_printed_after_their_step_belong_to_it() -> None:
    live = Live()
    live.at(1.0, "Step 1/3 - reward: 0.5\n")
    live.at(11.0, "Step 2/3 - reward: 0.5\n⚠ Slow step (9.5s):\n  generation: 8s\n  reward: 1s\n\n")
    live.at(12.0, "Step 3/3 - reward: 0.5\n")
    log = live.end()
    assert [bool(step.phases) for step in log.steps] == [False, True, False]
    assert log.steps[1].duration == 9.5


def test_phases_longer_than_their_step_are_noted_and_ignored() -> None:
    live = Live()
    live.at(1.0, "Step 1/3 - reward: 0.5\n")
    live.at(3.0, "Step 2/3 - reward: 0.5\n⚠ Slow step (2.0s):\n  generation: 8s\n\n")
    log = live.end()
    assert not any(step.phases for step in log.steps)
    assert log.note_codes == ["inconsistent-console"]


def test_steps_that_come_at_once_took_what_they_say() -> None:
    live, took = Live(), [0.1, 0.3, 0.2, 0.2, 0.4, 0.1]
    lines = [f"step {step}: train loss 5.5 (took {1e3 * own:.3f} ms)\n" for step, own in enumerate(took)]
    live.at(1.0, "".join(lines[:3]))
    live.at(3.0, "".join(lines[3:]))
    steps = live.end().steps
    assert [step.duration for step in steps] == [pytest.approx(own) for own in took]
    assert [step.start for step in steps[:3]] == [pytest.approx(start) for start in (0.4, 0.5, 0.8)]
    assert all(one.start + (one.duration or 0.0) <= other.start + 1e-9 for one, other in pairwise(steps))


def test_what_a_log_says_of_the_time_before_it_was_read_is_unknown() -> None:
    live = Live()
    live.at(1.0, "step 1: loss 5.5 (took 900 ms)\nstep 2: loss 5.5 (took 900 ms)\n")
    assert live.end().steps[1].duration == 0


def test_first_step_of_a_waiting_bar_starts_with_the_bar() -> None:
    live = Live()
    for now, done in ((1.0, 0), (2.0, 0), (4.0, 1), (5.0, 2)):
        live.at(now, f"\r  {done}0%|#   | {done}/9 [00:00<00:09,  1.00s/it]\r ")
    assert [step.duration for step in live.end().steps] == [pytest.approx(3.0), pytest.approx(1.0)]


def test_pulse_shows_open_loading_bar() -> None:
    live = Live()
    live.at(41.0, "\rLoading checkpoint shards:  75%|###  | 3/4 [00:41<00:13, 13.60s/it]")
    live.at(42.0, "\r ")
    pulse = live.tracker.pulse(50.0)
    assert pulse is not None
    assert pulse.step is None
    assert pulse.spans == [("Loading checkpoint shards 3/4", pytest.approx(49.0))]


def test_pulse_shows_open_step_only_if_every_step_is_printed() -> None:
    live = Live()
    live.at(1.0, "step 1/30 loss 2.0\n")
    live.at(2.0, "step 2/30 loss 2.0\n")
    pulse = live.tracker.pulse(7.0)
    assert pulse is not None
    assert (pulse.step, pulse.step_open) == (3, 5.0)
    live.at(8.0, "step 12/30 loss 2.0\n")
    assert live.tracker.pulse(9.0) is None


def test_steps_beyond_the_limit_are_counted() -> None:
    live = Live()
    live.at(1.0, "step 1/900000 loss 2.0\n")
    live.at(2.0, "step 500000/900000 loss 2.0\n")
    log = live.end()
    assert log.start_step + len(log.steps) == 500_000
    assert len(log.notes) == 1


def test_leap_counts_once_confirmed() -> None:
    live = Live()
    for t, step in enumerate((1, 2, 60_000, 3, 4, 70_000, 70_001), 1):
        live.at(float(t), f"step {step} loss 2.0\n")
    log = live.end()
    assert log.start_step + len(log.steps) == 70_001


def test_unconfirmed_leap_is_ignored() -> None:
    live = Live()
    for t, step in enumerate((5000, 5001, 50_014_992, 5002, 5003), 1):
        live.at(float(t), f"step {step} loss 2.0\n")
    log = live.end()
    assert log.start_step + len(log.steps) == 5003


def test_shorter_epoch_takes_no_steps_back() -> None:
    live = Live()
    for now, line in enumerate(("1 | batch 7/8", "1 | batch 8/8", "2 | batch 1/5", "2 | batch 2/5")):
        live.at(float(now), f"Epoch {line} | loss 2.0\n")
    log = live.end()
    assert log.start_step + len(log.steps) == 10
    assert [step.duration for step in log.steps[-3:]] == [pytest.approx(1.0)] * 3


def test_successor_continues_the_count() -> None:
    first = Live()
    for step in range(1, 6):
        first.at(float(step), f"Epoch 1/2 | batch {step}/8 | loss 2.0\n")
    second = Live()
    second.tracker.restore_state(first.tracker.saved_state())
    second.at(6.0, "Epoch 1/2 | batch 6/8 | loss 2.0\n")
    second.at(7.0, "Epoch 2/2 | batch 1/8 | loss 2.0\n")
    log = [step.index for step in first.events if step.kind == "step"]  # type: ignore[attr-defined]
    log += [step.index for step in second.end().steps]
    assert log == list(range(1, 10))


def test_steps_after_a_successor_s_start_take_the_time_since_the_last_one() -> None:
    def bar(live: Live, now: float, done: int) -> None:
        live.at(now, f"\r{done:3}%|#   | {done}/100 [00:{done:02}<00:09,  1.00s/it]")

    first, second = Live(), Live()
    for done in range(41):
        bar(first, float(done), done)
    second.tracker.restore_state(first.tracker.saved_state())
    pulse = second.tracker.pulse(44.0)
    assert pulse is not None and pulse.step == 39 and pulse.step_open == pytest.approx(5.0)  # two were held back
    for done in (45, 46, 47, 48):  # seven steps of which nobody has seen the times
        bar(second, float(done), done)
    steps = second.end().steps
    assert [step.duration for step in steps[:9]] == [pytest.approx(1.0)] * 9


def test_unchanged_frame_gives_position_without_metrics(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    stream = Stream(TailedFile(log), ())
    stream.feed(b"Epoch 1/3\n\r3/4 [====>.....] - ETA: 0s - loss: 0.4")
    assert stream.peek() == []  # it may be growing
    (reading,) = stream.peek()
    assert (reading.step, reading.total, reading.metrics) == (3, 4, {})
    assert stream.peek() == []
    (whole,) = stream.feed(b"215\n")
    assert whole.metrics == {"loss": 0.4215}


@pytest.mark.parametrize("kind", ["step", "steps"])
def test_torn_lines_beside_hooks_make_few_steps(tmp_path: Path, kind: str) -> None:
    (tmp_path / "rank-0-a.jsonl").write_text(f'{{"kind":"{kind}"}}\n')
    (tmp_path / "console.log").write_text("step 1 loss: 0.5\n")
    recorder = ConsoleRecorder(tmp_path)
    recorder.step()
    for line in ("step 2 loss: 0.4", "step 50024992 loss: 0.3", "step 3 loss: 0.2"):  # `5002` of one rank, `4992`
        with open(tmp_path / "console.log", "a") as out:
            out.write(line + "\n")
        recorder.step()
    recorder.finish()
    assert recorder._tracker.steps <= 3
    (journal,) = tmp_path.glob("console-*.jsonl")
    log = [event for event in map(decode, journal.read_bytes().splitlines()) if isinstance(event, Metrics)]
    assert [(event.step, event.values["loss"]) for event in log] == [(1, 0.5), (2, 0.3), (3, 0.2)]


def test_mfu_note_is_kept_beside_hooks(tmp_path: Path) -> None:
    """Its MFU is of an A100's peak. Other notes on the output of a program whose hooks tell its steps are not."""
    (tmp_path / "rank-0-a.jsonl").write_text('{"kind":"step"}\n')
    lines = ["iter 0: loss 10.9886, time 32811.15ms, mfu -100.00%", "iter 1: loss 3.2, time 150.11ms, mfu 38.25%"]
    (tmp_path / "console.log").write_text("\n".join([*lines, "step 2 loss: 3.1 perplexity: -4.0", ""]))
    recorder = ConsoleRecorder(tmp_path)
    recorder.step()
    recorder.finish()
    (journal,) = tmp_path.glob("console-*.jsonl")
    log = list(map(decode, journal.read_bytes().splitlines()))
    notes = [event.text for event in log if isinstance(event, Note)]
    assert notes == ["console: left out, because it cannot be true: mfu -100.0"]
    assert any(event.values.get("mfu") == 38.25 for event in log if isinstance(event, Metrics))


# Programs that number only their epochs, and print what they did in each


@pytest.mark.parametrize(("ago", "known"), [(100.0, True), (0.0, False)])
def test_a_first_epoch_before_the_recorder_came_up_is_one(tmp_path: Path, ago: float, known: bool) -> None:
    """The recorder of a busy machine comes up after the program; what began before the program is no epoch's time."""
    (tmp_path / "run.json").write_text(json.dumps({"started_monotonic": time.monotonic() - ago}))
    (tmp_path / "console.log").touch()
    recorder = ConsoleRecorder(tmp_path)
    for epoch in (1, 2, 3):
        with open(tmp_path / "console.log", "a") as out:
            out.write(f"Epoch {epoch} completed - Avg Loss: 0.5 | Total time: 40.{epoch}s\n")
        recorder.step()
    recorder.finish()
    (journal,) = tmp_path.glob("console-*.jsonl")
    steps = [event for event in map(decode, journal.read_bytes().splitlines()) if isinstance(event, Step)]
    assert len(steps) == 3 and (steps[0].duration == pytest.approx(40.1)) is known


def epochs(live: Live, begin: float, line: str, number: int = 6, seconds: float = 10.0) -> list[Step]:
    for epoch in range(1, number + 1):
        live.at(begin + seconds * epoch, line.format(epoch=epoch, spent=seconds, rate=635 + epoch) + "\n")
    return live.end().steps


@pytest.mark.parametrize(
    "line",
    [
        "Epoch {epoch} | loss 0.5 | {rate} tok/s | {spent:.2f}s",
        "Epoch {epoch} completed - Avg Loss: 0.5 | Avg tokens/sec: {rate} | Total time: {spent:.3f}s",
        "Epoch {epoch}/6 loss: 0.5 time: {spent:.1f}s {rate} tok/s",
    ],
)
def test_first_epoch_takes_what_it_tells_and_rates_are_the_printed_ones(line: str) -> None:
    steps = epochs(Live(), 30.0, line)
    assert [step.duration for step in steps] == [pytest.approx(10.0)] * 6
    assert [(step.tokens or 0) / step.duration for step in steps] == pytest.approx(
        [635 + epoch for epoch in range(1, 7)]
    )


def test_first_epoch_without_a_time_is_as_long_as_the_next() -> None:
    assert [step.duration for step in epochs(Live(), 30.0, "Epoch {epoch}/6 loss 0.5")] == [pytest.approx(10.0)] * 6


def test_first_epoch_is_not_longer_than_the_run() -> None:
    steps = epochs(Live(), -5.0, "Epoch {epoch}/6 loss 0.5")
    assert [step.duration for step in steps] == [0, *[pytest.approx(10.0)] * 5]


def test_pulse_shows_the_first_step_of_a_bar_as_open() -> None:
    live = Live()
    live.at(5.0, "\rTraining:   0%|          | 0/50 [00:00<?, ?it/s]")
    live.at(5.1, "\rTraining:   0%|          | 0/50 [00:00<?, ?it/s]\r")
    pulse = live.tracker.pulse(25.0)
    assert pulse is not None
    assert (pulse.step, pulse.step_open) == (1, pytest.approx(20.0, abs=0.2))


@pytest.mark.parametrize(("text", "rate"), [("320 tok/s | ETA: 9s", 320.0), ("ETA: 9s | tok/s=32", None)])
def test_unchanged_frame_gives_the_rates_that_cannot_be_cut(tmp_path: Path, text: str, rate: float | None) -> None:
    (tmp_path / "log").touch()
    stream = Stream(TailedFile(tmp_path / "log"), ())
    stream.feed(f"\r\x1b[KTraining [{'█' * 10}▓{'░' * 39}] 40/200 (20.0%) | Loss: 0.5 | {text}".encode())
    assert stream.peek() == []
    (reading,) = stream.peek()
    assert (reading.step, reading.tokens_rate) == (40, rate)


# Counters that restart with each epoch


def restarting(live: Live, every: int, pause: float, line: str, behind: str = "") -> ParsedLog:
    now = 5.0
    for epoch in range(1, 6):
        live.at(now, f"--- epoch {epoch}/5 ---\n")
        for step in range(1, 41):
            now += 0.25
            if step % every == 0:
                live.at(now, line.format(step=step) + "\n")
        now += pause
        if behind:
            live.at(now, behind + "\n")
    return live.end()


def test_counter_that_is_told_once_per_epoch_counts_all_of_it() -> None:
    log = restarting(Live(), 40, 0.0, "step {step}/40 loss 0.5")
    assert (len(log.steps), log.total) == (200, 200)
    assert [step.duration for step in log.steps[-160:]] == [pytest.approx(0.25)] * 160


@pytest.mark.parametrize("behind", ["Epoch 1 val_loss 0.4", "Validation | Loss: 0.4"])
@pytest.mark.parametrize("pause", [3.0, 0.0])
def test_time_before_results_behind_a_full_count_is_an_evaluation(behind: str, pause: float) -> None:
    log = restarting(Live(), 10, pause, "Iter {step}/40 | loss 0.5 | 32.0 samples/s", behind)
    timed = [step for step in log.steps if step.duration]
    assert [step.duration for step in timed] == [pytest.approx(0.25)] * 190
    assert sum(step.samples or 0 for step in timed) / sum(step.duration for step in timed) == pytest.approx(32.0)
    spans = [event for event in log.events if isinstance(event, Span)]
    assert sum(span.duration for span in spans if span.name == "eval") == pytest.approx(5 * pause)


def test_rate_beside_the_time_of_an_epoch_is_over_that_time() -> None:
    live = Live()
    for epoch in range(1, 6):  # 10 s of training, then 5 s of something else
        live.at(15.0 * epoch, f"Epoch {epoch}/5 - loss: 0.5 - 32.0 samples/sec - 10.0s\n")
    assert [(step.duration, step.samples) for step in live.end().steps[1:]] == [(pytest.approx(10.0), 320)] * 4
