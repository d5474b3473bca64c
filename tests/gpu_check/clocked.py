"""A training with named phases, for `clock`. Its last line tells its own measures."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from itertools import cycle
from statistics import median
from typing import Any

import torch

import trainhooks as th
from tests.gpu_check.events import PHASES, WARM_UP, Mark, delayed, nothing, waited, workload

BLOCKS = 4  # as many steps as are waited for, so many times: only some of them are timed
wait: Callable[[], object] = torch.cuda.synchronize if torch.cuda.is_available() else nothing


def marks() -> Mark:
    """Enters and leaves the phases in turn, as a step of the workload goes through them."""
    named = [th.phase(name) for name in PHASES]
    places = cycle(range(len(PHASES) + 1))

    def mark() -> None:
        place = next(places)
        if place:
            named[place - 1].__exit__(None, None, None)
        if place < len(PHASES):
            named[place].__enter__()

    return mark


def reference(step: Callable[[Mark], None], steps: int) -> dict[str, float]:
    """Median seconds of the phases by the host's clock, each waited for; without the hooks."""
    rounds = waited(step, steps, wait, delayed(torch))
    return {name: median(row[place] for row in rounds) for place, name in enumerate(PHASES)}


def train(step: Callable[[Mark], None], mark: Mark, steps: int) -> float:
    """Seconds a step; the last one's work is waited for."""
    wait()
    began = time.perf_counter()
    for _ in th.steps(range(steps)):
        step(mark)
    wait()
    return (time.perf_counter() - began) / steps


def captured() -> bool:
    """Whether a CUDA graph captured in the middle of a phase, and of the next, gives what it should."""
    if not torch.cuda.is_available():
        return False
    given = torch.ones(64, 64, device="cuda")
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):  # as torch asks for before a capture
        given @ given
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    for _ in th.steps(range(8)):
        with th.phase("capture"), torch.cuda.graph(graph), th.phase("inside"):
            found = given @ given
        with th.phase("replay"):
            graph.replay()
        graph = torch.cuda.CUDAGraph()
    wait()
    return bool((found == 64.0).all().item())


def compiled() -> int:
    """Graphs that torch.compile makes of a function called in a phase, backward included; one is what it should be."""
    made: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        made.append(graph)
        return graph

    model = torch.nn.Linear(8, 8).to("cuda" if torch.cuda.is_available() else "cpu")
    loss = torch.compile(lambda batch: model(batch).relu().sum(), backend=backend)
    for _ in th.steps(range(4)):
        with th.phase("compiled"):
            loss(torch.ones(4, 8, device=model.weight.device)).backward()
    return len(made)


def main(steps: int, width: int, rows: int, layers: int) -> None:
    step = workload(torch, width, rows, layers)
    for _ in range(min(steps, WARM_UP)):
        step(nothing)
    told = reference(step, steps)
    seconds = train(step, marks(), BLOCKS * steps)
    out = {"reference": told, "seconds": seconds, "graphs": compiled(), "captured": captured()}
    print(f"clocked: {json.dumps(out)}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:5]))
