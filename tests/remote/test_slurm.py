"""Jobs of a real Slurm: two slurmd on this machine are two nodes."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitor.commands.showing import dashboard
from monitor.commands.stop_requests import StopRequests
from monitor.runs import catalogue
from tests.launch.conftest import ROOT, TRAINMON, State, wait_for
from tests.remote.cluster import MISSING, Cluster
from tests.remote.conftest import trainings
from trainhooks.protocol.rundir import STATE_VARIABLE

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.long,
    pytest.mark.skipif(bool(MISSING), reason=f"no Slurm here (slurm-wlm): {', '.join(MISSING)}"),
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("slurm"))
    yield made
    made.end()


@pytest.fixture
def cluster(both: Cluster, state: State) -> Iterator[Cluster]:
    """The cluster, whose nodes share the state directory of the test."""
    both.keep(str(state.path))
    yield both
    both.cancel()


def _words(steps: int, seconds: float) -> str:
    return shlex.join(["trainmon", "run", "--", *trainings(steps, seconds)])


def _report(state: State, *words: str) -> dict[str, Any]:
    done = state.call("report", "--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _listed(state: State) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(state.call("ls", "--json").stdout)
    return found


def test_the_tasks_of_a_step_are_one_run(cluster: Cluster, state: State) -> None:
    done = cluster.call("srun", "-N2", "-n2", *shlex.split(_words(20, 0.05)))
    assert done.returncode == 0, done.stderr
    assert len(state.runs()) == 2
    (row,) = _listed(state)
    assert (row["state"], row["step"], row["steps_total"]) == ("finished", 20, 20)
    assert f"more: trainmon report {row['id']}\n".encode() in done.stderr
    report = _report(state, "last")
    assert report["run"]["id"] == row["id"] and report["run"]["ranks"] == 2
    assert [(rank["rank"], rank["steps"]) for rank in report["ranks"]] == [(0, 20), (1, 20)]
    assert report["outcome"]["state"] == "finished" and not any(report["dropped"].values())
    cluster.call("srun", "-N2", "-n2", *shlex.split(_words(5, 0.01)))  # the same command again is another run
    assert [row["step"] for row in _listed(state)] == [5, 20]


def test_a_job_is_found_on_nodes_that_share_nothing(cluster: Cluster, state: State, near: State) -> None:
    """Each node has a state directory of its own; `srun --overlap` within the job leads there."""
    cluster.keep(f"{state.path}-$SLURMD_NODENAME")
    near.environment.update(SLURM_CONF=cluster.environment["SLURM_CONF"], PATH=cluster.environment["PATH"])
    job = cluster.submit(f"srun {_words(200, 0.1)}", "-N2", "-n2", "-t10")
    nodes = [State(Path(f"{state.path}-{name}")) for name in ("n1", "n2")]
    wait_for(lambda: all(any(node.path.glob("runs/*/rank-*.jsonl")) for node in nodes))
    done = near.call("attach", "--job", job, "--json", timeout=150)
    assert done.returncode == 0, done.stderr
    first, *_, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert first["outcome"]["state"] == "running" and [host["name"] for host in first["run"]["hosts"]] == ["n1", "n2"]
    assert last["outcome"] == {**last["outcome"], "state": "finished", "exit_code": 0}
    assert [(rank["rank"], rank["steps"]) for rank in last["ranks"]] == [(0, 200), (1, 200)]
    assert not any(last["dropped"].values())
    told = near.call("attach", "--job", "999999", "--once")
    assert told.returncode == 2 and told.stderr.count(b"\n") == 1


def test_any_command_leads_to_the_nodes(cluster: Cluster, state: State, near: State) -> None:
    """In --via, %h is the host's name; srun passes on whole lines only, and the frames come all the same."""
    cluster.keep(f"{state.path}-$SLURMD_NODENAME")
    near.environment.update(SLURM_CONF=cluster.environment["SLURM_CONF"], PATH=cluster.environment["PATH"])
    job = cluster.submit(f"srun {_words(3000, 0.1)}", "-N2", "-n2", "-t10")
    nodes = [State(Path(f"{state.path}-{name}")) for name in ("n1", "n2")]
    wait_for(lambda: all(any(node.path.glob("runs/*/rank-*.jsonl")) for node in nodes))
    words = ("--via", f"srun --overlap --jobid {job} -n1 -N1 --nodelist %h", "--host", "n2,n1")
    done = near.call("attach", "--job", job, *words, "--once")
    assert done.returncode == 0, done.stderr
    listed = near.call("ls", *words, "--json")
    assert listed.returncode == 0, listed.stderr
    assert {row["id"].partition(":")[0] for row in json.loads(listed.stdout)} == {"n1", "n2"}


