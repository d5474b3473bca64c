"""The zoo: every script run under trainmon, and whether the report names its cause first and nothing false.

A script with a mended twin is run a second time without its cause: what was promised is held against the real gain, and
the twin is judged as a healthy script. Those that only simulate a GPU sleep, and run beside the others.

python -m tests.zoo                    # all, one after the other
python -m tests.zoo input_bound gan    # those whose name contains one of the words
python -m tests.zoo --keep DIR         # leave the runs there, for `TRAINMON_DIR=DIR/NAME trainmon report`
python -m tests.zoo --judge DIR        # run nothing: what the rules of today say of the runs left there
python -m tests.zoo --neighbor         # beside a program that takes a core
python -m tests.zoo --markdown         # the table of the README at the end: recall and precision by kind of trouble
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

from monitor.diagnosis.explain import FAMILIES
from tests.zoo.cases import CASES, Case
from tests.zoo.runner import ROOT, Outcome, burners, compare_with_twin, judge, run

# Below and beyond these `make zoo` fails.
RECALL = 0.97  # of the faulty scripts
MAX_MEDIAN_ERROR = 0.2  # of the promised gains, beyond the real ones or below
MAX_BEYOND = 1 / 3  # of a promise, beyond the real gain
# A gain is the ratio of two short runs, and a neighbor's burst in one of them moves it: where promise and gain are
# further apart than most may be, both are measured so many times more, and the pair in the middle counts.
REPEATS = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names of the scripts to run; all by default")
    parser.add_argument("--keep", type=Path, help="where the runs stay")
    parser.add_argument("--judge", type=Path, help="where runs were left by --keep")
    parser.add_argument("--markdown", action="store_true", help="end with the README's table")
    parser.add_argument("--times", type=int, default=1, help="how often each is run")
    parser.add_argument("--neighbor", action="store_true", help="another program takes a core meanwhile")
    parser.add_argument("--silent", action="store_true", help="run and print nothing: with --keep, to be judged later")
    given = parser.parse_args()
    chosen = [case for case in CASES if not given.words or any(word in case.name for word in given.words)]
    if not chosen:
        parser.error("no script has such a name")
    kept = None if given.keep is None else given.keep.resolve()
    left = None if given.judge is None else given.judge.resolve()
    if left is not None:
        chosen = [case for case in chosen if (left / case.name).is_dir()]
    if given.silent:
        for case in chosen:
            run(case, kept)
        return 0
    outcomes: list[Outcome] = []
    print(_row("script", "expected", "found", "s", "verdict"), flush=True)
    if given.neighbor:
        # As many threads as cores would take turns on the core that is left and wait for each other: thirteen times as
        # long was measured on two cores, and then the planted causes cause nothing.
        os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) - 1))
    with burners(1 if given.neighbor else 0):
        for _ in range(given.times):
            outcomes += _judged(chosen, left) if left is not None else _run(chosen, kept)
    print()
    print("\n".join(markdown(outcomes) if given.markdown else summary(outcomes)))
    return 0 if as_promised(outcomes) else 1


def _run(chosen: list[Case], kept: Path | None) -> list[Outcome]:
    """Run the scripts one after the other, beside them those that need no core."""
    beside = [case for case in chosen if case.sleeps]
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="trainmon-zoo-") as directory:
        state = Path(directory) if kept is None else kept
        # In a process of its own: what its children take of the cores is not counted among the scripts'.
        words = [sys.executable, "-m", "tests.zoo", "--silent", "--keep", str(state), *(case.name for case in beside)]
        other = subprocess.Popen(words, cwd=ROOT) if beside else None
        try:
            for case in chosen:
                if not case.sleeps:
                    outcomes += _with_twin(case, lambda one, part: run(one, kept and kept / part))
        finally:
            if other is not None:
                other.wait()
        return outcomes + _judged(beside, state)


def _judged(chosen: list[Case], left: Path) -> list[Outcome]:
    def left_there(case: Case, part: str) -> Outcome | None:
        state = left / part / case.name
        return judge(case, state) if state.is_dir() else None

    found = []
    for case in chosen:
        found += _with_twin(case, left_there)
    return found


def _with_twin(case: Case, outcome_of: Callable[[Case, str], Outcome | None]) -> list[Outcome]:
    """Return the outcome of a script, and that of its mended twin.

    Args:
        outcome_of: of a case, in the part of the state directory with the name that is given.
    """
    found = _pair(case, "", outcome_of)
    if any(abs(error) > MAX_MEDIAN_ERROR for error in gain_errors(found)):
        further = [_pair(case, f"repeat_{number}", outcome_of) for number in range(1, REPEATS + 1)]
        take_middle_gain(found[0], [pair[0] for pair in further if pair])
    print("\n".join(map(told, found)), flush=True)
    return found


def _pair(case: Case, part: str, outcome_of: Callable[[Case, str], Outcome | None]) -> list[Outcome]:
    both = (case, case.mended) if case.twin else (case,)
    found = [outcome for one in both if (outcome := outcome_of(one, part))]
    if len(found) > 1:
        compare_with_twin(*found)
    return found


def take_middle_gain(outcome: Outcome, further: list[Outcome]) -> None:
    """Keep the promise and the real gain of the measurement in the middle, by how far the two are apart."""
    measured = [each for each in (outcome, *further) if gain_errors([each])]
    measured.sort(key=lambda each: gain_errors([each]))
    middle = measured[len(measured) // 2]  # of two the one that promised more: what is in doubt counts against it
    outcome.promised, outcome.real, outcome.measured = middle.promised, middle.real, len(measured)


def as_promised(outcomes: list[Outcome]) -> bool:
    """All ran, nearly all causes are named first, no healthy script is blamed, and the promised gains hold."""
    if any(each.trouble for each in outcomes):
        return False
    healthy = [each for each in outcomes if each.case.expected is None]
    faulty = [each for each in outcomes if each.case.expected is not None]
    errors = gain_errors(outcomes)
    if errors and (median(map(abs, errors)) > MAX_MEDIAN_ERROR or max(errors) > MAX_BEYOND):
        return False
    return not any(each.false for each in healthy) and sum(each.named for each in faulty) >= RECALL * len(faulty)


def told(outcome: Outcome) -> str:
    case = outcome.case
    marks = {"critical": "!", "warning": "", "info": "~"}
    found = ", ".join(f"{marks[severity]}{code}" for code, severity in outcome.findings) or "nothing"
    return _row(
        case.name,
        case.expected or "(healthy)",
        found,
        f"{outcome.seconds:.0f}",
        outcome.verdict + _gain(outcome) + (" (crowded)" if outcome.crowded else ""),
    )


def _gain(outcome: Outcome) -> str:
    if outcome.real is None:
        return ""
    promised = "no gain promised" if outcome.promised is None else f"promised {outcome.promised:.2f}x"
    times = f" (middle of {outcome.measured})" if outcome.measured > 1 else ""
    return f"; {promised}, really {outcome.real:.2f}x{times}"


def _row(name: str, expected: str, found: str, seconds: str, verdict: str) -> str:
    return f"{name:<34} {expected:<22} {seconds:>4}  {found:<60} {verdict}"


def summary(outcomes: list[Outcome]) -> list[str]:
    """Recall over the faulty scripts, precision over all findings of weight."""
    judged = [each for each in outcomes if not each.trouble]
    faulty = [each for each in judged if each.case.expected is not None]
    named = sum(each.named for each in faulty)
    true, false = sum(len(each.true) for each in judged), sum(len(each.false) for each in judged)
    healthy = [each for each in judged if each.case.expected is None]
    clean = sum(not each.false for each in healthy)
    lines = [
        "~ information, ! critical; findings in the report's order",
        f"recall     {_share(named, len(faulty))}: faulty scripts whose cause is named first",
        f"precision  {_share(true, true + false)}: findings of weight that are true",
        f"healthy    {_share(clean, len(healthy))}: without a finding of weight",
    ]
    errors = gain_errors(judged)
    if errors:
        lines.append(
            f"gains      off by {100 * median(map(abs, errors)):.0f}% (median), at most {100 * max(errors):+.0f}%"
        )
    broken = [each.case.name for each in outcomes if each.trouble]
    if broken:
        lines.append(f"did not run as they should: {', '.join(broken)}")
    return lines


def gain_errors(outcomes: list[Outcome]) -> list[float]:
    """How far each promise lies beyond the real gain, as a share of it; below 0: more was gained than promised.

    A gain is not measured where others used much of the machine.
    """
    return [each.promised / each.real - 1 for each in outcomes if each.promised is not None and each.real]


def markdown(outcomes: list[Outcome]) -> list[str]:
    """Recall and precision as a table, by the families of `trainmon explain`."""
    judged = [each for each in outcomes if not each.trouble]
    lines = [
        "| planted trouble | scripts | named first | findings of weight | of these true |",
        "|---|--:|--:|--:|--:|",
    ]
    for family, codes in FAMILIES.items():
        rows = [each for each in judged if each.case.expected in codes]
        if rows:
            lines.append(_table_row(family.lower() if family != "torch.compile" else family, rows))
    healthy = [each for each in judged if each.case.expected is None]
    sick = [each for each in judged if each.case.expected is not None]
    lines += [_table_row("**all sick scripts**", sick)] if sick else []
    lines += [_table_row("**healthy scripts**", healthy)] if healthy else []
    broken = [each.case.name for each in outcomes if each.trouble]
    if broken:
        lines += ["", f"Did not run as they should: {', '.join(broken)}."]
    return lines


def _table_row(name: str, rows: list[Outcome]) -> str:
    planted = [each for each in rows if each.case.expected is not None]
    true, false = sum(len(each.true) for each in rows), sum(len(each.false) for each in rows)
    named = _share(sum(each.named for each in planted), len(planted)) if planted else "-"
    cells = (name, str(len(rows)), named, str(true + false), _share(true, true + false) if true + false else "-")
    return "| " + " | ".join(cells) + " |"


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole}" + (f" ({100 * part / whole:.0f}%)" if whole else "")


if __name__ == "__main__":
    sys.exit(main())
