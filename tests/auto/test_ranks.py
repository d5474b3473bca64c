"""Several processes, one run: torchrun, Slurm and plain launchers, elastic restarts, and who waits for whom."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from monitor.runs import catalogue
from monitor.runs.follow import load
from trainhooks.protocol import rundir

from .watched import LIMIT, SCRIPTS, TORCHRUN, environment, watched

PREAMBLE = """
import glob, json, os, sys, time
import trainhooks as th

def wait_for(rank, wanted):
    until = time.monotonic() + 60
    paths = os.environ['TRAINMON_DIR'] + f'/runs/*/rank-{rank}-*'
    while not any(wanted(line) for path in glob.glob(paths) for line in open(path) if line.endswith('\\n')):
        assert time.monotonic() < until, 'not written'
        time.sleep(0.02)

def in_journal(rank, mark):
    wait_for(rank, lambda line: mark in line)

def has_step(index):
    def found(line):
        event = json.loads(line)
        return event['kind'] == 'step' and event['index'] == index or (
            event['kind'] == 'steps' and event['index'] <= index < event['index'] + len(event['start']))
    return found
"""

# Every rank waits for the others to have joined: a job's processes live at the same time.
TOGETHER = """
for i in th.steps(range(5)):
    time.sleep(0.001)
th.note('all done' + os.environ.get('TURN', ''))
for rank in range(int(os.environ.get('WORLD_SIZE') or os.environ['SLURM_NTASKS'])):
    in_journal(rank, 'all done' + os.environ.get('TURN', ''))
"""

# Rank 1 dies once, at a moment of which it is known what rank 0 has told.
ELASTIC = """
rank, restart = int(os.environ['RANK']), int(os.environ['TORCHELASTIC_RESTART_COUNT'])
first = 8 if restart else 1
th.init(name='elastic', total_steps=20, start_step=first - 1)
for i in th.steps(range(first, 21)):
    with th.phase('backward'):
        time.sleep(0.002)
    if restart == 0 and i == 12:
        if rank == 1:
            wait_for(0, has_step(11))
            wait_for(1, has_step(11))
            os._exit(7)
        time.sleep(60)
"""

STRAGGLER = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group('gloo')
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
for i in th.steps(range(60)):
    with th.phase('forward'):
        loss = model(torch.ones(4, 32)).sum()
        time.sleep(0.02 if dist.get_rank() == 1 else 0.0)
    with th.phase('backward'):
        loss.backward()
dist.barrier()
dist.destroy_process_group()
"""


