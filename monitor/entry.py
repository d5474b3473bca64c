"""How trainmon's own processes find their modules, whatever lies on PYTHONPATH or in the working directory.

The console script loads this file by its path, `python -m monitor` imports it, and the processes that trainmon starts
for itself run it as a script: `python entry.py MODULE [ARG]...` calls that module's `main` with these words. It imports
nothing of `monitor` before the way there is clear, and changes nothing that a process inherits.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.machinery import PathFinder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

PACKAGES = ("monitor", "trainhooks")
HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class OwnPackages:
    """Finds both packages beside this file, before anything else is asked for them."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [HOME]) if name in PACKAGES else None


def main() -> None:
    """Run the `trainmon` command."""
    own_modules_first()
    import_module("monitor.cli").main()


def own_modules_first() -> None:
    """Let this process find trainmon's modules, the standard library and what is installed, and only then the rest."""
    own_directory = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = ordered(
        [entry for entry in sys.path if entry != own_directory], _added_by_caller(), _installed(), HOME
    )
    # Another's may be loaded already: by a sitecustomize of theirs, or by the hooks of a trainmon around this one.
    for name in [name for name, module in sys.modules.items() if _is_foreign(name, module)]:
        del sys.modules[name]
    sys.meta_path.insert(0, OwnPackages)
    _drop_settings_of_the_program()


def _drop_settings_of_the_program() -> None:
    """Undo in this process what variables for the program's interpreter have done to it. Children inherit them."""
    warnings = import_module("warnings")
    warnings.simplefilter("ignore")  # PYTHONWARNINGS=error, PYTHONDEVMODE
    if os.environ.get("PYTHONTRACEMALLOC"):  # ten times slower
        import_module("tracemalloc").stop()


def ordered(path: Sequence[str], lent: Iterable[str], installed: Iterable[str], home: str) -> list[str]:
    """`path` with what was lent behind what is installed, and `home` between them if it is not installed.

    What was lent is not left out: it may be what a library is found by (`pip install --target`, environment modules).

    Args:
        path: the directories of sys.path.
        lent: those which PYTHONPATH and the way of starting name.
        installed: those of the interpreter itself, which stay where they are, whoever names them.
        home: where trainmon's packages lie.
    """
    behind = {_absolute(entry) for entry in lent} - {_absolute(entry) for entry in installed}
    first = [entry for entry in path if _absolute(entry) not in behind]
    last = [entry for entry in path if _absolute(entry) in behind and _absolute(entry) != home]
    return [*first, *([] if home in first else [home]), *last]


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)
    except FileNotFoundError:  # relative to a working directory that was removed
        return entry


def _added_by_caller() -> list[str]:
    """The directories that are on sys.path because of where and how this process was started."""
    lent = [] if getattr(sys.flags, "safe_path", False) else sys.path[:1]  # the script's, or the working directory
    if not sys.flags.ignore_environment:
        lent += os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return lent


def _installed() -> list[str]:
    site = sys.modules.get("site")  # not there under `python -S`
    packages: list[str] = getattr(site, "getsitepackages", list)()  # an old virtualenv's has none
    user = getattr(site, "USER_SITE", None)
    return [os.path.dirname(os.__file__), *packages, *([user] if user else [])]


def _is_foreign(name: str, module: ModuleType) -> bool:
    """Whether `module` has the name of one of ours, but lies elsewhere."""
    package = name.partition(".")[0]
    if package not in PACKAGES:
        return False
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    own_directory = os.path.join(os.path.realpath(HOME), package, "")
    return any(place and not os.path.join(os.path.realpath(place), "").startswith(own_directory) for place in places)


if __name__ == "__main__":
    own_modules_first()
    import_module(sys.argv[1]).main(*sys.argv[2:])
