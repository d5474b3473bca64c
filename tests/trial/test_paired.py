"""Pairs of runs: gain and interval."""

from __future__ import annotations

import random

import pytest

from monitor.model.comparison.paired import gain_of, loss_change
from monitor.model.report import Gain
from monitor.runs import promises
from trainhooks.protocol import rundir


def test_too_few_pairs_say_nothing() -> None:
    assert gain_of([(2.0, 1.0)] * 4) is None


def test_pairs_that_agree_make_a_narrow_interval() -> None:
    found = gain_of([(1.31, 1.0), (2.6, 2.0), (1.29, 1.0), (1.32, 1.0), (1.31, 1.0)])
    assert found is not None
    assert 1.25 < found.low < found.value < found.high < 1.36


def test_the_interval_holds_the_gain_in_nineteen_of_twenty_cases() -> None:
    chance = random.Random(1)
    held = 0
    for _ in range(1000):
        pairs = [(1.5 * chance.lognormvariate(0, 0.1), chance.lognormvariate(0, 0.1)) for _ in range(5)]
        found = gain_of(pairs)
        assert found is not None
        held += found.low <= 1.5 <= found.high
    assert 920 <= held <= 980


def test_losses() -> None:
    same = loss_change([(2.0, 2.0)] * 5)
    assert same is not None and same.low == same.high == 0.0
    assert loss_change([(0.0, 1.0)] * 5) is None
    assert loss_change([(float("nan"), 1.0)] * 5) is None


def test_promises_are_kept_within_bounds(tmp_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(rundir.STATE_VARIABLE, f"{tmp_path}/state")
    assert promises.line("input-bound") is None
    measured = gain_of([(1.7, 1.0)] * 5)
    assert measured is not None
    for _ in range(3):
        promises.keep("input-bound", "num_workers=4", Gain(1.5, 1.9, 2.2), measured)
    promises.keep("fp32-matmul", "matmul_precision=high", None, measured)
    path = rundir.state_dir() / promises.NAME
    with path.open("a") as file:
        file.write('no json\n{"code": "input-bound"}\n{"code": "input-bound", "measured": -1}\n[]\n')
    line = promises.line("input-bound")
    assert line == "On your machines: promised 1.90x, measured 1.70x, 3 times (`trainmon try`)."
    monkeypatch.setattr(promises, "MAX_LINES", 2)
    promises.keep("input-bound", "num_workers=4", None, measured)
    assert len(path.read_text().splitlines()) == 2
