"""Before and after, for real: the setting that was changed is named, and each phase's part of the difference told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Runs

pytestmark = pytest.mark.timeout(300)  # two programs that import torch, on a box that may be busy

PAIRS = {
    "workers": (["--workers", "2"], ["--workers", "0"]),
    "length": (["--length=64"], ["--length=192"]),
    "precision": ([], ["--dtype", "bfloat16"]),
    "forward": ([], ["--twice"]),
}


@pytest.fixture
def pair(runs: Runs, request: pytest.FixtureRequest) -> tuple[Runs, dict[str, Any]]:
    script = request.param
    before, after = PAIRS[script]
    runs.train("before", script, *before)
    runs.train("after", script, *after)
    return runs, json.loads(runs.out("compare", "before", "after", "--json"))["comparisons"][0]


def changed(told: dict[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {row["name"]: (row["before"], row["after"]) for row in told["changed"]}


def explained(told: dict[str, Any], *names: str) -> float:
    assert sum(row["explains"] for row in told["phases"]) == pytest.approx(1.0)
    return sum(row["explains"] for row in told["phases"] if row["name"] in names)


@pytest.mark.long
@pytest.mark.parametrize("pair", ["workers"], indirect=True)
def test_workers(pair: tuple[Runs, dict[str, Any]]) -> None:
    runs, told = pair
    assert changed(told)["--workers"] == ("2", "0")
    assert changed(told)["loader.dataloader_num_workers"] == (2, 0)
    assert told["slower"] > 1.25 and told["more_than_noise"] is True
    assert explained(told, "data") > 0.7
    assert "data explains" in runs.out("compare", "before", "after").splitlines()[0]
    # The same command's runs compare by themselves.
    found = {row["code"]: row for row in json.loads(runs.out("report", "after", "--json"))["findings"]}
    assert any("dataloader_num_workers: 2 → 0" in line for line in found["regressed"]["evidence"])
    assert any(line.startswith("data: ") for line in found["regressed"]["evidence"])
    before = json.loads(runs.out("report", "before", "--json"))["findings"]
    assert "regressed" not in {row["code"] for row in before}, "nothing ran before it"


@pytest.mark.long
@pytest.mark.parametrize("pair", ["length"], indirect=True)
def test_sequence_length(pair: tuple[Runs, dict[str, Any]]) -> None:
    runs, told = pair
    assert changed(told)["--length"] == ("64", "192")
    assert told["per"] == "token" and told["work"][1]["length"] == pytest.approx(192)
    assert any("tokens a step differ" in each for each in told["warnings"])
    # What a token costs at another length is the machine's affair; the parts account for all of the time.
    assert sum(row["after"] or 0.0 for row in told["phases"]) == pytest.approx(told["step_seconds"][1])
    found = json.loads(runs.out("report", "after", "--json"))["findings"]
    assert "regressed" not in {row["code"] for row in found}, "longer sequences are supposed to take longer"


@pytest.mark.long
@pytest.mark.parametrize("pair", ["precision"], indirect=True)
def test_precision(pair: tuple[Runs, dict[str, Any]]) -> None:
    _, told = pair
    assert changed(told)["--dtype"] == (None, "bfloat16")
    assert changed(told)["model.dtypes"] == ("float32", "bfloat16")
    assert sum(row["after"] or 0.0 for row in told["phases"]) == pytest.approx(told["step_seconds"][1])


@pytest.mark.long
@pytest.mark.parametrize("pair", ["forward"], indirect=True)
def test_duplicate_forward(pair: tuple[Runs, dict[str, Any]]) -> None:
    _, told = pair
    assert changed(told)["--twice"] == (None, "given")
    assert changed(told)["model called twice on the same input"] == (None, "yes")
    assert explained(told, "forward") > 0.5
