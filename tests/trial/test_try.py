"""`trainmon try` on real programs: what it says, and that nothing of it is left."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from monitor.cli import cli
from monitor.commands import trying
from monitor.errors import UserError
from monitor.running import isolation, trial_runs
from trainhooks.protocol import rundir

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

WAITS = """
import sys, time, torch
from torch.utils.data import DataLoader
class Rows:
    def __len__(self): return 4000
    def __getitem__(self, index):
        time.sleep(0.005)  # a file system that answers late
        return torch.ones(4)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
if __name__ == "__main__":
    for batch in DataLoader(Rows(), batch_size=4):
        time.sleep(0.01)
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        print(f"loss {loss.item():.6f}", flush=True)
"""


def isolated(tmp_path: Path) -> str | None:
    place = tmp_path / "check"
    place.mkdir()
    return isolation.refusal(isolation.Isolation(str(place), (), isolation.directories()))


@pytest.fixture(autouse=True)
def _needs_namespaces(tmp_path: Path) -> None:
    why = isolated(tmp_path)
    if why is not None:
        pytest.skip(why)


def words(*more: str) -> list[str]:
    return [sys.executable, "-m", "monitor", "try", *more]


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, rundir.STATE_VARIABLE: str(tmp_path / "state"), "OMP_NUM_THREADS": "1"}


def tried(tmp_path: Path, script: str, *more: str, arguments: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    directory = tmp_path / "work"
    directory.mkdir(exist_ok=True)
    (directory / "train.py").write_text(script)
    return subprocess.run(
        words("--seconds", "2", *more, "--", sys.executable, "train.py", *arguments),
        env=environment(tmp_path),
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=480,
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_a_wait_for_data_that_workers_take_away(tmp_path: Path) -> None:
    done = tried(tmp_path, WAITS, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (one,) = told["tried"]
    assert one["code"] == "input-bound" and set(one["settings"]) == {"num_workers"}
    assert one["verdict"] == "gain" and one["faster"]["low"] > 1.0, one
    assert len(one["pairs"]) == told["rounds"] == 5 and told["isolated"]
    assert one["loss"]["low"] <= 0.0 <= one["loss"]["high"]
    explained = subprocess.run(
        [sys.executable, "-m", "monitor", "explain", "input-bound"],
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert re.search(r"On your machines: promised [\d.]+x, measured [\d.]+x, 1 time ", explained.stdout)


BATCHES = """
import argparse, time, torch
from torch.utils.data import DataLoader, TensorDataset
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
size = parser.parse_args().batch_size
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for batch, in DataLoader(TensorDataset(torch.ones(40000, 4)), batch_size=size):
    time.sleep(0.02)  # whatever its size
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
"""


def test_a_batch_by_the_program_s_own_argument_is_compared_by_sample(tmp_path: Path) -> None:
    done = tried(tmp_path, BATCHES, "--set", "batch_size=8", "--json", arguments=("--batch-size", "4"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (one,) = told["tried"]
    assert told["per"] == "sample" and one["verdict"] == "gain", one
    assert one["faster"]["low"] < 2.0 < one["faster"]["high"] * 1.2, "twice the samples in a step as long"
    refused = tried(tmp_path, BATCHES, "--set", "batch_size=8")
    assert refused.returncode == 2 and "no argument of the command sets it" in refused.stderr


HARMFUL = """
import os, shutil, socket, sys, time, torch
port, out = int(sys.argv[1]), sys.argv[2]
try:
    socket.create_connection(("127.0.0.1", port), 5).close()
except OSError as error:
    print(error)
os.makedirs(out)
open("train.log", "w").write("gone")
shutil.rmtree("checkpoint-1")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(100000):
    time.sleep(0.03)
    optimizer.zero_grad()
    model(torch.ones(4, 4)).square().mean().backward()
    optimizer.step()
    if step % 10 == 0:
        torch.save(model.state_dict(), os.path.join(out, "last.pt"))
        torch.save(model.state_dict(), "last.pt")
