"""The loops whose cost under trainmon is measured: `python -m tests.gpu_check.loops NAME --seconds 2 [--api]`.

They know nothing of trainmon unless --api is given. The last line tells their own measure of the step times, the loss
after a fixed number of steps, and the peak of the GPU's memory.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from array import array
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

NAMES = ("mlp", "mlp-item", "gpt", "resnet")
WARM_UP = 0.8  # seconds: allocators and libraries settle, and the hooks learn what a usual step is
LOSS_AT = 12  # the step whose loss is told: all that watch must leave it as it is
HELD = 10**7  # steps at most


def mlp(device: str) -> tuple[nn.Module, Callable[[Any], Any], Any]:
    """Launch-bound: kernels of a few microseconds."""
    width, rows, layers = (16, 8, 2) if device == "cpu" else (256, 128, 8)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(layers)]).to(device)
    batch = torch.randn(rows, width, device=device)
    return model, lambda made: (made - batch).square().mean(), batch


def gpt(device: str) -> tuple[nn.Module, Callable[[Any], Any], Any]:
    """124 million parameters, bf16: the device is busy all the time."""
    sys.path.insert(0, str(Path(__file__).resolve().parent / "scripts"))
    from models import GPT  # type: ignore[import-not-found]

    size = {"width": 32, "layers": 1, "heads": 2, "vocab": 64} if device == "cpu" else {}
    rows, length = (2, 8) if device == "cpu" else (8, 1024)
    model = GPT(**size).to(device)
    batch = torch.randint(model.vocab, (rows, length), device=device)

    def loss(logits: Any) -> Any:
        return nn.functional.cross_entropy(logits.view(-1, model.vocab), batch.flatten())

    return model, loss, batch


class Convolution(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        return x + torch.relu(self.norm(self.convolution(x)))


def resnet(device: str) -> tuple[nn.Module, Callable[[Any], Any], Any]:
    """24 layers, eager: many launches and many modules, none of them large."""
    channels, rows, side, layers = (4, 2, 8, 2) if device == "cpu" else (128, 64, 28, 24)
    model = nn.Sequential(nn.Conv2d(3, channels, 3, padding=1), *[Convolution(channels) for _ in range(layers)])
    batch = torch.randn(rows, 3, side, side, device=device)
    return model.to(device), lambda made: made.float().square().mean(), batch


LOOPS: dict[str, tuple[Callable[[str], Any], bool, bool]] = {  # made by, whether it reads the loss each step, autocast
    "mlp": (mlp, False, False),
    "mlp-item": (mlp, True, False),
    "gpt": (gpt, False, True),
    "resnet": (resnet, False, True),
}


def run(name: str, seconds: float, device: str, api: bool) -> dict[str, Any]:
    """Train for so long."""
    make, item, mixed = LOOPS[name]
    torch.manual_seed(0)
    model, criterion, batch = make(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    steps, phase, log = _hooks(api)
    wait: Callable[[], object] = torch.cuda.synchronize if device == "cuda" else lambda: None
    times, loss_at = array("d"), None
    began, since = time.perf_counter(), None
    for step in steps(range(HELD)):
        with phase("forward"), torch.autocast(device, torch.bfloat16, enabled=mixed):
            made = model(batch)
            loss = criterion(made.float())
        with phase("backward"):
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
        with phase("optimizer"):
            optimizer.step()
        log(loss=loss)
        if item:
            loss.item()
        if step == LOSS_AT:
            loss_at = loss.item()
        now = time.perf_counter()
        if since is not None:
            times.append(now)
            if now - since >= seconds:
                break
        elif step >= LOSS_AT and now - began >= min(WARM_UP, seconds):
            wait()
            since = time.perf_counter()
            times.append(since)
    wait()
    return told(times, time.perf_counter(), loss_at, device)


def told(times: Iterable[float], ended: float, loss: float | None, device: str) -> dict[str, Any]:
    """The step times' figures: the mean with the device's work waited for, the others by the host's clock."""
    moments = list(times)
    steps = sorted(b - a for a, b in pairwise(moments))
    return {
        "mean": (ended - moments[0]) / len(steps),
        "median": median(steps),
        "p99": steps[min(len(steps) - 1, int(0.99 * len(steps)))],
        "steps": len(steps),
        "loss": loss,
        "peak": torch.cuda.max_memory_allocated() if device == "cuda" else None,
    }


def _hooks(api: bool) -> tuple[Any, Callable[[str], AbstractContextManager[Any]], Callable[..., None]]:
    if not api:
        nothing: AbstractContextManager[Any] = nullcontext()
        return iter, lambda name: nothing, lambda **values: None
    import trainhooks as th

    phases = {name: th.phase(name) for name in ("forward", "backward", "optimizer")}
    return th.steps, phases.__getitem__, th.log


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--api", action="store_true")
    given = parser.parse_args()
    if given.device == "cpu":
        torch.set_num_threads(1)
    print(json.dumps(run(given.name, given.seconds, given.device, given.api)), flush=True)
