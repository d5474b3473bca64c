"""Other tools that start with the interpreter or hook imports: under `trainmon run` they do as they do without it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .test_environments import other_pythons
from .watched import LIMIT, ROOT, Watched, environment

# What other tools' sitecustomize modules do, to run the one that they hide.
TOOLS = {
    "removes itself for a while": """
import os, sys
print('tool')
here = os.path.dirname(os.path.abspath(__file__))
index = sys.path.index(here)
del sys.path[index]
own = sys.modules.pop('sitecustomize')
try:
    import sitecustomize
except ImportError:
    sys.modules['sitecustomize'] = own
finally:
    sys.path.insert(index, here)
""",
    "removes itself for good": """
import os, sys
from importlib.machinery import PathFinder
print('tool')
sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
hidden = PathFinder.find_spec('sitecustomize', sys.path)
if hidden is not None:
    hidden.loader.exec_module(sys.modules['sitecustomize'])
""",
    "stays, and executes the first other on the path": """
import os, sys
print('tool')
def following(here):
    files = (os.path.join(entry, 'sitecustomize.py') for entry in sys.path if os.path.realpath(entry) != here)
    return next(filter(os.path.isfile, files), None)
hidden = following(os.path.dirname(os.path.realpath(__file__)))
if hidden:
    exec(compile(open(hidden).read(), hidden, 'exec'), {'__file__': hidden, '__name__': 'sitecustomize'})
""",
    "searches PYTHONPATH": """
import os, sys
print('tool')
def following(here):
    entries = os.environ['PYTHONPATH'].split(os.pathsep)
    files = (os.path.join(entry, 'sitecustomize.py') for entry in entries if os.path.realpath(entry) != here)
    return next(filter(os.path.isfile, files), None)
hidden = following(os.path.dirname(os.path.realpath(__file__)))
if hidden:
    exec(compile(open(hidden).read(), hidden, 'exec'), {'__file__': hidden, '__name__': 'sitecustomize'})
""",
}
# What other tools' finders do, to see a module's import.
HOOKS = """
class Loader:
    def __init__(self, loader):
        self.loader = loader
    def create_module(self, spec):
        return self.loader.create_module(spec)
    def exec_module(self, module):
        self.loader.exec_module(module)
        print('loaded', module.__name__)
"""
FINDERS = {
    "asks all others": HOOKS
    + """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != 'wandb':
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                spec.loader = Loader(spec.loader)
                return spec
sys.meta_path.insert(0, Finder())
""",
    "searches again": HOOKS
    + """
import sys
from importlib.util import find_spec
class Finder:
    busy = False
    def find_spec(self, name, path=None, target=None):
        if name != 'wandb' or self.busy:
            return None
        self.busy = True
        try:
            spec = find_spec(name)
        finally:
            self.busy = False
        if not isinstance(spec.loader, Loader):
            spec.loader = Loader(spec.loader)
        return spec
sys.meta_path.insert(0, Finder())
""",
    "wraps all others": """
import sys
class Finder:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Finder(finder) for finder in sys.meta_path]
""",
    "replaces find_spec": """
import sys
def wrapped(find):
    return lambda name, path=None, target=None: find(name, path, target)
for finder in sys.meta_path:
    finder.find_spec = wrapped(finder.find_spec)
""",
}
USER = "print('user')\n"
IMPORT = """
import sys, wandb
print(type(wandb.__loader__).__name__, type(wandb.__spec__.loader).__name__, wandb.__spec__.origin)
"""
PROGRAM = (
    IMPORT
    + """
print(getattr(sys.modules.get('sitecustomize'), '__file__', None))
"""
)
TRAINING = """
import torch
print(type(torch.__loader__).__name__, type(torch.__spec__.loader).__name__)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).mean().backward()
    optimizer.step()
print('done')
"""


class Place:
    """A directory with a program, the user's own sitecustomize, and a large library that the hooks watch."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write("library/wandb.py", "print('executed')\n")
        self.write("program.py", PROGRAM)
        self.write("training.py", TRAINING)

    def write(self, name: str, source: str) -> str:
        """The directory of the file."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
        return str(file.parent)

    def run(self, *command: str, trainmon: bool, path: Sequence[str] = (), **variables: str) -> Watched:
        state = self.path / ("watched" if trainmon else "bare")
        words = [sys.executable, "-P", "-m", "monitor", "run", "--no-tui", "--", *command] if trainmon else [*command]
        library = [str(self.path / "library"), str(ROOT)]
        paths = {"PYTHONPATH": os.pathsep.join([*path, *library])}
        ended = subprocess.run(
            words,
            env={**environment(state), **variables, **paths},
            cwd=self.path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT,
        )
        head, _, _ = ended.stderr.partition("trainmon: ")
        run = next(iter(state.glob("runs/*")), state)
        return Watched(run, ended.returncode, ended.stdout, head)

    def both(self, *command: str) -> Watched:
        """Run a command bare and watched: the same output."""
        bare = self.run(*command, trainmon=False)
        seen = self.run(*command, trainmon=True)
        assert bare.code == 0, bare.err
        assert (seen.code, seen.out) == (0, bare.out), seen.err
        assert "Error" not in seen.err, seen.err
        return seen


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def imports_shown(run: Watched) -> int:
    """How often the hooks saw the library's import."""
    return (run.run / "starting").read_text().count("import wandb")


def wrapped(command: list[str], before: list[str], after: list[str]) -> list[str]:
    """A command with directories on PYTHONPATH before and after what is there."""
    first, last = (":".join(path) for path in (before, after))
    setting = f"PYTHONPATH={first}{':' if first else ''}$PYTHONPATH{':' if last else ''}{last}"
    return ["sh", "-c", f'{setting} exec "$@"', "sh", *command]


