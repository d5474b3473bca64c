"""What the dashboard costs while it runs: CPU, bytes, memory, and how late it shows what happens.

At 160x45, on a training of ten steps a second and eight simulated GPUs; then on a run that has ended.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise

import psutil

from tests.bench.journals import write_run
from tests.bench.simulated_gpus import environment
from tests.bench.terminals import COLUMNS, LINES, TRAINMON, drain, screen, state_dir

SETTLE = 10.0  # seconds until the first painting and the recorder's first readings are over

# Tells when each of its steps has ended.
LIVE = """
import time, random
import trainhooks as th
th.init(name="live", total_steps=100000)
for index in th.steps(range(1, 100001)):
    for name, seconds in (("generation", .06), ("execution", .024), ("training", .016)):
        with th.phase(name): time.sleep(seconds * random.uniform(.8, 1.2))
    th.log(reward=random.random(), loss=random.random()); th.count(tokens=1000)
    print(time.monotonic(), flush=True)
"""
STEP = re.compile(r"step ([\d,]+) of 100")


def running(seconds: float = 20.0, *words: str) -> dict[str, float]:
    """The dashboard on a living training. Latencies are from a step's end to the first picture that shows it."""
    import pyte

    shown: list[tuple[float, int]] = []  # when the screen first said which step
    terminal = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(terminal)

    def look(data: bytes) -> None:
        now = time.monotonic()
        stream.feed(data)
        found = next(filter(None, map(STEP.search, terminal.display[:8])), None)
        if found and (not shown or int(found[1].replace(",", "")) > shown[-1][1]):
            shown.append((now, int(found[1].replace(",", ""))))

    with state_dir() as state:
        gpus = environment(state)
        told = state / "ends"
        with open(told, "wb") as out:
            training = subprocess.Popen(
                [sys.executable, "-c", LIVE], env={**os.environ, "TRAINMON_DIR": str(state)}, stdout=out
            )
        try:
            while not list(state.glob("runs/*/rank-*.jsonl")):
                time.sleep(0.1)
            with screen([*TRAINMON, "attach", *words], state, **gpus) as (pid, master):
                drain(master, SETTLE, look)
                shown.clear()
                out_ = costs(pid, master, seconds, look)
        finally:
            training.kill()
            training.wait()
        late = sorted(_latencies([float(line) for line in told.read_text().split()], shown))
    return {**out_, "event to screen, median, s": late[len(late) // 2], "p95, s": late[int(0.95 * (len(late) - 1))]}


def _latencies(ends: list[float], shown: list[tuple[float, int]]) -> list[float]:
    """Of each step that ended while we looked: until a picture showed it or a later one."""
    out = []
    for (_, before), (when, step) in pairwise(shown):
        out += [when - ends[index - 1] for index in range(before + 1, step + 1)]
    return out


def idle(seconds: float = 20.0) -> dict[str, float]:
    """The dashboard on a run that has ended."""
    with state_dir() as state:
        run = write_run(state / "runs", 1000)
        with screen([*TRAINMON, "attach", str(run)], state) as (pid, master):
            drain(master, SETTLE)
            return costs(pid, master, seconds)


def costs(pid: int, master: int, seconds: float, look: Callable[[bytes], None] | None = None) -> dict[str, float]:
    """What a program takes to run on its terminal for so long."""
    watched = psutil.Process(pid)
    before = sum(watched.cpu_times()[:2])
    count = drain(master, seconds, look)
    cpu = sum(watched.cpu_times()[:2]) - before
    return {
        "CPU, % of a core": 100 * cpu / seconds,
        "bytes a second": count / seconds,
        "memory, MiB": watched.memory_info().rss / 2**20,
    }
