"""The table of hangs, and how a report is judged; `make hangs` runs the programs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.hangs.__main__ import Outcome
from tests.hangs.cases import CASES, HANGS, HEALTHY, PROGRAMS, SHORT

CASE = next(case for case in HANGS if case.name == "ranks_skip_30")
TOLD = {"code": "stalled", "severity": "critical", "title": "rank 1", "evidence": [f"at {CASE.place} in validate"]}
RIGHT = Outcome(CASE, TOLD, ["!stalled"], afterwards="stalled")


def test_every_program_has_its_case_and_every_case_its_program_and_line() -> None:
    shared = {"training", "launch"}
    assert {case.program for case in CASES} == {path.stem for path in PROGRAMS.glob("*.py")} - shared
    assert len({case.name for case in CASES}) == len(CASES) and set(SHORT) <= {case.name for case in CASES}
    assert all(case.place for case in HANGS if case.marker) and len(HANGS) >= 24 and len(HEALTHY) >= 12


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ({}, []),
        ({"said": None}, ["nothing first"]),
        ({"said": {**TOLD, "evidence": []}}, ["no line"]),
        ({"said": {**TOLD, "title": ""}}, ["no rank"]),
        ({"said": {**TOLD, "severity": "warning"}}, ["too mild"]),
        ({"said": {**TOLD, "code": "eval-heavy"}}, ["eval-heavy first"]),
        ({"eta": 9.0}, ["time left"]),
        ({"codes": ["!stalled", "!eval-heavy"]}, ["FALSE !eval-heavy"]),
        ({"afterwards": "crashed"}, ["afterwards crashed"]),
        ({"trouble": "it ended"}, ["it ended"]),
    ],
)
def test_a_report_is_held_against_the_truth(change: dict[str, object], wrong: list[str]) -> None:
    assert replace(RIGHT, **change).wrong == wrong  # type: ignore[arg-type]


def test_a_slow_program_may_have_information_and_nothing_more() -> None:
    assert Outcome(HEALTHY[0], TOLD, ["stalled"]).wrong == []
    assert Outcome(HEALTHY[0], TOLD, ["!stalled"]).wrong == ["FALSE !stalled"]
