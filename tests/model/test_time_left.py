"""The time that is left: the steps to come at the pace in force, and the stops to come. Against what it really took."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from monitor.model.fold import fold
from monitor.model.report import Progress
from monitor.model.state import RunState
from monitor.model.steps.time_left import stops, time_left
from monitor.model.summary import make_report
from monitor.model.wall_time import RunContext
from monitor.runs.follow import build_view
from monitor.sources.recording import Recording
from trainhooks.protocol.events import Facts

from .conftest import ROOT, Story, around, folded, report_of
from .test_pace import pace_of


@pytest.mark.parametrize(("first", "then"), [(0.1, 1.0), (1.0, 0.1), (1.0, 1.3), (1.3, 1.0)])
def test_after_a_change_of_speed_the_pace_in_force_counts(first: float, then: float) -> None:
    times = time_left(pace_of((1000, first), (40, then)), 500)
    assert times is not None and times[0] == pytest.approx(500 * then, rel=0.05)
    assert min(times) == times[1] <= 500 * min(first, then) * 1.05, "the other speed may come back"
    assert max(times) == times[2] >= 500 * max(first, then) * 0.95


def test_what_has_held_for_a_third_of_the_run_is_taken_to_stay() -> None:
    times = time_left(pace_of((300, 1.0), (1000, 2.0)), 100)
    assert times == pytest.approx((200, 200, 200), rel=0.05)


def evaluated(steps: int, every: int, seconds: float, total: int = 400) -> Story:
    """Steps of a second, and after each so many of them an evaluation."""
    story = Story().tell(Facts, total_steps=total)
    for i in range(1, steps + 1):
        story.step(forward=1.0)
        if i % every == 0:
            story.span("eval", seconds)
    return story


def progress(story: Story, now: float | None = None) -> Progress:
    return report_of(story, alive=True, now=now).progress


@pytest.mark.parametrize("steps", [199, 200, 201, 250, 299, 300, 349, 399])
def test_stops_with_a_rhythm_are_in_it_as_often_as_they_will_come(steps: int) -> None:
    real = evaluated(400, 50, 60.0).now - evaluated(steps, 50, 60.0).now
    assert progress(evaluated(steps, 50, 60.0)).eta_seconds == pytest.approx(real, rel=0.02)


def test_a_stop_without_a_rhythm_is_none_to_come() -> None:
    story = evaluated(100, 1000, 0.0)
    for steps in (1, 30, 4):
        story.span("save", 5.0)
        for _ in range(steps):
            story.step(forward=1.0)
    state = folded(story)
    assert stops(state.main.marks) == []
    (known,) = stops(folded(evaluated(150, 50, 60.0)).main.marks)
    assert (known.every, known.last, known.seconds) == (50, 150, 60.0)
    assert known.to_come(150, 250) == 300.0 and known.to_come(260, 140) == 0.0, "it has missed its turn"


def test_it_runs_down_within_a_step_and_no_further() -> None:
    story = evaluated(100, 1000, 0.0)
    lefts = [progress(story, story.now + passed).eta_seconds for passed in (0.0, 0.5, 1.0, 30.0)]
    assert lefts == pytest.approx([300, 299.5, 299, 299])


@pytest.mark.parametrize(("open_for", "is_known"), [(3.0, True), (300.0, False)])
def test_it_is_unknown_while_the_run_stands_still(open_for: float, is_known: bool) -> None:
    story = evaluated(100, 1000, 0.0)
    first = build_view(folded(story), around(folded(story), alive=True))
    assert first.report.progress.eta_seconds is not None
    story.wait(open_for).pulse(step=101, step_open=open_for)
    state = folded(story)
    hung = build_view(state, around(state, alive=True, now=story.now))
    again = build_view(state, around(state, alive=True, now=story.now + 1), last=hung)
    assert [(view.report.progress.eta_seconds is not None) for view in (hung, again)] == [is_known] * 2


RECORDINGS = ROOT / "demo" / "recordings"
# From where on no speed comes that was not known yet: the throttling ends at 0.64, the other kind of step begins at
# 0.4; sft-cpu becomes ten times as fast for its last tenth, which nobody could know.
SETTLED = [("throttle-SIMULATED-gpu", 0.1, (0.7, 0.8, 0.9)), ("rl-code-cpu", 0.3, (0.5, 0.6, 0.7, 0.8, 0.9))]


def moments_of(path: Path) -> list[tuple[float, Progress]]:
    """What was said at nineteen moments of a recorded run whose total is known, and how long it took from there."""
    recording = Recording(sorted(path.rglob("*.jsonl")) if path.is_dir() else [path])
    events = list(recording.events(0, len(recording)))
    recording.close()
    whole, early, said, at = RunState(), RunState(), [], 0
    for event in events:
        fold(whole, event)
    first, last = whole.main.wall.first_step, whole.main.wall.last_step
    total = whole.main.steps_ok + sum(whole.main.skipped.values())
    if first is None or last is None or total < MIN_TOTAL or last - first < MIN_LASTED:
        return []
    for twentieth in range(1, 20):
        now = first + twentieth / 20 * (last - first)
        while at < len(events) and events[at].t <= now:
            fold(early, events[at])
            at += 1
        early.main.total_steps = total
        said.append((last - now, make_report(early, RunContext({}, now, alive=True)).progress))
    return said


MIN_TOTAL, MIN_LASTED = 12, 3.0  # shorter runs have one part


@pytest.mark.long
def test_the_range_holds_the_end_eight_times_in_ten(tmp_path: Path) -> None:
    """Over all recordings: those of every GPU run, and those that are shipped."""
    for archive in (ROOT / "tests" / "gpu_check" / "recorded").iterdir():
        with tarfile.open(archive) as packed:
            packed.extractall(tmp_path, filter="data")
    runs = [*tmp_path.glob("*/runs/*"), *RECORDINGS.glob("*.jsonl")]
    told = [each for run in runs for each in moments_of(run) if each[1].eta_seconds is not None]
    inside = [
        said.eta_low is not None and said.eta_high is not None and said.eta_low <= 1.005 * real <= 1.01 * said.eta_high
        for real, said in told
    ]
    assert len(inside) > 1000
    assert 0.7 <= sum(inside) / len(inside) <= 0.9


def foretold(path: Path, share: float) -> tuple[Progress, float]:
    """What was said after this share of a recorded run's time, and how long it took from there."""
    whole, early = RunState(), RunState()
    recording = Recording([path])
    events = list(recording.events(0, len(recording)))
    recording.close()
    for event in events:
        fold(whole, event)
    first, last = whole.main.wall.first_step, whole.main.wall.last_step
    assert first is not None and last is not None
    now = first + share * (last - first)
    for event in events:
        if event.t <= now:
            fold(early, event)
    return make_report(early, RunContext({}, now, alive=True)).progress, last - now


@pytest.mark.parametrize(("name", "off", "shares"), SETTLED)
def test_the_end_that_was_foretold_is_the_one_that_came(name: str, off: float, shares: tuple[float, ...]) -> None:
    for share in shares:
        said, real = foretold(RECORDINGS / f"{name}.jsonl", share)
        assert said.eta_seconds is not None and said.eta_low is not None and said.eta_high is not None
        assert said.eta_seconds / real == pytest.approx(1.0, abs=off), share
        assert said.eta_low <= 1.02 * real and said.eta_high >= 0.98 * real, share


@pytest.mark.parametrize("share", [0.4, 0.5, 0.6])
def test_while_it_is_throttled_the_range_holds_the_end_of_it(share: float) -> None:
    said, real = foretold(RECORDINGS / "throttle-SIMULATED-gpu.jsonl", share)
    assert said.eta_low is not None and said.eta_high is not None
    assert said.eta_low <= 1.02 * real <= 1.02 * said.eta_high
