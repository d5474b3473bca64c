"""What would remain if a part of the time vanished: the figures, and how they are asked for."""

from __future__ import annotations

import json
import re
from dataclasses import astuple

import pytest

from monitor.diagnosis.diagnose import set_gain
from monitor.diagnosis.explain import gain_line, gain_text
from monitor.model.comparison.what_if import UnknownPart, gain_of, part_seconds, what_if, without_finding
from monitor.model.report import Finding, Report
from trainhooks.protocol.events import Facts

from ..model.conftest import Story, report_of
from .conftest import Runs


def told(alive: bool = False) -> Report:
    """100 s of start-up; 40 steps of 1 s, 0.4 s of it data; 20 s of checkpoints; 20 s between the steps."""
    story = Story().tell(Facts, total_steps=80)
    story.now = 199.0
    for i in range(40):
        story.step_with({"tokens": 1000, "background": [("load", 0.9, "host", 1)]}, data=0.4, forward=0.6)
        if i % 10 == 0:
            story.span("checkpoint", 5)
        if i < 39:
            story.wait(20 / 39)
    return report_of(story, alive=alive, price=3600.0, id="r", name="r")


def test_a_phase_that_is_gone() -> None:
    report = told()
    found = what_if(report, {"data": 0.0})
    assert found.now.step_seconds == pytest.approx(80 / 40, rel=0.01)
    assert found.then.step_seconds == pytest.approx(64 / 40, rel=0.01)
    assert found.faster == pytest.approx(80 / 64, rel=0.01)
    assert found.saved_seconds == pytest.approx(16)
    assert found.then.tokens_per_second == pytest.approx(1000 / 1.6, rel=0.01)
    assert found.now.wall_seconds == pytest.approx(180, rel=0.01)
    assert found.then.wall_seconds == pytest.approx(164, rel=0.01)
    assert found.then.cost == pytest.approx(164, rel=0.01) == found.then.cost_total


def test_half_of_several_parts() -> None:
    found = what_if(told(), {"data": 0.5, "checkpoint": 0.0, "between_steps": 0.0, "startup": 0.5})
    assert found.saved_seconds == pytest.approx(8 + 20 + 20 + 50, rel=0.01)
    assert found.then.step_seconds == pytest.approx((80 - 48) / 40, rel=0.02)


def test_what_is_left_of_a_running_one() -> None:
    report = told(alive=True)
    found = what_if(report, {"forward": 0.0})
    assert report.progress.eta_seconds is not None and found.then.eta_seconds is not None
    assert found.then.eta_seconds == pytest.approx(report.progress.eta_seconds * 56 / 80, rel=0.01)
    assert found.then.cost_total is not None and found.now.cost_total is not None
    assert found.then.cost_total < found.now.cost_total


def test_what_runs_beside_the_steps_is_no_part_of_their_time() -> None:
    assert "load" not in part_seconds(told())
    assert sum(part_seconds(told()).values()) == pytest.approx(180, rel=0.01)


def test_all_of_a_step_gone_leaves_no_speed_to_tell() -> None:
    found = what_if(told(), dict.fromkeys(part_seconds(told()), 0.0))
    assert found.faster is None and found.then.steps_per_second is None


def test_without_steps_nothing_is_known() -> None:
    found = what_if(report_of(Story().span("load", 3)), {"startup": 0.0})
    assert found.then.steps_per_second is None and found.faster is None and found.then.cost is None


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(UnknownPart):
        what_if(told(), {"dat": 0.0})


def test_the_line_of_a_finding() -> None:
    finding = Finding(code="input-bound", severity="warning", title="t", lost_fraction=16 / 180)
    set_gain(told(), finding)
    line = "about 1.25x faster (1.11x to 1.25x), 1.60 s/it instead of 2.00 s/it since the first step; run about 16 s"
    assert gain_line(told(), finding) == f"without it: {line} shorter"
    running = gain_line(told(alive=True), finding)
    assert running is not None and running.endswith("earlier") and "done" in running
    slow_start = Finding(code="slow-startup", severity="info", title="t", lost_fraction=0.5)
    set_gain(told(), slow_start)
    line = gain_line(told(), slow_start)
    assert line is not None and "faster" not in line, "the start-up is no part of a step"
    assert gain_line(told(), Finding(code="reward-flat", severity="warning", title="t")) is None
    assert gain_line(told(), Finding(code="nonfinite-loss", severity="critical", title="t", lost_fraction=1.0)) is None


