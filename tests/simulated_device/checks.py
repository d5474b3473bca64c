"""What must hold of any training: what the lane told of it, against the ledger. Each gives its complaints.

A mutant is a lane that is wrong; for each there is a complaint here.
"""

from __future__ import annotations

import json
import statistics
from itertools import pairwise
from typing import Any

from tests.simulated_device.device import Call, Piece
from tests.simulated_device.plays import Played
from tests.simulated_device.workloads import DEVICE, FOREIGN, Workload

POINTS = 0.02  # shares are right within two points, or a range holds them
NARROW = 0.10  # the queue of a busy device is seen: busy for certain, less these points
SLACK = 0.0002  # seconds by which the begin of a step may be off: marks are launches, too
FIRST = 3  # steps that are always timed
BUDGET = 0.005  # the lane's part of the step time


def complaints(played: Played) -> list[str]:
    """All of them; what was played with the workload's own steps may be asked for its sampling, too."""
    workload = played.workload
    told = [*_safety(played), *_schema(played)]
    if not played.timed:
        return [*told, "no step was timed"]
    return [*told, *_ranges(played, workload), *_sample(played, workload), *_stretches(played, workload)]


def _safety(played: Played) -> list[str]:
    notes = [event["text"] for event in played.told.kind("note") if "GPU clock" in event["text"]]
    return [f"misdeed: {each}" for each in played.truth["misdeeds"]] + notes


def _schema(played: Played) -> list[str]:
    """Each step once, and of steps that there were; parts are parts of the whole."""
    events = played.told.kind("gpu_time")
    wrong = [] if len({event["step"] for event in events}) == len(events) else ["a step was told twice"]
    for event in played.timed.values():
        whole = event["seconds"] + 1e-6
        if event["step"] not in played.indices:
            wrong.append(f"of a step that is none: {event['step']}")
        if sum(seconds for _, seconds in event.get("phases", ())) > whole or event.get("busy", 0.0) > whole:
            wrong.append(f"parts are more than the whole: {json.dumps(event)}")
        busy = dict(event.get("busy_phases", ()))
        if abs(sum(busy.values()) - event.get("busy", 0.0)) > 1e-5 + 1e-3 * whole:
            wrong.append(f"busy is not the sum of its phases: {json.dumps(event)}")
        if any(busy.get(name, 0.0) > seconds + 1e-6 for name, seconds in event.get("phases", ())):
            wrong.append(f"busy for longer than it took: {json.dumps(event)}")
    return wrong[:3]


def sums(played: Played, weighted: bool) -> tuple[float, dict[str, float], dict[str, float]]:
    """Seconds of the timed steps, of each phase the interval, and of each what was busy for certain."""
    total, most, least = 0.0, {"other": 0.0}, dict[str, float]()
    for event in played.timed.values():
        weight = event.get("every", 1) if weighted else 1
        total += weight * event["seconds"]
        rest = event["seconds"]
        for name, seconds in event.get("phases", ()):
            most[name] = most.get(name, 0.0) + weight * seconds
            rest -= seconds
        most["other"] += weight * rest
        for name, seconds in event.get("busy_phases", ()):
            least[name] = least.get(name, 0.0) + weight * seconds
    return total, most, least


def true_phases(played: Played, timed_only: bool) -> dict[str, float]:
    """Busy seconds on the device by phase, evaluations left out: they lie between steps."""
    found: dict[str, float] = {}
    for step, phases in played.true_steps.items():
        if step in played.timed or not timed_only:
            for name, seconds in phases.items():
                found[name] = found.get(name, 0.0) + seconds
    found.pop("eval", None)
    return found


def _ranges(played: Played, workload: Workload) -> list[str]:
    """Of the steps that were timed: the truth lies between busy for certain and the interval."""
    total, most, least = sums(played, weighted=False)
    true = true_phases(played, timed_only=True)
    if played.way == "graph":  # nothing inside a graph can be seen: one phase for all
        true = {"other": sum(true.values())}
        most, least = {"other": total}, {"other": sum(least.values())}
    wrong = []
    for name in sorted({*most, *true}):
        if true.get(name, 0.0) > most.get(name, 0.0) + POINTS * total:
            wrong.append(f"{name}: {true[name]:.4f} s in truth, at most {most.get(name, 0.0):.4f} s told")
        # What the lane cannot tell is whose work it was: turns of another process are busy, too.
        if workload.bound != FOREIGN and least.get(name, 0.0) > true.get(name, 0.0) + POINTS * total:
            wrong.append(f"{name}: {true.get(name, 0.0):.4f} s in truth, at least {least[name]:.4f} s told")
    if workload.bound == DEVICE and workload.name not in LOOSE and played.way != "graph":
        certain, busy = sum(least.values()) / total, sum(true.values()) / total
        if certain < busy - NARROW:
            wrong.append(f"{busy:.2f} of the time busy, and no more than {certain:.2f} told for certain")
    return wrong


# Device-bound, but with queues as short as the marks are apart; or bound by turns by the host.
LOOSE = ("half-a-millisecond", "one-millisecond")


