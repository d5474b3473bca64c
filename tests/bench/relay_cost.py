"""What following a run of many ranks over a relay costs: both ends of the line, what goes over it, and how late it is.

python -m tests.bench.relay_cost [RANKS]...
"""

from __future__ import annotations

import os
import shlex
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from tests.bench.readers_cost import PAINTED
from tests.bench.terminals import TRAINMON, drain, read, screen, state_dir

SETTLE = 5.0  # seconds after the first picture
RATE = 4  # steps a second of each rank
BEFORE = 400  # steps that were done before somebody looks

# Writes as many ranks do: each a line a step, all of them four times a second, as late as a busy box makes it.
LIVE = """
import os, sys, time
from pathlib import Path
from tests.bench.journals import SHAPE, SHARES
from trainhooks.protocol import process_identity, rundir
from trainhooks.protocol.encoding import lines_encoder
from trainhooks.protocol.events import PROTOCOL
from trainhooks.recording.step_blocks import OpenBlock, PlainStep
run, ranks, rate, before = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
run.mkdir(parents=True, mode=0o700)
begin = time.monotonic() - before / rate
known = {"id": run.name, "name": "many", "started": time.time() - before / rate, "started_monotonic": begin}
known.update(boot_id=process_identity.boot_id(), pid=os.getpid(), start_ticks=process_identity.start_ticks(os.getpid()))
rundir.write_json(run / rundir.IDENTITY, known)
encode = lines_encoder()
hello = {"kind": "hello", "protocol": PROTOCOL, "wall": known["started"], "process_started": begin, "name": "many"}
journals = []
for rank in range(ranks):
    name = f"many{rank:04}"
    out = open(rundir.rank_journal(run, rank, name), "ab", buffering=0)
    own = {"rank": rank, "world_size": ranks, "host": f"box-{rank // 8}", "producer": name}
    facts = {"kind": "facts", "total_steps": 1_000_000, "producer": name, "seq": 1, "t": begin}
    out.write(encode([{**hello, **own, "t": begin, "seq": 0}, facts]))
    journals.append((name, out))
def put(first, count):
    for rank, (name, out) in enumerate(journals):
        block = OpenBlock()
        for number in range(first, first + count):
            start = round((begin + number / rate) * 1e9)
            phases = [round(1e9 / rate * share * (0.9 + 0.05 * ((rank * 7919 + number) % 3))) for share in SHARES]
            metrics = {"reward": 0.25, "loss": round(2 / (1 + number % 7), 6), "gen_passed": 1.0, "gen_total": 5.0}
            block.add(PlainStep(SHAPE, number, start, start + round(1e9 / rate), phases, metrics, [4000, None, 8]))
        out.write(block.close(1 + first, name, encode))
put(1, before)
print("ready", flush=True)
number = before
while True:
    number += 1
    time.sleep(max(0.0, begin + (number + 1) / rate - time.monotonic()))
    put(number, 1)
"""


def measure(ranks: int, seconds: float = 20.0) -> dict[str, float]:
    """CPU and memory of both ends, seconds to the first picture, bytes, and how late the copy has what was written."""
    with state_dir() as far, state_dir() as near:
        run, line = far / "runs" / "many", near / "line"
        writer = subprocess.Popen(
            [sys.executable, "-c", LIVE, str(run), str(ranks), str(RATE), str(BEFORE)], stdout=subprocess.PIPE
        )
        try:
            assert writer.stdout is not None and writer.stdout.readline()
            reached = f"TRAINMON_DIR={far} {sys.executable} -m monitor relay | tee {line}"
            via = shlex.join(["sh", "-c", reached, "sh"])
            begin = time.perf_counter()
            with screen([*TRAINMON, "attach", "--via", via, "box:many"], near) as (pid, master):
                seen = b""
                while PAINTED not in seen:
                    assert time.perf_counter() - begin < 300, "no first paint"
                    seen += read(master, 0.05)
                paint = time.perf_counter() - begin
                drain(master, SETTLE)
                viewer, relay = psutil.Process(pid), _relay(pid)
                before, size, since = (_seconds(viewer), _seconds(relay)), line.stat().st_size, time.perf_counter()
                lines = _lines(run)
                late = [_delay(run, near / "copies" / "box" / "many", master) for _ in range(round(seconds))]
                passed = time.perf_counter() - since
                after = _seconds(viewer), _seconds(relay)
                return {
                    "steps a second of each rank": (_lines(run) - lines) / passed,
                    "first paint, s": paint,
                    "viewer, % of a core": 100 * (after[0] - before[0]) / passed,
                    "viewer, MB": viewer.memory_info().rss / 1e6,
                    "relay, % of a core": 100 * (after[1] - before[1]) / passed,
                    "relay, MB": relay.memory_info().rss / 1e6,
                    "over the line, kB/s": (line.stat().st_size - size) / passed / 1e3,
                    "journal to copy, median, s": statistics.median(late),
                    "journal to copy, most, s": max(late),
                }
        finally:
            writer.kill()
            writer.communicate()


def _relay(pid: int) -> psutil.Process:
    return next(
        each for each in psutil.Process(pid).children(recursive=True) if each.cmdline()[-2:] == ["monitor", "relay"]
    )


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _lines(run: Path) -> int:
    return max(run.glob("rank-*.jsonl"), key=lambda path: path.name).read_bytes().count(b"\n")


def _delay(run: Path, copy: Path, master: int) -> float:
    """Return the seconds from a line in the last rank's journal until the copy has it; look for a second at least."""
    journal = max(run.glob("rank-*.jsonl"), key=lambda path: path.name)
    look, before = time.perf_counter() + 1.0, os.stat(journal).st_size
    while (size := os.stat(journal).st_size) == before:
        drain(master, 0.01)
    written = time.perf_counter()
    while not os.path.exists(copy / journal.name) or os.stat(copy / journal.name).st_size < size:
        drain(master, 0.01)
        assert time.perf_counter() < written + 60, "the copy does not grow"
    late = time.perf_counter() - written
    drain(master, max(0.0, look - time.perf_counter()))
    return late


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ("64", "256", "1024")):
        print(count, measure(count), flush=True)
