"""The real hooks over workloads whose truth is known: what the device lane tells, against the ledger."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.hooks.conftest import Told
from tests.simulated_device import checks
from tests.simulated_device.plays import Plays
from tests.simulated_device.workloads import WORKLOADS, anything
from trainhooks.auto.models.update_checks import CHECKS_AGAIN, FIRST_CHECKS, MIN_INTERVAL

SAMPLED = ("healthy", "mixed", "ten-milliseconds", "one-millisecond", "half-a-millisecond", "slow-drift")
LENGTHS = ("half-a-millisecond", "one-millisecond", "ten-milliseconds", "hundred-milliseconds")
TOLD_BY_API: dict[str, Any] = {"way": "phases", "fake": True}


@pytest.mark.long
@pytest.mark.parametrize("name", WORKLOADS)
def test_the_truth_lies_in_what_is_told(play: Plays, name: str) -> None:
    """By phase, of the timed steps and of those they stand for; and stretches are the device's whole time."""
    assert checks.complaints(play(name)) == []


@pytest.mark.parametrize("name", ["healthy", "launch-bound", "mixed", "slow-drift"])
def test_the_same_steps_told_by_the_public_calls(play: Plays, name: str) -> None:
    assert checks.complaints(play(name, **TOLD_BY_API)) == []


@pytest.mark.parametrize("seed", range(8))
def test_any_training(play: Plays, seed: int) -> None:
    """Whatever a training is made of, and however the device's clock drifts: what is told holds the truth."""
    drift = random.Random(seed).uniform(-60e-6, 60e-6)
    order = TOLD_BY_API if seed % 2 else {}
    changes = {**anything(seed), **({"micro": 1} if seed % 2 else {})}
    assert checks.complaints(play("mixed", changes=changes, device={"drift": drift}, **order)) == []


def test_a_graph_of_the_whole_step_is_one_phase(play: Plays) -> None:
    """What lies in it cannot be seen, so nothing of it is told; and its capture was left alone."""
    played = play("healthy", way="graph")
    assert checks.complaints(played) == []
    assert {name for event in played.timed.values() for name, _ in event["phases"]} == {"data"}
    assert len(played.timed) > 20


@pytest.mark.parametrize("name", SAMPLED)
def test_timed_steps_lie_at_random(play: Plays, name: str) -> None:
    assert checks.spread(play(name)) == []


def test_and_elsewhere_in_another_run(play: Plays) -> None:
    first, second = play("mixed"), play("mixed", seed=2)
    assert checks.spread(second) == [] and checks.complaints(second) == []
    assert set(first.timed) != set(second.timed)


def test_each_place_in_a_programs_own_rhythm_is_seen(play: Plays) -> None:
    """Of steps that are logged each 20th time, none is always or never timed."""
    timed = [step % 20 for step in sorted(play("ten-milliseconds").timed)[checks.FIRST :]]
    assert len(set(timed)) >= 12 and max(timed.count(each) for each in timed) <= len(timed) / 5


