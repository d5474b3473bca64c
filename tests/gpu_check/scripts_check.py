"""The sick and healthy scripts, one at a time: watched, judged, and the mended twin of each sick one run bare."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.gpu_check.budget import TWIN, Deadline, Pace
from tests.gpu_check.expected import SCRIPTS, Case, order
from tests.gpu_check.judge import Outcome, said
from tests.gpu_check.runner import Ran, bare, environment, watched

HANGS = 150.0  # seconds beyond its training: compilers and slow disks have their time


class Runs(Protocol):
    """How a program is run; another one in tests."""

    def watched(self, name: str, command: list[str], state: Path, limit: float) -> Ran: ...

    def bare(self, command: list[str], state: Path, limit: float) -> Ran: ...


class Programs:
    """The real ones."""

    def watched(self, name: str, command: list[str], state: Path, limit: float) -> Ran:
        return watched(name, command, state, limit)

    def bare(self, command: list[str], state: Path, limit: float) -> Ran:
        return bare(command, state, limit)


def command(case: Case, seconds: float, device: str, mended: bool) -> list[str]:
    words = [sys.executable, str(SCRIPTS / case.script), "--device", device, "--seconds", f"{seconds:.1f}"]
    # What is wrong with a script beside which the check runs another program is that program alone.
    return [*words, "--mended"] if mended or case.beside else words


@contextmanager
def neighbor(case: Case, device: str, state: Path) -> Iterator[None]:
    """Another program on the GPU, outside of the run, where the case is about one. It ends with its input."""
    if not case.beside:
        yield
        return
    words = [sys.executable, str(SCRIPTS / case.script), "--neighbor", "--device", device]
    with subprocess.Popen(
        words, env=environment(state), stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as beside:
        try:
            assert beside.stdout is not None
            beside.stdout.readline()  # it is at work
            yield
        finally:
            beside.kill()


def missing(case: Case) -> str | None:
    if case.needs is not None and importlib.util.find_spec(case.needs) is None:
        return f"{case.needs} is not installed"
    return None


def one(case: Case, seconds: float, device: str, scratch: Path, runs: Runs, pace: Pace) -> Outcome:
    """A script watched and, where it is sick, its twin measured."""
    state = scratch / case.name
    with neighbor(case, device, state):
        ran = runs.watched(case.name, command(case, seconds, device, False), state, seconds + HANGS)
    pace.took(ran.wall, seconds)
    if ran.trouble:
        return Outcome(case, trouble=ran.trouble)
    if ran.report is None:
        return Outcome(case, trouble="no report")
    rate = ran.told.get("samples_per_second")
    found = said(ran.report)
    if not case.sick or not case.gain:
        return Outcome(case, found, rate)
    short = TWIN * seconds
    twin = runs.bare(command(case, short, device, True), scratch / f"{case.name}-mended", short + HANGS)
    pace.took(twin.wall, short)
    if twin.trouble:
        return Outcome(case, found, rate, trouble=f"its twin: {twin.trouble}")
    return Outcome(case, found, rate, twin.told.get("samples_per_second"))


def check(
    deadline: Deadline, scratch: Path, device: str = "cuda", cases: list[Case] | None = None,
    runs: Runs | None = None, seen: Callable[[Outcome], object] = lambda outcome: None,
) -> list[Outcome]:  # fmt: skip
    """Every script for which there is time; the others are told as not run.

    Args:
        seen: told each outcome as it comes.
    """
    pace, outcomes = Pace(deadline), list[Outcome]()
    left = order() if cases is None else list(cases)
    while left:
        case = left[0]
        why_not = missing(case)
        seconds = pace.seconds(len(left), sum(each.sick and each.gain for each in left))
        if why_not is None and seconds is None:
            why_not = "no time left"
        if why_not is not None or seconds is None:
            outcome = Outcome(case, skipped=why_not)
        else:
            outcome = one(case, seconds, device, scratch, runs or Programs(), pace)
        left.pop(0)
        outcomes.append(outcome)
        seen(outcome)
    return outcomes
