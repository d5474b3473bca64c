"""What the hooks add to a training step of about one millisecond.

Bare and instrumented blocks take turns in one process, so that both see the same box; each figure is the median over
the pairs of blocks of (instrumented - bare). CPU counts every thread, the background one included.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

STEPS = 400  # a block
PAIRS = 16


def measure(pairs: int = PAIRS) -> dict[str, float]:
    """Microseconds a step, by name; run in a process of its own."""
    os.environ.setdefault("TRAINMON_DIR", tempfile.mkdtemp(prefix="trainmon-bench-"))
    import torch

    before = time.perf_counter()
    import trainhooks as th

    import_ms = 1e3 * (time.perf_counter() - before)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(96, 256), torch.nn.ReLU(), torch.nn.Linear(256, 96))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(48, 96)

    def work() -> torch.Tensor:
        loss = (model(batch) - batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def bare(times: list[int]) -> None:
        clock = time.perf_counter_ns
        for _ in range(STEPS):
            begin = clock()
            work()
            times.append(clock() - begin)

    def one_phase(times: list[int]) -> None:
        clock = time.perf_counter_ns
        begin = clock()
        for _ in th.steps(range(STEPS)):
            with th.phase("training"):
                loss = work()
            th.log(reward=0.5, accuracy=0.25, lr=1e-3, loss=loss)
            th.count(tokens=1024)
            now = clock()
            times.append(now - begin)
            begin = now

    def five_phases(times: list[int]) -> None:
        clock = time.perf_counter_ns
        begin = clock()
        for _ in th.steps(range(STEPS)):
            for name in ("generation", "test_generation", "log_probs", "execution"):
                with th.phase(name):
                    pass
            with th.phase("training"):
                loss = work()
            th.log(reward=0.5, accuracy=0.25, lr=1e-3, loss=loss)
            th.count(tokens=1024)
            now = clock()
            times.append(now - begin)
            begin = now

    th.init(name="bench")
    for warm in (bare, one_phase, five_phases, bare):
        warm([])
    out = {"import after torch, ms": import_ms}
    out.update(_pairs("1 phase", bare, one_phase, pairs))
    out.update(_pairs("5 phases", bare, five_phases, pairs))
    return out


def _block(run: Callable[[list[int]], None]) -> tuple[float, float, float, float]:
    """p10, median and p99 of a block's steps and its CPU a step, in microseconds."""
    times: list[int] = []
    cpu = time.process_time_ns()
    run(times)
    time.sleep(0.12)  # the background thread finishes what the block left it
    cpu = time.process_time_ns() - cpu
    times.sort()
    at = [times[int(share * (len(times) - 1))] / 1e3 for share in (0.1, 0.5, 0.99)]
    return at[0], at[1], at[2], cpu / STEPS / 1e3


def _pairs(
    name: str, bare: Callable[[list[int]], None], hooked: Callable[[list[int]], None], pairs: int
) -> dict[str, float]:
    rows = []
    base = []
    for turn in range(pairs):
        first, second = (bare, hooked) if turn % 2 == 0 else (hooked, bare)
        a, b = _block(first), _block(second)
        plain, with_hooks = (a, b) if turn % 2 == 0 else (b, a)
        base.append(plain)
        rows.append([w - p for w, p in zip(with_hooks, plain, strict=True)])
    middle = [statistics.median(column) for column in zip(*rows, strict=True)]
    usual = [statistics.median(column) for column in zip(*base, strict=True)]
    return {
        f"bare step p10, us ({name})": usual[0],
        f"{name}: added at p10, us": middle[0],
        f"{name}: added at the median, us": middle[1],
        f"{name}: added at p99, us": middle[2],
        f"{name}: CPU added in all threads, us": middle[3],
    }


if __name__ == "__main__":
    for row, value in measure(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS).items():
        print(f"{row:45} {value:9.1f}")
