"""What trainmon reads of the driver, its clocks and its reports of two trainings, against other sources."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from tests.gpu_check import clock, events, load, smi, training
from tests.gpu_check.budget import Deadline
from tests.gpu_check.row import Row, judged

HEAD = ("check", "trainmon", "reference", "verdict")
WIDTHS = (46, 24, 24, 10)
# Seconds that a check needs, its start with it; one for which there is no time is told as not made.
NEEDS = {"load": load.SECONDS + 2, "clock": 25.0, "sft": 45.0, "rl": 30.0, "events": 12.0}


APART = {"events": events.check, "load": load.check}
HANGS = 120.0


def apart(name: str) -> list[Row]:
    """A check that works on the GPU itself, in a process of its own: with its context, this one would be another
    program on the GPU for all that is watched later."""
    command = [sys.executable, "-m", "tests.gpu_check.driver", name]
    done = subprocess.run(command, cwd=training.ROOT, capture_output=True, text=True, timeout=HANGS)
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or ["it told nothing"])[-1])
    return [Row(**row) for row in json.loads(done.stdout.splitlines()[-1])]


def checks(scratch: Path, out: Path) -> Iterator[tuple[str, Callable[[], list[Row]]]]:
    """Each with a name; every one is made, whatever becomes of the others."""

    def sft() -> list[Row]:
        report, printed, run = training.run(scratch, *training.SFT)
        return [*training.sft(report, printed), training.record(run, out)]

    yield "idle", smi.check
    yield "events", lambda: apart("events")
    yield "clock", lambda: clock.check(*training.run(scratch, *clock.command())[:2])
    yield "load", lambda: apart("load")
    yield "after the load", smi.check
    yield "sft", sft
    yield "rl", lambda: training.rl(training.run(scratch, *training.RL)[0])


def run(
    named: Iterator[tuple[str, Callable[[], list[Row]]]], deadline: Deadline, left_out: Callable[[str], object]
) -> Iterator[Row]:
    """The rows of all checks for which there is time.

    Args:
        left_out: told the name of each other one.
    """
    for name, check in named:
        if deadline.over(NEEDS.get(name, 0.0)):
            left_out(name)
            continue
        try:
            yield from check()
        except Exception as error:  # the table goes on: the other checks have something to say, too
            yield judged(name, f"{type(error).__name__}: {error}"[:60], "", False)


if __name__ == "__main__":
    import torch

    print(json.dumps([asdict(row) for row in APART[sys.argv[1]](torch)]), flush=True)
