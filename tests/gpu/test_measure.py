"""`trainmon doctor --measure-gpu`: a child with a made-up torch, and a driver that answers from a file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from monitor.runs import product_store
from tests.gpu.conftest import ROOT, Stub, changed, scene
from trainhooks.protocol import rundir

BARE = getattr(sys, "_base_executable", sys.executable)  # without a torch of its own
UUID = "00000000-5eed-4000-8000-000000000000"  # of the first card of the scene, as torch writes it
RATES = {"bf16": 703.0, "fp16": 690.0, "tf32": 401.0, "fp32": 51.0}
FAKE = {"name": "NVIDIA H200", "uuid": UUID, "rates": RATES, "pause": 0.02}
IDLE = changed(scene("h200x8"), gpu__utilization=0)


class Machine:
    """Where the command runs."""

    def __init__(self, stub: Stub, place: Path) -> None:
        self._stub, self._place = stub, place
        self.state = place / "state"
        shutil.copy(Path(__file__).with_name("fake_torch.py"), place / "torch.py")

    def measure(self, *words: str, driver: str | None = IDLE, python: str = BARE, **fake: Any) -> Any:
        environment = {**self._stub.environment, "TRAINMON_DIR": str(self.state)}
        if driver is None:
            environment["LD_LIBRARY_PATH"] = "/nonexistent"
        else:
            self._stub.file.write_text(driver)
        environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{self._place}"
        environment["FAKE_TORCH"] = json.dumps({**FAKE, **fake})
        environment.pop("CUDA_VISIBLE_DEVICES", None)
        return subprocess.run(
            [sys.executable, "-m", "monitor", "doctor", "--measure-gpu", "--python", python, *words],
            env=environment,
            cwd=self._place.parent,
            capture_output=True,
            text=True,
            timeout=100,
        )

    def during(self, **lines: object) -> str:
        """A scene that the driver shows from the moment on at which the child uses the card."""
        path = self._place / "during.txt"
        path.write_text(changed(scene("h200x8"), **lines))
        return str(path)


@pytest.fixture
def machine(stub: Stub, tmp_path: Path) -> Machine:
    return Machine(stub, tmp_path)


def test_what_is_measured_is_told_and_kept(machine: Machine) -> None:
    began = time.time()
    done = machine.measure("--json", marker=machine.during(gpu0__processes="OWN_PID:1073741824"))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    rows = {row["format"]: row for row in told["products"]}
    assert {kind: row["tflops"] for kind, row in rows.items()} == pytest.approx(RATES)
    assert rows["bf16"]["share"] == pytest.approx(703 / 989) and rows["tf32"]["peak"] == 495
    assert rows["bf16"]["size"] == 8192 and rows["bf16"]["sm_clock"] == 1980 and rows["bf16"]["power"] == 612.5
    assert told["gpu"]["power_limit"] == 700 and told["gpu"]["driver"] == "580.95.05 SIMULATED"
    assert told["others"] == [] and told["not_kept"] is None and told["gpu"]["simulated"] is True
    (kept,) = product_store.load(Path(told["kept"])).cards
    assert Path(told["kept"]) == machine.state / rundir.PRODUCTS
    assert kept.tflops == pytest.approx(RATES) and kept.uuid == f"GPU-{UUID}" and kept.power_limit == 700
    assert began <= kept.measured <= time.time() and kept.simulated
    assert Path(told["kept"]).stat().st_mode & 0o077 == 0


def test_as_text(machine: Machine) -> None:
    done = machine.measure(driver=changed(IDLE, gpu0__power_limit=450000), rates={**RATES, "fp16": None})
    assert done.returncode == 0, done.stderr
    head, *rest = done.stdout.splitlines()
    assert head.startswith(
        f"NVIDIA H200, GPU-{UUID}, driver 580.95.05 SIMULATED, power limit 450 W of 700 W, SIMULATED, torch 9"
    )
    (bf16,) = (line.split() for line in rest if line.startswith("bf16"))
    assert " ".join(bf16) == "bf16 8,192 703 71% of 989 703 703 1,980 MHz 612 W"
    assert "fp16: not measured: RuntimeError: CUDA out of memory  [2J in fp16" in rest and "\x1b" not in done.stdout
    assert rest[-1].startswith(f"saved in {machine.state}")


def test_a_torch_without_cuda_is_refused_in_one_line(machine: Machine) -> None:
    for fake, says in (
        ({"cuda": None}, "built without CUDA"),
        ({"hip": "6.0", "cuda": None}, "ROCm"),
        ({"available": False}, "sees no GPU"),
        ({"broken": "libcudart.so\nis missing"}, "cannot be imported"),
    ):
        done = machine.measure(**fake)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
        assert says in done.stderr and "--python" in done.stderr
    assert not machine.state.exists()


def test_a_child_that_dies_and_a_program_that_is_no_python(machine: Machine, tmp_path: Path) -> None:
    done = machine.measure(dies=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "code 9" in done.stderr
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\necho Segfault >&2; exit 139\n")
    fake.chmod(0o755)
    done = machine.measure(python=str(fake))
    assert done.returncode == 2 and "Segfault" in done.stderr
    done = machine.measure(python="/nonexistent/python")
    assert done.returncode == 2 and "no such program" in done.stderr
    assert not machine.state.exists()


@pytest.mark.parametrize(
    ("before", "during", "says"),
    [
        ({"gpu0__utilization": 40}, {}, "40% busy before"),
        ({"gpu0__processes": "1:1073741824"}, {}, "pid 1) used the GPU too"),
        ({}, {"gpu0__processes": "OWN_PID:1073741824 4242:2147483648"}, "used the GPU too"),
    ],
)
def test_a_card_that_others_use_is_told_and_nothing_is_kept(
    machine: Machine, before: dict[str, object], during: dict[str, object], says: str
) -> None:
    idle = changed(IDLE, **before)
    done = machine.measure("--json", driver=idle, **({"marker": machine.during(**during)} if during else {}))
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["kept"] is None and told["not_kept"]
    assert any(says in each for each in told["others"]), told
    assert not (machine.state / rundir.PRODUCTS).exists()
    assert len(told["products"]) == 4, "what was seen is told all the same"


def test_without_a_driver_to_ask_nothing_is_kept(machine: Machine) -> None:
    done = machine.measure("--json", driver=None)
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["kept"] is None and "does not report" in told["others"][0]
    assert told["products"][0]["sm_clock"] is None and told["gpu"]["power_limit"] is None


def test_a_split_card_is_measured_for_nobody(machine: Machine) -> None:
    """CUDA may give the card's UUID to one of its instances: that is not what the card can do."""
    fake = {"name": "NVIDIA H100 80GB HBM3", "uuid": "cafe0000-5eed-4000-8000-000000000100"}
    done = machine.measure("--json", driver=scene("mig"), **fake)
    told = json.loads(done.stdout)
    assert done.returncode == 1 and told["kept"] is None and "split into MIG" in told["others"][0]


