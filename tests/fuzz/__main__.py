"""`python -m tests.fuzz --inputs N [--seed S] [--only TARGET]`: feeds N inputs in all, and says what broke."""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from typing import Any

from tests.fuzz.screens import Screens
from tests.fuzz.targets import TARGETS, Target

ALL = (*TARGETS, Screens)
SHOWN = 3  # failures of a target that are printed


def feed(target: Target, dice: random.Random, wanted: int) -> tuple[int, list[tuple[Any, str]]]:
    """Feed a target so many inputs; how many it were, and what failed: the input, and how."""
    fed, failed = 0, []
    while fed < wanted and len(failed) < SHOWN:
        given = target.make(dice)
        fed += target.holds
        try:
            target.check(given)
        except Exception:  # whatever it is, it is what we look for
            failed.append((given, traceback.format_exc()))
    return fed, failed


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000, help="how many in all")
    parser.add_argument(
        "--seed", type=int, default=None, help="of the dice; printed, so that a failure can be repeated"
    )
    parser.add_argument("--only", choices=[target.name for target in ALL], help="one target instead of all")
    told = parser.parse_args(words)
    seed = told.seed if told.seed is not None else random.randrange(2**32)
    with tempfile.TemporaryDirectory(prefix="trainmon-fuzz-") as state:
        os.environ["TRAINMON_DIR"] = state
        return _table(told, seed)


def _table(told: argparse.Namespace, seed: int) -> int:
    """Feed all that was chosen and print what came of it, a line a target."""
    chosen = [target() for target in ALL if told.only in (None, target.name)]
    whole = sum(target.share for target in chosen)
    print(f"seed {seed}\n{'target':<10} {'inputs':>12} {'seconds':>8} {'a second':>9}  failures", flush=True)
    broken = 0
    for target in chosen:
        began = time.perf_counter()
        fed, failed = feed(target, random.Random(f"{seed} {target.name}"), int(told.inputs * target.share / whole))
        seconds = time.perf_counter() - began
        broken += len(failed)
        print(
            f"{target.name:<10} {fed:>12,} {seconds:>8.1f} {fed / max(seconds, 1e-9):>9,.0f}  {len(failed)}", flush=True
        )
        for given, how in failed:
            print(f"--- input: {given!r}\n{how}", flush=True)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
