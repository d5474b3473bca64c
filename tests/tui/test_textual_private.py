"""Names that Textual and rich keep to themselves are used in one module only, and the installed versions have them."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import textual
from rich.console import Console
from textual._compositor import ChopsUpdate, LayoutUpdate
from textual.app import App
from textual.drivers import _writer_thread
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import Screen

import monitor.tui
from monitor.tui import textual_private

PACKAGE = Path(monitor.tui.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.name != "textual_private.py")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def own_names(tree: ast.AST) -> set[str]:
    """Every private name that a module defines: functions, classes, variables and attributes of its own objects."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_self(node.value):
            found.add(node.attr)
    return {name for name in found if is_private(name)}


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


ALL_OWN = set().union(*(own_names(ast.parse(path.read_text())) for path in MODULES))


def private_uses(source: str) -> Iterator[str]:
    """What a module uses of others' private names: imports, attributes of foreign objects, names it took over."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and any(map(is_private, node.module.split("."))):
            yield f"line {node.lineno}: from {node.module}"
        elif isinstance(node, ast.Import) and any(is_private(part) for n in node.names for part in n.name.split(".")):
            yield f"line {node.lineno}: import of a private module"
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in ALL_OWN:
            yield f"line {node.lineno}: .{node.attr}"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("getattr", "setattr"):
            name = node.args[1] if len(node.args) > 1 else None
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and is_private(name.value):
                yield f"line {node.lineno}: {node.func.id} of {name.value}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_other_module_uses_a_private_name(path: Path) -> None:
    assert not list(private_uses(path.read_text()))


@pytest.mark.parametrize(
    "source",
    [
        "from textual._compositor import Compositor",
        "app._driver.write('x')",
        "self.console._color_system",
        "self._filters.append(1)",
        "getattr(app, '_sync_available')",
    ],
)
def test_a_use_is_found(source: str) -> None:
    assert len(list(private_uses(source))) >= 1


def test_the_widgets_of_the_dashboard_take_no_private_name_of_textual_for_their_own() -> None:
    """An attribute of a widget that Textual uses, too, would change how Textual works."""
    clashes = {}
    for path in MODULES:
        tree = ast.parse(path.read_text())
        bases = ("Widget", "Screen", "App", "Container", "Rows", "Panel", "Body", "Dialog")
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith(bases) for base in node.bases):
                clash = own_names(node) & attributes_of_textual()
                if clash:
                    clashes[f"{path.name}: {node.name}"] = clash
    assert not clashes


@cache
def attributes_of_textual() -> set[str]:
    """The private attributes of a screen and an application of Textual's, as their sources set them."""
    sources = "".join(inspect.getsource(cls) for base in (App, Screen) for cls in base.__mro__[:-1])
    return set(re.findall(r"(?:self\.|def )(_[a-z]\w*)", sources))


def test_the_installed_versions_have_what_is_used() -> None:
    assert textual_private.color_system(Console(color_system="truecolor", force_terminal=True)) is not None
    app: App[None] = App()
    assert not textual_private.answers_questions(app)
    assert textual_private.driver_of(app) is None
    assert hasattr(app, "_filters")
    assert "self._compositor = " in inspect.getsource(Screen.__init__)
    assert "self._file" in inspect.getsource(LinuxDriver.__init__)
    assert "WriterThread(self._file)" in inspect.getsource(LinuxDriver)
    assert "Queue(MAX_QUEUED_WRITES)" in inspect.getsource(_writer_thread)
    assert inspect.getsource(Screen).count("app._display(") == inspect.getsource(Screen._compositor_refresh).count(
        "app._display("
    ), "where pictures are held back"
    assert {"chops", "spans", "chop_ends"} <= set(inspect.signature(ChopsUpdate).parameters)
    assert {"strips", "region"} <= set(inspect.signature(LayoutUpdate).parameters)


def test_the_version_that_was_checked_is_the_one_installed() -> None:
    assert textual_private.__doc__ is not None
    assert f"Textual {textual.__version__}." in textual_private.__doc__