# The optimizer's step takes rank 1 longer; rank 0 waits for it in the next backward.
SLOW_OPTIMIZER = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group('gloo')
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
optimizer.register_step_post_hook(lambda *_: time.sleep(0.04 if dist.get_rank() == 1 else 0.0))
for _ in range(60):
    loss = torch.nn.functional.mse_loss(model(torch.ones(4, 32)), torch.ones(4, 32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
"""

SLOW_LOADER = """
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group('gloo')
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 240
    def __getitem__(self, index):
        time.sleep(0.01 if dist.get_rank() == 1 else 0.0)
        return torch.ones(32)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(32, 32))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for rows in torch.utils.data.DataLoader(Rows(), batch_size=4):
    loss = torch.nn.functional.mse_loss(model(rows), rows)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
"""


def script(path: Path, source: str, name: str = "job.py") -> Path:
    path.mkdir(exist_ok=True)
    (path / name).write_text(PREAMBLE + textwrap.dedent(source))
    return path / name


def ranks(path: Path, source: str, *environments: dict[str, str], name: str = "job.py") -> None:
    """Start one process an environment, all at once, and wait for them."""
    program = script(path, source, name)
    started = [
        subprocess.Popen([sys.executable, program], env={**environment(path), **each}, stderr=subprocess.PIPE)
        for each in environments
    ]
    for process in started:
        _, errors = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, errors.decode()


def plain(port: int, world: int = 2) -> list[dict[str, str]]:
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    return [{**where, "RANK": str(rank)} for rank in range(world)]


def slurm(job: int, world: int = 2) -> list[dict[str, str]]:
    of_job = {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": "0", "SLURM_NTASKS": str(world)}
    return [{**of_job, "SLURM_PROCID": str(rank)} for rank in range(world)]


def journals(path: Path) -> dict[str, list[int]]:
    """The ranks that reported to each run."""
    told: dict[str, list[int]] = {}
    for journal in path.glob("runs/*/rank-*.jsonl"):
        told.setdefault(journal.parent.name, []).append(int(journal.name.split("-")[1]))
    return {run: sorted(found) for run, found in told.items()}


# One directory for all


@pytest.mark.parametrize("launched", [plain, slurm])
def test_the_ranks_of_a_job_share_a_run(tmp_path: Path, launched: Callable[..., list[dict[str, str]]]) -> None:
    ranks(tmp_path, TOGETHER, *launched(os.getpid(), 6))
    (told,) = journals(tmp_path).values()
    assert told == [0, 1, 2, 3, 4, 5]
    (run,) = tmp_path.glob("runs/*")
    known = load(run).report
    assert known.run.ranks == 6 and known.progress.steps_done == 5
    assert known.outcome.state == "finished" == catalogue.state(run)[0]
    assert rundir.read_json(run / rundir.IDENTITY) is not None


def test_the_next_job_of_the_same_kind_has_a_run_of_its_own(tmp_path: Path) -> None:
    for turn in "12":
        ranks(tmp_path, TOGETHER, *({**each, "TURN": turn} for each in plain(os.getpid())))
    assert sorted(journals(tmp_path).values()) == [[0, 1], [0, 1]]


def test_jobs_beside_each_other_keep_apart(tmp_path: Path) -> None:
    jobs = [plain(os.getpid()), plain(os.getpid() + 1), slurm(os.getpid())]
    ranks(tmp_path, TOGETHER, *({**each, "TURN": f" {number}"} for number, job in enumerate(jobs) for each in job))
    assert sorted(journals(tmp_path).values()) == [[0, 1]] * 3


def test_another_program_that_a_rank_starts_is_a_run_of_its_own(tmp_path: Path) -> None:
    script(tmp_path, "for i in th.steps(range(3)): pass", "judge.py")
    source = "import subprocess; subprocess.run([sys.executable, os.path.dirname(__file__) + '/judge.py'], check=True)"
    ranks(tmp_path, source + TOGETHER, *plain(os.getpid()))
    told = journals(tmp_path)
    (of_job,) = [name for name in told if name.startswith("job-")]
    assert told.pop(of_job) == [0, 1]
    assert told and all(name.startswith("judge-") for name in told)


def test_a_process_alone_is_no_job(tmp_path: Path) -> None:
    alone = {"MASTER_ADDR": "x", "MASTER_PORT": "1", "WORLD_SIZE": "1", "RANK": "0"}
    ranks(tmp_path, "for i in th.steps(range(3)): pass", alone, alone)
    assert sorted(journals(tmp_path).values()) == [[0], [0]]


def test_a_rank_that_finds_the_others_dead_begins_anew(tmp_path: Path) -> None:
    """Its job was started again at the same address, and the first one has not lived long enough to be complete."""
    first, second = plain(os.getpid())
    ranks(tmp_path, "for i in th.steps(range(3)): pass", first)
    ranks(tmp_path, TOGETHER, second, first)
    assert sorted(journals(tmp_path).values()) == [[0], [0, 1]]


@pytest.mark.long
def test_processes_that_torch_spawns_are_ranks_too(tmp_path: Path) -> None:
    """Nobody gives them an environment: the process group knows their ranks."""
    seen = watched(tmp_path, str(SCRIPTS / "ddp.py"), "spawn")
    assert seen.code == 0, seen.err
    known = seen.report
    assert (known.run.ranks, known.progress.steps_done) == (2, 12)
    assert [row.steps for row in known.ranks] == [12, 12]


def test_a_process_group_that_is_gone_when_the_background_thread_comes_has_told_the_rank(tmp_path: Path) -> None:
    """A short training on a busy machine has destroyed it by then."""
    group = """
import threading, types
here = types.ModuleType('torch.distributed')
here.is_available = lambda: True
here.is_initialized = lambda: threading.current_thread() is threading.main_thread()
here.get_rank, here.get_world_size = lambda: 1, lambda: 2
sys.modules['torch.distributed'] = here
"""
    ranks(tmp_path, f"{group}for i in th.steps(range(3)): pass", {})
    assert list(journals(tmp_path).values()) == [[1]]


# torchrun


def torchrun(path: Path, source: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = str(script(path, source))
    words = [sys.executable, *TORCHRUN, *options, program]
    return subprocess.run(words, env=environment(path), capture_output=True, text=True, timeout=LIMIT)


def test_torchrun_with_an_elastic_restart(tmp_path: Path) -> None:
    ended = torchrun(tmp_path, ELASTIC, "--max-restarts", "1", "--monitor-interval", "0.1")
    assert ended.returncode == 0, ended.stderr
    (told,) = journals(tmp_path).values()
    assert told == [0, 0, 1, 1]
    (run,) = tmp_path.glob("runs/*")
    known = load(run).report
    progress = known.progress
    assert (progress.steps_done, progress.steps_total, progress.restarts) == (20, 20, 1)
    assert progress.steps_again in (4, 5), "the twelfth step was open when the agent ended rank 0"
    (restart,) = (row for row in known.alerts if row.code == "restart")  # a busy machine may slow a step beside it
    assert "rank 0 began again at step 8" in restart.text
    assert "restart" in known.wall.spans and known.run.ranks == 2
    assert known.outcome.state == "finished" == catalogue.state(run)[0]
    launcher = (rundir.read_json(run / rundir.IDENTITY) or {})["pid"]
    parents = [event["pid"] for event in hellos(run)]
    assert launcher not in parents and not rundir.run_alive(run)


def hellos(run: Path) -> list[dict[str, int]]:
    return [json.loads(path.read_text().splitlines()[0]) for path in run.glob("rank-*.jsonl")]


@pytest.mark.long
def test_torchrun_under_trainmon_names_the_rank_that_the_others_wait_for(tmp_path: Path) -> None:
    seen = watched(tmp_path, *TORCHRUN, str(script(tmp_path, STRAGGLER)))
    assert seen.code == 0, seen.err
    known = seen.report
    assert known.run.ranks == 2 and known.progress.steps_done == 60
    assert known.straggler is not None and known.straggler.rank == 1, known.ranks
    waits = [row.wait_seconds for row in known.ranks]
    assert waits[0] is not None and waits[1] is not None and waits[0] > 4 * waits[1]


@pytest.mark.long
def test_a_rank_whose_loader_is_slow_is_late_in_data(tmp_path: Path) -> None:
    seen = watched(tmp_path, *TORCHRUN, str(script(tmp_path, SLOW_LOADER)))
    assert seen.code == 0, seen.err
    slow = seen.report.straggler
    assert slow is not None and (slow.rank, slow.basis, slow.culprit) == (1, "calls", "data"), seen.report.ranks


@pytest.mark.long
def test_a_rank_that_is_late_for_its_optimizer_is_named_by_its_calls(tmp_path: Path) -> None:
    seen = watched(tmp_path, *TORCHRUN, str(script(tmp_path, SLOW_OPTIMIZER)))
    assert seen.code == 0, seen.err
    assert seen.events("collectives") and seen.events("collectives", rank=1)
    slow = seen.report.straggler
    assert slow is not None and (slow.rank, slow.basis, slow.culprit) == (1, "calls", "optimizer"), seen.report.ranks
    assert slow.own_seconds is not None and slow.others_seconds is not None
    assert slow.own_seconds > slow.others_seconds and "time.sleep" in (slow.place or "")