@pytest.mark.parametrize("name", LENGTHS)
def test_it_costs_what_it_may(play: Plays, name: str) -> None:
    """Half a percent of the step time on average, however short the steps are; and most steps next to nothing."""
    played = play(name)
    assert 0.0005 < checks.cost(played) <= checks.BUDGET
    untimed = checks.untimed_costs(played)
    # A loss is read ten times a second at most: at 100 ms in each step.
    assert untimed[len(untimed) * 99 // 100] < 60e-6
    if name in ("half-a-millisecond", "one-millisecond"):
        assert untimed[len(untimed) // 2] < 2e-6


def test_a_timed_step_costs_what_it_did_on_the_machine(play: Plays) -> None:
    """Else the test above would show nothing: 0.45 ms for the marks of a step as `auto` tells it."""
    calls, costs = play("ten-milliseconds").truth["calls"], play("ten-milliseconds").truth["costs"]
    timed = len(play("ten-milliseconds").timed)
    names = {"Event.record": "record", "Event.elapsed_time": "elapsed_time", "current_stream": "current_stream"}
    assert 0.35e6 < sum(calls[name] * costs[cost] for name, cost in names.items()) / timed < 0.65e6


def test_what_is_made_is_used_again(play: Plays) -> None:
    played = play("half-a-millisecond")
    assert played.truth["events"] < 200 and played.truth["calls"].get("pinned memory", 0) < 10


# Losses and the usual step


def counted(play: Plays, workload: str, steps: int) -> tuple[Told, dict[str, float]]:
    """What was told of a workload, and calls of the hooks to the device, steps on the fast path, and seconds."""
    told = play.script(
        f"""
        import dataclasses, json
        from tests.simulated_device import begin
        device, clock = begin()
        from tests.simulated_device.install import install
        face = install(device)
        from trainhooks.auto import imports
        imports.install()
        from tests.simulated_device.workloads import WORKLOADS, train
        from trainhooks.auto.steps.fast_path import FastPath
        end, ends = FastPath.end_step, []
        FastPath.end_step = lambda *args: (ends.append(1), end(*args))
        began = clock.now
        train(device, dataclasses.replace(WORKLOADS[{workload!r}], steps={steps}))
        seconds = (clock.now - began) / 1e9
        print(json.dumps(dict(face.calls, fast=len(ends), seconds=seconds, cost=face.hooks_cost / 1e9)))
        print(sorted(face.misdeeds))
        """
    )
    return told, json.loads(told.out.splitlines()[0])


def test_untimed_steps_stay_on_the_fast_path_and_losses_are_taken_at_intervals(play: Plays) -> None:
    told, calls = counted(play, "one-millisecond", 1500)
    assert told.out.endswith("[]\n")
    times = {event["step"]: event for event in told.kind("gpu_time")}
    assert 3 <= len(times) < 150 and told.indices == list(range(1, 1501))
    # A timed step leaves the fast path for itself alone, and so do the steps that are checked.
    checked = FIRST_CHECKS + (CHECKS_AGAIN + 1) * calls["seconds"] * 1e9 / MIN_INTERVAL
    assert calls["fast"] > 1500 - 3 * len(times) - 10 - checked > 1200
    assert calls["cost"] < 0.01 * calls["seconds"], "all calls of the hooks to the device, by the measured table"
    assert 5 <= calls["copy_"] <= 10 * calls["seconds"] + 2
    assert calls["pinned memory"] <= 20, "places are used again"
    losses = [step for step in told.steps if "loss" in step.get("metrics", {})]
    late = [event for event in told.kind("metrics") if "loss" in event["values"]]
    assert abs(len(losses) + len(late) - calls["copy_"]) <= 2


def test_slow_steps_are_all_timed_and_have_a_loss(play: Plays) -> None:
    told, calls = counted(play, "hundred-milliseconds", 60)
    assert told.out.endswith("[]\n")
    times = {event["step"] for event in told.kind("gpu_time") if "seconds" in event}
    assert len(times) >= 25
    assert calls["copy_"] >= 55


def test_an_optimizer_may_be_gone_before_the_last_step_ends(play: Plays) -> None:
    told = play.script(
        """
        import gc
        from tests.simulated_device import begin
        device, _ = begin()
        from tests.simulated_device.install import install, place
        install(device)
        from trainhooks.auto import imports
        imports.install()
        import torch
        def main():
            model = torch.nn.Linear(4, 4)
            optimizer = torch.optim.SGD([place(weight) for weight in model.parameters()], lr=0.1)
            loader = torch.utils.data.DataLoader(torch.ones(60, 4), batch_size=1)
            for _, batch in zip(range(45), loader):
                place(model(batch).square().mean()).backward()
                optimizer.step()
                device.host(0.001)
        main()
        gc.collect()
        """
    )
    assert told.indices == list(range(1, 46))
