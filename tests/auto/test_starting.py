"""What a program imports is seen while it lasts, before the program has shown that it trains."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from monitor.model.view import OpenWork, View
from monitor.runs.follow import Run
from monitor.sources.starting_imports import all_imports
from tests.auto.watched import LIMIT, ROOT, environment
from trainhooks.auto.imports import STARTING

LAUNCHERS = {
    "alone": [sys.executable, "train.py"],
    "by a shell": ["sh", "-c", f"{sys.executable} train.py; true"],
    "by another program": [
        sys.executable,
        "-c",
        f"import subprocess; subprocess.run([{sys.executable!r}, 'train.py'])",
    ],
}


@pytest.mark.parametrize("how", LAUNCHERS)
def test_an_import_is_seen_while_it_lasts(tmp_path: Path, how: str) -> None:
    (tmp_path / "pandas.py").write_text("import time\ntime.sleep(0.2)\nimport scipy\n")
    (tmp_path / "scipy.py").write_text("import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.02)\n")
    (tmp_path / "train.py").write_text("import pandas\nprint('done')\n")
    command = [sys.executable, "-m", "monitor", "run", "--no-tui", "--", *LAUNCHERS[how]]
    words = {"cwd": tmp_path, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    running = subprocess.Popen(command, env=environment(tmp_path / "state"), **words)  # type: ignore[call-overload]
    try:
        view = _seen(tmp_path / "state", ["import pandas", "import scipy"])
        assert view.report.outcome.state == "running" and view.report.progress.steps_done == 0
        (outer, whole), (_, inner) = view.open.spans
        assert whole > inner >= 0 and outer in {row.name for row in view.report.startup}
    finally:
        (tmp_path / "go").touch()
        out, _ = running.communicate(timeout=LIMIT)
    assert out == b"done\n" and running.returncode == 0
    (run,) = (tmp_path / "state" / "runs").iterdir()
    ended = Run(run).view()
    assert ended.open == OpenWork()
    assert not list(run.glob("rank-*"))  # it is no training


def _seen(state: Path, names: list[str]) -> View:
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        for path in state.glob(f"runs/*/{STARTING}"):
            view = Run(path.parent).view()
            if [name for name, _ in view.open.spans] == names:
                return view
        time.sleep(0.05)
    raise AssertionError("the imports were not seen")


def test_nobody_hears_of_a_run_that_is_gone(tmp_path: Path) -> None:
    words = {**environment(tmp_path), "TRAINMON_RUN": str(tmp_path / "gone")}
    words["PYTHONPATH"] = str(ROOT / "trainhooks" / "auto" / "bootstrap")
    (tmp_path / "pandas.py").write_text("")
    done = subprocess.run([sys.executable, "-c", "import pandas"], env=words, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def test_lines_of_several_processes_and_of_nobody() -> None:
    told = b"7 1000000000 import torch\n8 2000000000 import torch\nx\n\xff 1 y\n7 3000000000 \n9 1 \n"
    told += b"8 4 \x1b[31mimport a\n8"
    assert all_imports(told) == {7: [], 8: [("import torch", 2.0), ("[31mimport a", 4e-9)], 9: []}
