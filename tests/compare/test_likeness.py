"""Like is compared with like: what makes an earlier run no baseline, and what does not."""

from __future__ import annotations

from typing import Any

import pytest

from monitor.diagnosis.rules.regression import SETTINGS_UNKNOWN
from monitor.model.comparison.compare import compare_runs
from monitor.reports.comparison import verdict
from trainhooks.protocol.events import Facts

from ..model.conftest import Story
from .test_regression import counted, judged, run, side

KNOWN: dict[str, Any] = {
    "python": "3.12.4",
    "versions": {"torch": "2.6.0", "keras": "3.8.0"},
    "environment": {"KERAS_BACKEND": "torch"},
    "optimizer": {"device": "cuda", "dtypes": {"float32": 10}},
    "autocast": "bfloat16",
    "model": {"class": "Net", "parameters": 1000},
    "config": {"gradient_accumulation_steps": 4, "per_device_train_batch_size": 8, "max_length": 512, "bf16": True},
    "cpus": 8,
}


def known(**tables: Any) -> dict[str, Any]:
    """The facts with some tables changed."""
    return {
        **KNOWN,
        **{
            name: {**KNOWN[name], **table} if isinstance(table, dict) and isinstance(KNOWN.get(name), dict) else table
            for name, table in tables.items()
        },
    }


def of_source(source: str, seconds: float) -> Story:
    told = Story(source=source)
    for i in range(200):
        told.step(forward=seconds * (1 + 0.01 * (i % 5)))
    return told


UNLIKE = {
    "python": known(python="3.13.1"),
    "backend": known(environment={"KERAS_BACKEND": "jax"}),
    "frameworks": known(versions={"torch": "2.6.0", "keras": "3.8.0", "jax": "0.5.0"}),
    "device": known(optimizer={"device": "cpu"}),
    "dtypes": known(optimizer={"dtypes": {"bfloat16": 10}}),
    "autocast": known(autocast="off"),
    "model": known(model={"class": "Other"}),
    "parameters": known(model={"parameters": 500}),
    "accumulation": known(config={"gradient_accumulation_steps": 8}),
    "batch size": known(config={"per_device_train_batch_size": 1}),
    "length": known(config={"max_length": 128}),
}
ALIKE = {
    "a patch release": known(python="3.12.9"),
    "a version of a library": known(versions={"torch": "2.7.0", "keras": "3.8.0"}),
    "the loader": known(config={"dataloader_num_workers": 0}),
    "unknown": {"cpus": 8},
}


@pytest.mark.parametrize("what", UNLIKE)
def test_an_unlike_run_is_no_baseline_and_compare_says_why(what: str) -> None:
    before, after = run(facts=KNOWN, forward=0.1), run(facts=UNLIKE[what], forward=0.3)
    assert judged(before, after) is None
    assert "not alike" in verdict(compare_runs(side(before), side(after)))


@pytest.mark.parametrize("what", ALIKE)
def test_a_run_that_is_alike_is_one(what: str) -> None:
    before, after = run(facts=KNOWN, forward=0.1), run(facts=ALIKE[what], forward=0.3)
    assert judged(before, after) is not None
    assert "not alike" not in verdict(compare_runs(side(before), side(after)))


def test_a_batch_of_another_size_is_other_work_by_its_count_alone() -> None:
    assert judged(counted(200, KNOWN, 0.1, samples=64), counted(200, KNOWN, 0.05, samples=8)) is None
    assert judged(counted(200, KNOWN, 0.1, samples=64), counted(200, KNOWN, 0.2, samples=63)) is not None


def test_what_is_printed_is_no_baseline_for_what_is_measured() -> None:
    assert judged(of_source("console", 0.1), of_source("hooks", 0.7)) is None
    assert judged(of_source("hooks", 0.1), of_source("console", 0.7)) is None


def test_two_printed_runs_are_compared_without_a_claim_about_settings() -> None:
    found = judged(of_source("console", 0.1), of_source("console", 0.7))
    assert found is not None and found.severity == "info"
    assert found.evidence[-1] == SETTINGS_UNKNOWN


def test_facts_of_any_shape_are_read() -> None:
    odd = Story().tell(Facts, facts={"versions": 3, "config": [1], "optimizer": "x", "model": None, "python": 3})
    for _ in range(200):
        odd.step(forward=0.3)
    assert "not alike" not in verdict(compare_runs(side(run(facts=KNOWN, forward=0.1)), side(odd)))
