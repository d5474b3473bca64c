"""The recorder with GPUs: its thread, its journal, a driver that hangs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from monitor.model.fold import fold
from monitor.model.state import RunState
from monitor.sources.decode import decode
from tests.gpu.conftest import ROOT, Stub, changed, scene
from trainhooks.protocol.events import Event

H200 = scene("h200x8")

# Records until the journal holds so many readings of the host; the scene changes after half of them.
RECORD = """
import json, os, sys, threading
from pathlib import Path
from monitor.running import recorder
from monitor.running.journal_writer import Writer
from monitor.sources import gpu_source
from trainhooks.protocol import rundir
run, before, after, enough = json.load(sys.stdin)
run = Path(run)
recorder.READING_SECONDS, gpu_source.HANGS = 0.1, 0.3
def show(text):
    with open(os.environ["NVML_STUB"] + ".new", "w") as new: new.write(text)
    os.replace(new.name, os.environ["NVML_STUB"])
show(before)
polls = 0
def ended(seconds):
    global polls
    polls += 1
    if polls == enough // 2: show(after)
    threading.Event().wait(max(seconds, 0.1))
    return polls >= enough
writer = Writer(run)
recorder.Recorder(run, writer, lambda: [os.getpid()]).record(ended)
writer.close()
print(json.dumps([json.loads(line) for line in rundir.node_journal(run).read_bytes().splitlines()]))
"""


def record(stub: Stub, run: Path, before: str, after: str, enough: int) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = stub.python(RECORD, [str(run), before, after, enough])
    assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1))
    return lines


def test_a_driver_that_hangs_costs_no_reading_of_the_host(stub: Stub, tmp_path: Path) -> None:
    lines = record(stub, tmp_path, changed(H200, driver__hang=1), H200, 30)
    hosts = [line for line in lines if line["kind"] == "host"]
    assert len(hosts) == 30
    assert any("the NVIDIA driver has not answered for" in host.get("note", "") for host in hosts)
    gpus = [line for line in lines if line["kind"] == "gpu"]
    assert {gpu.get("index", 0) for gpu in gpus} == set(range(8))
    assert all(gpu["simulated"] for gpu in gpus)
    assert "note" not in hosts[-1]


def test_errors_are_written_down(stub: Stub, tmp_path: Path) -> None:
    lines = record(stub, tmp_path, H200, changed(H200, gpu5__xid=48), 40)
    (note,) = [line for line in lines if line["kind"] == "note"]
    assert note["text"].startswith("GPU 5 reports XID 48") and note["level"] == "warning"
    assert [line["index"] for line in lines if line.get("xid")] == [5]


@pytest.mark.long
def test_a_run_whose_gpu_overheats_is_recorded_as_such(tmp_path: Path) -> None:
    """The demonstration, cut short: readings during the cut, marked as simulated, and nothing left behind."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {
        **os.environ,
        "TRAINMON_DIR": str(tmp_path / "state"),
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(scratch),
    }
    command = [sys.executable, "demo/throttle.py", "--no-tui", "--seconds", "3"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    (journal,) = tmp_path.glob("state/runs/*/node-*.jsonl")
    state = RunState()
    for line in journal.read_bytes().splitlines():
        event = decode(line)
        assert isinstance(event, Event)
        fold(state, event)
    gpus = [gpu for readings in state.gpus.values() for gpu in readings]
    second = [gpu for gpu in gpus if gpu.index == 1]
    cut = [gpu for gpu in second if gpu.sm_clock == 1290]
    assert cut and all(gpu.reasons == 0x48 for gpu in cut)
    assert any((gpu.thermal_violation or 0.0) > 0.5 for gpu in cut)
    assert second[0].sm_clock == second[-1].sm_clock == 1980
    assert all(gpu.simulated for gpu in gpus)
    assert all(gpu.sm_clock == 1980 for gpu in gpus if gpu.index == 0)
    assert list(scratch.iterdir()) == []
