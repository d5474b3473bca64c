"""What torch's profiler tells of the device: the time of kernels by the phase that launched them. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
LAUNCHES = ("cuda_runtime", "cuda_driver")

Interval = tuple[float, float]


@dataclass(frozen=True)
class Phase:
    """Seconds a step.

    Attributes:
        busy: with at least one kernel at work.
        span: from the first kernel's begin to the last one's end.
    """

    steps: int
    busy: float
    span: float


def union(intervals: Iterable[Interval]) -> float:
    """The length of what intervals cover: kernels of several streams overlap."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(intervals):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def phases(events: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, Phase]:
    """Each named annotation's share of the device's time.

    A kernel belongs to the annotation in which the host launched it, whichever thread did: autograd launches the
    backward's kernels from a thread of its own, while the annotated one waits for it.
    """
    marks = sorted(
        (float(each["ts"]), float(each["ts"]) + float(each["dur"]), str(each["name"]))
        for each in events
        if each.get("cat") == "user_annotation" and each.get("name") in names
    )
    begins = [begin for begin, _, _ in marks]
    launched = {
        each["args"]["correlation"]: float(each["ts"])
        for each in events
        if each.get("cat") in LAUNCHES and "correlation" in each.get("args", {})
    }
    kernels: dict[int, list[Interval]] = {}
    for each in events:
        if each.get("cat") not in ON_DEVICE:
            continue
        at = launched.get(each.get("args", {}).get("correlation"))
        place = bisect_right(begins, at) - 1 if at is not None else -1
        if place >= 0 and at is not None and at <= marks[place][1]:
            kernels.setdefault(place, []).append((float(each["ts"]), float(each["ts"]) + float(each["dur"])))
    return {name: phase for name in names if (phase := _phase(name, marks, kernels)) is not None}


def _phase(name: str, marks: Sequence[tuple[float, float, str]], kernels: Mapping[int, list[Interval]]) -> Phase | None:
    found = [kernels[place] for place, (_, _, called) in enumerate(marks) if called == name and place in kernels]
    if not found:
        return None
    busy = sum(union(each) for each in found)
    span = sum(max(end for _, end in each) - min(begin for begin, _ in each) for each in found)
    return Phase(len(found), busy / len(found) * 1e-6, span / len(found) * 1e-6)