"""


def test_nothing_is_written_removed_or_sent(tmp_path: Path) -> None:
    directory = tmp_path / "work"
    (directory / "checkpoint-1").mkdir(parents=True)
    (directory / "checkpoint-1" / "weights.bin").write_bytes(os.urandom(1000))
    (directory / "train.log").write_text("the first line\n")
    (directory / "train.py").write_text(HARMFUL)
    before, out = contents(directory), tmp_path / "elsewhere" / "run"
    with socket.create_server(("127.0.0.1", 0)) as tracker:
        tracker.settimeout(0.1)
        port = tracker.getsockname()[1]
        done = subprocess.run(
            words("--seconds", "1", "--set", "threads=1", "--", sys.executable, "train.py", str(port), str(out)),
            env=environment(tmp_path),
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=480,
        )
        assert done.returncode == 0, done.stderr
        with pytest.raises(TimeoutError):
            tracker.accept()
    assert contents(directory) == before
    assert not out.parent.exists()
    # Nor is there a gain where there is none: its steps wait, and compute next to nothing.
    found = re.match(r"([\d.]+)x \(([\d.]+)x to ([\d.]+)x\), [^;]*; ", done.stdout)
    assert found is not None, done.stdout
    ratio, low, high = map(float, found.groups())
    assert 0.9 < ratio < 1.1 and low < 1.05 and high > 0.95, done.stdout


def test_a_program_that_fails_is_one_line(tmp_path: Path) -> None:
    done = tried(tmp_path, "import torch\nraise SystemExit('no data in /data')\n", "--set", "threads=1")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert len(lines) == 2 and lines[0] == "first run, as it is"
    assert "no data in /data" in lines[1] and not done.stdout


def test_a_setting_that_the_program_does_not_use_is_not_measured(tmp_path: Path) -> None:
    script = WAITS.replace("DataLoader(Rows(), batch_size=4)", "(torch.ones(4, 4) for _ in range(4000))")
    done = tried(tmp_path, script, "--set", "num_workers=2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("num_workers=2: not measured: num_workers: the program uses nothing"), done.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_interrupt_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    # It does not care for a polite end, and has a child that lives on.
    (directory / "train.py").write_text(
        "import signal, subprocess\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '997'], start_new_session=True)\n" + WAITS
    )
    command = words("--seconds", "60", "--set", "threads=1", "--", sys.executable, "train.py")
    trying = subprocess.Popen(command, env=environment(tmp_path), cwd=directory, stderr=subprocess.PIPE)
    place, namespace = found_place(directory)
    trying.send_signal(number)
    trying.communicate(timeout=100)
    assert trying.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}.get(number, -number)
    until = time.monotonic() + 60
    while (left := in_namespace(namespace)) and time.monotonic() < until:
        time.sleep(0.2)
    assert not left
    assert str(place) not in Path("/proc/self/mounts").read_text()
    if number != signal.SIGKILL:
        assert not place.exists()


def found_place(directory: Path) -> tuple[Path, str]:
    """Return the place of the trial that runs in a directory, once it steps, and its mount namespace."""
    until = time.monotonic() + 100
    while time.monotonic() < until:
        for place in (*Path("/var/tmp").glob("trainmon-try-*"), *Path(tempfile.gettempdir()).glob("trainmon-try-*")):
            for journal in place.glob("state/runs/*/rank-0-*.jsonl"):
                identity = rundir.read_json(journal.parent / rundir.IDENTITY) or {}
                if identity.get("cwd") == str(directory) and '"kind":"steps"' in journal.read_text():
                    return place, f"mnt:[{(place / isolation.NAMESPACE).read_text()}]"
        time.sleep(0.1)
    raise AssertionError("it does not step")


def in_namespace(namespace: str) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{name}/ns/mnt") == namespace:
                found.append(Path(f"/proc/{name}/cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def test_without_isolation_and_terminal_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "refusal", lambda wanted: "namespaces are not permitted here")
    mark = tmp_path / "was-run"
    done = CliRunner().invoke(cli, ["try", "--set", "threads=1", "--", sys.executable, "-c", f"open('{mark}', 'w')"])
    assert "namespaces are not permitted here" in str(done.exception) and "on a terminal" in str(done.exception)
    assert not mark.exists()


def test_more_runs_need_a_typed_confirmation(monkeypatch: pytest.MonkeyPatch) -> None:
    written = [("writes", "/elsewhere/last.pt"), ("removes", "/elsewhere/\x1b[2Jold")]
    for typed in ("y", "yes", ""):
        monkeypatch.setattr("click.prompt", lambda *_, **__: typed)  # noqa: B023
        with pytest.raises(UserError, match="not confirmed"):
            trying._confirm(written, 10)
    monkeypatch.setattr("click.prompt", lambda *_, **__: "run it")
    trying._confirm(written, 10)


def test_what_a_run_writes_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out = tmp_path / "out"
    with socket.create_server(("127.0.0.1", 0)) as tracker, trial_runs.place() as where:
        (tmp_path / "checkpoint-1").mkdir()
        (tmp_path / "train.py").write_text(HARMFUL)
        command = [sys.executable, "train.py", str(tracker.getsockname()[1]), str(out)]
        trial = trial_runs.run_trial(command, {}, trial_runs.Length(1.0), where, None, True)
        assert trial.failed is None
        written = trial_runs.writes(where)
    for expected in (
        ("makes", str(out)),
        ("writes", str(tmp_path / "train.log")),
        ("removes", str(tmp_path / "checkpoint-1")),
        ("writes", str(out / "last.pt")),
    ):
        assert expected in written
