"""Crowds: a hundred ranks, a thousand workers, a backlog that nobody takes: nothing hangs, memory stays bounded."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.faults.catalogue import NotHere, Result, fault
from tests.faults.checker import journalled
from tests.faults.place import HERE, TRAINMON, Place, done_by, wait_for
from tests.journal_lines import steps_in
from trainhooks.lane_entries import MAX_LANE_ENTRIES
from trainhooks.protocol.journal import MAX_UNWRITTEN

WORKERS = """
import multiprocessing, os, sys, time
import torch, torch.utils.data
import trainhooks as th
class Words(torch.utils.data.Dataset):
    def __len__(self): return 8
    @th.phase('tokenize')
    def __getitem__(self, i): th.log(seen=i); return i
def main(forked, spawned):
    started = 0
    for method, many in (('fork', forked), ('spawn', spawned)):
        for epoch in range(many // 4):
            loader = torch.utils.data.DataLoader(Words(), 2, num_workers=4, multiprocessing_context=method)
            for batch in th.steps(loader, epoch=epoch):
                with th.phase('forward'): th.log(mean=batch.float().mean())
            started += 4
    print(started)
if __name__ == '__main__':
    main(int(sys.argv[1]), int(sys.argv[2]))
"""

# Steps as fast as they go, past what a lane holds, with four metrics each, while the disk hangs.
BACKLOG = """
import os, resource, sys, time
import trainhooks as th
def rss():
    return int(open('/proc/self/statm').read().split()[1]) * resource.getpagesize()
stall, count = sys.argv[1], int(sys.argv[2])
for i in th.steps(range(50)): time.sleep(0.01)
open(stall, 'w').close()
sizes, before = [], rss()
for i in th.steps(range(count)):
    with th.phase('training'): pass
    th.log(loss=i * 0.5, reward=i * 0.25, entropy=i * 0.125, kl=i * 2.0)
    if i % (count // 8) == count // 8 - 1: sizes.append(rss() - before)
os.unlink(stall)
time.sleep(1.0)
print(*sizes)
"""
ENTRY_BYTES = 1000  # at most, of an entry with four metrics: the tuple, its dict, its numbers


def told(run: Path, world: int) -> list[int]:
    """The steps in the journal of each rank."""
    found = [path for rank in range(world) for path in run.glob(f"rank-{rank}-*.jsonl")]
    return [*map(steps_in, found)] + [0] * (world - len(found))


def report_of(place: Place, run: Path) -> dict[str, Any]:
    said = place.call("report", run.name, "--json")
    assert said.returncode == 0, said.stderr.decode()
    found: dict[str, Any] = json.loads(said.stdout)
    return found


@fault("100 ranks at once")
def ranks(place: Place, short: bool) -> Result:
    """One run, all ranks in it, every step told."""
    world = 16 if short else 100
    at = place.work()
    start = 'for i in $(seq 0 $(($1 - 1))); do mkdir "$2/$i"; RANK=$i WORLD_SIZE=$1 "$3" "$4" "$2/$i" 0.1 0 0 & done'
    words = ["sh", "-c", start + "; wait", "sh", str(world), str(at), sys.executable, str(HERE / "training.py")]
    front = place.start(*TRAINMON, "run", "--no-tui", "--", *words, stderr=open(place.root / "err", "wb"))  # noqa: SIM115
    result = Result(injected=world)
    wait_for(lambda: place.runs() and all(each > 3 for each in told(place.runs()[0], world)), "every rank's steps")
    for rank in range(world):
        (at / str(rank) / "done").touch()
    if (code := front.wait(300)) != 0:
        result.harmed.append(f"exit code {code}: {(place.root / 'err').read_text()[-500:]}")
    (run,) = place.runs()
    report = report_of(place, run)
    result.lost = sum(done_by(at / str(rank)) for rank in range(world)) - sum(told(run, world))
    if report["run"]["ranks"] != world or len(report["ranks"]) != world:
        result.harmed.append(f"the report knows {report['run']['ranks']} ranks, {len(report['ranks'])} of them by name")
    if len(journalled(run)) != len(set(journalled(run))):
        result.harmed.append("two events of one name")
    return result


@fault("1,000 DataLoader workers, forked and spawned")
def workers(place: Place, short: bool) -> Result:
    forked, spawned = (80, 4) if short else (968, 32)
    script = place.root / "workers.py"
    script.write_text(WORKERS)
    result = Result(injected=forked + spawned, say=f"{forked} forked, {spawned} spawned")
    words = [sys.executable, str(script), str(forked), str(spawned)]
    done = subprocess.run(words, env=place.environment, capture_output=True, text=True, timeout=400, check=False)
    if (done.returncode, done.stdout) != (0, f"{forked + spawned}\n"):
        result.harmed.append(f"{done.returncode} {done.stdout} {done.stderr[-500:]}")
    (run,) = place.runs()
    journals = list(run.glob("rank-*.jsonl"))
    if len(journals) != 1:
        result.harmed.append(f"{len(journals)} journals: a worker passes for a training")
    result.lost = (forked + spawned) - steps_in(journals[0])  # four workers, four steps
    return result


@fault("disk hangs under a flood: memory of the training")
def backlog(place: Place, short: bool) -> Result:
    """Bounded by the lane and the journal's buffer; what falls out is counted, and the report says so."""
    if shutil.which("gcc") is None:
        raise NotHere("there is no gcc to build what slows the disk down")
    shim, stall, script = place.root / "slow.so", place.root / "stall", place.root / "flood.py"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", shim, HERE / "slow.c", "-ldl"], check=True)
    script.write_text(BACKLOG)
    count = MAX_LANE_ENTRIES * (1 if short else 4)
    environment = {**place.environment, "SLOW_DISK": str(stall), "SLOW_FILES": ".jsonl", "LD_PRELOAD": str(shim)}
    words = [sys.executable, str(script), str(stall), str(count)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=200, check=False)
    result = Result(injected=1)
    if done.returncode or done.stderr:
        result.harmed.append(f"{done.returncode} {done.stderr[-500:]}")
        return result
    sizes = [int(size) for size in done.stdout.split()]
    bound = MAX_LANE_ENTRIES * ENTRY_BYTES + 3 * MAX_UNWRITTEN
    if max(sizes) > bound:
        result.harmed.append(f"{max(sizes):,} bytes more than before, past the bound of {bound:,}")
    (run,) = place.runs()
    report = report_of(place, run)
    if not report["dropped"]["events"] and report["progress"]["steps_done"] < count + 50:
        result.lost = count + 50 - report["progress"]["steps_done"]
    result.say = f"at most {max(sizes) / 2**20:.0f} MiB more; dropped {report['dropped']['events']:,}, and counted"
    return result
