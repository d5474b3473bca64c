"""How gpu-check judges, by made-up reports: what is right passes, and each fault is seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.gpu_check.expected import SCRIPTS, SHARED, SICK, WELL, Case, order
from tests.gpu_check.judge import HEAD, WIDTHS, Outcome, Said, cells, said, summary

SMALL = Case("sick_small_batch.py", ("small-batch", "launch-bound"), {"unfused-optimizer": "it is true"})
HEALTHY = Case("well_dense.py", allowed={"compile-warmup": "short"})
NAMED = (Said("small-batch", "warning", 0.9), Said("unfused-optimizer", "warning", 0.1))


def test_every_script_has_its_case_and_every_case_its_script() -> None:
    assert {each.script for each in (*SICK, *WELL)} == {path.name for path in SCRIPTS.glob("*.py")} - set(SHARED)
    assert len({each.name for each in (*SICK, *WELL)}) == len(SICK) + len(WELL)
    assert all(each.sick and each.script.startswith("sick_") for each in SICK) and len(SICK) >= 20
    assert not any(each.sick for each in WELL) and all(each.script.startswith("well_") for each in WELL)
    assert len(WELL) >= 10


def test_all_are_run_and_healthy_ones_among_the_first() -> None:
    assert sorted(each.name for each in order()) == sorted(each.name for each in (*SICK, *WELL))
    assert [each.sick for each in order()[:6]] == [True, True, False] * 2


def test_findings_come_as_the_report_has_them() -> None:
    report: dict[str, Any] = {
        "findings": [
            {"code": "small-batch", "severity": "warning", "recoverable": 0.75},
            {"code": "x", "severity": "info"},
        ]
    }
    assert said(report) == (Said("small-batch", "warning", 0.75), Said("x", "info"))
    assert [each.promised for each in said(report)] == [4.0, None]
    assert Said("x", "info", 1.0).promised == float("inf")


@pytest.mark.parametrize(
    ("findings", "rate", "mended", "verdict"),
    [
        (NAMED, 10.0, 60.0, "ok"),
        ((Said("launch-bound", "info", 0.9),), 10.0, 60.0, "ok"),
        ((), 10.0, 60.0, "MISSED"),
        ((Said("unfused-optimizer", "warning", 0.5), Said("small-batch", "info", 0.9)), 10.0, 60.0, "NOT FIRST"),
        ((*NAMED, Said("memory-leak", "critical")), 10.0, 60.0, "FALSE: memory-leak"),
        ((*NAMED, Said("memory-leak", "info")), 10.0, 60.0, "ok"),
        ((Said("memory-leak", "warning"),), 10.0, 60.0, "MISSED; FALSE: memory-leak"),
        ((Said("small-batch", "warning", 0.5),), 10.0, 60.0, "gained MORE than was promised"),
        ((Said("small-batch", "warning", 0.5),), 10.0, 22.9, "ok"),
        ((), 10.0, 10.2, "too mild on this card to be said"),
        (NAMED, 10.0, None, "ok"),
    ],
)
def test_a_sick_script(findings: tuple[Said, ...], rate: float, mended: float | None, verdict: str) -> None:
    outcome = Outcome(SMALL, findings, rate, mended)
    assert outcome.verdict == verdict
    assert outcome.good == (verdict in ("ok", "too mild on this card to be said"))


def test_a_bound_that_says_little_is_told_and_no_fault() -> None:
    outcome = Outcome(SMALL, (Said("small-batch", "warning", 0.95),), 10.0, 20.0)
    assert (outcome.verdict, outcome.good) == ("loose bound", True)


@pytest.mark.parametrize(
    ("findings", "good"),
    [
        ((), True),
        ((Said("small-batch", "info", 0.1),), True),
        ((Said("compile-warmup", "warning"),), True),
        ((Said("small-batch", "warning"),), False),
        ((Said("gpu-shared", "critical"),), False),
    ],
)
def test_a_healthy_script(findings: tuple[Said, ...], good: bool) -> None:
    assert Outcome(HEALTHY, findings).good == good


def test_what_broke_is_a_fault_and_what_was_not_run_is_none() -> None:
    broken, skipped = Outcome(SMALL, trouble="exit code 1: boom"), Outcome(SMALL, skipped="no time left")
    assert (broken.verdict, broken.good) == ("BROKEN: exit code 1: boom", False)
    assert (skipped.verdict, skipped.good) == ("not run: no time left", True)
    assert cells(skipped)[2] == "-"


def test_where_samples_do_not_tell_there_is_no_real_gain() -> None:
    outcome = Outcome(replace(SMALL, gain=False), NAMED, 10.0, 5.0)
    assert outcome.real is None and outcome.good and not outcome.mild


def test_a_row_has_a_cell_for_each_column() -> None:
    row = cells(Outcome(SMALL, NAMED, 10.0, 60.0))
    assert len(row) == len(HEAD) == len(WIDTHS)
    expected = ("sick_small_batch", "small-batch or launch-bound", "small-batch, unfused-optimizer", "10.00x", "6.00x")
    assert row == (*expected, "ok")
    assert cells(Outcome(HEALTHY, (Said("a", "info", 0.5), Said("b", "critical", 0.2))))[1:5] == (
        "(healthy)", "~a, !b", "2.00x", "-",
    )  # fmt: skip


def test_the_summary_counts() -> None:
    outcomes = [
        Outcome(SMALL, NAMED, 10.0, 60.0),
        Outcome(SMALL, (Said("small-batch", "warning", 0.5),), 10.0, 60.0),
        Outcome(SMALL, (Said("memory-leak", "warning"),), 10.0, 60.0),
        Outcome(SMALL, (), 10.0, 10.1),
        Outcome(HEALTHY, (Said("gpu-shared", "warning"),)),
        Outcome(HEALTHY),
        Outcome(HEALTHY, trouble="it hung"),
        Outcome(SMALL, skipped="no time left"),
    ]
    assert summary(outcomes)[1:] == [
        "Cause named first: 2 of 3.",
        "Healthy scripts without a false alarm: 1 of 2.",
        "Findings of weight that are true: 3 of 5.",
        "Promised gains that hold: 1 of 2.",
        "Too mild on this card to be counted: sick_small_batch.",
        "Not run: sick_small_batch.",
    ]
