"""What the recorder's readings cost: CPU seconds a poll, on the simulated driver, which is part of the bill."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.simulated_gpus import environment

ROOT = Path(__file__).resolve().parents[2]
POLLS = 60

MEASURE = """
import json, os, resource, sys, time
from pathlib import Path
from monitor.running.journal_writer import Writer
from monitor.gpu_lines import DeltaEncoder
from monitor.sources.gpu_source import GpuSource
from monitor.sources.host import HostSource
polls, run = int(sys.argv[1]), Path(sys.argv[2])
writer, gpus, host, encoder = Writer(run), GpuSource(), HostSource(run), DeltaEncoder()
def cost(poll):
    for moment in range(2): poll(float(moment))  # what is done once is no running cost
    began = time.process_time()
    for moment in range(2, polls + 2): poll(float(moment))
    return (time.process_time() - began) / polls
out = {}
count = len(gpus.read(-1.0).gpus)
out["GPUs read and written"] = cost(lambda moment: writer.write(*map(encoder.encode, gpus.read(moment).gpus)))
out["host read and written"] = cost(lambda moment: writer.write(host.read([os.getpid()], moment)))
gpus.close()
print(json.dumps([count, out]))
"""


def measure(polls: int = POLLS) -> dict[str, float]:
    """Percent of one core at one poll a second, with eight simulated GPUs."""
    directory = Path(tempfile.mkdtemp(prefix="trainmon-bench-"))
    try:
        around = {**os.environ, **environment(directory), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(polls), str(directory)],
            env=around, check=True, capture_output=True, text=True,
        )  # fmt: skip
        count, costs = json.loads(done.stdout)
        out = {f"{name}, % of a core": 100 * seconds for name, seconds in costs.items()}
        journal = next(directory.glob("node-*.jsonl")).stat().st_size
        return {"simulated GPUs": count, **out, "journal, kB a second": journal / (polls + 2) / 1e3}
    finally:
        shutil.rmtree(directory, ignore_errors=True)
