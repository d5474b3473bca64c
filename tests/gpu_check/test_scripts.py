"""Each script of gpu-check on the CPU, small and for a moment: that it runs, and tells its samples a second."""

from __future__ import annotations

import importlib.util
import json
import multiprocessing
import os
import runpy
import subprocess
import sys
import time
import traceback
from pathlib import Path

import psutil
import pytest

from tests.gpu_check.expected import SCRIPTS, SICK, WELL, Case
from tests.gpu_check.scripts_check import command, missing, neighbor

# The scripts are forked from a process that has imported what they import: that takes longer than all they do.
HEAVY = ["torch", "transformers.trainer", "transformers.models.gpt2", "transformers.models.llama"]
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(HEAVY)

CASES = [each for each in (*SICK, *WELL) if not each.beside]
QUICK = ("sick_launch_bound", "sick_fp32", "well_nanogpt")
SECONDS = 0.4
LIMIT = 100.0

RUNS = [
    pytest.param(case, mended, id=case.name + ("-mended" if mended else ""),
                 marks=[] if case.name in QUICK else pytest.mark.long)
    for case in CASES
    for mended in ([False, True] if case.sick else [False])
]  # fmt: skip


def script(words: list[str], output: str) -> None:
    """As `python script`, in a process of its own."""
    with open(output, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    multiprocessing.set_start_method("fork", force=True)  # what a script's loaders find, and not how it was started
    sys.argv, sys.path[0] = words, str(SCRIPTS)
    try:
        runpy.run_path(words[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()


@pytest.mark.timeout(LIMIT + 20)
@pytest.mark.parametrize(("case", "mended"), RUNS)
def test_the_script_tells_its_samples_a_second(case: Case, mended: bool, tmp_path: Path) -> None:
    if why_not := missing(case):
        pytest.skip(why_not)
    words = command(case, SECONDS, "cpu", mended)[1:]
    output = tmp_path / "output.txt"
    child = FORKS.Process(target=script, args=(words, str(output)))
    child.start()
    child.join(LIMIT)
    hung = child.is_alive()
    child.kill()
    child.join()
    text = output.read_text()
    assert not hung and child.exitcode == 0, text[-2000:]
    told = json.loads(next(line for line in reversed(text.splitlines()) if line.startswith("{")))
    assert told["samples_per_second"] > 0 and told["steps"] > 1


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_script_knows_trainmon(case: Case) -> None:
    text = (SCRIPTS / case.script).read_text()
    assert "trainmon" not in text and "trainhooks" not in text
    assert ("given.mended" in text or '"--mended"' in text) == case.sick


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_the_neighbor_goes_with_whoever_started_it(tmp_path: Path) -> None:
    """Even where that one is killed: its input ends then."""
    words = [sys.executable, str(SCRIPTS / "sick_gpu_shared.py"), "--neighbor", "--device", "cpu"]
    code = f"import subprocess, sys; p = subprocess.Popen({words!r}, stdin=subprocess.PIPE, stdout=subprocess.PIPE)"
    code += "; p.stdout.readline(); print(p.pid, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as starter:
        assert starter.stdout is not None
        beside = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    until = time.monotonic() + 30
    while beside.is_running() and beside.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_check_starts_a_neighbor_only_where_the_case_is_about_one(tmp_path: Path) -> None:
    beside = next(case for case in SICK if case.beside)
    mine = psutil.Process()
    before = set(mine.children())
    with neighbor(CASES[0], "cpu", tmp_path, tmp_path / "turn"):
        assert set(mine.children()) == before
    with neighbor(beside, "cpu", tmp_path, tmp_path / "turn"):
        assert len(set(mine.children()) - before) == 1
    assert not [each for each in set(mine.children()) - before if each.status() != psutil.STATUS_ZOMBIE]
    assert "--mended" in command(beside, 1.0, "cpu", False), "the script itself has nothing wrong then"
