"""The speed of the training while parts of trainmon are stopped, killed or starved, in pairs with the same one bare."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable

from tests.faults.catalogue import Result, fault
from tests.faults.place import Place, Training, kill, recorder_of, wait_for

# Steps of a millisecond of work, timed by themselves; what the nearest to undisturbed tenth of them took.
TIMED = """
import sys, time
import trainhooks as th
def work():
    total = 0
    for n in range(12000): total += n * n
    return total
took = []
for index in th.steps(range(int(sys.argv[1]))):
    began = time.perf_counter()
    with th.phase('training'): work()
    th.log(loss=0.5)
    took.append(time.perf_counter() - began)
took.sort()
open(sys.argv[2], 'w').write(repr(took[len(took) // 10]))
"""
BARE = """
import sys, types, contextlib
th = types.ModuleType('trainhooks')
th.steps, th.phase, th.log = iter, lambda name: contextlib.nullcontext(), lambda **metrics: None
sys.modules['trainhooks'] = th
"""
NOISE = 1.25  # pairs of bare runs on a busy box of two cores lie this far apart; what harms, harms by more


def ratio(place: Place, strike: Callable[[Training], None] | None, pairs: int, steps: int) -> Result:
    """The struck training's step against the bare one's: the median of the pairs, the best where there are few."""
    found = []
    for _ in range(pairs):
        bare, struck = place.work() / "took", Training(place)
        command = [sys.executable, "-c", BARE + TIMED, str(steps), str(bare)]
        subprocess.run(command, env=place.environment, check=True, timeout=120)
        out = struck.at / "took"
        struck.command = [sys.executable, "-c", TIMED, str(steps), str(out)]
        before = set(place.runs())
        front = place.start(sys.executable, "-m", "monitor", "run", "--no-tui", "--", *struck.command)
        wait_for(lambda b=before: set(place.runs()) - b, "the run's directory")
        wait_for(lambda s=struck: recorder_of(s.run) and s.pid, "a recorder")
        struck.front = front
        strike(struck) if strike is not None else None
        wait_for(lambda o=out: o.exists() and o.stat().st_size, "the training's end")
        found.append(float(out.read_text()) / float(bare.read_text()))
    slower = statistics.median(found) if pairs >= 5 else min(found)
    harmed = [f"{slower:.2f} times as long a step"] if slower > NOISE else []
    return Result(
        injected=pairs,
        harmed=harmed,
        say=f"a step takes {slower:.2f} times as long as bare{'' if pairs >= 5 else ', in the best pair'}",
    )


def stopped(training: Training) -> None:
    assert training.front is not None
    kill(recorder_of(training.run), signal.SIGSTOP)
    training.front.send_signal(signal.SIGSTOP)


def killed(training: Training) -> None:
    assert training.front is not None
    training.front.kill()
    kill(recorder_of(training.run))


def starved(training: Training) -> None:
    """They get the processor only where nobody else wants it."""
    assert training.front is not None
    for pid in (training.front.pid, recorder_of(training.run)):
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))


@fault("speed: all parts well")
def well(place: Place, short: bool) -> Result:
    return ratio(place, None, *((3, 250) if short else (7, 2000)))


@fault("speed: front and supervisor stopped")
def with_all_stopped(place: Place, short: bool) -> Result:
    return ratio(place, stopped, *((3, 250) if short else (7, 2000)))


@fault("speed: front and supervisor killed")
def with_all_killed(place: Place, short: bool) -> Result:
    return ratio(place, killed, *((3, 250) if short else (7, 2000)))


@fault("speed: front and supervisor starved")
def with_all_starved(place: Place, short: bool) -> Result:
    return ratio(place, starved, *((3, 250) if short else (7, 2000)))
