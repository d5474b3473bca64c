"""Journals of any length, written as the hooks write them, for the readers' benchmarks."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from trainhooks.protocol import process_identity, rundir

PHASES = ("data", "generation", "log_probs", "execution", "training")


def write_run(runs: Path, steps: int, ended: bool = True) -> Path:
    """A run directory under `runs` whose rank 0 did `steps` steps of a wavering quarter of a second."""
    run = runs / f"bench-{steps}"
    run.mkdir(parents=True, mode=0o700)
    begin = time.monotonic() - 0.25 * steps - 10
    wall = time.time() - 0.25 * steps - 10
    identity = {"id": run.name, "name": "bench", "started": wall, "started_monotonic": begin}
    rundir.write_json(run / rundir.IDENTITY, {**identity, "boot_id": process_identity.boot_id()})
    with open(rundir.rank_journal(run, 0, "bench000"), "w", encoding="ascii") as out:
        hello = {"kind": "hello", "protocol": 1, "wall": wall, "process_started": begin, "name": "bench", "rank": 0}
        out.write(json.dumps({**hello, "producer": "bench000", "seq": 0, "t": begin}) + "\n")
        facts = {"kind": "facts", "total_steps": steps, "producer": "bench000", "seq": 1, "t": begin}
        out.write(json.dumps(facts) + "\n")
        for index in range(1, steps + 1):
            out.write(_step(index, begin + 10 + 0.25 * index))
        if ended:
            last = begin + 10 + 0.25 * (steps + 1)
            out.write(json.dumps({"kind": "bye", "producer": "bench000", "seq": steps + 2, "t": last}) + "\n")
    return run


def _step(index: int, start: float) -> str:
    wave = 1 + 0.1 * math.sin(index / 50) + (index * 7919 % 13) / 100
    seconds = [round(0.2 * wave * share, 9) for share in (0.02, 0.5, 0.1, 0.18, 0.2)]
    phases = ",".join(f'["{name}",{each},"host",1]' for name, each in zip(PHASES, seconds, strict=True))
    duration = round(sum(seconds) * 1.01, 9)
    return (
        f'{{"kind":"step","t":{start + duration:.9f},"index":{index},"start":{start:.9f},"duration":{duration},'
        f'"phases":[{phases}],"status":"ok","tokens":{4000 + index % 97},"samples":8,"metrics":{{"reward":'
        f'{wave / 3:.6f},"loss":{2 / wave:.6f},"gen_passed":{index % 5},"gen_total":5}},"role":"generator",'
        f'"stage":"1","producer":"bench000","seq":{index + 1}}}\n'
    )
