"""A program's imports look as they do without trainmon: tracebacks, the place of a warning, what is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.auto.watched import environment

OURS = {"sitecustomize", "trainhooks.auto.imports"}
LIBRARIES = {
    "raises": ("pandas", "def begin():\n    raise RuntimeError('broken')\nbegin()\n"),
    "lacks a name": ("wandb", "from json import nothing\n"),
    "is no Python": ("cv2", "x = = 1\n"),
    "raises and is adapted": ("datasets", "1 / 0\n"),
    "warns": ("pandas", "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n"),
}


def both(place: Path, code: str) -> list[tuple[int, bytes, bytes]]:
    """What a program prints, bare and under trainmon, without trainmon's own report."""
    words = [sys.executable, "-c", code]
    found = []
    for before in ([], [sys.executable, "-m", "monitor", "run", "--no-tui", "--"]):
        done = subprocess.run([*before, *words], cwd=place, env=environment(place / "state"), capture_output=True)
        found.append((done.returncode, done.stdout, done.stderr.partition(b"trainmon: ")[0]))
    return found


@pytest.mark.parametrize("what", LIBRARIES)
def test_no_frame_of_ours_is_in_an_import(tmp_path: Path, what: str) -> None:
    name, text = LIBRARIES[what]
    (tmp_path / f"{name}.py").write_text(text)
    bare, watched = both(tmp_path, f"import {name}")
    assert bare == watched and bare[2]


def test_a_module_that_the_program_forgot_to_import_is_not_there(tmp_path: Path) -> None:
    bare, watched = both(tmp_path, "import sys; print(*sorted(sys.modules))")
    assert set(watched[1].decode().split()) - set(bare[1].decode().split()) <= OURS
