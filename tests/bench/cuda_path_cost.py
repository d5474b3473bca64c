"""What the hooks cost the training thread of a CUDA program: the CPU time of their bookkeeping, on a simulated device.

Steps of a millisecond of virtual time, launch-bound, with next to no computation. Short blocks with our functions in
place and with torch's own take turns in one process; each figure is the median over the pairs, so a neighbor that slows
the box for a while moves none of them. What the simulation itself costs is the same in both.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS = 500  # a block
PAIRS = 20
WARM_UP = 1_500  # steps: until the hooks have seen what they look for at first only
SECONDS, HOST = 2e-4, 9e-4  # of a step: the work of its two kernels, and the host's time for the launches left out

NAMES = ("one module", "a loader", "accumulation of four", "a scaler", "two modules, clipped")


def measure(pairs: int = PAIRS) -> dict[str, float]:
    """Microseconds a step that the hooks add to the training thread's CPU time, by the kind of program."""
    rows = {}
    for name in NAMES:
        code = f"from tests.bench.cuda_path_cost import one; print(one({name!r}, {pairs}))"
        ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        rows[f"{name}: added, us of CPU"] = json.loads(ran.stdout.splitlines()[-1])
    return rows


def one(name: str, pairs: int) -> float:
    """The same for one kind of program, in this process."""
    spent, thread_time = [], time.thread_time_ns
    from tests.simulated_device import begin

    device, _ = begin()
    from tests.simulated_device.install import install

    install(device)
    import torch

    from tests.bench.zero_code_cost import Switch
    from trainhooks import session

    session.Session.start = lambda _: None  # type: ignore[method-assign]  # the background thread is not measured
    switch = Switch(torch)
    train, models = program(name, torch, device)
    train(WARM_UP)
    switch.found(models)

    def block(armed: bool) -> float:
        switch.set(armed)
        if armed:
            train(20)  # back on the fast path
        began = thread_time()
        train(STEPS)
        took = (thread_time() - began) / STEPS / 1e3
        for lane in session._session.lanes:
            lane.entries.clear()
        return took

    for turn in range(pairs):
        first = block(turn % 2 == 0)
        second = block(turn % 2 != 0)
        spent.append(first - second if turn % 2 == 0 else second - first)
    return statistics.median(spent)


def program(name: str, torch: Any, device: Any) -> tuple[Callable[[int], None], list[Any]]:
    """What trains for so many steps, and its models."""
    from torch.utils.data import DataLoader

    from tests.simulated_device.install import place

    torch.set_num_threads(1)
    models = [torch.nn.Linear(4, 4) for _ in range(2 if name == NAMES[4] else 1)]
    weights = [place(weight) for model in models for weight in model.parameters()]
    optimizer = torch.optim.SGD(weights, lr=1e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    if name == NAMES[3]:
        scaler = FakeScaler(torch)
    accumulated = 4 if name == NAMES[2] else 1
    loader = DataLoader(torch.ones(4096, 4), batch_size=4)
    same = torch.ones(4, 4)

    def train(steps: int) -> None:
        batches = iter(()) if name == NAMES[0] else iter(loader)
        for number in range(steps):
            for _ in range(accumulated):
                batch = same if name == NAMES[0] else next(batches, None)
                if batch is None:
                    batches = iter(loader)
                    batch = next(batches)
                made = batch
                for model in models:
                    made = model(made)
                device.launch(1, SECONDS / accumulated)
                loss = place(made.square().mean() / accumulated)
                (scaler.scale(loss) if scaler.is_enabled() else loss).backward()
            if len(models) > 1:
                torch.nn.utils.clip_grad_norm_(weights, 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            device.launch(1, SECONDS)
            device.host(HOST)
            device.step = number

    return train, models


def FakeScaler(torch: Any) -> Any:
    """A scaler of torch's own, whose kernels, which only a GPU has, do nothing."""

    class Scaler(torch.amp.GradScaler):  # type: ignore[misc, name-defined]
        def _unscale_grads_(self, *_: Any) -> dict[Any, Any]:
            return {None: torch.zeros(())}

        def update(self, *_: Any) -> None:
            self._per_optimizer_states.clear()

    return Scaler("cpu", init_scale=2.0)


if __name__ == "__main__":
    for row, value in measure(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS).items():
        print(f"{row:45} {value:9.1f}")
