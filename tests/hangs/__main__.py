"""Hangs: small programs that stand still, and slow healthy ones; what `report --json` says of them while they live.

All run side by side, as they hardly compute.

python -m tests.hangs                  # all
python -m tests.hangs fifo ranks       # those whose name holds one of the words
python -m tests.hangs --short          # a few that differ most
python -m tests.hangs --keep DIR       # leave the runs there, for `TRAINMON_DIR=DIR/NAME trainmon report`
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.hangs.cases import CASES, EARLY, PROGRAMS, SHORT, Case
from tests.zoo.runner import FOREIGN, GRAVE, ROOT, Neighbors
from trainhooks.protocol import rundir

LOOK, EARLY_LOOK = 60.0, 120.0  # seconds after the last progress; before the first step nothing tells how long is usual
HEALTHY_LOOK = 140.0  # of a slow one: longer than any that stands takes to be told
START_LIMIT = 300.0  # seconds until it stands, on a crowded machine
AT_ONCE = 8
MIN_RIGHT = 20  # of the hangs
PORT = 29_711  # of the first group of ranks; each case its own
SEVERITIES = ("info", "warning", "critical")
OF_THE_MACHINE = ("oversubscribed", "cpu-starved")  # true where several programs run on few cores


@dataclass
class Outcome:
    """What was said of one program."""

    case: Case
    said: dict[str, Any] | None = None  # the first finding while it stood
    codes: list[str] = field(default_factory=list)
    eta: float | None = None
    afterwards: str = ""  # the first finding's code after the end
    trouble: str = ""

    @property
    def wrong(self) -> list[str]:
        """What is not as it should be."""
        if self.trouble:
            return [self.trouble]
        grave = [code for code in self.codes if code.startswith("!") and code[1:] not in OF_THE_MACHINE]
        if self.case.is_healthy:
            return [f"FALSE {code}" for code in grave]
        said = self.said or {"code": "nothing", "severity": "", "title": "", "evidence": []}
        if said["code"] != "stalled" and not (self.case.at == EARLY and said["code"] == "nothing-reports"):
            return [f"{said['code']} first"]
        text = " ".join((said["title"], *said["evidence"]))
        found = ["no line"] * (self.case.place not in text) + ["no rank"] * (self.case.named not in text)
        found += ["too mild"] * (SEVERITIES.index(said["severity"]) < SEVERITIES.index(self.case.severity))
        found += ["time left"] * (self.eta is not None) + [f"FALSE {code}" for code in grave if code != "!stalled"]
        return found + [f"afterwards {self.afterwards}"] * (self.afterwards != said["code"])


def run(case: Case, number: int, keep: Path) -> Outcome:
    """Run a program until it stands, look at the report, and end it as a person does."""
    state = keep / case.name
    state.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    kept |= {rundir.STATE_VARIABLE: str(state), "HANGS_MARK": str(state / "mark"), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "monitor", "run", "--no-tui", "--name", case.name, "--", *_command(case, number)]
    outcome = Outcome(case)
    with (state / "output.txt").open("wb") as output:
        child = subprocess.Popen(words, env=kept, stdin=subprocess.PIPE, stdout=output, stderr=output, cwd=ROOT)
    try:
        until = time.monotonic() + START_LIMIT
        while not (state / "mark").exists():
            if child.poll() is not None or time.monotonic() > until:
                outcome.trouble = "it did not stand"
                return outcome
            time.sleep(0.2)
        early = EARLY_LOOK if case.at == EARLY else LOOK
        time.sleep(max(0.0, (state / "mark").stat().st_mtime + early - time.time()))
        report = _report(kept)
        if case.is_healthy and not _grave(report):
            time.sleep(max(0.0, (state / "mark").stat().st_mtime + HEALTHY_LOOK - time.time()))
            report = _report(kept)
        if child.poll() is not None:
            outcome.trouble = "it ended"
        outcome.codes = _grave(report) or [each["code"] for each in report["findings"]]
        outcome.said = next(iter(report["findings"]), None)
        outcome.eta = report["progress"]["eta_seconds"]
    finally:
        _end(child, kept)
    after = [each["code"] for each in _report(kept)["findings"] if each["code"] not in OF_THE_MACHINE]
    outcome.afterwards = next(iter(after), "nothing")
    return outcome


def _grave(report: dict[str, Any]) -> list[str]:
    return [f"!{each['code']}" for each in report["findings"] if each["severity"] in GRAVE]


def _command(case: Case, number: int) -> list[str]:
    words = [str(PROGRAMS / f"{case.program}.py"), str(case.at), *filter(None, [case.how])]
    world = case.world or case.ranks
    if world == 1:
        return [sys.executable, *words]
    return [sys.executable, str(PROGRAMS / "launch.py"), str(PORT + number), str(world), str(case.ranks), *words]


def _end(child: subprocess.Popen[bytes], environment: dict[str, str]) -> None:
    if child.poll() is None:
        child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(5)
    if child.poll() is None:
        child.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(10)
    if child.poll() is None:
        subprocess.run([sys.executable, "-m", "monitor", "stop", "last"], env=environment, timeout=100, cwd=ROOT)
        child.kill()
        child.wait()


def _report(environment: dict[str, str]) -> dict[str, Any]:
    words = [sys.executable, "-m", "monitor", "report", "--json", "last"]
    done = subprocess.run(words, env=environment, cwd=ROOT, capture_output=True, timeout=200, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _told(outcome: Outcome) -> str:
    said = outcome.said
    title = f"{said['severity']} {said['code']}: {said['title']}" if said is not None else "nothing"
    return f"{outcome.case.name:<26} {', '.join(outcome.wrong) or 'ok':<22} {title}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of names of the programs to run; all by default")
    parser.add_argument("--short", action="store_true", help="a few that differ most")
    parser.add_argument("--keep", type=Path, help="where the runs stay")
    given = parser.parse_args(arguments)
    chosen = [case for case in CASES if not given.short or case.name in SHORT]
    chosen = [case for case in chosen if not given.words or any(word in case.name for word in given.words)]
    if not chosen:
        parser.error("no program has such a name")
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="trainmon-hangs-") as directory, Neighbors():
        keep = Path(directory) if given.keep is None else given.keep.resolve()
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for outcome in pool.map(lambda one: run(one[1], one[0], keep), enumerate(chosen)):
                print(_told(outcome), flush=True)
                outcomes.append(outcome)
    hangs = [each for each in outcomes if not each.case.is_healthy]
    right = sum(not each.wrong for each in hangs)
    accused = [each.case.name for each in outcomes if each.case.is_healthy and each.wrong]
    print(f"hangs told with line and rank: {right} of {len(hangs)}")
    print(f"healthy ones accused: {', '.join(accused) or 'none'}")
    return 1 if accused or right < min(MIN_RIGHT, len(hangs)) else 0


if __name__ == "__main__":
    sys.exit(main())
