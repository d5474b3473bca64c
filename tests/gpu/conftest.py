"""The real binding, on a driver library that reads its answers from a text file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCENES = Path(__file__).with_name("scenes")

# Plays polls, each at a moment of its own with a file of its own. A process for each play: the library is loaded once.
PLAY = """
import json, os, sys, time
from dataclasses import asdict
from monitor.sources.gpu_source import GpuSource
source = GpuSource()
out = []
for moment, text, members in json.load(sys.stdin):
    with open(os.environ["NVML_STUB"] + ".new", "w") as new: new.write(text)
    os.replace(new.name, os.environ["NVML_STUB"])
    began = time.perf_counter()
    found = source.read(moment, set(members))
    took = time.perf_counter() - began
    watch = source._watch
    if watch is not None and watch._over.is_set(): watch._thread.join()  # real time passes between real polls
    trouble = None if found.trouble is None else found.trouble.code
    out.append([[asdict(gpu) for gpu in found.gpus], [note.text for note in found.notes], trouble, took])
print(json.dumps(out))
"""


def scene(name: str) -> str:
    return (SCENES / f"{name}.txt").read_text()


def changed(text: str, **changes: object) -> str:
    """A scene with lines added that go before its own; `gpu1__lost` stands for `gpu1.lost`."""
    return text + "".join(f"{key.replace('__', '.')} = {value}\n" for key, value in changes.items())


@dataclass
class Poll:
    """What one poll found."""

    gpus: list[dict[str, Any]]
    notes: list[str]
    trouble: str | None  # its code
    took: float  # seconds


class Stub:
    """The library, and an environment in which the binding finds it."""

    def __init__(self, directory: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler is not None, "the tests need a C compiler"
        self.file = directory / "scene.txt"
        source = Path(__file__).with_name("nvml_stub.c")
        library = directory / "libnvidia-ml.so.1"
        warnings = ["-Wall", "-Wextra", "-Werror"]
        subprocess.run([compiler, *warnings, "-O1", "-shared", "-fPIC", "-o", library, source, "-pthread"], check=True)
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(directory),
            "NVML_STUB": str(self.file),
            "PYTHONPATH": str(ROOT),
        }

    def python(self, code: str, given: object = None) -> Any:
        """What a program prints as JSON."""
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=self.environment,
            cwd=ROOT,
            input=json.dumps(given),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def play(self, *polls: tuple[float, str], members: Sequence[int] = ()) -> list[Poll]:
        """Poll at each moment, with the scene as given."""
        return [Poll(*found) for found in self.python(PLAY, [(*poll, list(members)) for poll in polls])]


@pytest.fixture(scope="session")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    return Stub(tmp_path_factory.mktemp("nvml"))
