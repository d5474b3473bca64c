"""Loops of the structure of public programs, bare and with the hooks, on the simulated device."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.hooks.conftest import Told
from tests.simulated_device import public_program
from tests.simulated_device.plays import Zygote

pytestmark = pytest.mark.long

SCRIPT = Path(public_program.__file__)
LATENCY = 0.001  # seconds by which a span may be longer or shorter than the program knows of it
SHARE = 0.02  # of a timed step by which phases may be off
PHASES = ("forward", "backward", "optimizer")

# Each with options, and phases of which the device's work cannot be told apart by what the hooks hear.
PROGRAMS: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "nanogpt": ("nanogpt", {}, ()),
    "nanogpt without accumulation": ("nanogpt", {"accumulation": 1, "log_interval": 1}, ()),
    "plain": ("plain", {}, ()),
    "plain with workers": ("plain", {"workers": 2}, ()),
    "evaluation in the mode of training": ("late_validation", {}, ()),
    "a validation read at its end": ("queued_validation", {"save": True}, ()),
    "one training after the other": ("again", {}, ()),
    "PPO": ("ppo", {}, ("forward", "other")),
    "a rollout a step": ("reinforce", {}, ("forward", "other")),
    "a rollout a step in the mode of evaluation": ("reinforce", {"eval": True}, ("forward", "other")),
    "GAN": ("gan", {}, ()),
    "LBFGS": ("lbfgs", {}, ()),
    "gradient checkpointing": ("checkpointing", {}, ()),
    "gradient checkpointing, reentrant": ("checkpointing", {"reentrant": True}, ()),
    "distillation": ("distillation", {}, ("forward", "other")),
    "a graph of the whole step": ("graph", {}, PHASES),
    "a graph with a fused optimizer": ("graph", {"fused": True}, PHASES),
    "accelerate": ("accelerated", {}, ()),
}
LONG = {"Lightning": ("lightning", {}, ()), "Trainer": ("trainer", {}, ())}
# No part of a step, whatever is told of it instead.
APART = {"eval": "eval", "checkpoint": "checkpoint", "rollout": None}
UNHEARD = ("PPO",)  # its model is called by methods of its own: what is between is told with the step that follows
UNNAMED = ("evaluation in the mode of training", "LBFGS", "GAN")  # evaluations that nothing tells apart


@dataclass
class Ran:
    """A program's run with the hooks, and what was true."""

    told: Told
    truth: dict[str, Any]
    bare: dict[str, Any]

    @property
    def timed(self) -> dict[int, dict[str, Any]]:
        return {event["step"]: event for event in self.told.kind("gpu_time") if "seconds" in event}


def run(zygote: Zygote, work: Path, program: str, options: dict[str, Any]) -> Ran:
    ended: list[tuple[Told, dict[str, Any]]] = []
    for hooks in (False, True):
        here = work / f"hooks-{hooks}"
        here.mkdir()
        order = {"program": program, "hooks": hooks, "options": options}
        told = zygote.run(SCRIPT, here, **{public_program.VARIABLE: json.dumps(order)})
        assert told.code == 0 and "trainhooks" not in told.err, told.err
        ended.append((told, json.loads((here / public_program.TRUTH).read_text())))
    assert ended[0][0].journals == []
    return Ran(ended[1][0], ended[1][1], ended[0][1])


@pytest.mark.parametrize("name", [*PROGRAMS, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_public_loop(zygote: Zygote, tmp_path: Path, name: str) -> None:
    program, options, mixed = {**PROGRAMS, **LONG}[name]
    ran = run(zygote, tmp_path, program, options)
    assert ran.truth["losses"] == ran.bare["losses"]
    assert ran.truth["misdeeds"] == []
    assert len(ran.told.steps) == len(ran.truth["stepped"])
    assert ran.told.kind("note") == []
    assert complaints_of_steps(ran) == []
    assert complaints_of_the_device(ran, mixed) == []
    if name not in UNHEARD:
        assert complaints_of_what_is_apart(ran, name not in UNNAMED) == []


def complaints_of_steps(ran: Ran) -> list[str]:
    """Parts are parts of their step; a loss is told, and not more often than ten times a second."""
    wrong = []
    before = 0.0
    for step in ran.told.steps:
        parts = [seconds for _, seconds, _, _ in step["phases"]]
        if min(parts, default=0.0) < 0 or sum(parts) > step["duration"] + 1e-6 or step["start"] < before - 1e-9:
            wrong.append(f"parts of a step: {json.dumps(step)}")
        before = step["t"]
    seconds = ran.told.steps[-1]["t"] - ran.told.steps[0]["start"]
    losses = [event for event in ran.told.kind("metrics") if "loss" in event["values"]]
    if len(losses) > 10 * seconds + 2:
        wrong.append(f"{len(losses)} losses in {seconds:.1f} s")
    return wrong


def complaints_of_what_is_apart(ran: Ran, named: bool) -> list[str]:
    """Evaluations and checkpoints lie in no step, and each is told as long as it was."""
    wrong = []
    for name, began, ended in ran.truth["beside"]:
        for step in ran.told.steps:
            inside = min(ended / 1e9, step["t"]) - max(began / 1e9, step["start"])
            if inside > LATENCY:
                wrong.append(f"{inside:.4f} s of {name} in step {step['index']}")
    for name in {name for name, _, _ in ran.truth["beside"]} if named else ():
        true = sorted(ended / 1e9 for each, _, ended in ran.truth["beside"] if each == name)
        spans = [span for span in ran.told.kind("span") if span["name"] == name]
        seconds = sum(ended - began for each, began, ended in ran.truth["beside"] if each == name) / 1e9
        own = sum(span.get("own", 0.0) for span in spans)
        if len(spans) != len(true) or (name == "eval" and abs(own - seconds) > LATENCY * len(true)):
            wrong.append(f"{len(true)} of {name}, {seconds:.4f} s; told {len(spans)}, {own:.4f} s")
    return wrong


def complaints_of_the_device(ran: Ran, mixed: tuple[str, ...]) -> list[str]:
    """Hardly a timed step is given up, stretches hang together, and phases are the ledger's."""
    timed = ran.timed
    events = ran.told.kind("gpu_time")
    wrong = [] if len(timed) >= 8 else [f"no more than {len(timed)} steps were timed"]
    if len(events) != len(timed):
        wrong.append(f"{len(events) - len(timed)} of {len(events)} timed steps were given up")
    if sum("since" not in event for event in timed.values()) > 1:
        wrong.append("stretches do not hang together")
    total = sum(event["seconds"] for event in timed.values())
    for phase in PHASES:
        if phase in mixed:
            continue
        told = sum(dict(event["phases"]).get(phase, 0.0) for event in timed.values())
        true = sum(ran.truth["steps"].get(str(step), {}).get(phase, 0.0) for step in timed)
        if abs(told - true) > SHARE * total:
            wrong.append(f"{phase}: {true:.4f} s in truth, {told:.4f} s told, of {total:.4f}")
    return wrong
