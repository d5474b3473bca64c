"""A bar that does not say what it counts: what comes later shows whether it was the training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from monitor.runs.follow import load
from tests.console.conftest import Live, ParsedLog, parse
from tests.launch.conftest import State
from tests.launch.conftest import state as state


def bar(total: int, seconds: int, label: str = "", postfix: str = "", since: int = 0, upto: int = 10) -> str:
    """Draw the frames of a bar as tqdm does, one for each tenth."""
    frames = []
    for tenth in range(since, upto + 1):
        done, at = total * tenth // 10, seconds * tenth // 10
        more = f", {postfix}" if postfix and tenth else ""
        rate = f"{total / seconds:.1f}it/s"
        head = f"{label}: " if label else ""
        frames.append(
            f"\r{head}{10 * tenth}%|{'#' * tenth}| {done}/{total} [00:{at:02d}<00:{seconds - at:02d}, {rate}{more}]"
        )
    return "".join(frames) + ("\n" if upto == 10 else "")


def lines(count: int) -> str:
    return "".join(f"step {number}/{count} loss {3 - number / 10:.1f} time 500ms\n" for number in range(1, count + 1))


def read(text: str) -> ParsedLog:
    return parse(text.encode())


FOLLOWED = {
    "lines": lines(20),
    "a bar with figures": bar(20, 10, postfix="loss=2.1"),
    "a bar with a name": bar(20, 10, label="Training"),
    "a bar that shows its figures late": bar(20, 10, upto=3) + bar(20, 10, postfix="loss=2.1", since=4),
    "another such bar first": bar(50, 2) + lines(20),
    "epochs": "".join(f"Epoch {n} loss {3 - n / 10:.1f}\n" for n in range(1, 21)),
}


@pytest.mark.parametrize("what", FOLLOWED)
@pytest.mark.parametrize("label", ["", "Working on it"])
def test_unlabeled_bar_before_training_is_preparation(what: str, label: str) -> None:
    log = read(bar(1000, 5, label) + FOLLOWED[what])
    assert [step.index for step in log.steps] == list(range(1, 21))
    assert log.spans["preparation"] == pytest.approx(2 if what.startswith("another") else 5)
    assert log.summary is not None and log.summary.total in (20, None)


TRAININGS = {
    "alone": (bar(40, 10), 40),
    "broken off": (bar(40, 10, upto=6), 24),
    "with lines between its frames": (
        bar(40, 10, upto=4) + "\n{'loss': 2.0, 'epoch': 0.5}\n" + bar(40, 10, since=5),
        40,
    ),
    "with a result behind it": (bar(40, 10) + "accuracy: 0.71\n", 40),
    "with its last step log once more": (bar(40, 10) + "step 40/40 loss 2.0\n", 40),
    "an epoch each": (3 * (bar(40, 10) + "loss 2.0 accuracy 0.5\n"), 120),
    "an epoch each, and its number": ("".join(bar(40, 10) + f"Epoch {n} loss 2.0\n" for n in (1, 2, 3)), 120),
    "an epoch each, with nothing between": (3 * bar(40, 10), 120),
    "an epoch each, with an evaluation": (2 * (bar(40, 10) + bar(10, 2)), 80),
    "an epoch each, announced": ("Epoch 1/2\n" + bar(40, 10) + "Epoch 2/2\n" + bar(40, 10), 80),
    "behind an evaluation of another length": (bar(10, 2) + bar(40, 10), 40),
}


@pytest.mark.parametrize("what", TRAININGS)
def test_unlabeled_training_bar_gives_steps(what: str) -> None:
    text, steps = TRAININGS[what]
    log = read(text)
    assert [step.index for step in log.steps] == list(range(1, steps + 1))
    assert sum(step.duration for step in log.steps) == pytest.approx(steps / 4)
    assert "preparation" not in log.spans or what.startswith("behind")


def test_steps_and_preparation_do_not_overlap() -> None:
    log = read(bar(1000, 5) + bar(20, 10, postfix="loss=2.1"))
    assert sum(step.duration for step in log.steps) == pytest.approx(10)
    assert min(step.start for step in log.steps) >= 5


def test_live_unlabeled_bar_is_open_then_preparation() -> None:
    live = Live()
    live.at(2.0, bar(1000, 2, upto=5))
    pulse = live.tracker.pulse(2.0)
    assert pulse is not None and pulse.step is None and [name for name, _ in pulse.spans] == ["progress bar 400/1,000"]
    live.at(3.0, bar(1000, 2, since=6))
    live.at(20.0, "step 1/9 loss 2.0\n")
    live.at(21.0, "step 2/9 loss 2.0\n")
    log = live.end()
    assert [step.index for step in log.steps] == [1, 2] and list(log.spans) == ["preparation"]


def test_live_unlabeled_bar_that_continues_gives_steps() -> None:
    live = Live()
    for second in range(30):
        live.at(float(second), f"\r{second}%|#| {second}/100 [00:{second:02d}<10:00, 1.0it/s]")
    assert live.tracker.steps > 20  # shown while it runs
    log = live.end()
    assert [step.index for step in log.steps] == list(range(1, 30))
    assert [step.duration for step in log.steps[1:28]] == [pytest.approx(1.0)] * 27
    assert log.spans == {}


def test_lines_import_and_live_run_agree(state: State, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(bar(1000, 5) + lines(20))
    shown = state.call("lines", str(log), "--json")
    summary = json.loads(shown.stdout)["summary"]
    assert (summary["steps"], summary["total"], summary["spans"]) == (20, 20, {"preparation": 5.0})
    assert state.call("import", str(log)).returncode == 0
    imported = state.only
    done = state.run("sh", "-c", f"head -c 900 {log}; sleep 0.5; tail -c +901 {log}")
    assert done.returncode == 0
    (live,) = set(state.runs()) - {imported}
    for run in (imported, live):
        progress = load(run).report.progress
        assert (progress.steps_done, progress.steps_total) == (20, 20)
