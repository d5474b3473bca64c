"""`make gpu-check`: what trainmon says of a real GPU, checked on one. Prints tables; exit 1 where something differs.

It needs an NVIDIA GPU and an environment whose torch was built for CUDA. No setting of the GPU is changed, and nothing
else should use it meanwhile.

    python -m tests.gpu_check --only cost,scripts     # driver, lanes, traces, cost, scripts, programs; all by default
    PROGRAMS="python train.py;..." python -m tests.gpu_check --only programs
    python -m tests.gpu_check --keep DIR              # what was recorded stays there
    python -m tests.gpu_check --judge DIR             # run nothing: what the rules of today say of those scripts
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from tests.gpu_check.budget import Budget, Deadline
from tests.gpu_check.table import Book

SECTIONS = ("driver", "lanes", "traces", "cost", "scripts", "programs")  # in the order in which they run
MINUTES = 10.0


def missing() -> str | None:
    """Why nothing can be checked here."""
    if shutil.which("nvidia-smi") is None:
        return "no NVIDIA driver is installed (there is no nvidia-smi)"
    if importlib.util.find_spec("torch") is None:
        return f"no torch in {sys.prefix}"
    import torch

    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not built for CUDA; make gpu-check PYTHON_GPU=... takes another one"
    if not torch.cuda.is_available():
        return "torch sees no GPU"
    return None


@dataclass(frozen=True)
class Given:
    """What all sections are given."""

    book: Book
    scratch: Path
    out: Path
    programs: str


def driver_section(given: Given, deadline: Deadline) -> None:
    from tests.gpu_check import driver
    from tests.gpu_check.row import BAD

    given.book.begin("Driver, clocks, reports", driver.HEAD, driver.WIDTHS)
    left: list[str] = []
    for row in driver.run(driver.checks(given.scratch, given.out), deadline, left.append):
        given.book.row((row.check, row.ours, row.theirs, row.verdict), row.verdict == BAD)
    if left:
        given.book.note(f"No time was left for: {', '.join(left)}.")


def lanes_section(given: Given, deadline: Deadline) -> None:
    from tests.gpu_check import lanes

    given.book.begin("The device lane against torch's profiler", lanes.HEAD, lanes.WIDTHS)
    for cells, bad in lanes.check(given.scratch / "lanes"):
        given.book.row(cells, bad)
    for text in lanes.notes():
        given.book.note(text)


def traces_section(given: Given, deadline: Deadline) -> None:
    from tests.gpu_check import traces

    given.book.begin("What kernel traces cost and leave behind", traces.HEAD, traces.WIDTHS)
    for each in traces.measure(deadline, given.scratch / "traces", traces.start("cuda")):
        given.book.row(*traces.row(each))
    for text in traces.notes():
        given.book.note(text)


def cost_section(given: Given, deadline: Deadline) -> None:
    from tests.gpu_check import cost

    given.book.begin("What watching costs a step", cost.HEAD, cost.WIDTHS)
    found = cost.measure(deadline, given.scratch / "cost", cost.start("cuda"))
    for each in found:
        for cells, bad in cost.rows(each):
            given.book.row(cells, bad)
    for text in cost.notes(found):
        given.book.note(text)


def scripts_section(given: Given, deadline: Deadline) -> None:
    from tests.gpu_check import judge, scripts_check

    given.book.begin("Sick and healthy scripts", judge.HEAD, judge.WIDTHS)
    outcomes = scripts_check.check(
        deadline, given.scratch / "scripts", seen=lambda each: given.book.row(judge.cells(each), not each.good)
    )
    for text in judge.summary(outcomes):
        given.book.note(text)


def judge_again(book: Book, kept: Path) -> None:
    """The table of the scripts once more, from what was kept of them; it needs no GPU."""
    from tests.gpu_check import judge, scripts_check

    book.begin("Sick and healthy scripts", judge.HEAD, judge.WIDTHS)
    outcomes = scripts_check.judged(kept / "scripts", seen=lambda each: book.row(judge.cells(each), not each.good))
    for text in judge.summary(outcomes):
        book.note(text)
    book.end()


def programs_section(given: Given, deadline: Deadline) -> None:
    from tests.gpu_check import programs

    given.book.begin("Programs of others", programs.HEAD, programs.WIDTHS)
    for cells, bad in programs.check(given.programs, deadline, given.scratch / "programs"):
        given.book.row(cells, bad)


RUNS: dict[str, Callable[[Given, Deadline], None]] = {
    "driver": driver_section,
    "lanes": lanes_section,
    "traces": traces_section,
    "cost": cost_section,
    "scripts": scripts_section,
    "programs": programs_section,
}


def run(given: Given, budget: Budget) -> None:
    """All sections; one that breaks is told, and the others are made all the same."""
    while budget.to_come:
        section, deadline = budget.next()
        before = len(given.book.sections)
        try:
            RUNS[section](given, deadline)
        except Exception as error:  # a fault of the check itself must not cost what the others have to say
            if len(given.book.sections) == before:
                given.book.begin(section, ("what",), (60,))
            given.book.note(f"{section}: BROKEN: {type(error).__name__}: {error}"[:400], bad=True)
        given.book.end()


def facts(version: str) -> list[tuple[str, str]]:
    """What the table says of the machine. Torch is not asked for the card: this process stays off the GPU, for with a
    context of its own it would be another program on it for all that is watched."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    told = subprocess.run(command, capture_output=True, text=True).stdout.splitlines()
    card, _, driver = (told[0] if told else "unknown").rpartition(", ")
    return [
        ("Date", datetime.now(timezone.utc).date().isoformat()),
        ("Card", f"{card}, one of {len(told)}" if len(told) > 1 else card),
        ("Driver", driver),
        ("torch", f"{version}, Python {sys.version.partition(' ')[0]}"),
        ("CPU cores", str(len(os.sched_getaffinity(0)))),
    ]


