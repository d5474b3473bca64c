"""Every code has a rule, a page, a case that fires it, and two near ones that do not: held as a table."""

from __future__ import annotations

import pytest

from monitor.diagnosis.explain import CODES, page
from tests.zoo.cases import CASES

from . import test_gpu_rules, test_rules, test_rules_of_hardware, test_rules_of_running, test_rules_of_the_device

VERDICT = "none"  # the registry's own, where no rule speaks
TABLES = (test_rules, test_rules_of_hardware, test_rules_of_running, test_rules_of_the_device)
LEAST_INNOCENT = 2

# What no script on this or that machine can plant: for each the reason. All others have a script in the zoo.
ONLY_TOLD = {
    "nothing-reports": "two minutes of silence, which a program that imports nothing of Python's gives at once",
    "regressed": "two runs, one after the other",
    "swap": "it would make the machine of whoever runs the zoo swap",
    "disk-slow": "it needs a slow disk",
    **dict.fromkeys(test_rules_of_the_device.SICK, "it needs a GPU: make gpu-check plants it"),
}


def fires() -> set[str]:
    return {code for table in TABLES for code in table.SICK} | set(test_gpu_rules.TABLE)


def innocent(code: str) -> int:
    """Near cases in which it must be silent."""
    told = sum(len(table.INNOCENT.get(code, ())) for table in TABLES)
    if code in test_gpu_rules.TABLE:  # a healthy card; a flicker, except for errors, which are never one; an idle card
        told += 1 + (code in test_gpu_rules.HEALTHY) + (code != "gpu-error")
    return told


@pytest.mark.parametrize("code", sorted(set(CODES) - {VERDICT}))
def test_it_has_all_that_a_code_needs(code: str) -> None:
    assert page(code).detected, "no rule"
    assert code in fires(), "no story fires it"
    assert innocent(code) >= LEAST_INNOCENT, "too few near cases in which it must be silent"
    in_the_zoo = any(case.expected == code for case in CASES)
    assert in_the_zoo != (code in ONLY_TOLD), "a script of the zoo, or the reason why there is none"


def test_no_case_is_of_a_code_that_is_not_there() -> None:
    assert fires() | set(ONLY_TOLD) | {case.expected for case in CASES if case.expected} == set(CODES) - {VERDICT}
