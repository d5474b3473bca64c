"""Twenty real pairs of runs: what `compare` may say of them. The table: `python -m tests.compare.test_twenty_pairs`.

Beside a neighbor two processes compute all the while, on whatever cores there are.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from .conftest import Runs

SPIN = "while True: sum(range(1000))"
NEIGHBORS = 2
CERTAIN_QUIET, CERTAIN_BESIDE = 1.10, 1.25  # from here on a slower run is called so

# where the time lies, how many times as long the loop takes, options
QUIET = [
    ("steps", 1.0, ""), ("between", 1.0, ""), ("once", 1.0, ""), ("steps", 1.0, "printed"),
    ("steps", 1.03, ""), ("evaluation", 1.03, ""),
    ("steps", 1.1, ""), ("between", 1.1, ""), ("evaluation", 1.1, ""), ("between", 1.1, "printed"),
    ("steps", 1.3, ""), ("between", 1.3, ""), ("evaluation", 1.3, "printed"),
]  # fmt: skip
BESIDE = [
    ("steps", 1.0, "busy"), ("between", 1.0, "busy"), ("once", 1.0, "busy"), ("steps", 1.1, "busy"),
    ("steps", 1.3, "busy"), ("between", 1.3, "busy"), ("evaluation", 1.3, "busy"),
]  # fmt: skip
Pair = tuple[str, float, str]


@contextmanager
def neighbors(count: int) -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def compared(runs: Runs, pair: Pair) -> dict[str, Any]:
    """Return what is said of a slower run against one that is not slowed down, and the exit code of a limit of 5%."""
    where, factor, options = pair
    with neighbors(NEIGHBORS if "busy" in options else 0):
        runs.train("before", "paired", "steps", "1", *options.split())
        runs.train("after", "paired", where, str(factor), *options.split())
    told: dict[str, Any] = json.loads(runs.out("compare", "before", "after", "--json"))["comparisons"][0]
    told["failed"] = runs.call("compare", "before", "after", "--fail-slower", "5").returncode
    return told


def wrong(pair: Pair, told: dict[str, Any]) -> str | None:
    """Return what is wrong with what was said of a pair; None: nothing."""
    where, factor, options = pair
    certain, slower = told["more_than_noise"], told["slower"]
    if certain and (factor == 1.0 or slower < 1.0):
        return "an equal run is called different" if factor == 1.0 else "the wrong sign"
    if told["failed"] and factor <= 1.05:
        return "the limit fails a run within it"
    if factor >= (CERTAIN_BESIDE if "busy" in options else CERTAIN_QUIET) and not certain:
        return "a slower run is not called so"
    if any((row["explains"] or 0.0) > 0.0 and (row["after"] or 0.0) < (row["before"] or 0.0) for row in told["phases"]):
        return "a part that shrank explains a loss"
    if where == "once" and not told["once"]["first steps"][1] > told["once"]["first steps"][0] + 1.0:
        return "the one-off is not told"
    return None


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("pair", [("between", 1.3, ""), ("once", 1.0, ""), ("steps", 1.0, "printed")], ids=str)
def test_a_pair_is_judged_by_the_whole_loop(runs: Runs, pair: Pair) -> None:
    told = compared(runs, pair)
    assert wrong(pair, told) is None, told
    if pair[1] > 1.0:
        assert told["phases"][0]["name"] == "between steps" and told["failed"] == 1


def main() -> None:
    """Print the table of all pairs."""
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    failed = 0
    for pair in (*QUIET, *BESIDE):
        with tempfile.TemporaryDirectory() as place:
            told = compared(Runs(Path(place)), pair)
        low, high = told["interval"] or (float("nan"), float("nan"))
        said = "certain" if told["more_than_noise"] else "not certain"
        mistake = wrong(pair, told)
        failed += mistake is not None
        words = f"{pair[0]:<10} {pair[1]:.2f} {pair[2] or 'quiet':<8} {told['slower']:.3f} ({low:.2f} to {high:.2f})"
        print(f"{words} {said:<11} {mistake or 'right'}; {told['noise']}", flush=True)
    sys.exit(int(failed > 0))


if __name__ == "__main__":
    main()
