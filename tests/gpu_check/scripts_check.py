"""The sick and healthy scripts, one at a time: watched, judged, and the mended twin of each sick one run bare."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from tests.gpu_check.budget import TWIN, Deadline, Pace
from tests.gpu_check.expected import SCRIPTS, Case, order
from tests.gpu_check.judge import Outcome, said
from tests.gpu_check.runner import Ran, bare, environment, recorded, report

HANGS = 150.0  # seconds beyond its training: compilers and slow disks have their time
TURN = "GPU_CHECK_TURN"  # the file for which a script waits before it uses the device: scripts/common.py
KEPT = "outcome.json"  # beside a script's run: what cannot be read from the run


class Runs(Protocol):
    """How a program is run; another one in tests."""

    def recorded(self, name: str, command: list[str], state: Path, limit: float, turn: Path) -> Ran: ...

    def bare(self, command: list[str], state: Path, limit: float, turn: Path) -> Ran: ...

    def report(self, name: str, state: Path) -> dict[str, object] | None: ...


class Programs:
    """The real ones."""

    def recorded(self, name: str, command: list[str], state: Path, limit: float, turn: Path) -> Ran:
        return recorded(name, command, state, limit, {TURN: str(turn)})

    def bare(self, command: list[str], state: Path, limit: float, turn: Path) -> Ran:
        return bare(command, state, limit, {TURN: str(turn)})

    def report(self, name: str, state: Path) -> dict[str, object] | None:
        return report(name, state)


def command(case: Case, seconds: float, device: str, mended: bool) -> list[str]:
    options = (*case.options, "--device", device, "--seconds", f"{seconds:.1f}")
    words = [sys.executable, str(SCRIPTS / case.script), *options]
    # What is wrong with a script beside which the check runs another program is that program alone.
    return [*words, "--mended"] if mended or case.beside else words


@contextmanager
def neighbor(case: Case, device: str, state: Path, turn: Path) -> Iterator[None]:
    """Another program on the GPU, outside of the run, where the case is about one. It ends with its input."""
    if not case.beside:
        yield
        return
    words = [sys.executable, str(SCRIPTS / case.script), "--neighbor", "--device", device]
    with subprocess.Popen(
        words, env=environment(state, {TURN: str(turn)}), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        start_new_session=True,
    ) as beside:  # fmt: skip
        try:
            yield
        finally:
            beside.kill()


def missing(case: Case) -> str | None:
    if case.needs is not None and importlib.util.find_spec(case.needs) is None:
        return f"{case.needs} is not installed"
    return None


Job = Callable[[Path], Ran]  # runs a program that waits for the file it is given
Place = tuple[Case, bool, float]  # a script, whether it is its twin, and for how many seconds it trains


def in_turns(jobs: Iterable[tuple[Place, Job]], scratch: Path) -> Iterator[tuple[Place, Ran, float]]:
    """Run programs one at a time. Each is started while the one before it trains: its imports take no time then.

    Yields:
        What was run, its outcome, and the seconds of its turn.
    """
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    before: tuple[Place, Future[Ran]] | None = None
    began = time.monotonic()
    with ThreadPoolExecutor(2) as threads:
        for number, (place, job) in enumerate(jobs):
            turn = scratch / f"turn-{number}"
            started = place, threads.submit(job, turn)
            if before is None:
                turn.touch()
            else:
                ran = before[1].result()
                turn.touch()
                now = time.monotonic()
                yield before[0], ran, now - began
                began = now
            before = started
        if before is not None:
            yield before[0], before[1].result(), time.monotonic() - began


def check(
    deadline: Deadline, scratch: Path, device: str = "cuda", cases: list[Case] | None = None,
    runs: Runs | None = None, seen: Callable[[Outcome], object] = lambda outcome: None,
) -> list[Outcome]:  # fmt: skip
    """Every script for which there is time; the others are told as not run.

    Args:
        scratch: where the runs stay, each in a directory with the script's name.
        seen: told each outcome as it comes.
    """
    runs, pace = runs or Programs(), Pace(deadline)
    left = order() if cases is None else list(cases)
    possible = [case for case in left if missing(case) is None]
    outcomes = list[Outcome]()
    watched = dict[str, Outcome]()
    for (case, is_twin, seconds), ran, turn in in_turns(_jobs(possible, pace, device, scratch, runs), scratch):
        pace.took(turn, seconds)
        if is_twin:
            outcome = _with_twin(watched[case.name], ran)
        else:
            outcome = watched[case.name] = _outcome(case, ran, runs.report(case.name, scratch / case.name))
        if is_twin or not _has_twin(case):
            _keep(outcome, scratch / case.name)
            outcomes.append(outcome)
            seen(outcome)
    for case in left:
        if case.name not in watched:
            outcomes.append(Outcome(case, skipped=missing(case) or "no time left"))
            seen(outcomes[-1])
    return outcomes


def _has_twin(case: Case) -> bool:
    return case.sick and case.gain


def _jobs(cases: list[Case], pace: Pace, device: str, scratch: Path, runs: Runs) -> Iterator[tuple[Place, Job]]:
    """The scripts, each followed by its twin, until there is no time left."""
    for number, case in enumerate(cases):
        following = cases[number:]
        seconds = pace.seconds(len(following), sum(_has_twin(each) for each in following))
        if seconds is None:
            return
        seconds = max(seconds, case.at_least)
        pace.plan(seconds)
        yield (case, False, seconds), _watched(case, seconds, device, scratch, runs)
        if _has_twin(case):
            pace.plan(TWIN * seconds)
            yield (case, True, TWIN * seconds), _twin(case, TWIN * seconds, device, scratch, runs)


def _watched(case: Case, seconds: float, device: str, scratch: Path, runs: Runs) -> Job:
    state = scratch / case.name

    def run(turn: Path) -> Ran:
        with neighbor(case, device, state, turn):
            return runs.recorded(case.name, command(case, seconds, device, False), state, seconds + HANGS, turn)

    return run


def _twin(case: Case, seconds: float, device: str, scratch: Path, runs: Runs) -> Job:
    words = command(case, seconds, device, True)
    return lambda turn: runs.bare(words, scratch / f"{case.name}-mended", seconds + HANGS, turn)


def _outcome(case: Case, ran: Ran, report: Mapping[str, object] | None) -> Outcome:
    if ran.trouble:
        return Outcome(case, trouble=ran.trouble)
    if report is None:
        return Outcome(case, trouble="no report")
    return Outcome(case, said(report), ran.told.get("samples_per_second"))


def _with_twin(outcome: Outcome, ran: Ran) -> Outcome:
    if outcome.trouble or not ran.trouble:
        return replace(outcome, mended=ran.told.get("samples_per_second"))
    return replace(outcome, trouble=f"its twin: {ran.trouble}")


def _keep(outcome: Outcome, state: Path) -> None:
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = {"rate": outcome.rate, "mended": outcome.mended, "trouble": outcome.trouble}
    (state / KEPT).write_text(json.dumps(known), encoding="utf-8")


def judged(kept: Path, cases: list[Case] | None = None, seen: Callable[[Outcome], object] = lambda outcome: None,
           runs: Runs | None = None) -> list[Outcome]:  # fmt: skip
    """What the rules of today say of the scripts that were run before; nothing is run."""
    outcomes = []
    for case in order() if cases is None else cases:
        file = kept / case.name / KEPT
        if not file.is_file():
            continue
        known = json.loads(file.read_text(encoding="utf-8"))
        report = (runs or Programs()).report(case.name, kept / case.name)
        found = said(report) if report is not None else ()
        trouble = known["trouble"] or (None if report is not None else "no report")
        outcomes.append(Outcome(case, found, known["rate"], known["mended"], trouble))
        seen(outcomes[-1])
    return outcomes
