"""What importing the hooks costs a training: next to nothing, and nothing foreign."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import trainhooks

from .conftest import Trainings

FILES = sorted(Path(trainhooks.__file__).parent.rglob("*.py"))


def test_an_import_loads_nothing_heavy(train: Trainings) -> None:
    told = train(
        """
        import sys
        before = set(sys.modules)
        import trainhooks
        print(*sorted(set(sys.modules) - before))
        """,
        plain=True,
    )
    loaded = set(told.out.split())
    top = {name.partition(".")[0] for name in loaded}
    assert not top & {"torch", "numpy", "zmq", "msgspec", "textual", "monitor", "plotext", "psutil"}
    assert not top & {"json", "dataclasses", "socket", "subprocess", "tempfile", "uuid", "inspect", "asyncio"}
    ours = {name for name in loaded if name.startswith("trainhooks")}
    assert ours == {
        "trainhooks", "trainhooks.api", "trainhooks.session", "trainhooks.deferred", "trainhooks.clocks",
        "trainhooks.entries", "trainhooks.process_group", "trainhooks.cuda", "trainhooks.device_lane",
        "trainhooks.device_delay", "trainhooks.device_place", "trainhooks.gc_pauses", "trainhooks.sampling",
    }  # fmt: skip


def test_recording_loads_nothing_of_the_dashboard(train: Trainings) -> None:
    told = train("with th.step(): pass\nwritten()\nprint(*sys.modules)")
    assert not {name.partition(".")[0] for name in told.out.split()} & {"torch", "numpy", "monitor", "textual"}


def test_the_names_are_as_promised() -> None:
    assert trainhooks.__all__ == ["count", "init", "log", "note", "phase", "skip", "span", "step", "steps"]
    assert all(callable(getattr(trainhooks, name)) for name in trainhooks.__all__)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_grammar_is_that_of_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_annotations_are_not_newer_than_3_9_where_they_are_read(path: Path) -> None:
    """`X | None` parses on 3.9, and fails there once something reads the annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    annotations = [node.annotation for node in ast.walk(tree) if isinstance(node, (ast.AnnAssign, ast.arg))]
    found = [part for each in annotations if each for part in ast.walk(each) if isinstance(part, ast.BinOp)]
    assert not [ast.unparse(each) for each in found if isinstance(each.op, ast.BitOr)]
