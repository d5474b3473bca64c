"""Stack samples of a training that holds the interpreter for less than 5 ms at a time."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from trainhooks.protocol.places import Place

from .conftest import Trainings

# Each line of the loop takes its own time by its own clock, in `spent`; the sampled line is what it is called by.
TIMED = """
import json, select, sys
spent, text = {}, json.dumps([i / 7 for i in range(6000)])
def c_code(): json.loads(text)
def python():
    total = 0
    for i in range(20000): total += i * i % 7
def lets_go(): select.select((), (), (), 0)
def sleeps(): time.sleep(0.003)
until = time.monotonic() + 6
for _ in th.steps(iter(lambda: time.monotonic() < until, False)):
    for each in WORK:
        began = time.perf_counter(); each()
        spent[each.__name__] = spent.get(each.__name__, 0.0) + time.perf_counter() - began
print(json.dumps(spent))
"""


def shares(told: Any) -> dict[str, tuple[float, float]]:
    """Return the share of the loop's time in each function: by its clock, and by the samples."""
    spent = json.loads(told.out)
    sampled: dict[str, float] = {}
    for event in told.kind("frames"):
        each = (event["t"] - event["begin"]) / sum(row[2] for row in event["rows"])
        for _, written, looks in event["rows"]:
            function = msgspec.convert(written, Place).function
            sampled[function] = sampled.get(function, 0.0) + looks * each
    known = sum(sampled.get(name, 0.0) for name in spent)
    return {name: (spent[name] / sum(spent.values()), sampled.get(name, 0.0) / known) for name in spent}


@pytest.mark.long
@pytest.mark.parametrize("work", ["c_code, lets_go", "python, lets_go, c_code, lets_go", "sleeps, python"])
def test_the_line_that_takes_the_time_is_told(train: Trainings, work: str) -> None:
    found = shares(train(TIMED.replace("WORK", f"({work})")))
    assert all(abs(true - told) < 0.4 for true, told in found.values()), found
    taken = [name for name, (true, _) in found.items() if true > 0.2]
    assert all(found[name][1] > 0.02 for name in taken), found


ASKS = """
import os, signal, sys
IMPORTED
def work(seconds, seen):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        seen.add(sys.getswitchinterval())
        ours.add(sys.getswitchinterval.__name__ in vars(sys) and not hasattr(sys.getswitchinterval, '__code__'))
        os.stat('.')
ours, before, after = set(), set(), set()
with th.step():
    work(3, before)
    sys.setswitchinterval(0.003701); own = sys.getswitchinterval(); work(1, after)
children = set()
for _ in range(40):
    work(0.02, after)
    child = os.fork()
    if not child: os._exit(not (sys.getswitchinterval() == own and sys.getswitchinterval.__self__ is sys))
    children.add(os.waitpid(child, 0)[1])
print(before, after == {own}, children, sys.getprofile(), sys.gettrace(), signal.getsignal(signal.SIGALRM), len(ours))
"""


@pytest.mark.long
@pytest.mark.parametrize(("imported", "answers"), [("", 2), ("from sys import getswitchinterval", 1)])
def test_the_program_sees_its_own_switch_interval(train: Trainings, imported: str, answers: int) -> None:
    told = train(ASKS.replace("IMPORTED", imported))
    # The last number: in how many ways the question was answered, so that a test of nothing is seen.
    assert told.out.strip() == f"{{0.005}} True {{0}} None None 0 {answers}", told.err
