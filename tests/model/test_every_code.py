"""Every finding has a case that makes it fire, two near cases in which it is silent, and a script of the zoo."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from monitor.diagnosis.diagnose import BY_CODE
from monitor.model.report import Finding
from tests.zoo.cases import CASES

from . import test_gpu_rules
from .conftest import Story, assert_first_among, judged

MIN_INNOCENT = 2


def tables() -> list[ModuleType]:
    """Return the test modules of this folder that hold tables of cases.

    `SICK` is code -> a run in which it fires, `INNOCENT` code -> runs in which it is silent, and `NOT_IN_ZOO` code ->
    why no script on this or that machine can cause it.
    """
    folder = Path(__file__).parent
    files = [path for path in sorted(folder.glob("test_*.py")) if path != Path(__file__)]
    names = [path.stem for path in files if "\nSICK" in path.read_text(encoding="utf-8")]
    return [import_module(f"{__package__}.{name}") for name in names]


TABLES = tables()
NOT_IN_ZOO = {code: why for table in TABLES for code, why in getattr(table, "NOT_IN_ZOO", {}).items()}


def fires() -> set[str]:
    return {code for table in TABLES for code in table.SICK} | set(test_gpu_rules.TABLE)


def innocent(code: str) -> int:
    """Return the number of near cases in which it must be silent."""
    count = sum(len(table.INNOCENT.get(code, ())) for table in TABLES)
    if code in test_gpu_rules.TABLE:  # a healthy GPU; a flicker, except for errors, which are never one; an idle GPU
        count += 1 + (code in test_gpu_rules.HEALTHY) + (code != "gpu-error")
    return count


def found_in(case: Any) -> list[Finding]:
    """Return the findings of a case: a function that makes a story, or its findings."""
    made = case()
    return judged(made, alive=False)[0] if isinstance(made, Story) else made


# What these modules ask of their own cases is something else.
OWN_SICK = ("test_endings", "test_policy_learning", "test_progress_rules")
OWN_INNOCENT = ("test_endings",)
SICK = [
    pytest.param(code, case, id=code)
    for table in TABLES
    if table.__name__.rpartition(".")[2] not in OWN_SICK
    for code, case in table.SICK.items()
]
INNOCENT = [
    pytest.param(code, case, id=f"{code}-{place}")
    for table in TABLES
    if table.__name__.rpartition(".")[2] not in OWN_INNOCENT
    for code, cases in table.INNOCENT.items()
    for place, case in enumerate(cases)
]


@pytest.mark.parametrize(("code", "case"), SICK)
def test_it_fires_first_and_alone(code: str, case: Any) -> None:
    assert_first_among(found_in(case), code)


@pytest.mark.parametrize(("code", "case"), INNOCENT)
def test_it_is_silent_in_the_nearest_innocent_cases(code: str, case: Any) -> None:
    assert code not in [finding.code for finding in found_in(case)]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.__name__.rpartition(".")[2])
def test_every_table_has_both(table: ModuleType) -> None:
    assert set(table.SICK) == set(table.INNOCENT)


@pytest.mark.parametrize("code", sorted(BY_CODE))
def test_a_finding_has_all_its_cases(code: str) -> None:
    assert code in fires(), "add a run in which it fires to a table SICK"
    assert innocent(code) >= MIN_INNOCENT, "add near runs in which it is silent to a table INNOCENT"
    in_zoo = any(case.expected == code for case in CASES)
    assert in_zoo != (code in NOT_IN_ZOO), "add a script to the zoo, or to NOT_IN_ZOO why there is none"


def test_no_case_has_an_unknown_code() -> None:
    assert fires() | set(NOT_IN_ZOO) | {case.expected for case in CASES if case.expected} == set(BY_CODE)
