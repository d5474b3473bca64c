"""Real runs in a state directory of the test's own, and runs made up event by event."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ..launch.conftest import State

SCRIPTS = Path(__file__).parent / "scripts"


class Runs(State):
    def train(self, name: str, script: str, *arguments: str, options: tuple[str, ...] = ()) -> str:
        """Run one of the scripts; what ends on stderr."""
        words = [sys.executable, str(SCRIPTS / f"{script}.py"), *arguments]
        done = self.run(*words, options=("--name", name, *options), timeout=110)
        assert done.returncode == 0, done.stderr.decode()
        return done.stderr.decode()

    def out(self, *words: str) -> str:
        done: subprocess.CompletedProcess[bytes] = self.call(*words)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path / "state")
