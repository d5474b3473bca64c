"""`regressed`: when it fires, what it says, and everything near it that must raise nothing."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from monitor.diagnosis.rule import Evidence
from monitor.diagnosis.rules.regression import NO_CHANGE, regressed
from monitor.model.comparison.compare import Side
from monitor.model.comparison.loop_pace import loop_time
from monitor.model.report import Finding
from monitor.model.summary import make_report, open_work
from trainhooks.protocol.events import Facts, Host

from ..model.conftest import Story, around, folded

noise = random.Random(7)
HF = {"config": {"dataloader_num_workers": 4}, "versions": {"transformers": "4.43.3"}, "cpus": 8}
NOW = {"config": {"dataloader_num_workers": 0}, "versions": {"transformers": "4.41.2"}, "cpus": 8}


def run(n: int = 200, facts: dict[str, Any] | None = None, spread: float = 0.05, **phases: float) -> Story:
    told = Story().span("load", 3).tell(Facts, facts=facts or HF)
    for _ in range(n):
        told.step(**{name: seconds * (1 + spread * noise.random()) for name, seconds in phases.items()})
    return told


def counted(n: int, facts: dict[str, Any], seconds: float, **fields: Any) -> Story:
    told = Story().tell(Facts, facts=facts)
    for _ in range(n):
        told.step_with(fields, forward=seconds * (1 + 0.05 * noise.random()))
    return told


def side(told: Story, **identity: Any) -> Side:
    state = folded(told)
    known = make_report(state, around(state, id="before", started=1000.0, **identity))
    return Side(known, loop_time(state, known))


def judged(before: Story, after: Story, command: tuple[str, str] = ("t.py", "t.py")) -> Finding | None:
    first = side(before, command=["python", *command[0].split()])
    state = folded(after)
    about = around(state, id="after", started=1000.0 + 26 * 3600, command=["python", *command[1].split()])
    known = make_report(state, about)
    return regressed(Evidence(state, known, open_work(state, about, known.outcome), first))


def test_it_names_what_grew_and_what_changed() -> None:
    found = judged(run(data=0.004, forward=0.1), run(facts=NOW, data=0.12, forward=0.1))
    assert found is not None and found.severity == "warning" and found.culprit == "data"
    assert found.title.endswith("2.1x slower than `before`, 1 d 2 h before")
    assert any(line.startswith("data: 3.") and "→ 55%" in line for line in found.evidence), found.evidence
    assert "config.dataloader_num_workers: 4 → 0" in found.evidence
    assert "versions.transformers: 4.43.3 → 4.41.2" in found.evidence
    assert "trainmon compare before after" in found.advice
    assert found.lost_fraction is not None and 0.4 < found.lost_fraction < 0.55


def test_where_nothing_changed_it_is_only_worth_knowing_unless_it_is_far_slower() -> None:
    found = judged(run(forward=0.1), run(forward=0.15))
    assert found is not None and found.severity == "info"
    assert found.evidence[-1] == NO_CHANGE
    found = judged(run(forward=0.1), run(forward=0.25))
    assert found is not None and found.severity == "warning"


def starved(told: Story) -> Story:
    for _ in range(60):
        told.now += 1
        told.tell(Host, cores=8, cpu=100.0, tree_cpu=80.0)
    return told


def test_neighbors_make_no_warning_of_it() -> None:
    found = judged(run(forward=0.1), starved(run(forward=0.25)))
    assert found is not None and found.severity == "info"
    now_and_then = run(forward=0.25)
    for i in range(90):
        now_and_then.tell(Host, cores=8, cpu=100.0 if i % 3 == 0 else 20.0, tree_cpu=80.0)
    found = judged(run(forward=0.1), now_and_then)
    assert found is not None and found.severity == "info" and "other programs" in found.evidence[-1]


SAME_MODEL = {**HF, "model": {"class": "M", "parameters": 1000}}
BIGGER = {**HF, "model": {"class": "M", "parameters": 3000}}


@pytest.mark.parametrize(
    ("before", "after", "command"),
    [
        pytest.param(run(forward=0.1), run(forward=0.11), None, id="a tenth is what runs differ by"),
        pytest.param(run(forward=0.1, spread=9.0), run(n=40, forward=0.12, spread=9.0), None, id="noise"),
        pytest.param(run(forward=0.1), run(n=20, forward=0.3), None, id="too few steps"),
        pytest.param(run(forward=0.3), run(forward=0.1), None, id="faster"),
        pytest.param(
            counted(200, HF, 0.1, tokens=1000), counted(200, HF, 0.2, tokens=2000), None, id="twice the tokens a step"
        ),
        pytest.param(counted(200, HF, 0.1, samples=8), counted(200, HF, 0.2, samples=16), None, id="twice the batch"),
        pytest.param(
            counted(200, HF, 0.1, samples=8, tokens=800),
            counted(200, HF, 0.8, samples=8, tokens=3200),
            None,
            id="longer sequences",
        ),
        pytest.param(run(facts=SAME_MODEL, forward=0.1), run(facts=BIGGER, forward=0.3), None, id="a bigger model"),
        pytest.param(
            run(forward=0.1), run(forward=0.2), ("t.py --batch 8", "t.py --batch 16"), id="an unknown amount of work"
        ),
    ],
)
def test_what_raises_nothing(before: Story, after: Story, command: tuple[str, str] | None) -> None:
    assert judged(before, after, command or ("t.py", "t.py")) is None


def skipping(n: int, every: int) -> Story:
    told = Story().tell(Facts, facts=HF)
    for i in range(n):
        works = i % every == 0
        fields = {} if works else {"status": "skipped", "reason": "empty code"}
        told.step_with(fields, forward=(0.5 if works else 0.05) * (1 + 0.05 * noise.random()))
    return told


def test_steps_that_now_do_their_work_are_progress() -> None:
    assert judged(skipping(300, 10), skipping(300, 1)) is None


def test_a_short_run_is_measured_by_the_same_stretch_of_the_long_one() -> None:
    growing = Story().tell(Facts, facts=HF)
    for i in range(2000):
        growing.step(forward=(0.1 if i < 300 else 0.02) * (1 + 0.05 * noise.random()))
    assert judged(growing, run(n=250, forward=0.1)) is None
    assert judged(growing, run(n=250, forward=0.2)) is not None


def test_without_an_earlier_run_there_is_nothing_to_say() -> None:
    state = folded(run(forward=0.1))
    about = around(state)
    known = make_report(state, about)
    evidence = Evidence(state, known, open_work(state, about, known.outcome))
    assert regressed(evidence) is None
    assert regressed(replace(evidence, previous=side(run(n=3, forward=0.01)))) is None
