"""The short report: what a person wants to know, in at most 32 lines that fit a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from monitor import units
from monitor.diagnosis.answer import answer
from monitor.diagnosis.verdict import NO_FINDING
from monitor.model.report import Finding
from monitor.model.view import View
from monitor.reports import card
from monitor.runs.replay import recorded
from tests.model.conftest import Story
from tests.model.device_stories import hf_trainer, matmul
from trainhooks.protocol.encoding import encoder, to_dict
from trainhooks.protocol.events import Exit

RECORDINGS = Path(__file__).parents[2] / "demo" / "recordings"
NAMES = sorted(path.stem for path in RECORDINGS.glob("*.jsonl"))
encode = encoder()
FIRST = 25  # lines that a terminal shows at once


def of(path: Path, story: Story) -> View:
    story.bye().tell(Exit, exit_code=0)
    path.write_bytes(b"".join(encode(to_dict(event)) + b"\n" for event in sorted(story.events, key=lambda e: e.t)))
    return recorded(path)


def fits(view: View) -> list[str]:
    lines = card.text(view).splitlines()
    assert len(lines) <= 32 and all(len(line) <= card.WIDTH for line in lines), lines
    return lines


@pytest.mark.parametrize("name", NAMES)
def test_a_recording_is_told_in_few_lines_with_what_bounds_it_and_what_to_do(name: str) -> None:
    view = recorded(RECORDINGS / f"{name}.jsonl")
    lines = fits(view)
    words = " ".join(line.strip() for line in lines)
    assert view.verdict.title.split(":")[0] in words
    advice = [finding.advice for finding in (view.verdict, *view.report.findings) if finding.advice]
    assert any(first.split(",")[0] in words for first in advice) or "DO THIS" in words
    assert any(line.startswith(("STEP", "ITERATION")) for line in lines)
    assert any(line.startswith("RUN") for line in lines) and "--full" in lines[-1]


def test_reinforcement_learning_is_told_by_its_iteration_and_its_reward() -> None:
    lines = fits(recorded(RECORDINGS / "rl-code-cpu.jsonl"))[:FIRST]
    assert any("reward 0.1737, rising from" in line for line in lines)
    assert any(line.startswith("ITERATION") for line in lines)
    assert any(line.strip().startswith("generation") and "█" in line for line in lines)
    assert any(line.startswith(("VERDICT", "WHY SLOW")) for line in lines)


def test_the_bars_add_up_to_the_iteration_in_the_order_of_its_steps() -> None:
    report = recorded(RECORDINGS / "rl-code-cpu.jsonl").report
    found = card.bars(report)
    assert found is not None and report.cycle is not None
    names = [name for name, _, _ in found[1]]
    assert names == [row.name for row in report.phases if row.name in names]
    assert sum(seconds for _, seconds, _ in found[1]) == pytest.approx(report.cycle.seconds, rel=0.05)
    assert f"{units.duration(report.cycle.seconds)}, mean" in found[0]


def test_a_first_step_of_a_minute_is_in_no_mean_and_no_share(tmp_path: Path) -> None:
    story = Story().step(forward=60.0, backward=2.0)
    for _ in range(60):
        story.step(forward=1.0, backward=2.0)
    view = of(tmp_path / "run.jsonl", story)
    found = card.bars(view.report)
    assert found is not None and "one-offs, as a first step, took 24% of step time" in found[0]
    assert [(name, round(seconds, 1), round(part, 2)) for name, seconds, part in found[1]] == [
        ("forward", 1.0, 0.33),
        ("backward", 2.0, 0.67),
    ]
    assert view.verdict.title.startswith("67% of step time is backward, 2.00 s per step")


def test_steps_that_learn_beside_an_actor_are_no_iterations() -> None:
    report = recorded(RECORDINGS / "rl-code-cpu.jsonl").report
    assert report.cycle is not None
    report.cycle.count = 0
    found = card.bars(report)
    assert found is not None and found[0].startswith("STEP")


def test_training_on_given_texts_tells_of_no_completions() -> None:
    assert not any("completion" in line or "rollout" in line for line in fits(recorded(RECORDINGS / "sft-cpu.jsonl")))


@pytest.mark.parametrize("make", [hf_trainer, matmul])
def test_a_gpu_is_told_with_what_it_does(make: object, tmp_path: Path) -> None:
    lines = fits(of(tmp_path / "run.jsonl", make()))  # type: ignore[operator]
    assert any("H100" in line and "busy" in line for line in lines)


def test_every_finding_comes_with_its_fix_and_its_gain_if_only_as_unknown() -> None:
    view = recorded(RECORDINGS / "rl-code-cpu.jsonl")
    for code, heading in (("oom-risk", "PROBLEM"), ("slow-kernel", "WHY SLOW")):
        found = Finding(code=code, severity="warning", title="A title", evidence=["seen"], advice="Do it.")
        lines = card.advice(answer(view.report, found))
        assert lines[0] == f"{heading:<11}A title  [{code}]" and "  1  Do it." in lines
        assert any("gain not known" in line for line in lines) is (heading == "WHY SLOW")


@pytest.mark.parametrize(("imported", "told"), [(True, "trainmon run"), (False, "th.phase")])
def test_a_program_that_only_prints_is_told_what_it_does_not_do_yet(imported: bool, told: str) -> None:
    report = recorded(RECORDINGS / "rl-code-cpu.jsonl").report
    report.findings, report.to_try = [], []
    report.run.source, report.run.imported, report.run.command = "console", imported, ["python", "train.py"]
    said = answer(report, Finding(code=NO_FINDING, severity="info", title="none"))
    assert [word for word in ("trainmon run", "th.phase") if word in said.to_do[0]] == [told]


def test_names_from_outside_are_cleaned() -> None:
    view = recorded(RECORDINGS / "rl-code-cpu.jsonl")
    view.report.run.name = "evil \x1b]52;c;aGk=\x07"
    view.report.phases[0].name = "\x1b[2J"
    view.report.findings.append(Finding(code="x\x07", severity="info", title="\x1b[31m", advice="\x1b"))
    told = card.text(view)
    assert "\x1b" not in told and "\x07" not in told


def test_what_a_finding_costs_is_the_same_in_seconds_as_its_gain() -> None:
    report = recorded(RECORDINGS / "sft-cpu.jsonl").report
    told = [(finding.gain, finding.lost) for finding in report.findings if finding.gain is not None]
    assert told
    for gain, lost in told:
        assert lost is not None and lost.of == pytest.approx(report.wall.stepping)
        assert lost.of / (lost.of - lost.high) == pytest.approx(gain.most)
        if gain.likely is not None:
            assert lost.likely is not None and lost.of / (lost.of - lost.likely) == pytest.approx(gain.likely)
