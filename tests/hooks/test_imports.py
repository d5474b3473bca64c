"""What importing the hooks costs a training: next to nothing, and nothing foreign."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import monitor
import trainhooks
from trainhooks.protocol.events import KINDS

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
        "trainhooks", "trainhooks.api", "trainhooks.session", "trainhooks.device.deferred", "trainhooks.lane_entries",
        "trainhooks.compiled", "trainhooks.exits", "trainhooks.own_thread", "trainhooks.program_errors",
        "trainhooks.device", "trainhooks.device.cuda", "trainhooks.device.device_lane",
        "trainhooks.device.device_sampling", "trainhooks.recording", "trainhooks.recording.gc_pauses",
        "trainhooks.tracing", "trainhooks.tracing.tracer", "trainhooks.tracing.parts", "trainhooks.tracing.profiler",
    }  # fmt: skip


def test_recording_loads_nothing_of_the_dashboard(train: Trainings) -> None:
    told = train("with th.step(): pass\nwritten()\nprint(*sys.modules)")
    assert not {name.partition(".")[0] for name in told.out.split()} & {"torch", "numpy", "monitor", "textual"}


def test_the_public_names_are_stable() -> None:
    assert trainhooks.__all__ == ["count", "init", "log", "note", "phase", "show", "skip", "span", "step", "steps"]
    assert all(callable(getattr(trainhooks, name)) for name in trainhooks.__all__)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_grammar_is_that_of_python_3_9(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 9))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_annotations_can_be_read_on_python_3_9(path: Path) -> None:
    """`X | None` parses on 3.9, and fails there once something reads the annotations."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    annotations = [node.annotation for node in ast.walk(tree) if isinstance(node, (ast.AnnAssign, ast.arg))]
    found = [part for each in annotations if each for part in ast.walk(each) if isinstance(part, ast.BinOp)]
    assert not [ast.unparse(each) for each in found if isinstance(each.op, ast.BitOr)]


PRODUCT = [path for package in (trainhooks, monitor) for path in sorted(Path(package.__path__[0]).rglob("*.py"))]
EVENTS = {cls.__name__ for cls in KINDS.values()} | {"Event"}


def positional_event_arguments(source: str) -> list[str]:
    """Return the calls in `source` that construct an event with a positional argument."""
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
    names = {
        alias.asname or alias.name
        for node in imports
        if node.module == "trainhooks.protocol.events"
        for alias in node.names
    }
    names = {name for name in names if name in EVENTS} | {f"events.{name}" for name in EVENTS}
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.args]
    return [ast.unparse(call) for call in calls if name_of(call.func) in names]


def name_of(called: ast.expr) -> str | None:
    """Return `name` or `module.name`; None for any other expression."""
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        return f"{called.value.id}.{called.attr}"
    return called.id if isinstance(called, ast.Name) else None


def test_a_training_loads_no_library_of_sockets(train: Trainings) -> None:
    """libzmq aborts its process where descriptors, threads or memory are short."""
    told = train(
        """
        for i in th.steps(range(5)): th.log(i=i)
        written()
        print('zmq' in sys.modules, 'libzmq' in open('/proc/self/maps').read())
        """
    )
    assert told.out == "False False\n"


def test_events_are_constructed_by_keyword_only() -> None:
    """A dataclass cannot ask for that before Python 3.10."""
    sources = {str(path): path.read_text(encoding="utf-8") for path in PRODUCT}
    concerned = {name: source for name, source in sources.items() if "trainhooks.protocol" in source}
    found = {name: positional_event_arguments(source) for name, source in concerned.items()}
    assert not {name: calls for name, calls in found.items() if calls}
    assert len(PRODUCT) > 100
    assert positional_event_arguments("from trainhooks.protocol.events import Note\nNote('p', 0, t=1.0)") == [
        "Note('p', 0, t=1.0)"
    ]
