"""Journals of any length, written as the hooks write them, for the readers' benchmarks."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.encoding import lines_encoder
from trainhooks.protocol.events import PROTOCOL
from trainhooks.recording.step_blocks import OpenBlock, PlainStep, StepShape

STEP = 1_000_000  # nanoseconds
WAKE = 50  # steps between two wakes of the hooks' writer: those of a block
SHAPE = StepShape(("data", "generation", "log_probs", "execution", "training"), (1,) * 5, "generator", "1")
SHARES = (0.02, 0.5, 0.1, 0.18, 0.2)


def write_run(runs: Path, steps: int, ranks: int = 1) -> Path:
    """A run that has ended, in a directory under `runs`: each rank did `steps` steps of a wavering millisecond."""
    run = runs / f"bench-{steps}-{ranks}"
    run.mkdir(parents=True, mode=0o700)
    elapsed = STEP / 1e9 * steps + 10
    begin, wall = time.monotonic() - elapsed, time.time() - elapsed
    identity = {"id": run.name, "name": "bench", "started": wall, "started_monotonic": begin}
    rundir.write_json(run / rundir.IDENTITY, {**identity, "boot_id": process_identity.boot_id()})
    for rank in range(ranks):
        hello = {"protocol": PROTOCOL, "wall": wall, "process_started": begin, "name": "bench"}
        first = [
            {"kind": "hello", **hello, "rank": rank, "world_size": ranks},
            {"kind": "facts", "total_steps": steps},
        ]
        with open(rundir.rank_journal(run, rank, f"bench{rank:03}"), "wb") as out:
            out.writelines(_lines(first, steps, begin, f"bench{rank:03}"))
    return run


def _lines(first: list[dict[str, Any]], steps: int, begin: float, producer: str) -> Iterator[bytes]:
    encode, block = lines_encoder(), OpenBlock()
    for seq, event in enumerate(first):
        yield encode([{**event, "producer": producer, "seq": seq, "t": begin}])
    start = round((begin + 5) * 1e9)
    for number in range(1, steps + 1):
        step = _step(number, start)
        start = step.ended
        block.add(step)
        if len(block) == WAKE or number == steps:
            yield block.close(len(first) + number - len(block), producer, encode)
    yield encode([{"kind": "bye", "producer": producer, "seq": len(first) + steps, "t": start / 1e9}])


def _step(number: int, start: int) -> PlainStep:
    wave = 1 + 0.1 * math.sin(number / 50) + (number * 7919 % 13) / 100
    phases = [round(0.9 * STEP * wave * share) for share in SHARES]
    metrics = {
        "reward": round(wave / 3, 6),
        "loss": round(2 / wave, 6),
        "gen_passed": float(number % 5),
        "gen_total": 5.0,
    }
    ended = start + round(1.01 * sum(phases))
    return PlainStep(SHAPE, number, start, ended, phases, metrics, [4000 + number % 97, None, 8])
