"""A handful of the zoo's quickest scripts; `make zoo` runs all of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.zoo.__main__ import as_promised, gain_errors, markdown, summary, take_middle_gain, told
from tests.zoo.cases import CASES, SICK, WELL, Case
from tests.zoo.runner import LIMIT, SCRIPTS, Outcome, compare_with_twin, run

QUICK = ("sick_reward_flat_console", "sick_loss_flat", "sick_nonfinite_plain", "well_five_steps")
SLOWER = pytest.param("sick_eval_plain", marks=pytest.mark.long)


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("name", [*QUICK, SLOWER])
@pytest.mark.long
def test_the_report_names_the_planted_cause_first_and_nothing_false(name: str) -> None:
    (case,) = [case for case in CASES if case.name == name]
    outcome = run(case)
    assert outcome.good, told(outcome)


def test_every_script_has_its_case_and_every_case_its_script() -> None:
    shared = {"texts.py"}  # what several scripts import
    assert {case.script for case in CASES} == {path.name for path in SCRIPTS.iterdir() if path.is_file()} - shared
    assert len({case.name for case in CASES}) == len(CASES)
    assert all(case.expected is not None for case in SICK) and all(case.expected is None for case in WELL)
    assert len(WELL) >= 12


SAID = Case("sick_eval_plain.py", "eval-heavy", allowed={"slow-drift": "so that there is one"})


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ([("eval-heavy", "warning")], "ok"),
        ([("eval-heavy", "warning"), ("slow-drift", "warning"), ("swap", "info")], "ok"),
        ([], "MISSED"),
        ([("slow-drift", "warning"), ("eval-heavy", "warning")], "NOT FIRST"),
        ([("eval-heavy", "warning"), ("swap", "warning")], "FALSE: swap"),
    ],
)
def test_a_verdict_says_what_is_wrong(findings: list[tuple[str, str]], verdict: str) -> None:
    outcome = Outcome(SAID, 1.0, findings)
    assert outcome.verdict == verdict and outcome.good == (verdict == "ok")


def test_a_healthy_script_may_have_information_and_nothing_more() -> None:
    well = replace(SAID, expected=None)
    assert Outcome(well, 1.0, [("swap", "info")]).good
    assert not Outcome(well, 1.0, [("swap", "warning")]).good
    assert not Outcome(well, 1.0, trouble="exit code 1").good


def test_crowding_is_no_false_alarm_where_it_is_measured() -> None:
    found = [("eval-heavy", "warning"), ("cpu-starved", "warning")]
    assert not Outcome(SAID, 1.0, found).good
    assert Outcome(SAID, 1.0, found, crowded=True).good


def test_three_misses_in_a_hundred_are_as_promised_and_no_healthy_script_is_blamed() -> None:
    right, missed = Outcome(SAID, 1.0, [("eval-heavy", "warning")]), Outcome(SAID, 1.0, [])
    well = Outcome(WELL[0], 1.0, [("swap", "info")])
    assert as_promised([*[right] * 97, *[missed] * 3, well]) and not as_promised([*[right] * 96, *[missed] * 4, well])
    assert not as_promised([right, Outcome(WELL[0], 1.0, [("swap", "warning")])])
    assert not as_promised([right, Outcome(WELL[0], 1.0, trouble="exit code 1")])


def test_the_summary_counts() -> None:
    right = Outcome(SAID, 1.0, [("eval-heavy", "warning")])
    wrong = Outcome(SAID, 1.0, [("swap", "warning")])
    text = "\n".join(summary([right, wrong, Outcome(WELL[0], 1.0, [])]))
    assert "recall     1 of 2 (50%)" in text
    assert "precision  1 of 2 (50%)" in text
    assert "healthy    1 of 1 (100%)" in text


def test_a_promise_is_held_against_the_mended_twin() -> None:
    sick, mended = Outcome(SAID, 1.0, rate=2.0, promised=3.3), Outcome(SAID.mended, 1.0, rate=6.0)
    compare_with_twin(sick, mended)
    assert sick.real == pytest.approx(3.0)
    assert gain_errors([sick, mended, Outcome(SAID, 1.0)]) == [pytest.approx(0.1)]
    assert "promised 3.30x, really 3.00x" in told(sick)


def test_promised_gains_must_hold() -> None:
    right = Outcome(SAID, 1.0, [("eval-heavy", "warning")], promised=1.1, real=1.0)
    assert as_promised([right, right, replace(right, promised=1.3)])
    assert not as_promised([right, right, replace(right, promised=1.4)])  # one of them far beyond
    assert not as_promised([right, replace(right, real=2.0), replace(right, real=2.0)])  # most of them wrong


def test_of_repeated_measurements_the_middle_one_counts() -> None:
    first = Outcome(SAID, 1.0, promised=3.0, real=2.0)
    take_middle_gain(first, [Outcome(SAID, 1.0, promised=3.3, real=3.0), Outcome(SAID, 1.0, promised=2.0, real=4.0)])
    assert (first.promised, first.real) == (3.3, 3.0) and "really 3.00x (middle of 3)" in told(first)
    other = Outcome(SAID, 1.0, promised=3.0, real=2.0)
    take_middle_gain(other, [Outcome(SAID, 1.0, promised=3.3), Outcome(SAID, 1.0, promised=3.3, real=3.0)])
    assert (other.promised, other.real) == (3.0, 2.0)  # one was not measured; of two, the one that promised too much


def test_no_gain_is_measured_on_a_crowded_machine() -> None:
    sick, mended = Outcome(SAID, 1.0, rate=2.0, promised=3.3), Outcome(SAID.mended, 1.0, rate=6.0, crowded=True)
    compare_with_twin(sick, mended)
    assert sick.real is None


def test_each_twin_reads_its_argument() -> None:
    twins = [case for case in CASES if case.twin]
    assert len(twins) >= 12
    assert all("mended" in (SCRIPTS / case.script).read_text() for case in twins)


def test_the_table_for_the_readme_counts_by_families() -> None:
    right = Outcome(SAID, 1.0, [("eval-heavy", "warning")])
    wrong = Outcome(SAID, 1.0, [("swap", "warning")])
    broken = Outcome(SAID, 1.0, trouble="exit code 1")
    assert markdown([right, wrong, broken, Outcome(WELL[0], 1.0, [])])[2:] == [
        "| waiting and interruptions | 2 | 1 of 2 (50%) | 2 | 1 of 2 (50%) |",
        "| **all sick scripts** | 2 | 1 of 2 (50%) | 2 | 1 of 2 (50%) |",
        "| **healthy scripts** | 1 | - | 0 | - |",
        "",
        "Did not run as they should: sick_eval_plain.",
    ]