SIGNALED = """
import os, signal, time
import trainhooks as th
told = []
signal.signal(signal.SIGUSR1, lambda *_: told.append("x"))
print("ready", flush=True)
for step in th.steps(range(2000)):
    time.sleep(0.01)
    if told and step % 50 == 0 and len(told) < 9:
        time.sleep(1)
        print("rank", os.environ.get("SLURM_PROCID"), "told", len(told), "times", flush=True)
        break
"""


@pytest.mark.parametrize(
    ("script", "asked", "ranks"),
    [
        ("srun {trainmon} python {program}", (), "01"),
        ("exec {trainmon} python {program}", ("--batch",), "0"),
        ("{trainmon} python {program} & trap 'kill -USR1 $!' USR1\nwait $!; wait $!", ("--batch",), "0"),
    ],
)
def test_the_warning_before_the_end_comes_once(
    cluster: Cluster, state: State, tmp_path: Path, script: str, asked: tuple[str, ...], ranks: str
) -> None:
    """What --signal=USR1@N sends to the tasks, and with B: to the batch shell alone: each as without trainmon."""
    program = tmp_path / "train.py"
    program.write_text(SIGNALED)
    for run in ("", "trainmon run --"):
        words = script.format(trainmon=run, program=program).replace("python", sys.executable)
        job = cluster.submit(words, "-N2" if len(ranks) == 2 else "-N1", f"-n{len(ranks)}", "-t5")
        wait_for(lambda job=job: cluster.output(job).count("ready") == len(ranks))  # type: ignore[misc]
        assert cluster.call("scancel", "--signal=USR1", *asked, job).returncode == 0
        cluster.wait_for_end(job)
        told = [line for line in cluster.output(job).splitlines() if line.startswith("rank")]
        assert sorted(told) == [f"rank {rank} told 1 times" for rank in ranks], cluster.output(job)


def test_a_requeued_job_is_one_run(cluster: Cluster, state: State) -> None:
    """As after a preemption: started again, it goes on from its last checkpoint."""
    script = f"""
count=${{SLURM_RESTART_COUNT:-0}}
exec trainmon run --name resumed -- {sys.executable} -uc "$PROGRAM" $count
"""
    cluster.environment["PROGRAM"] = RESUMED
    job = cluster.submit(script, "-N1", "-n1", "-t5", "--requeue")
    wait_for(lambda: any((row["step"] or 0) >= 20 for row in _listed(state)))  # it goes on from 10
    state.environment.update(SLURM_CONF=cluster.environment["SLURM_CONF"], PATH=cluster.environment["PATH"])
    words = [*TRAINMON, "attach", "--job", job, "--json"]
    viewer = subprocess.Popen(words, env=state.environment, cwd=ROOT, stdout=subprocess.PIPE)
    assert viewer.stdout is not None and b'"running"' in viewer.stdout.readline()
    _requeue(cluster, job)
    _start_now(cluster, job)
    cluster.wait_for_end(job)
    assert len(state.runs()) == 2
    (row,) = _listed(state)
    assert row["state"] == "finished" and row["steps_total"] == 60
    report = _report(state, row["id"])
    assert report["progress"]["restarts"] == 1 and report["progress"]["steps_done"] == 60
    assert any("restart 1" in alert["text"] for alert in report["alerts"])
    assert report["wall"]["total"] > sum(report["wall"]["spans"].values())
    seen = [json.loads(line) for line in viewer.stdout]  # of the viewer that was open all the while
    assert viewer.wait() == 0
    viewer.stdout.close()
    assert seen[-1]["run"]["id"] == row["id"] and seen[-1]["outcome"]["state"] == "finished"
    assert seen[-1]["progress"]["restarts"] == 1 and seen[-1]["progress"]["steps_done"] == 60


