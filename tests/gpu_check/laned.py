"""The training by which the device lane is held against torch's profiler: `... laned --seconds 5 [--profile]`.

It knows nothing of trainmon. With --profile its last line tells the profiler's own times of the phases.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.gpu_check import trace

PHASES = ("forward", "backward", "optimizer")
PROFILED = 20  # steps
WARM_UP = 20


def training(device: str) -> Any:
    """A function that trains a step, its phases inside of what it is given. No gap between its large kernels counts."""
    width, rows, layers = (16, 8, 2) if device == "cpu" else (2048, 8192, 10)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.GELU()) for _ in range(layers)]).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = torch.randn(rows, width, device=device)

    def step(around: Any) -> None:
        with around("forward"), torch.autocast(device, torch.bfloat16):
            loss = model(batch).float().square().mean()
        with around("backward"):
            loss.backward()
        with around("optimizer"):
            optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def unmarked(name: str) -> AbstractContextManager[Any]:
    return nullcontext()


def profiled(step: Any, device: str) -> dict[str, dict[str, float]]:
    """The phases by the times of their kernels."""
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profile:
        for _ in range(PROFILED):
            step(torch.profiler.record_function)
        if device == "cuda":
            torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    return {name: asdict(phase) for name, phase in trace.phases(events, PHASES).items()}


def main(seconds: float, device: str, profile: bool) -> None:
    torch.manual_seed(0)
    step = training(device)
    if profile:
        for _ in range(WARM_UP):
            step(unmarked)
        print(json.dumps({"phases": profiled(step, device)}), flush=True)
        return
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        step(unmarked)
    if device == "cuda":
        torch.cuda.synchronize()
    print(json.dumps({"phases": {}}), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    main(given.seconds, given.device, given.profile)