def _sample(played: Played, workload: Workload) -> list[str]:
    """Of all steps: the timed ones stand for the others, by as many as each says. Seconds a step, in both."""
    if workload.bound != DEVICE or played.way == "graph" or workload.spike:
        return []
    _, most, _ = sums(played, weighted=True)
    stood_for = sum(event.get("every", 1) for event in played.timed.values())
    true = true_phases(played, timed_only=False)
    step = sum(true.values()) / len(played.indices)
    wrong = []
    for name in true:
        mean, told = true[name] / len(played.indices), most.get(name, 0.0) / stood_for
        # Where the device waits inside a phase, the interval holds that, too: no less than the truth is what is known.
        if told < mean - POINTS * step or (workload.name not in IDLE and told > mean + POINTS * step):
            wrong.append(f"{name}: {mean:.6f} s a step in truth, {told:.6f} s told")
    return wrong


IDLE = ("mixed",)  # bound by the device for a part of the step only


def _stretches(played: Played, workload: Workload) -> list[str]:
    """They follow each other without a gap, and each is what the device took from begin to begin."""
    arrivals = played.truth["arrivals"][:: workload.micro]
    timed = sorted(played.timed.values(), key=lambda event: event["step"])
    wrong = []
    for before, event in pairwise(timed):
        if event.get("since") != before["step"]:
            wrong.append(f"step {event['step']} does not follow on {before['step']}, but on {event.get('since')}")
            continue
        true = (arrivals[event["step"] - 1] - arrivals[before["step"] - 1]) / 1e9
        if abs(event["stretch"] - true) > SLACK + 2e-4 * true:
            wrong.append(f"up to step {event['step']}: {true:.6f} s in truth, {event['stretch']:.6f} s told")
    told = sum(event.get("stretch", 0.0) for event in timed[1:])
    true = (arrivals[timed[-1]["step"] - 1] - arrivals[timed[0]["step"] - 1]) / 1e9
    if abs(told - true) > 0.005 * true + SLACK:
        wrong.append(f"stretches add up to {told:.4f} s of {true:.4f}")
    return wrong[:3]


def traces(played: Played) -> list[str]:
    """Of traced steps: the device's time by phase is that of all that was launched in them, and of nothing else."""
    found = played.told.kind("trace")
    wrong = [f"misdeed: {each}" for each in played.truth["misdeeds"]]
    for trace in found:
        steps = range(trace["first"], trace["first"] + trace["steps"])
        true, told = dict[str, float](), dict[str, float]()
        for call in map(Call._make, played.truth["runtime"]):
            if call.step in steps:
                for piece in map(Piece._make, call.pieces):
                    true[call.label] = true.get(call.label, 0.0) + (piece.end - piece.start) / 1e9
        for _, phase, _, seconds in trace["rows"]:
            told[phase] = told.get(phase, 0.0) + seconds
        whole = sum(true.values())
        wrong += [
            f"{name}: {true.get(name, 0.0):.6f} s in truth, {told.get(name, 0.0):.6f} s traced of {whole:.6f} s"
            for name in sorted({*true, *told})
            if abs(true.get(name, 0.0) - told.get(name, 0.0)) > POINTS * whole
        ]
    return wrong if found else [*wrong, "no step was traced"]


def spread(played: Played) -> list[str]:
    """Timed steps lie at random: no fixed distance, and each block of `every` steps holds one."""
    steps = sorted(played.timed)[FIRST:]
    events = [played.timed[step] for step in steps]
    usual = statistics.median(event.get("every", 1) for event in events)
    # Before the length of a step and what timing it costs are known, blocks are of other lengths.
    sampled = [event["step"] for event in events if 0.8 * usual <= event.get("every", 1) <= 1.25 * usual]
    if len(sampled) < 8:
        return [f"no more than {len(sampled)} steps were sampled"]
    # The distance between two places drawn at random in blocks of k varies by 0.4 k; between each k-th by nothing.
    distances = [(after - before) / usual for before, after in pairwise(sampled)]
    varies = statistics.pstdev(distances)
    wrong = [] if varies > 0.2 else [f"the distance of timed steps varies by no more than {varies:.2f} blocks"]
    stood = sum(event.get("every", 1) for event in events)
    if not 0.5 < stood / (len(played.indices) - FIRST) < 1.5:
        wrong.append(f"{stood} steps are stood for, of {len(played.indices)}")
    return wrong


def cost(played: Played) -> float:
    """The lane's part of the step time, the first steps apart: these are always timed."""
    truth = played.truth
    late = sum(spent for step, spent in truth["by_step"].items() if int(step) > FIRST + 1)
    share: float = late / truth["elapsed"]
    return share


def untimed_costs(played: Played) -> list[float]:
    """Seconds that calls to CUDA took in steps that were not timed."""
    # A timed step's first marks are made before its batch has come: they count for the step before.
    timed: set[Any] = {each for step in played.timed for each in (step - 1, step)}
    spent = {int(step): cost for step, cost in played.truth["by_step"].items()}
    return sorted(spent.get(step, 0) / 1e9 for step in played.indices if step not in timed and step > FIRST)
