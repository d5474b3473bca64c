"""What a run is called when nobody names it: after its script or module, whoever launches that."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from monitor.running.run_name import run_name
from tests.auto.watched import watched

NAMES = {
    "python train.py": "train",
    "python -u -X importtime train.py --out a.py": "train",
    "python3.12 -m pkg.train --config b.py": "pkg.train",
    "python pkg/__main__.py": "pkg",
    "python -m torch.distributed.run --nproc-per-node 2 train.py": "train",
    "python -m torch.distributed.run --nproc-per-node 2 -m pkg.train": "pkg.train",
    "torchrun --nproc-per-node=2 train.py --config c.sh": "train",
    "torchrun --nproc-per-node=2 -m pkg.train d.py": "pkg.train",
    "accelerate launch --num_processes 2 train.py": "train",
    "accelerate launch --module pkg.train": "pkg.train",
    "uv run python -m pkg.train": "pkg.train",
    "uv run train.py": "train",
    "env A=1 nice -n 5 /usr/bin/python train.py": "train",
    "bash scripts/train.sh": "train",
    "make train": "make",
    "pytest -m slow": "pytest",
    "./trainer --steps 5": "trainer",
}


@pytest.mark.parametrize("command", NAMES)
def test_a_command_is_called_after_what_it_runs(command: str) -> None:
    assert run_name(command.split()) == NAMES[command]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("python train.py --lr 1", "train"),
        ("cd there && exec python -m pkg.train 2>&1 | tee log", "pkg.train"),
        ("for lr in 1 2; do python sweep.py --lr $lr; done", "sweep"),
        ("(source env.sh; python 'my programs/train.py')", "train"),
        ("cd there; ./train.sh", "train"),
        ("sleep 1", "bash"),
        ("", "bash"),
    ],
)
def test_a_line_of_shell_likewise(script: str, expected: str) -> None:
    assert run_name(["bash", "-c", script]) == run_name(["/bin/bash", "-lc", script]) == expected


@pytest.mark.long
def test_the_name_is_the_scripts_when_the_training_reports_in(tmp_path: Path) -> None:
    """The launchers stay silent: it is the script's process that tells its name."""
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "fit.py").write_text("import trainhooks as th\nfor _ in th.steps(range(3)):\n    pass\n")
    (package / "__main__.py").write_text("import pkg.fit\n")
    code = f"import subprocess; subprocess.run([{sys.executable!r}, *WORDS], check=True, cwd={str(tmp_path)!r})"
    for words, expected in ((["-m", "pkg.fit"], "pkg.fit"), (["pkg/fit.py"], "fit"), (["-m", "pkg"], "pkg")):
        seen = watched(tmp_path / expected, "-c", code.replace("*WORDS", "*" + repr(words)))
        assert seen.code == 0, seen.err
        assert seen.report.run.name == expected
        assert seen.report.progress.steps_done == 3
