"""Adapters are found by their files' names, loaded with their library, and harm no import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainhooks.auto import adapters

from .watched import ROOT

PROGRAM = """
import sys
from trainhooks.auto import adapters, imports
adapters.__path__.append(sys.argv[1])
imports.ADAPTERS = sys.argv[1]
if "before" in sys.argv:
    import tinynet
imports.install()
assert ("trainhooks.auto.adapters.tinynet_adapter" in sys.modules) == ("before" in sys.argv)
import tinynet.inner
print(tinynet.inner.value)
"""
HOOK = """
from trainhooks.auto.imports import when_imported

@when_imported("tinynet.inner")
def change(module):
    module.value = later(module.value)

@when_imported("tinynet")
def change_package(package):
    assert package.is_complete

def later(value):
    return value + 1
"""


def run(directory: Path, adapter: str, *words: str, debug: bool = False) -> subprocess.CompletedProcess[str]:
    (directory / "tinynet").mkdir()
    (directory / "tinynet" / "__init__.py").write_text("import tinynet.inner\nis_complete = True\n")
    (directory / "tinynet" / "inner.py").write_text("value = 1\n")
    (directory / "tinynet_adapter.py").write_text(adapter)
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(directory)))}
    variables.pop("TRAINMON_DEBUG", None)
    if debug:
        variables["TRAINMON_DEBUG"] = "1"
    words = (sys.executable, "-c", PROGRAM, str(directory), *words)
    return subprocess.run(words, env=variables, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("when", ["before", "after"])
def test_hooks_follow_the_import_of_their_module(tmp_path: Path, when: str) -> None:
    ended = run(tmp_path, HOOK, when, debug=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "2\n", "")


@pytest.mark.parametrize("adapter", ["raise SystemError", "this is no Python", HOOK.replace("def later", "def gone")])
def test_an_adapter_that_fails_harms_no_import(tmp_path: Path, adapter: str) -> None:
    ended = run(tmp_path, adapter)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "1\n", "")


def test_debugging_shows_what_an_adapter_raises(tmp_path: Path) -> None:
    ended = run(tmp_path, "raise SystemError", debug=True)
    assert ended.returncode == 1 and "SystemError" in ended.stderr


def test_every_file_in_the_folder_is_an_adapter() -> None:
    files = {path.name for path in Path(adapters.__file__).parent.glob("*.py")} - {"__init__.py"}
    assert files and all(name.endswith("_adapter.py") for name in files)
