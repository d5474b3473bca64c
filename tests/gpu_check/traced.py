"""What a kernel trace costs where it is taken: `python -m tests.gpu_check.traced NAME [--thread background]`.

The training knows nothing of trainmon; the hooks' own way to the profiler is called between its steps. The last line
tells, in seconds: a step before the traces and after them, with the device's work waited for, and for each trace its
begin, its longest step, its end and its reading. Without a trace (--traces 0) the same steps are the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from tests.gpu_check.loops import LOOPS
from trainhooks.lane_entries import NANOSECOND
from trainhooks.tracing import profiler
from trainhooks.tracing.trace_reading import union

NAMES = ("gpt", "mlp", "graph")
WARM_UP = 30  # steps
STEPS = 3  # of a trace


def training(name: str, device: str) -> Callable[[], object]:
    """A function that trains a step; of `graph`, one that replays a graph of several."""
    make, _, mixed = LOOPS["mlp" if name == "graph" else name]
    torch.manual_seed(0)
    model, criterion, batch = make(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=name == "graph")

    def step() -> None:
        with torch.autocast(device, torch.bfloat16, enabled=mixed):
            loss = criterion(model(batch).float())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    if name != "graph" or device == "cpu":
        return step
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            step()
    return graph.replay


def mean_step(step: Callable[[], object], steps: int, wait: Callable[[], object]) -> float:
    """Seconds of a step, its work on the device waited for."""
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - began) / steps


def trace(step: Callable[[], object], on_cuda: bool, call: Callable[..., Any]) -> dict[str, Any]:
    """Trace a few steps; `call` calls a function in the thread that is to begin and end them."""
    clock = time.perf_counter
    at = [clock()]
    session = call(profiler.begin, on_cuda)
    at.append(clock())
    for _ in range(STEPS):
        step()
        at.append(clock())
    steps_done = len(at) - 1
    if on_cuda:  # as the hooks do: by an event at the end of the last step, never by waiting
        done = torch.cuda.Event()
        done.record()
        while not done.query():
            step()
            at.append(clock())
    end = clock()
    result = call(session.end)
    ended = clock()
    recorded = list(profiler.read(result.events(), session))
    stretches = [(one.began, one.ended) for one in recorded if one.on_device]
    busy = sum(b - a for a, b in union(stretches)) / NANOSECOND
    return {
        "begin": at[1] - at[0],
        "step": max(b - a for a, b in pairwise(at[1:])),
        "steps": len(at) - 2,
        "extra": len(at) - 1 - steps_done,
        "end": ended - end,
        "read": clock() - ended,
        "on_device": len(stretches),
        "on_host": len(recorded) - len(stretches),
        "busy": busy,
        "seconds": end - at[1],
    }


def main(name: str, device: str, steps: int, traces: int, background: bool) -> dict[str, Any]:
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    step = training(name, device)
    for _ in range(WARM_UP):
        step()
    found: list[dict[str, Any]] = []
    before, after = [mean_step(step, steps, wait)], list[float]()
    before.append(mean_step(step, steps, wait))
    with ThreadPoolExecutor(1) as thread:
        call = (lambda function, *given: thread.submit(function, *given).result()) if background else _here
        for _ in range(max(1, traces)):
            if traces:
                found.append(trace(step, device == "cuda", call))
            after.append(mean_step(step, steps, wait))
    return {"before": before, "after": after, "traces": found}


def _here(function: Callable[..., Any], *given: Any) -> Any:
    return function(*given)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--traces", type=int, default=3)
    parser.add_argument("--thread", choices=("training", "background"), default="training")
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
    sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))
    from common import wait_for_turn  # type: ignore[import-not-found]

    wait_for_turn()
    told = main(given.name, given.device, given.steps, given.traces, given.thread == "background")
    print(json.dumps({**told, "teardown": os.environ.get("TEARDOWN_CUPTI")}), flush=True)
