"""Run public programs bare and under trainmon, and print what was right: `make programs`."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.programs.judge import Judged, judge
from tests.programs.listed import PROGRAMS
from tests.programs.program import Program
from tests.signals import as_in_a_terminal

HERE = Path(__file__).resolve().parent
# True or not by who else is at work on the machine meanwhile, whatever the program.
OF_THE_MACHINE = {"cpu-starved": "of the machine"}
JUDGMENTS = HERE / "judgments.json"
HEAD = """# Public programs

`make programs` runs public programs unmodified, on random data, bare and under `trainmon run`, and judges the report:

- steps: as many as the arguments make it do, and steps of environments likewise; the total is the same or unknown;
- own figures: times within 5% and rates within 3% of what the program prints itself, or within what it rounds away or
  times besides: 2 ms at most, makemore 5 ms, since it prints each tenth step only;
- both runs end with the same exit code and print the same losses;
- findings: judged by hand, in `tests/programs/judgments.json`.

`SOURCES=DIR` names a directory with git copies of the repositories, as `owner/name` or `name`. A program whose commit
or package is not there is not run. `ONLY="word word"` runs programs whose names hold one of the words.

| program | from | steps | total | own figures | findings, judged | outcome |
|---|---|--:|--:|---|---|---|
"""


def main() -> int:
    as_in_a_terminal()
    parser = argparse.ArgumentParser(prog="python -m tests.programs", description=__doc__)
    parser.add_argument("words", nargs="*", help="of a name")
    parser.add_argument("--python", type=Path, default=Path(sys.executable), help="with the packages of the programs")
    parser.add_argument("--sources", type=Path, help="a directory with git copies of the repositories")
    parser.add_argument("--table", type=Path, help="also renew their rows of this table in Markdown")
    parser.add_argument("--keep", type=Path, help="where outputs and runs stay")
    given = parser.parse_args()
    chosen = [each for each in PROGRAMS if not given.words or any(word in each.name for word in given.words)]
    judgments: dict[str, dict[str, str]] = json.loads(JUDGMENTS.read_text())
    keep = given.keep.resolve() if given.keep else None
    with tempfile.TemporaryDirectory(prefix="trainmon-programs-") as path:
        rows = [_row(each, keep or Path(path), given.python.absolute(), given.sources, judgments) for each in chosen]
    bad = sum(outcome.startswith("WRONG") for *_, outcome in rows)
    skipped = sum(outcome.startswith("not run") for *_, outcome in rows)
    print(f"\n{len(rows)} programs; {bad or 'none'} wrong; {skipped or 'none'} not run")
    if given.table is not None:
        write_table(given.table, rows)
    return 1 if bad else 0


def write_table(path: Path, rows: Sequence[tuple[str, ...]]) -> None:
    """Write rows among those that the table has of other programs, in the order of the list."""
    lines = path.read_text().splitlines() if path.exists() else []
    known = {line.split(" | ")[0].strip("| "): line for line in lines if line.startswith("| ")}
    known |= {
        row[0]: f"| {' | '.join(row)} |" for row in rows if not row[-1].startswith("not run") or row[0] not in known
    }
    path.write_text(HEAD + "".join(known[each.name] + "\n" for each in PROGRAMS if each.name in known))


def _row(
    program: Program, keep: Path, python: Path, sources: Path | None, judgments: dict[str, dict[str, str]]
) -> tuple[str, ...]:
    """Judge one program and print its line. Returns its row of the table."""
    began = time.monotonic()
    place = keep / program.name
    shutil.rmtree(place, ignore_errors=True)
    judged = judge(program, place, python, sources)
    outcome, findings = _outcome(judged, judgments.get(program.name, {}))
    print(f"{program.name:32} {time.monotonic() - began:5.1f} s  {outcome}", flush=True)
    progress = judged.report.get("progress", {})
    source = program.source
    origin = f"{source.repository} {source.commit[:10]}" if source else ", ".join(program.modules)
    numbers = [str(progress.get(key) or "unknown") if progress else "" for key in ("steps_done", "steps_total")]
    figures = "; ".join(judged.figures)
    return (program.name, origin, *numbers, figures, "; ".join(findings), outcome)


def _outcome(judged: Judged, judgments: dict[str, str]) -> tuple[str, list[str]]:
    """The verdict, and each finding with what a person said of it."""
    if judged.skipped:
        return f"not run: {judged.skipped}", []
    findings, wrong = [], list(judged.wrong)
    for code, severity in judged.findings:
        said = judgments.get(code) or OF_THE_MACHINE.get(code) or ("a remark" if severity == "info" else "")
        findings.append(f"{code} ({severity}): {said or 'not judged'}")
        if not said:
            wrong.append(f"{code} is not judged")
        elif said.startswith("false"):
            wrong.append(f"{code} is false")
    return ("WRONG: " + "; ".join(wrong) if wrong else "right"), findings


if __name__ == "__main__":
    sys.exit(main())
