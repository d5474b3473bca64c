"""What CUDA events at the phase boundaries cost a step, and whether they tell what a synchronized clock tells."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from statistics import median
from typing import Any

from tests.gpu_check.row import TOLD, Row, judged

PHASES = ("forward", "backward", "optimizer")
STEPS = 60  # a block
BLOCKS = 6  # of each kind, one kind after the other
WARM_UP = 20  # steps
AGREE = 0.02  # of a phase's time
WORTH = 2e-3  # seconds: to wait for a phase takes some 40 us by itself, a fiftieth of this
# Cycles, about half a millisecond: the device is kept busy until the host has launched the first kernels of a phase.
DELAY = 1_000_000

Mark = Callable[[], None]


def nothing() -> None:
    """No clock is read."""


def workload(torch: Any, width: int = 4096, rows: int = 8192, layers: int = 8) -> Callable[[Mark], None]:
    """A step of some ten milliseconds on a large GPU; it calls its argument where it begins and where a phase ends."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parts = [layer for _ in range(layers) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())]
    model = torch.nn.Sequential(*parts).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    batch = torch.randn(rows, width, device=device)

    def step(mark: Mark) -> None:
        mark()
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = model(batch).float().square().mean()
        mark()
        loss.backward()
        mark()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mark()

    return step


class Pooled:
    """Events that are used again once they have been read, oldest first, without ever waiting for one."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._free: list[Any] = []
        self._under_way: deque[list[Any]] = deque()
        self._step: list[Any] = []
        self.seconds: list[list[float]] = []  # of each step that was read: its phases

    def mark(self) -> None:
        event = self._free.pop() if self._free else self._make()
        event.record()
        self._step.append(event)
        if len(self._step) > len(PHASES):
            self._under_way.append(self._step)
            self._step = []
            self.poll()

    def poll(self) -> None:
        while self._under_way and self._under_way[0][-1].query():
            done = self._under_way.popleft()
            self.seconds.append([a.elapsed_time(b) / 1000 for a, b in pairwise(done)])
            self._free += done


def cost(torch: Any, step: Callable[[Mark], None]) -> Row:
    """Blocks of steps with events and without, in turns; a block's last work is waited for in both."""
    pooled = Pooled(lambda: torch.cuda.Event(enable_timing=True))

    def block(mark: Mark) -> float:
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(STEPS):
            step(mark)
        torch.cuda.synchronize()
        return (time.perf_counter() - began) / STEPS

    pairs = [(block(nothing), block(pooled.mark)) for _ in range(BLOCKS)]
    bare = median(without for without, _ in pairs)
    added = median(with_events - without for without, with_events in pairs)
    return Row("event timing, added to a step", f"{added * 1e6:+.0f} us", f"of {bare * 1e3:.2f} ms", TOLD)


def delayed(torch: Any) -> Callable[[], object]:
    """What keeps the device busy for a moment; nothing where there is none."""
    return (lambda: torch.cuda._sleep(DELAY)) if torch.cuda.is_available() else nothing


def waited(
    step: Callable[[Mark], None], steps: int, wait: Callable[[], object], delay: Callable[[], object] = nothing
) -> list[list[float]]:
    """Seconds of each phase of each step by the host's clock, each phase waited for.

    A clock that waits finds an empty queue at each begin, and would count the host's launches, which in a loop that is
    not waited for are hidden behind the device's work. So a short delay goes first, and its own time is taken off.
    """
    ended: list[float] = []
    begun: list[float] = []

    def mark() -> None:
        wait()
        ended.append(time.perf_counter())
        begun.append(time.perf_counter())
        delay()

    rounds = []
    for _ in range(steps):
        ended.clear(), begun.clear()
        mark()  # up to the step's own first mark there is the delay and nothing else
        step(mark)
        alone, *seconds = [b - a for a, b in zip(begun, ended[1:], strict=False)]
        rounds.append([each - alone for each in seconds])
    return rounds


def agreement(torch: Any, step: Callable[[Mark], None]) -> list[Row]:
    """The same phases by events, nothing waited for, and by the host's clock, each phase waited for."""
    pooled = Pooled(lambda: torch.cuda.Event(enable_timing=True))
    for _ in range(STEPS):
        step(pooled.mark)
    torch.cuda.synchronize()
    pooled.poll()
    rounds = waited(step, STEPS, torch.cuda.synchronize, delayed(torch))
    return [
        verdict(name, [row[place] for row in pooled.seconds], [row[place] for row in rounds])
        for place, name in enumerate(PHASES)
    ]


def verdict(name: str, ours: list[float], reference: list[float], within: float = AGREE) -> Row:
    told = f"phase {name} by events"
    if not ours:
        return judged(told, "no event was read", f"{median(reference) * 1e3:.3f} ms", False)
    mine, theirs = median(ours), median(reference)
    shown = (f"{mine * 1e3:.3f} ms", f"{theirs * 1e3:.3f} ms")
    return Row(told, *shown, TOLD) if theirs < WORTH else judged(told, *shown, abs(mine - theirs) <= within * theirs)


def check(torch: Any) -> list[Row]:
    step = workload(torch)
    for _ in range(WARM_UP):
        step(nothing)
    return [cost(torch, step), *agreement(torch, step)]
