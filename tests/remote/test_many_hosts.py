"""A job on two hosts is one run in the dashboard of a third. A host is a namespace with its own name and clock."""

from __future__ import annotations

import json
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.launch.conftest import ROOT, TRAINMON, State, wait_for
from tests.remote.conftest import configure, relays, via
from tests.signals import send_signal

pytestmark = pytest.mark.long

AHEAD = 5000  # seconds of the second host's clock

TRAINING = """
import os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
dist.destroy_process_group()
"""


def _namespace(name: str, ahead: float) -> list[str]:
    """Return the words that run a command on a host of a name, with a clock that is so far ahead."""
    inner = f'hostname {name} && exec "$@"'
    return ["unshare", "--uts", "--time", "--monotonic", str(ahead), "--fork", "sh", "-c", inner, "sh"]


def _can_have_hosts() -> bool:
    try:
        return subprocess.run([*_namespace("box-a", 1), "true"], capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def _address() -> str:
    """Return an address of this box that is not a loopback; empty where it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return ""
        return str(probe.getsockname()[0])


needs_hosts = pytest.mark.skipif(
    not _can_have_hosts() or _address() in ("", "127.0.0.1"), reason="no namespaces (unshare), or no network address"
)


class Hosts:
    """Two hosts, each with a state directory of its own."""

    def __init__(self, path: Path) -> None:
        self.states = [State(path / name) for name in ("box-a", "box-b")]
        self.ways = [_namespace("box-a", 0), _namespace("box-b", AHEAD)]
        self.fronts: list[subprocess.Popen[bytes]] = []
        program = path / "train.py"
        program.write_text(TRAINING)
        self.program = str(program)

    def via(self, place: int) -> str:
        return shlex.join([*self.ways[place], *shlex.split(via(self.states[place]))])

    def start(self, steps: int, seconds: float, names: tuple[str, str] = ("job7", "job7"), late: float = 0.0) -> None:
        """Start one torchrun of two nodes; or two of one node each, where they have different names."""
        ports = [_free_port(), _free_port()]
        for place, state in enumerate(self.states):
            port = ports[0 if names[0] == names[1] else place]
            nodes = 2 if names[0] == names[1] else 1
            torchrun = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={nodes}", "--nproc-per-node=1"]
            torchrun += [f"--node-rank={place if nodes == 2 else 0}", f"--rdzv-id={names[place]}"]
            torchrun += [f"--master-addr={_address()}", f"--master-port={port}"]
            more = seconds + (late if place else 0.0)
            words = [
                *self.ways[place],
                *TRAINMON,
                "run",
                "--no-tui",
                "--",
                *torchrun,
                self.program,
                str(steps),
                str(more),
            ]
            environment = {**state.environment, "OMP_NUM_THREADS": "1"}
            front = subprocess.Popen(
                words,
                env=environment,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
            )
            self.fronts.append(front)
        for state, front in zip(self.states, self.fronts, strict=True):
            wait_for(lambda state=state, front=front: _size(state) > 3000 or front.poll() is not None)  # type: ignore[misc]
            assert _size(state) > 0, front.communicate()[1]

    def end(self) -> None:
        for state in self.states:
            for run in state.runs():
                state.call("stop", run.name)
        for front in self.fronts:
            front.kill()
            front.communicate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _size(state: State) -> int:
    return sum(journal.stat().st_size for journal in state.path.glob("runs/*/rank-*.jsonl"))


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    yield made
    made.end()


def _last(near: State, *words: str) -> dict[str, Any]:
    done = near.call("attach", *words, "--json", timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_hosts
def test_two_hosts_are_one_run(hosts: Hosts, near: State) -> None:
    hosts.start(60, 0.05, late=0.05)
    configure(near, **{"box-a": hosts.via(0), "box-b": hosts.via(1)})
    report = _last(near, "--job", "job7", "--host", "box-b,box-a")
    assert report["outcome"]["state"] == "finished" and report["outcome"]["exit_code"] == 0
    assert report["run"]["ranks"] == 2 and report["progress"]["steps_done"] == 60
    assert [(row["rank"], row["host"], row["steps"]) for row in report["ranks"]] == [(0, "box-a", 60), (1, "box-b", 60)]
    assert not any(report["dropped"].values())
    here, other = report["run"]["hosts"]
    assert (here["name"], here["clock"]) == ("box-a", 0.0)
    assert other["name"] == "box-b" and abs(other["clock"] - AHEAD) <= other["uncertainty"] + 0.001
    assert 0 < report["wall"]["total"] < 1000  # on one clock
    text = near.call("report", "--full", str(next(near.path.glob("copies/joined/*")))).stdout.decode()
    assert re.search(r"box-b: clock ahead by \+(5,000|4,999)\.\d{4} s ±", text), text


@needs_hosts
def test_two_jobs_never_join(hosts: Hosts, near: State) -> None:
    hosts.start(40, 0.05, names=("one", "two"))
    configure(near, **{"box-a": hosts.via(0), "box-b": hosts.via(1)})
    done = near.call("attach", "box-a:", "box-b:", "--json")
    assert done.returncode == 2 and b"are two jobs: torchrun one at" in done.stderr
    assert not list(near.path.glob("copies/joined/*"))
    assert near.call("attach", "--job", "three", "--host", "box-a").stderr.startswith(
        b"trainmon: box-a: no run of a job"
    )


@needs_hosts
def test_one_host_is_cut_off_and_comes_back(hosts: Hosts, near: State) -> None:
    hosts.start(500, 0.05)
    configure(near, **{"box-a": hosts.via(0), "box-b": hosts.via(1)})
    viewer = subprocess.Popen(
        [*TRAINMON, "attach", "box-a:", "box-b:", "--json"], env=near.environment, cwd=ROOT, stdout=subprocess.PIPE
    )
    assert viewer.stdout is not None
    try:
        assert json.loads(viewer.stdout.readline())["run"]["ranks"] == 2
        (relay,) = relays(hosts.states[1])
        send_signal(relay, signal.SIGSTOP)
        silent = _first(viewer.stdout, lambda report: report["run"]["hosts"][1]["silent_seconds"])
        assert silent["run"]["hosts"][0]["silent_seconds"] is None and silent["outcome"]["state"] == "running"
        (joined,) = near.path.glob("copies/joined/*")
        assert near.call("attach", str(joined), "--once").stdout.startswith(b"[box-b silent for ")
        wait_for(lambda: relays(hosts.states[1]) not in ([], [relay]))
        (lead,) = relays(hosts.states[0])
        send_signal(lead, signal.SIGSTOP)
        unheard = _first(viewer.stdout, lambda report: (report["run"]["hosts"][0]["silent_seconds"] or 0.0) > 10)
        assert unheard["wall"]["between_steps"] < 3  # that it made no step meanwhile is not known
        # The other host's command ends before this line is back: the job has not ended then.
        last = json.loads(viewer.stdout.readlines()[-1])
    finally:
        viewer.kill()
        viewer.wait()
        viewer.stdout.close()
    assert [front.wait() for front in hosts.fronts] == [0, 0]
    assert last["progress"]["steps_done"] == 500 and [row["steps"] for row in last["ranks"]] == [500, 500]
    assert not any(last["dropped"].values())


def _first(lines: Any, wanted: Any) -> dict[str, Any]:
    for line in lines:
        report: dict[str, Any] = json.loads(line)
        if wanted(report):
            return report
    raise AssertionError("it did not come to pass")