@pytest.mark.long
@pytest.mark.parametrize("way", TOOLS)
@pytest.mark.parametrize("first", ["tool", "trainmon"])
@pytest.mark.parametrize("user", [True, False])
def test_a_sitecustomize_that_runs_the_one_it_hides(place: Place, way: str, first: str, user: bool) -> None:
    tool = place.write("tool/sitecustomize.py", TOOLS[way])
    rest = [place.write("user/sitecustomize.py", USER)] if user else []
    ends = ([tool], rest) if first == "tool" else ([], [tool, *rest])
    if first == "tool" and not user:  # then `sitecustomize` is trainmon's, which the tool has imported
        place.write("program.py", IMPORT)
    seen = place.both(*wrapped([sys.executable, "program.py"], *ends))
    assert seen.out.count("tool\n") == 1
    assert seen.out.count("user\n") == user
    assert imports_shown(seen) == 1


@pytest.mark.long
@pytest.mark.parametrize("way", FINDERS)
@pytest.mark.parametrize("where", ["before", "after", "program"])
def test_a_finder_that_asks_others(place: Place, way: str, where: str) -> None:
    command = [sys.executable, "program.py"]
    if where == "program":
        place.write("program.py", FINDERS[way] + IMPORT)
    else:
        tool = [place.write("tool/sitecustomize.py", FINDERS[way])]
        if where == "before":  # its finders are there as ours come
            place.write("tool/sitecustomize.py", FINDERS[way] + TOOLS["removes itself for a while"])
        command = wrapped(command, *((tool, []) if where == "before" else ([], tool)))
        place.write("program.py", IMPORT)
    seen = place.both(*command)
    assert seen.out.count("executed") == 1
    assert imports_shown(seen) == 1


@pytest.mark.long
@pytest.mark.parametrize("way", FINDERS)
def test_a_training_with_such_a_finder(place: Place, way: str) -> None:
    pytest.importorskip("torch")
    place.write("training.py", FINDERS[way].replace("'wandb'", "'torch'") + TRAINING)
    assert len(place.both(sys.executable, "training.py").steps()) == 5


@pytest.mark.parametrize("user", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.long
def test_two_installations(place: Place, user: bool) -> None:
    pytest.importorskip("torch")
    shutil.copytree(ROOT / "trainhooks", place.path / "other" / "trainhooks")
    rest = [place.write("user/sitecustomize.py", USER)] if user else []
    other = str(place.path / "other" / "trainhooks" / "auto" / "bootstrap")
    seen = place.both(*wrapped([sys.executable, "training.py"], [], [other, *rest]))
    assert seen.out.count("user\n") == user
    assert len(seen.steps()) == 5
    shutil.rmtree(place.path / "watched")
    place.write("program.py", IMPORT)
    seen = place.both(*wrapped([sys.executable, "program.py"], [other], rest))
    assert imports_shown(seen) == 1


@pytest.mark.long
def test_two_installations_under_other_pythons(place: Place) -> None:
    shutil.copytree(ROOT / "trainhooks", place.path / "other" / "trainhooks")
    tool = place.write("tool/sitecustomize.py", TOOLS["removes itself for a while"])
    rest = [str(place.path / "other" / "trainhooks" / "auto" / "bootstrap"), place.write("user/sitecustomize.py", USER)]
    for python in other_pythons():
        shutil.rmtree(place.path / "watched", ignore_errors=True)
        seen = place.both(*wrapped([python, "program.py"], [], [tool, *rest]))
        assert imports_shown(seen) == 1


def test_a_sitecustomize_that_fails_is_told_of_and_changes_nothing(place: Place) -> None:
    tool = place.write("tool/sitecustomize.py", "import nothing_of_this_name\n")
    command = wrapped([sys.executable, "program.py"], [], [tool])
    seen = place.run(*command, trainmon=True, TRAINMON_DEBUG="")
    assert seen.code == 0 and "nothing_of_this_name" in seen.err
    assert imports_shown(seen) == 1


# The tools themselves, where they are installed

QUIET = {
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "DD_TRACE_STARTUP_LOGS": "false",
    "DD_TRACE_ENABLED": "false",
    "NEW_RELIC_DEVELOPER_MODE": "true",
    "NEW_RELIC_LICENSE_KEY": "0" * 40,
}
STARTS = {
    "ddtrace": ["-c", "from ddtrace.commands.ddtrace_run import main; main()"],
    "newrelic": ["-c", "from newrelic.admin import main; main()", "run-program"],
}


@pytest.mark.parametrize("tool", STARTS)
@pytest.mark.parametrize("around", [True, False])
def test_a_training_traced_by(place: Place, tool: str, around: bool) -> None:
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    pytest.importorskip("torch")
    user = [place.write("user/sitecustomize.py", USER)]
    start = [sys.executable, *STARTS[tool]]
    training = [sys.executable, "training.py"]
    bare = place.run(*start, *training, path=user, trainmon=False, **QUIET)
    assert bare.code == 0, bare.err
    if around:
        words = [*start, sys.executable, "-P", "-m", "monitor", "run", "--no-tui", "--", *training]
        variables = {**QUIET, "TRAINMON_DIR": str(place.path / "watched")}
        ended = place.run(*words, path=user, trainmon=False, **variables)
        run = next(iter((place.path / "watched").glob("runs/*")))
        seen = Watched(run, ended.code, ended.out, ended.err)
    else:
        seen = place.run(*start, *training, path=user, trainmon=True, **QUIET)
    assert (seen.code, seen.out.splitlines()[-2:]) == (0, bare.out.splitlines()[-2:]), seen.err
    assert seen.out.count("user\n") == bare.out.count("user\n") + 1  # of trainmon's own process
    assert len(seen.steps()) == 5
