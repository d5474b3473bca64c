"""The C++ programs, built once for all tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from trainhooks.protocol import rundir

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
HEADER = ROOT / "demo" / "cpp" / "trainmon.hpp"


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with `trainer` and `trainer-native`, made by the demo's own Makefile (with -Wall -Wextra -Werror)."""
    build: Path = tmp_path_factory.mktemp("cpp")
    make = ["make", "--silent", "-C", str(HEADER.parent), f"BUILD={build}", "CXXFLAGS=-O2"]
    subprocess.run(make, check=True, timeout=100)
    return build


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that uses the header in every way there is, under the strictest warnings and the loosest arithmetic."""
    program: Path = tmp_path_factory.mktemp("probe") / "probe"
    warnings = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Werror"]
    source = [str(HERE / "probe.cpp"), "-I", str(HEADER.parent)]
    command = ["g++", "-std=c++17", "-O1", "-ffast-math", *warnings, *source, "-pthread", "-o", str(program)]
    subprocess.run(command, check=True, timeout=100)
    return program


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory such as `trainmon run` makes."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture
def call(run: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a program in the run directory, in an empty working directory."""

    def start(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("TRAINMON", "SLURM"))}
        variables = {**inherited, rundir.RUN_VARIABLE: str(run), **environment}
        words = [str(word) for word in command]
        return subprocess.run(words, env=variables, cwd=elsewhere, capture_output=True, text=True, timeout=60)

    return start
