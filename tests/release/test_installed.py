"""What is published: wheel and sdist, installed in clean environments and tried away from the checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from monitor import __version__
from tests.versions.environments import ROOT, build, project
from tests.versions.smoke import Place, failures, runs_a_training

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
PIP = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Wheel and sdist by their endings."""
    return {path.suffix: path for path in build(tmp_path_factory.mktemp("dist"), "sdist", "wheel")}


@pytest.fixture(scope="module")
def environment(built: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it needs, and nothing else."""
    place = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
    subprocess.run([place / "bin" / "python", *PIP, str(built[".whl"])], check=True, cwd=place)
    return place


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_the_installed_wheel(environment: Path, tmp_path: Path) -> None:
    trainmon, python = environment / "bin" / "trainmon", environment / "bin" / "python"
    place = Place([str(trainmon)], str(python), tmp_path / "work")
    assert failures(place) == []
    asking = [python, "-c", "import monitor; print(monitor.__file__)"]
    where = subprocess.run(asking, capture_output=True, cwd=tmp_path, env=place.environment)
    assert where.stdout.decode().startswith(str(environment)), "the checkout's modules were tried"
    manual = environment / "share" / "man" / "man1" / "trainmon.1"
    assert manual.read_bytes() == (ROOT / "docs" / "trainmon.1").read_bytes()


def test_the_extra_writes_parquet(environment: Path, built: dict[str, Path], tmp_path: Path) -> None:
    """What needs more than the plain installation says so without it."""
    place = Place([str(environment / "bin" / "trainmon")], str(environment / "bin" / "python"), tmp_path / "work")
    assert failures(place, (runs_a_training,)) == []
    words = ("export", "last", "--format", "parquet", "-o", "steps.parquet")
    assert "pip install" in place.call(*words, code=2).stderr
    assert "pip install 'trainmon[mcp]'" in place.call("mcp", code=2).stderr
    assert place.call("skill").stdout.startswith("---\nname: trainmon\n")
    subprocess.run([environment / "bin" / "python", *PIP, f"{built['.whl']}[all]"], check=True, cwd=tmp_path)
    place.call(*words)
    assert (place.path / "steps.parquet").read_bytes()[:4] == b"PAR1"


def test_the_sdist_makes_the_same_wheel(built: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(built[".gz"]) as opened:
        opened.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    words = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "again")]
    subprocess.run(words, cwd=source, check=True, capture_output=True)
    (again,) = (tmp_path / "again").iterdir()
    assert again.name == built[".whl"].name
    assert contents(again) == contents(built[".whl"])


def test_versions_agree(built: dict[str, Path]) -> None:
    assert project()["version"] == __version__
    assert __version__ in built[".whl"].name and __version__ in built[".gz"].name
    assert f"## {__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def index() -> dict[str, str]:
    """Where uv finds packages: where pip does."""
    told = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    rows = [line.partition("=") for line in told.splitlines()]
    known = {key.rpartition(".")[2]: value for key, _, value in rows}
    names = {"index-url": "UV_DEFAULT_INDEX", "extra-index-url": "UV_INDEX", "find-links": "UV_FIND_LINKS"}
    found = {ours: known[name].strip("'\"") for name, ours in names.items() if name in known}
    return {**found, "UV_FIND_LINKS": found.get("UV_FIND_LINKS", "").replace(" ", ",")}


@pytest.mark.parametrize("tool", ["uv", "pipx"])
def test_tools_for_commands_install_it(built: dict[str, Path], tmp_path: Path, tool: str) -> None:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed")
    places = {"UV_TOOL_DIR": "tools", "UV_TOOL_BIN_DIR": "bin", "PIPX_HOME": "pipx", "PIPX_BIN_DIR": "bin"}
    own = {name: str(tmp_path / place) for name, place in places.items()}
    words = ["uv", "tool", "install", "--python", sys.executable] if tool == "uv" else ["pipx", "install"]
    subprocess.run([*words, str(built[".whl"])], check=True, env={**os.environ, **index(), **own}, cwd=tmp_path)
    trainmon = tmp_path / "bin" / "trainmon"
    assert failures(Place([str(trainmon)], sys.executable, tmp_path / "work")) == []
