"""Try trainmon on every interpreter of this machine, with the oldest and the newest versions of what it depends on.

    python -m tests.versions [--only 3.10,3.13]

For each a new environment, the built wheel, and what `smoke.py` does. On Python 3.9 the hooks alone are tried, with a
`trainmon` of a newer Python around them. On Python 3.13 the short form of `make harmless` runs, too. The exit code is 1
where anything failed, and where no interpreter was found.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.harmless.programs import PROGRAMS
from tests.harmless.trainings import TRAININGS
from tests.versions import environments, matrix
from tests.versions.environments import HOOKS_ONLY, MINORS, CannotInstall, Environment
from tests.versions.smoke import OF_THE_HOOKS, Place, failures


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="", help="versions of Python, separated by commas")
    only = {tuple(map(int, text.split("."))) for text in parser.parse_args().only.split(",") if text}
    pythons = environments.interpreters()
    for minor in MINORS:
        if (3, minor) not in pythons:
            print(f"3.{minor}  not on this machine, not tried", flush=True)
    with tempfile.TemporaryDirectory(prefix="trainmon-versions-") as directory:
        place = Path(directory)
        (wheel,) = environments.build(place / "dist", "wheel")
        tried = [
            _tried(place, wheel, version, oldest, pythons)
            for version in sorted(pythons)
            if not only or version in only
            for oldest in (True, False)
        ]
    return 0 if tried and all(tried) else 1


def _tried(
    place: Path, wheel: Path, version: tuple[int, int], oldest: bool, pythons: dict[tuple[int, int], str]
) -> bool:
    """Make one environment and try it; print a line, and one more for each failure. Return whether all is well."""
    name = f"{version[0]}.{version[1]}-{'oldest' if oldest else 'newest'}"
    hooks_only = version <= HOOKS_ONLY
    try:
        made = environments.create(place / name, pythons[version], version, None if hooks_only else wheel, oldest)
        around = _around(place, wheel, pythons) if hooks_only else made
    except CannotInstall as error:
        print(f"{name:<12} cannot be installed: {error}", flush=True)
        return False
    checks = {"checks": OF_THE_HOOKS} if hooks_only else {}
    found = failures(Place([around.trainmon], made.python, place / f"work-{name}"), **checks)
    if version == matrix.VERSION and not oldest:
        names = tuple(dict.fromkeys(program.family for program in (*PROGRAMS, *TRAININGS)))
        found += matrix.differences(made, lambda line: print(f"{'':<12} make harmless: {line}", flush=True), names)
    versions = ", ".join(f"{library} {number}" for library, number in made.versions.items())
    print(f"{name:<12} {'FAILED' if found else 'works'}{' (hooks)' if hooks_only else ''}: {versions}", flush=True)
    for line in found:
        print(f"{'':<12} {line}", flush=True)
    return not found


def _around(place: Path, wheel: Path, pythons: dict[tuple[int, int], str]) -> Environment:
    """Return an environment whose `trainmon` starts trainings of a Python that has none."""
    version = max(pythons)
    path = place / "around"
    if (path / "bin" / "trainmon").exists():
        return Environment(path, {})
    return environments.create(path, pythons[version], version, wheel, False)


if __name__ == "__main__":
    sys.exit(main())
