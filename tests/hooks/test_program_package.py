"""Places of programs that an installed command starts: lines of the package that it is, not of what that calls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from monitor.runs.follow import load
from tests.auto.watched import environment

COMMAND = """#!/usr/bin/env python
# -*- coding: utf-8 -*-
import re
import sys
from toytrainer.cli.main import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""
# A program of its own, which uses the trainer as a library.
SCRIPT = """
import sys
from toytrainer.loop import fit
def train():
    fit()
if __name__ == "__main__":
    sys.exit(train())
"""
FILES = {
    "toytrainer/__init__.py": "",
    "toytrainer/__main__.py": "from toytrainer.cli.main import main\nmain()\n",
    "toytrainer/cli/__init__.py": "",
    "toytrainer/cli/main.py": """
from argreader import call
from toytrainer.loop import fit
def main():
    call(fit)
""",
    "argreader/__init__.py": "def call(function):\n    function()\n",
    "slowlog/__init__.py": """
import time
def note(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(100))
""",
    "toytrainer/loop.py": """
import sys, time
import slowlog
import trainhooks as th
def fit():
    for _ in th.steps(range(25)):
        with th.phase("forward"):
            time.sleep(0.02)
        slowlog.note(0.1)
    if "fail" in sys.argv:
        check()
def check():
    raise ValueError("no such thing")
""",
}


def ran(folder: Path, *words: str, code: int = 0) -> Path:
    packages = folder / "site-packages"
    for name, text in FILES.items():
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(text)
    (folder / "bin").mkdir()
    (folder / "bin" / "toytrainer").write_text(COMMAND)
    (folder / "train.py").write_text(SCRIPT)
    known = environment(folder / "state")
    known["PYTHONPATH"] = os.pathsep.join([known["PYTHONPATH"], str(packages)])
    command = [sys.executable, "-m", "monitor", "run", "--no-tui", "--", sys.executable, *words]
    ended = subprocess.run(command, cwd=folder, env=known, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == code, ended.stderr
    (run,) = (folder / "state").glob("runs/*")
    return run


@pytest.mark.long
@pytest.mark.parametrize(
    ("words", "users"),
    [
        (("bin/toytrainer",), "toytrainer/loop.py"),
        (("-m", "toytrainer"), "toytrainer/loop.py"),
        (("train.py",), "train.py"),
    ],
    ids=["command", "module", "file"],
)
def test_places_are_the_program_s(tmp_path: Path, words: tuple[str, ...], users: str) -> None:
    unnamed = load(ran(tmp_path, *words)).report.unnamed
    assert unnamed is not None and unnamed.parts[0].place is not None
    assert unnamed.parts[0].place.rpartition(", from ")[2].startswith(f"{users}:"), unnamed.parts


def test_a_command_fails_at_a_line_of_its_own(tmp_path: Path) -> None:
    outcome = load(ran(tmp_path, "bin/toytrainer", "fail", code=1)).report.outcome
    assert (outcome.place or "").startswith("toytrainer/loop.py:") and (outcome.place or "").endswith("in check")
