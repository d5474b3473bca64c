"""What the hooks add to a training step of about one millisecond.

Short bare and instrumented blocks take turns in one process, so that both see the same box. Every figure is the median
over the pairs of blocks: of the difference between the two blocks' quantiles, or of their CPU in all threads, the
background one included. So a neighbor that slows the box for a while moves none of them.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass

STEPS = 100  # a block
PAIRS = 80


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
    batch = torch.randn(160, 96)

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
            loss = work()  # held until the next one takes its place, as below and as in any loop that prints it
            times.append(clock() - begin)
        del loss

    def hooked(more: tuple[str, ...]) -> Callable[[list[int]], None]:
        """The same work as one phase, beside `more` phases that hold none."""

        def run(times: list[int]) -> None:
            clock = time.perf_counter_ns
            begin = clock()
            for _ in th.steps(range(STEPS)):
                for name in more:
                    with th.phase(name):
                        pass
                with th.phase("training"):
                    loss = work()
                th.log(reward=0.5, accuracy=0.25, lr=1e-3, loss=loss)
                th.count(tokens=1024)
                now = clock()
                times.append(now - begin)
                begin = now

        return run

    one_phase = hooked(())
    five_phases = hooked(("generation", "test_generation", "log_probs", "execution"))
    th.init(name="bench")
    for warm in (bare, one_phase, five_phases, bare):
        warm([])
    out = {"import after torch, ms": import_ms}
    out.update(_pairs("1 phase", bare, one_phase, pairs))
    out.update(_pairs("5 phases", bare, five_phases, pairs))
    return out


@dataclass
class Block:
    times: list[int]  # nanoseconds, a step each
    cpu: float  # microseconds a step, in all threads


def _block(run: Callable[[list[int]], None]) -> Block:
    times: list[int] = []
    cpu = time.process_time_ns()
    run(times)
    time.sleep(0.07)  # the background thread finishes what the block left it
    return Block(times, (time.process_time_ns() - cpu) / STEPS / 1e3)


def _pairs(
    name: str, bare: Callable[[list[int]], None], hooked: Callable[[list[int]], None], pairs: int
) -> dict[str, float]:
    both: list[tuple[Block, Block]] = []
    for turn in range(pairs):
        if turn % 2 == 0:
            both.append((_block(bare), _block(hooked)))
        else:
            after = _block(hooked)
            both.append((_block(bare), after))
    median = statistics.median
    out = {f"bare step p10, us ({name})": median(_at(plain.times, 0.1) for plain, _ in both)}
    for label, share in (("p10", 0.1), ("the median", 0.5), ("p99", 0.99)):
        added = (_at(after.times, share) - _at(plain.times, share) for plain, after in both)
        out[f"{name}: added at {label}, us"] = median(added)
    out[f"{name}: CPU added in all threads, us"] = median(after.cpu - plain.cpu for plain, after in both)
    return out


def _at(times: list[int], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))] / 1e3


if __name__ == "__main__":
    for row, value in measure(int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS).items():
        print(f"{row:45} {value:9.1f}")