def test_an_open_dashboard_goes_on_with_the_next_start(
    cluster: Cluster, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job of two tasks, which are stopped and started together."""
    cluster.environment["PROGRAM"] = RESUMED
    words = f'srun trainmon run --name resumed -- {sys.executable} -uc "$PROGRAM"'
    job = cluster.submit(f"{words} ${{SLURM_RESTART_COUNT:-0}}", "-N2", "-n2", "-t5", "--requeue")
    wait_for(lambda: [row["step"] for row in _listed(state)] == [20])
    monkeypatch.setenv(STATE_VARIABLE, str(state.path))
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, cluster.environment[name])
    app = dashboard(catalogue.resolve("resumed"), StopRequests(), low_bandwidth=False)

    async def watch() -> None:
        async with app.run_test(size=(160, 50)) as pilot:

            async def shows(text: str) -> None:
                until, screen = time.monotonic() + 60, ""
                while text not in screen:
                    assert time.monotonic() < until, screen
                    await pilot.pause(0.2)
                    screen = "\n".join(strip.text for strip in app.screen._compositor.render_strips()).lower()

            await shows("running")
            await asyncio.to_thread(_requeue, cluster, job)
            await shows("to be started again")
            await asyncio.to_thread(_start_now, cluster, job)
            await shows("restart 1: rank 0 began again")
            await shows("finished")

    asyncio.run(watch())
    report = _report(state, "resumed")
    assert report["run"]["ranks"] == 2 and report["outcome"]["state"] == "finished"
    assert report["progress"]["restarts"] == 1 and report["progress"]["steps_done"] == 60


def _requeue(cluster: Cluster, job: str) -> None:
    assert cluster.call("scontrol", "requeue", job).returncode == 0
    wait_for(lambda: cluster.standing(job) == "PENDING")


def _start_now(cluster: Cluster, job: str) -> None:
    """Do without the two minutes that Slurm leaves a requeued job alone."""
    cluster.call("scontrol", "update", f"jobid={job}", "StartTime=now")


def test_an_earlier_start_is_joined_where_its_node_keeps_it(cluster: Cluster, state: State, near: State) -> None:
    """Nodes that share nothing: the job's next start has the same ones."""
    cluster.keep(f"{state.path}-$SLURMD_NODENAME")
    cluster.environment["PROGRAM"] = RESUMED.replace("60", "500").replace("(5 if", "(30 if")
    near.environment.update(SLURM_CONF=cluster.environment["SLURM_CONF"], PATH=cluster.environment["PATH"])
    words = f'srun trainmon run --name resumed -- {sys.executable} -uc "$PROGRAM"'
    job = cluster.submit(f"{words} ${{SLURM_RESTART_COUNT:-0}}", "-N2", "-n2", "-t5", "--requeue")
    nodes = [State(Path(f"{state.path}-{name}")) for name in ("n1", "n2")]
    wait_for(lambda: [row["step"] for row in _listed(nodes[0])] == [20])  # it stands there
    _requeue(cluster, job)
    _start_now(cluster, job)
    wait_for(lambda: all(len(list(node.path.glob("runs/*/rank-*.jsonl"))) == 2 for node in nodes))
    done = near.call("attach", "--job", job, "--json", timeout=150)
    assert done.returncode == 0, done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["progress"]["restarts"] == 1 and last["progress"]["steps_done"] == 500
    assert last["run"]["ranks"] == 2 and last["outcome"]["state"] == "finished"


RESUMED = """
import sys, time
import trainhooks as th
first = 0 if sys.argv[1] == "0" else 10
th.init(total_steps=60, start_step=first)
for step in th.steps(range(first, 60)):
    time.sleep(5 if sys.argv[1] == "0" and step == 20 else 0.05)
"""


def test_the_limit_of_a_job_is_known_and_missed(cluster: Cluster, state: State) -> None:
    cluster.submit(f"exec {_words(100_000, 0.02)}", "-N1", "-n1", "-t5")
    wait_for(lambda: any((row["step"] or 0) > 100 for row in _listed(state)))
    wait_for(lambda: _report(state, "last")["progress"]["limit_seconds"] is not None)
    report = _report(state, "last")
    assert 0 < report["progress"]["limit_seconds"] < 300
    (finding,) = [finding for finding in report["findings"] if finding["code"] == "job-limit"]
    assert finding["title"].startswith("Will not finish: ") and finding["title"].endswith(" short of the job's limit")


def test_all_tasks_are_stopped(cluster: Cluster, state: State) -> None:
    job = cluster.submit(f"srun {_words(3000, 0.1)}", "-N2", "-n2", "-t10")
    wait_for(lambda: len(list(state.path.glob("runs/*/rank-*.jsonl"))) == 2)
    found = state.call("attach", "--job", job, "--once", "--json")
    assert json.loads(found.stdout)["run"]["ranks"] == 2
    told = state.call("ls").stdout.decode()
    assert not [run for run in state.runs() if f"--pid {state.pid(run)} " in told]  # no process is taken for unwatched
    stopped = state.call("stop", "last")
    assert stopped.returncode == 0, stopped.stderr
    assert stopped.stderr.count(b" ended after ") == 2
    cluster.wait_for_end(job)
    assert [row["state"] for row in _listed(state)] == ["killed"]
    assert cluster.output(job).count("trainmon: ") == 2, cluster.output(job)
