"""Interpreters of this machine, and environments with the oldest or the newest versions that pyproject.toml allows."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
MINORS = range(9, 15)  # 3.9, for the hooks alone, to 3.14
HOOKS_ONLY = (3, 9)
HOOKS_USE = ("pyzmq", "msgspec")  # where a training's environment has them
INSTALL = ("install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")


class CannotInstall(Exception):
    """No environment could be made; the message is pip's last line."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and what is in it."""

    path: Path
    versions: dict[str, str]  # of the direct dependencies

    @property
    def python(self) -> str:
        return str(self.path / "bin" / "python")

    @property
    def trainmon(self) -> str:
        return str(self.path / "bin" / "trainmon")


def interpreters() -> dict[tuple[int, int], str]:
    """Return the paths of working interpreters by version: those on PATH, else those of pyenv."""
    found = {}
    for minor in MINORS:
        name = f"python3.{minor}"
        homes = sorted(Path(os.path.expanduser("~/.pyenv/versions")).glob(f"3.{minor}.*/bin/{name}"))
        for path in (*map(str, homes), shutil.which(name)):  # pyenv's shims on PATH need not have the version
            if path is not None and _works(path):
                found[3, minor] = path
                break
    here = sys.version_info[:2]
    if here not in found and here[1] in MINORS:
        found[here] = sys.executable
    return found


def _works(path: str) -> bool:
    tried = subprocess.run([path, "-c", "import venv, ensurepip, ssl"], capture_output=True)
    return tried.returncode == 0


def build(place: Path, *targets: str) -> list[Path]:
    """Build these targets (`wheel`, `sdist`) of the checkout with its own backend. Return their files."""
    words = [sys.executable, "-m", "hatchling", "build", "--directory", str(place)]
    for target in targets:
        words += ["--target", target]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    return sorted(place.iterdir())


def project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


def requirements(version: tuple[int, int]) -> list[Requirement]:
    """Return what pyproject.toml asks for on this version of Python."""
    python = f"{version[0]}.{version[1]}"
    wanted = [Requirement(line) for line in project()["dependencies"]]
    marked = {"python_version": python, "python_full_version": f"{python}.0"}
    return [one for one in wanted if one.marker is None or one.marker.evaluate(marked)]


def lowest(python: str, requirement: Requirement) -> str:
    """Return the oldest version within the bounds that has a wheel for an interpreter.

    Building an old version from its source would test a compiler, so versions before the interpreter are passed over.

    Args:
        python: an interpreter with pip.

    Raises:
        CannotInstall: there is none.
    """
    # `pip index` would list versions without a wheel, too. What cannot be satisfied is answered with those to be had.
    told = subprocess.run(
        [python, "-m", "pip", *INSTALL, "--no-deps", f"{requirement.name}<0"], capture_output=True, text=True
    )
    found = re.search(r"\(from versions: (.+)\)", told.stderr)
    versions = sorted(map(Version, found[1].split(", "))) if found else []
    allowed = [str(version) for version in versions if requirement.specifier.contains(version)]
    if not allowed:
        raise CannotInstall(f"no {requirement.name} {requirement.specifier} to be had")
    return allowed[0]


def create(place: Path, python: str, version: tuple[int, int], wheel: Path | None, oldest: bool) -> Environment:
    """Create an environment with trainmon in it; without `wheel`, with the libraries alone that the hooks use.

    Args:
        oldest: take the oldest versions within the bounds instead of the newest.

    Raises:
        CannotInstall: pip refuses, or there is no version within the bounds.
    """
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([python, "-m", "venv", str(place)], check=True, capture_output=True)
    inside = str(place / "bin" / "python")
    wanted = requirements(version)
    if wheel is None:
        wanted = [one for one in wanted if one.name in HOOKS_USE]
    pins = [f"{one.name}=={lowest(inside, one)}" for one in wanted] if oldest else []
    what = [str(wheel)] if wheel is not None else [f"{one.name}{one.specifier}" for one in wanted]
    told = subprocess.run([inside, "-m", "pip", *INSTALL, *what, *pins], capture_output=True, text=True)
    if told.returncode != 0:
        errors = [line for line in told.stderr.splitlines() if line.startswith("ERROR")]
        raise CannotInstall((errors or told.stderr.splitlines() or ["pip failed"])[0])
    return Environment(place, _installed(inside, [one.name for one in wanted]))


def _installed(python: str, names: list[str]) -> dict[str, str]:
    script = "import sys; from importlib.metadata import version\nfor name in sys.argv[1:]: print(name, version(name))"
    told = subprocess.run([python, "-c", script, *names], capture_output=True, text=True, check=True)
    return dict(line.split() for line in told.stdout.splitlines())
