"""The manual page is that of this version's options, and shells complete its commands."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from monitor import __version__
from monitor.cli import cli
from monitor.commands.manual import page

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "docs" / "trainmon.1"


def test_the_page_is_current() -> None:
    assert MANUAL.read_text(encoding="utf-8") == page(cli), "renew it with: make manual"


def test_the_page_has_every_command_and_option() -> None:
    told = MANUAL.read_text(encoding="utf-8").replace("\\-", "-")
    assert __version__ in told
    for name, command in cli.commands.items():
        assert f".SS {name}\n" in told
        part = told.partition(f".SS {name}\n")[2].partition(".SS ")[0]
        options = {one for parameter in command.params for one in parameter.opts if one.startswith("-")}
        assert {one for one in options if one not in part} == set()


def test_man_finds_no_fault_with_it() -> None:
    groff = shutil.which("groff")
    if groff is None:
        pytest.skip("groff is not installed")
    told = subprocess.run([groff, "-man", "-ww", "-z", str(MANUAL)], capture_output=True, text=True)
    assert (told.returncode, told.stderr) == (0, "")


@pytest.fixture
def command(tmp_path: Path) -> Path:
    """A directory with `trainmon` in it, for PATH."""
    script = tmp_path / "bin" / "trainmon"
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m monitor "$@"\n')
    script.chmod(0o755)
    return script.parent


def in_shell(shell: str, source: str, command: Path) -> str:
    found = shutil.which(shell)
    if found is None:
        pytest.skip(f"{shell} is not installed")
    environment = {**os.environ, "PATH": f"{command}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    plain = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    told = subprocess.run([found, *plain, "-c", source], env=environment, capture_output=True, text=True, timeout=60)
    return told.stdout


def test_bash_completes_commands_and_options(command: Path) -> None:
    source = """
    eval "$(trainmon completion bash)"
    complete -p trainmon >/dev/null || exit 3
    COMP_WORDS=(trainmon re); COMP_CWORD=1; _trainmon_completion trainmon re trainmon; echo "${COMPREPLY[@]}"
    COMP_WORDS=(trainmon run --no-); COMP_CWORD=2; _trainmon_completion trainmon --no- run; echo "${COMPREPLY[@]}"
    """
    commands, options = in_shell("bash", source, command).splitlines()
    assert commands.split() == ["relay", "replay", "report"]
    assert {"--no-tui", "--no-gpu-clock"} <= set(options.split())


def test_zsh_accepts_the_completion(command: Path) -> None:
    source = 'autoload -U compinit; compinit -u; eval "$(trainmon completion zsh)"; print ${_comps[trainmon]}'
    assert in_shell("zsh", source, command).strip() == "_trainmon_completion"


def test_fish_completes_commands(command: Path) -> None:
    source = "trainmon completion fish | source; complete -C 'trainmon re'"
    assert {line.split("\t")[0] for line in in_shell("fish", source, command).splitlines()} == {"replay", "report"}