def chosen(only: str, programs: str) -> list[str]:
    """The sections to run. Raises ValueError where there is none of a name."""
    names = [each.strip() for each in only.split(",") if each.strip()]
    unknown = [each for each in names if each not in SECTIONS]
    if unknown:
        raise ValueError(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if "programs" in names and not programs:
        raise ValueError('the section programs needs PROGRAMS="command;command" in the environment')
    return [each for each in SECTIONS if (each in names if names else each != "programs" or programs)]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="gpu-check", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu-sft.jsonl"), help="where the recording goes")
    parser.add_argument("--table", type=Path, default=Path("build/gpu-check.md"), help="where the Markdown goes")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="what all sections together may take, about")
    parser.add_argument("--only", default="", help=f"some of {', '.join(SECTIONS)}")
    parser.add_argument("--keep", type=Path, help="where what is recorded stays")
    parser.add_argument("--judge", type=Path, help="where a run's recordings were left by --keep")
    given = parser.parse_args()
    if given.judge is not None:
        book = Book([], given.table, lambda text: print(text, flush=True))
        judge_again(book, given.judge)
        return 1 if book.bad else 0
    programs = os.environ.get("PROGRAMS", "")
    try:
        sections = chosen(given.only, programs)
    except ValueError as error:
        parser.error(str(error))
    why_not = missing()
    if why_not is not None:
        print(f"gpu-check: nothing is checked: {why_not}", file=sys.stderr)
        return 2
    import torch

    told = facts(torch.__version__)
    print(", ".join(f"{name} {value}" for name, value in told), flush=True)
    book = Book(told, given.table, lambda text: print(text, flush=True))
    with tempfile.TemporaryDirectory(prefix="trainmon-gpu-check-") as temporary:
        scratch = Path(temporary) if given.keep is None else given.keep.resolve()
        run(Given(book, scratch, given.out, programs), Budget(60 * given.minutes, sections))
    bad = book.bad
    print(f"\n{bad or 'no'} {'check differs' if bad == 1 else 'checks differ'}; the table is in {given.table}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
