"""The short form of `make versions`: the oldest versions that pyproject.toml allows, and the hooks on Python 3.9."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from . import environments
from .environments import HOOKS_ONLY, Environment
from .smoke import CHECKS, LOOP, OF_THE_HOOKS, Place, failures

HERE = (sys.version_info[0], sys.version_info[1])


def test_this_interpreter_is_among_those_found() -> None:
    assert HERE in environments.interpreters()


def test_what_is_asked_for_depends_on_the_version_of_python() -> None:
    names = {version: {one.name for one in environments.requirements(version)} for version in ((3, 10), (3, 13))}
    assert names[3, 10] - names[3, 13] == {"tomli"}
    assert all(one.specifier for one in environments.requirements((3, 10))), "each has a lowest version"


def test_a_check_that_fails_is_told_in_a_line(tmp_path: Path) -> None:
    told = failures(Place(["/bin/false"], sys.executable, tmp_path / "work"))
    assert len(told) == len(CHECKS)
    assert told[0] == "tells_its_version: trainmon --version: exit code 1: no message"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environments.build(tmp_path_factory.mktemp("dist"), "wheel")[0]


@pytest.fixture(scope="module")
def oldest(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    place = tmp_path_factory.mktemp("oldest")
    return environments.create(place / "environment", sys.executable, HERE, wheel, oldest=True)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_oldest_versions_that_are_allowed(oldest: Environment, tmp_path: Path) -> None:
    bounds = {one.name: one.specifier for one in environments.requirements(HERE)}
    assert set(oldest.versions) == set(bounds)
    assert failures(Place([oldest.trainmon], oldest.python, tmp_path / "work")) == [], oldest.versions


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_hooks_on_the_oldest_python(oldest: Environment, tmp_path: Path) -> None:
    """A training's Python needs nothing of trainmon installed: `trainmon run` brings the hooks along."""
    python = environments.interpreters().get(HOOKS_ONLY)
    if python is None:
        pytest.skip("no Python 3.9 on this machine; its syntax is checked in tests/auto/test_environments.py")
    assert failures(Place([oldest.trainmon], python, tmp_path / "work"), OF_THE_HOOKS) == []


def test_the_loop_is_syntax_of_python_3_9() -> None:
    ast.parse(LOOP, feature_version=HOOKS_ONLY)