def test_an_old_card_with_little_memory(machine: Machine) -> None:
    fake = {"name": "Tesla T4", "uuid": None, "capability": (7, 5), "free": 4 * 3 * 2 * 4096**2}
    one = changed(scene("h200x8"), driver__count=1, gpu__name="Tesla T4", gpu__utilization=0)
    told = json.loads(machine.measure("--json", driver=one, **fake).stdout)
    assert [(row["format"], row["size"]) for row in told["products"]] == [("fp16", 4096), ("fp32", 2048)]
    assert told["gpu"]["uuid"] == f"GPU-{UUID}", "the only one that the driver shows"


def test_nothing_runs_by_itself(stub: Stub, tmp_path: Path) -> None:
    """The plain doctor loads torch, and computes nothing."""
    machine = Machine(stub, tmp_path)
    fake = {**FAKE, "marker": machine.during(gpu0__utilization=1)}
    environment = {**stub.environment, "TRAINMON_DIR": str(machine.state), "FAKE_TORCH": json.dumps(fake)}
    environment["PYTHONPATH"] = f"{ROOT}{os.pathsep}{tmp_path}"
    stub.file.write_text(IDLE)
    words = [sys.executable, "-m", "monitor", "doctor", "--json", "--python", BARE]
    done = subprocess.run(words, env=environment, cwd=tmp_path.parent, capture_output=True, text=True, timeout=100)
    assert "9.0, CUDA 13.0; sees 1 GPU" in done.stdout
    assert stub.file.read_text() == IDLE, "the card was used"
    assert not (machine.state / rundir.PRODUCTS).exists()
