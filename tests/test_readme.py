"""What the README says holds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(after: str) -> str:
    """The first code block after a text."""
    found = re.search(r"```\w*\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert found
    return found.group(1)


def test_the_demo_s_lines_are_those_of_the_demo() -> None:
    source = (ROOT / "demo" / "rl_code.py").read_text(encoding="utf-8")
    shown = [line.strip() for line in block("## Tell it more").splitlines() if line.strip()]
    used = [line.strip() for line in source.splitlines() if re.search(r"\bth\.\w+\(|import trainhooks", line)]
    used = [line for line in used if "`th." not in line]
    assert sorted(shown) == sorted(used)
    assert len(used) < 15


@pytest.mark.parametrize("verb", ["run", "attach", "ls", "report", "stop"])
def test_every_command_and_option_is_there(verb: str) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "monitor", verb, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    row = next(line for line in README.splitlines() if line.startswith(f"| `trainmon {verb}"))
    for option in re.findall(r"--[a-z-]+", row):
        assert option in said


def test_the_api_is_the_one_that_is_told() -> None:
    import trainhooks

    told = set(re.findall(r"`th\.(\w+)", README))
    assert told == set(trainhooks.__all__)


def test_every_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`?make ([a-z-]+)", README):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
