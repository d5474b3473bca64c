"""Steps that become slower: a trend in steps of any length, and the line of the program that grew."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from monitor.model.report import Finding
from trainhooks.protocol.events import Frames, Host, Step

from .conftest import Story, judged


def run(seconds: Callable[[int], float], steps: int, looks: bool = False, **fields: Callable[[int], int]) -> Story:
    """Steps of 10% forward, 20% backward; `seconds` of them in no phase, seen at two lines."""
    told, noise = Story(), random.Random(3)
    for at in range(steps):
        since = told.now
        other = seconds(at) * noise.uniform(0.9, 1.1)
        told.step_with({name: value(at) for name, value in fields.items()}, forward=0.01, backward=0.02, other=other)
        told.tell(Host, cores=8, cpu=13.0, tree_cpu=100.0, tree_waiting=0.0)
        if looks and at % 20 == 19:
            at_auc = max(1, round(other * 1000))
            rows = [("other", "train.py:61 (auc) in main", at_auc), ("forward", "train.py:9 (net) in main", 10)]
            told.tell(Frames, rows=rows, activities=["metrics", ""], begin=since - 19 * (told.now - since))
    return told


def drift(told: Story) -> Finding | None:
    return next((row for row in judged(told, alive=False)[0] if row.code == "slow-drift"), None)


def test_a_drift_shows_within_some_dozen_steps() -> None:
    found = drift(run(lambda at: 0.02 + 0.002 * at, 60))
    assert found is not None and found.severity == "critical" and found.culprit == "other"


def test_the_line_that_grew_is_named() -> None:
    found = drift(run(lambda at: 0.02 + 0.0005 * at, 300, looks=True))
    assert found is not None
    (line,) = [line for line in found.evidence if line.startswith("train.py:61 (auc) in main")]
    assert "stack samples" in line
    assert not any("train.py:9" in line for line in found.evidence)


@pytest.mark.parametrize("seed", range(8))
def test_steps_of_some_milliseconds_that_vary_do_not_drift(seed: int) -> None:
    noise = random.Random(seed)
    told = Story()
    for _ in range(400):
        told.step(forward=0.001 * noise.lognormvariate(0, 0.6), backward=0.002 * noise.lognormvariate(0, 0.6))
    assert drift(told) is None


def test_more_samples_a_step_take_longer() -> None:
    def grown(at: int) -> float:
        return 0.05 * (1 + at / 50)

    assert drift(run(grown, 200)) is not None
    assert drift(run(grown, 200, samples=lambda at: 16 + at // 3)) is None


def test_more_work_on_fewer_cores_takes_longer_by_both() -> None:
    def growing(factor: float, waiting: float) -> Story:
        told = Story()
        for at in range(240):
            grown = at / 239
            told.step_with({"samples": round(16 * (1 + 2 * grown))}, forward=0.05 * factor**grown)
            told.tell(Host, cores=2, cpu=100.0, tree_cpu=90.0, tree_waiting=waiting * grown)
        return told

    assert drift(growing(6.0, waiting=0.0)) is not None  # three times the samples explain half of it
    assert drift(growing(6.0, waiting=0.6)) is None
    assert drift(growing(40.0, waiting=0.6)) is not None


def test_what_is_over_after_the_warm_up_or_comes_in_waves_is_no_drift() -> None:
    assert drift(run(lambda at: 0.5 if at < 5 else 0.02, 200)) is None
    assert drift(run(lambda at: 0.02 + (0.3 if at % 50 == 49 else 0.0), 200)) is None
    assert drift(run(lambda at: 0.02 + 0.02 * (at % 40 < 20), 200)) is None


@pytest.mark.parametrize(
    ("seconds", "severity"),
    [
        (lambda at: 0.03 if at < 120 else 0.06, "info"),  # layers that train from then on
        (lambda at: 0.03 + 0.0002 * at, "critical"),
    ],
)
def test_a_single_rise_of_what_is_computed_may_be_other_work(seconds: Callable[[int], float], severity: str) -> None:
    told, noise = Story(), random.Random(3)
    for at in range(240):
        told.step(forward=0.4 * seconds(at) * noise.uniform(0.95, 1.05), backward=0.6 * seconds(at))
        told.tell(Host, cores=8, cpu=13.0, tree_cpu=100.0, tree_waiting=0.0)
    found = drift(told)
    assert found is not None and found.severity == severity


def test_a_single_rise_in_no_phase_is_a_drift() -> None:
    found = drift(run(lambda at: 0.03 if at < 120 else 0.09, 240))
    assert found is not None and found.severity == "critical"


@pytest.mark.parametrize(("count", "severity"), [(100, "info"), (1200, "warning")])
def test_a_small_drift_within_seconds_may_be_the_machine(count: int, severity: str) -> None:
    found = drift(run(lambda at: 0.03 * (1 + at / count), count))  # steps of 60 to 90 ms
    assert found is not None and found.severity == severity


@pytest.mark.parametrize("in_blocks", [True, False])
def test_times_between_steps_that_are_printed_in_blocks_are_unknown(in_blocks: bool) -> None:
    told = Story("c", source="console")
    for at in range(60):
        told.wait(0.1 + 0.001 * at if at >= 20 else 0.0)
        told.step(other=0.09)
        told.tell(Host, cores=8, cpu=13.0, tree_cpu=100.0, tree_waiting=0.0)
    steps = [event for event in told.events if isinstance(event, Step)]
    for at, step in enumerate(steps if in_blocks else ()):
        step.t = steps[19 if at < 20 else -1].t
    found = drift(told)
    assert (found is None) is in_blocks


def test_what_grows_from_nothing_is_the_time_in_no_phase() -> None:
    told, noise = Story(), random.Random(3)
    for at in range(300):
        told.step(forward=0.001, backward=0.001, other=0.0004 * at * noise.uniform(0.9, 1.1))
        told.tell(Host, cores=8, cpu=13.0, tree_cpu=100.0, tree_waiting=0.0)
    found, _ = judged(told, alive=False)
    assert [row.code for row in found if row.severity != "info"] == ["slow-drift"]
    assert (found[0].lost_fraction or 0.0) > 0.6  # by the first third as the start it was 0.44
