"""Programs of others, bare and watched: their own throughput by what they print themselves."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.gpu_check.budget import Deadline
from tests.gpu_check.judge import said
from tests.gpu_check.runner import Ran, bare, last_json, watched

HANGS = 900.0
MOST = 0.02  # by which watching may slow a program down
WARM_UP = 0.2  # of the speeds that a program prints: the first ones are of its start
HEAD = ("program", "bare", "watched", "slower by", "findings", "verdict")
WIDTHS = (36, 16, 16, 10, 40, 20)

# `iter 20: loss 3.21, time 151.30ms`, `1234.5 tokens/s`, `12.3it/s`, `0.51 s/it`, `train_samples_per_second': 81.2`
RATE = re.compile(r"(\d[\d,]*\.?\d*)\s*k?\s*(?:tokens?|tok|samples?|steps?|it|iter|images?|img|sps)\s*/\s*s", re.I)
KEYED = re.compile(r"(?:tokens|samples|steps|it|SPS)(?:_per_second|/s)?['\"]?\s*[:=]\s*['\"]?(\d[\d,]*\.?\d*)")
MILLISECONDS = re.compile(r"(?:time|dt)[ :=]+(\d+\.?\d*)\s*ms", re.I)
SECONDS = re.compile(r"(\d+\.?\d*)\s*s/it")


def throughput(text: str) -> float | None:
    """What a program says of its speed, the larger the faster; None where it says nothing that is understood."""
    told = last_json(text)
    for key, value in told.items():
        if key.endswith("per_second") and isinstance(value, int | float) and value > 0:
            return float(value)
    for pattern, of_a_step in ((RATE, None), (MILLISECONDS, 1e3), (SECONDS, 1.0), (KEYED, None)):
        values = [value for each in pattern.findall(text) if (value := float(each.replace(",", ""))) > 0]
        if values:
            usual = median(values[int(WARM_UP * len(values)) :])
            return usual if of_a_step is None else of_a_step / usual
    return None


def own(errors: str) -> str:
    """What the program itself wrote on stderr: trainmon's short report, with speeds of its own, comes after it."""
    return re.split(r"^trainmon: ", errors, maxsplit=1, flags=re.MULTILINE)[0]


def split(given: str) -> list[list[str]]:
    return [shlex.split(each) for each in given.split(";") if each.strip()]


def row(command: Sequence[str], alone: Ran, seen: Ran) -> tuple[tuple[str, ...], bool]:
    name = " ".join(command)[-WIDTHS[0] :]
    for what, ran in (("bare", alone), ("watched", seen)):
        if ran.trouble:
            return (name, "-", "-", "-", "-", f"BROKEN {what}: {ran.trouble}"), True
    # Many programs print their progress on stderr; under trainmon it passes through to the same place.
    fast, slow = (throughput(ran.printed) or throughput(own(ran.errors)) for ran in (alone, seen))
    codes = ", ".join(each.code for each in said(seen.report)) if seen.report else "no report"
    if fast is None or slow is None:
        return (name, "-", "-", "-", codes or "nothing", "its speed is not told"), False
    share = fast / slow - 1.0
    bad = share > MOST
    verdict = f"SLOWER than {100 * MOST:g}%" if bad else "ok"
    return (name, f"{fast:.4g}", f"{slow:.4g}", f"{100 * share:+.1f}%", codes or "nothing", verdict), bad


def check(given: str, deadline: Deadline, scratch: Path) -> list[tuple[tuple[str, ...], bool]]:
    rows = []
    for place, command in enumerate(split(given)):
        if deadline.over() and place:
            rows.append(((" ".join(command)[-WIDTHS[0] :], "-", "-", "-", "-", "not run: no time left"), False))
            continue
        alone = bare(command, scratch / f"{place}-bare", HANGS, cwd=Path.cwd())
        seen = watched(f"program-{place}", command, scratch / f"{place}-watched", HANGS, cwd=Path.cwd())
        rows.append(row(command, alone, seen))
    return rows
