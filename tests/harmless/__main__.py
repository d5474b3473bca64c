"""Print the table: `make harmless`, or `python -m tests.harmless --short signal torch` for some of it."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.harmless.compare import Program, compare
from tests.harmless.probes_system import PAGE as SYSTEM_PAGE
from tests.harmless.probes_system import PROBES as SYSTEM
from tests.harmless.probes_torch import PAGE as TORCH_PAGE
from tests.harmless.probes_torch import PROBES as TORCH
from tests.harmless.programs import PROGRAMS
from tests.harmless.trainings import TRAININGS
from tests.signals import as_in_a_terminal

PROBES = {"system": (SYSTEM, SYSTEM_PAGE), "torch": (TORCH, TORCH_PAGE)}  # with the page of their table


def main() -> int:
    as_in_a_terminal()
    parser = argparse.ArgumentParser(prog="python -m tests.harmless", description=__doc__)
    parser.add_argument("words", nargs="*", help="of a family or a name")
    parser.add_argument("--short", action="store_true", help="without the slow programs")
    parser.add_argument("--probes", choices=sorted(PROBES), help="run these probes instead, two at once")
    parser.add_argument("--table", type=Path, help="also write the table as Markdown")
    given = parser.parse_args()
    programs, page = PROBES.get(given.probes, ((*PROGRAMS, *TRAININGS), ""))
    chosen = [
        program
        for program in programs
        if (program.short or not given.short)
        and (not given.words or any(word in program.name or word == program.family for word in given.words))
    ]
    if not chosen:
        print(f"no program is named {' or '.join(given.words)}", file=sys.stderr)
        return 2
    with (
        tempfile.TemporaryDirectory(prefix="trainmon-harmless-") as path,
        ThreadPoolExecutor(2 if given.probes else 1) as pool,
    ):
        rows = list(pool.map(_row, chosen, (Path(path) / str(number) for number in range(len(chosen)))))
    bad = sum(result != "same" for *_, result in rows)
    print(f"\n{len(rows)} programs; {bad or 'none'} differ")
    if given.table is not None:
        lines = [f"| {family} | {name} | {memory} | {result} |" for family, name, memory, result in rows]
        head = "| family | program | peak memory added | outcome |\n|---|---|--:|---|\n"
        given.table.write_text(page + head + "\n".join(lines) + "\n")
    return 1 if bad else 0


def _row(program: Program, place: Path) -> tuple[str, str, str, str]:
    """Compare one program and print its line: family, name, memory added, outcome."""
    missing = [name for name in program.needs if shutil.which(name) is None]
    began = time.monotonic()
    memory, result = "", f"not run: no {missing[0]} here" if missing else "same"
    if not missing:
        compared = compare(program, place)
        if compared.added_bytes is not None:
            memory = f"{compared.added_bytes / 1e6:+.1f} MB"
        result = "; ".join(compared.differences) or "same"
    seconds = time.monotonic() - began
    print(f"{program.family:10} {program.name:52} {seconds:5.1f} s {memory:>10}  {result}", flush=True)
    return program.family, program.name, memory, result


if __name__ == "__main__":
    sys.exit(main())
