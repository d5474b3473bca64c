"""How long a plain loop is planned to run: its loader's passes, and the arguments that bound them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from monitor import run_facts
from monitor.model.steps.passes import Passes
from tests.auto.watched import long, watched
from trainhooks.protocol.events import Step
from trainhooks.protocol.facts import RunFacts

LOOP = """
import argparse, sys, torch
from torch import nn
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def loader(): return torch.utils.data.DataLoader(torch.randn(48, 4), batch_size=4)
def step(x): model(x).sum().backward(); optimizer.step(); optimizer.zero_grad()
{main}
"""
FROM_ARGUMENTS = """
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    own = parser.parse_args()
    batches = loader()
    for _ in range(own.epochs):
        for x in batches: step(x)
main()
"""
FROM_A_VARIABLE = """
num_epochs = 3
for _ in range(num_epochs):
    for x in loader(): step(x)  # made anew for each epoch
"""
ACCUMULATED = """
class config: pass
config = config(); config.epochs = 4
batches, held_out = loader(), loader()
for _ in range(config.epochs):
    for number, x in enumerate(batches, 1):
        model(x).sum().backward()
        if number % 5 == 0:
            with torch.no_grad():
                for x in held_out: model(x); break
        if number % 4 == 0: optimizer.step(); optimizer.zero_grad()
"""
BY_STEPS = """
max_iters = 30
for number in range(max_iters): step(torch.randn(4, 4))
"""
LOOKED_AT = """
import time
epochs = 3
batches = loader()
x = next(iter(batches))
print(model(x).shape)
for _ in range(epochs):
    for x in batches: step(x)
    time.sleep(0.1)  # passes that follow at once are not each reported
    print(next(iter(batches)).shape)
    time.sleep(0.1)
"""
LEFT_EARLY = """
epochs = 3
for _ in range(epochs):
    for number, x in enumerate(loader()):
        step(x)
        if number == 4: break
"""


@pytest.mark.parametrize(
    ("main", "total", "epochs", "batches"),
    [
        (FROM_ARGUMENTS, 36, 3, 12),
        long(FROM_A_VARIABLE, 36, 3, 12),
        (ACCUMULATED, 12, 4, 12),
        (LOOKED_AT, 36, 3, 12),
        long(BY_STEPS, 30, None, None),
        long(LEFT_EARLY, 15, None, None),  # its passes end before their batches do
    ],
)
@pytest.mark.long
def test_the_total_of_a_plain_loop(
    tmp_path: Path, main: str, total: int, epochs: int | None, batches: int | None
) -> None:
    (tmp_path / "train.py").write_text(LOOP.format(main=main))
    progress = watched(tmp_path / "state", str(tmp_path / "train.py")).report.progress
    assert (progress.steps_done, progress.steps_total, progress.fraction) == (total, total, 1.0)
    assert (progress.epochs_total, progress.batches) == (epochs, batches)
    assert progress.batch == batches  # the last pass is whole
    assert epochs is None or progress.epoch == epochs


CONTRADICTORY = """
epochs, num_epochs = 3, 5
for x in loader(): step(x)
"""
EXCEEDED = """
max_steps = 5
for x in loader(): step(x)
"""
AN_EPISODE = """
import types; sys.modules["gymnasium"] = types.ModuleType("gymnasium")
max_steps = 500  # of an episode
for x in loader(): step(x)
"""
NO_NUMBER = """
epochs, max_steps = 2.5, "many"
for x in loader(): step(x)
"""


@pytest.mark.long
@pytest.mark.parametrize("main", [CONTRADICTORY, EXCEEDED, *map(long, (AN_EPISODE, NO_NUMBER))])
def test_a_plan_that_may_be_wrong_is_unknown(tmp_path: Path, main: str) -> None:
    (tmp_path / "train.py").write_text(LOOP.format(main=main))
    progress = watched(tmp_path / "state", str(tmp_path / "train.py")).report.progress
    assert progress.steps_done == 12
    assert (progress.steps_total, progress.fraction, progress.epochs_total) == (None, None, None)
    assert (progress.epoch, progress.batch, progress.batches) == (1, 12, 12)


def steps(fetches: int) -> list[Step]:
    return [Step(producer="a", seq=1, t=1.0, duration=1.0, phases=[("data", 0.1, "host", fetches)])] * 5


def facts(**known: Any) -> RunFacts:
    return run_facts.read(known)


def test_the_place_and_the_total_within_the_first_pass() -> None:
    passes = Passes()
    passes.take(facts(plan={"epochs": 3}, passes={"number": 1, "batches": 25}), 0)
    assert passes.total(0, []) is None and passes.position(0, []) is None  # how many batches a step takes is unknown
    assert (passes.total(18, steps(1)), passes.position(18, steps(1))) == (75, (18, 25))
    assert (passes.total(4, steps(4)), passes.position(4, steps(4))) == (21, (16, 25))


def test_a_batch_that_is_looked_at_is_no_pass() -> None:
    passes = Passes()
    for number, done in ((1, 0), (2, 25), (3, 25), (4, 50), (5, 50)):
        passes.take(facts(plan={"epochs": 3}, passes={"number": number, "batches": 25}), done)
    assert (passes.number, passes.total(60, steps(1)), passes.position(60, steps(1))) == (3, 75, (10, 25))
    passes.take(facts(passes={"number": 1, "batches": 5}), 90)  # of another loop
    assert (passes.number, passes.position(92, steps(1))) == (1, (2, 5))


def test_a_pass_that_is_reported_before_its_last_step_is_counted_right() -> None:
    passes = Passes()
    passes.take(facts(plan={"epochs": 3}, passes={"number": 1, "batches": 25}), 0)
    passes.take(facts(passes={"number": 2, "batches": 25}), 24)
    assert passes.total(30, steps(1)) == 75


def test_a_pass_that_is_reported_late_has_its_number_and_its_place_where_that_follows() -> None:
    passes = Passes()
    passes.take(facts(passes={"number": 1, "batches": 10}), 0)
    passes.take(facts(passes={"number": 4, "batches": 10, "late": True}), 40)
    assert passes.number == 4 and passes.position(40, steps(1)) is None
    passes = Passes()
    passes.take(facts(passes={"number": 1, "batches": 10}), 0)
    passes.take(facts(passes={"number": 2, "batches": 10}), 10)
    passes.take(facts(passes={"number": 5, "batches": 10, "late": True}), 43)
    assert passes.number == 5 and passes.position(43, steps(1)) == (3, 10)


def test_passes_with_other_steps_than_batches_have_no_place_but_a_total() -> None:
    """Several updates a batch, or passes that are left early: what was measured counts."""
    passes = Passes()
    passes.take(facts(plan={"epochs": 4}, passes={"number": 1, "batches": 25}), 0)
    passes.take(facts(passes={"number": 2, "batches": 25}), 100)
    assert passes.total(120, steps(1)) == 400 and passes.position(120, steps(1)) is None


def test_more_passes_than_planned_contradict_the_plan() -> None:
    passes = Passes()
    passes.take(facts(plan={"epochs": 1}, passes={"number": 1, "batches": 10}), 0)
    passes.take(facts(passes={"number": 2, "batches": 10}), 10)
    assert passes.total(12, steps(1)) is None


@pytest.mark.parametrize("odd", [None, "x", -1, 0, 2.5, [], {"number": "2"}, {"number": -1}, {"number": 1e9}])
def test_odd_facts_are_no_passes(odd: Any) -> None:
    passes = Passes()
    passes.take(facts(passes=odd, plan=odd), 3)
    assert passes == Passes() and passes.total(3, steps(1)) is None