def test_where_only_the_bound_is_known_no_gain_is_promised() -> None:
    finding = Finding(code="gpu-starved", severity="warning", title="t", lost_fraction=40 / 180)
    set_gain(told(), finding)
    assert finding.gain is not None and finding.gain.likely is None and gain_text(finding.gain) == ""
    assert gain_line(told(), finding) == "without it: gain not known, 2.00x is the bound"


@pytest.mark.parametrize("alive", [True, False])
@pytest.mark.parametrize("seconds", [1.0, 8.0, 30.0, 60.0])
def test_the_speed_since_the_first_step_times_the_gain_is_the_speed_promised(alive: bool, seconds: float) -> None:
    report = told(alive)
    finding = Finding(code="input-bound", severity="warning", title="t", lost_fraction=seconds / 180)
    set_gain(report, finding)
    gain, share = finding.gain, finding.recoverable
    found = without_finding(report, finding, finding.lost_fraction)
    now = report.throughput.steps_per_second
    assert share is not None and found is not None and found.then.steps_per_second is not None and now is not None
    assert share == pytest.approx(seconds / 80, rel=0.01), "of the time since the first step, without the start-up"
    shown = float(re.findall(r"[\d.]+", gain_text(gain) or "1")[0])
    assert now * shown == pytest.approx(found.then.steps_per_second, rel=0.01)
    if seconds <= 16:
        by_hand = what_if(report, {"data": 1 - seconds / 16})
        assert astuple(by_hand.then) == pytest.approx(astuple(found.then), rel=1e-9), "the two ways of asking agree"


def test_a_cause_that_is_over_promises_nothing_while_the_run_goes_on() -> None:
    finding = Finding(code="thermal-throttle", severity="info", title="t", lost_fraction=16 / 180, over=True)
    set_gain(told(alive=True), finding)
    assert finding.gain is None
    line = gain_line(told(alive=True), finding)
    assert line == "over: cost about 16.0 s, later steps gain nothing"
    assert gain_of(told(), finding) is not None, "of a run that has ended all is over: what would have been is told"


@pytest.mark.long
def test_the_command(runs: Runs) -> None:
    story = Story("p")
    for _ in range(40):
        story.step(data=0.4, forward=0.6)
    run = runs.path / "runs" / "r"
    story.bye().write(run)
    (run / "run.json").write_text(json.dumps({"id": "r", "name": "r", "started": 1e9}))
    text = runs.out("report", "r", "--what-if", "data=0", "--what-if", "forward=0.5")
    assert "What if" in text and "data gone, forward cut to 50%: at most 3.33x as fast" in text
    found = json.loads(runs.out("report", "r", "--what-if", "data=0", "--json"))["what_if"]
    assert found["assumed"] == {"data": 0.0} and found["faster"] == pytest.approx(1 / 0.6, rel=0.01)
    assert json.loads(runs.out("report", "r", "--json"))["what_if"] is None
    for word, said in (
        ("dat=0", "did you mean data? there are: data, forward"),
        ("data=2", "0 to 1"),
        ("data", "0 to 1"),
    ):
        done = runs.call("report", "r", "--what-if", word)
        lines = done.stderr.decode().splitlines()
        assert done.returncode == 2 and len(lines) == 1 and said in lines[0], lines


@pytest.mark.long
def test_speed_classes_of_the_configuration(runs: Runs) -> None:
    story = Story("p")
    for i in range(40):
        story.step(forward=(0.1, 1.0, 1.0, 5.0)[i % 4])
    run = runs.path / "runs" / "r"
    story.bye().write(run)
    (run / "run.json").write_text(json.dumps({"id": "r", "name": "r", "started": 1e9}))
    assert json.loads(runs.out("report", "r", "--json"))["speed_classes"] is None
    config = runs.path / "config.toml"
    config.write_text("[speed]\nfast = 0.5\nslow = 2\n")
    found = json.loads(runs.out("report", "r", "--json"))["speed_classes"]
    assert (found["fast"], found["normal"], found["slow"]) == (10, 20, 10)
    assert "Steps by speed" in runs.out("report", "r", "--full")
    config.write_text("[speed]\nfast = 2\nslow = 0.5\n")
    done = runs.call("report", "r")
    assert done.returncode == 2 and b"[speed] needs two step times" in done.stderr and done.stderr.count(b"\n") == 1
