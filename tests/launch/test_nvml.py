"""The driver's readings, through a stub of its library; in a process of their own, because it is loaded once."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT

READ = """
import json, os, sys
from dataclasses import asdict
from monitor.sources.nvml import NvmlSource
source = NvmlSource()
out = []
for moment, faults in json.loads(sys.argv[1]):
    open(os.environ["NVML_STUB"], "w").write(faults)
    gpus, note = source.read(moment)
    out.append([[asdict(gpu) for gpu in gpus], note])
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    directory = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("nvml_stub.c")
    subprocess.run([compiler, "-w", "-shared", "-fPIC", "-o", directory / "libnvidia-ml.so.1", source], check=True)
    return directory


def read(library: Path, *polls: tuple[float, str]) -> list[tuple[list[dict[str, Any]], str | None]]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "NVML_STUB": str(library / "faults")}
    command = [sys.executable, "-c", READ, json.dumps(polls)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, check=True)
    return [(gpus, note) for gpus, note in json.loads(done.stdout)]


def test_a_card_that_tells_everything(library: Path) -> None:
    ((gpus, note),) = read(library, (0, ""))
    assert note is None
    assert gpus[1] == {
        "producer": "", "seq": 0, "t": 0, "uuid": "GPU-1", "index": 1, "name": "Stub [31m H1", "utilization": 87.0,
        "memory_used": 30000, "memory_total": 80000, "temperature": 71.0, "power": 312.5, "power_limit": 700.0,
        "sm_clock": 1980, "sm_clock_max": 2100, "memory_clock": 2619, "reasons": 4, "simulated": False,
    }  # fmt: skip


def test_what_a_card_does_not_tell_is_unknown(library: Path) -> None:
    ((gpus, note),) = read(library, (0, "half"))
    assert note is None
    unknown = {key for key, value in gpus[0].items() if value is None}
    assert unknown == {"temperature", "power", "power_limit", "sm_clock_max", "reasons"}
    assert gpus[0]["utilization"] == 87.0


def test_an_old_driver(library: Path) -> None:
    ((gpus, _),) = read(library, (0, "old"))
    assert gpus[0]["reasons"] == 0x20


def test_a_driver_that_is_not_loaded_is_tried_again(library: Path) -> None:
    polls = read(library, (0, "notloaded"), (1, ""), (29, ""), (31, ""))
    for gpus, note in polls[:3]:
        assert (gpus, note) == ([], "the NVIDIA driver is installed but not loaded")
    assert (len(polls[3][0]), polls[3][1]) == (2, None)


def test_a_card_that_is_lost_leaves_the_other(library: Path) -> None:
    polls = read(library, (0, ""), (1, "lost"), (2, "lost"))
    for gpus, note in polls[1:]:
        assert [gpu["index"] for gpu in gpus] == [0]
        assert note is not None and note.startswith("GPU 1 is lost")


def test_a_driver_that_goes_away_and_returns(library: Path) -> None:
    polls = read(library, (0, ""), (1, "gone"), (2, ""), (32, ""))
    assert polls[1] == ([], "the NVIDIA driver went away")
    assert polls[2][0] == []
    assert len(polls[3][0]) == 2


def test_no_driver(tmp_path: Path) -> None:
    ((gpus, note),) = read(tmp_path, (0, ""))
    assert gpus == [] or note is None
    if note is not None:
        assert "NVIDIA" in note
