"""What kernel traces cost and leave behind: the same loops traced and not, other processes in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from tests.gpu_check.budget import Deadline
from tests.gpu_check.cost import duration
from tests.gpu_check.runner import Ran, bare
from tests.gpu_check.traced import NAMES

TRACED, LEFT_ATTACHED, CONTROL = "traced", "traced, not detached", "not traced"
VARIANTS = (TRACED, CONTROL, LEFT_ATTACHED)
ROUNDS = 3
STEPS = {"gpt": 200, "mlp": 1000, "graph": 1000}
HANGS = 120.0
RUN = 12.0  # seconds that one run takes at most, until that was seen
SILENT = {"KINETO_LOG_LEVEL": "6"}
ENVIRONMENT = {TRACED: {**SILENT, "TEARDOWN_CUPTI": "1"}, LEFT_ATTACHED: SILENT, CONTROL: SILENT}
NOISE = 0.05  # by which the steps of two runs of one loop may differ
HEAD = (
    "loop",
    "step before",
    "after",
    "the same, not traced",
    "traced, not detached",
    "begin",
    "end",
    "events",
    "verdict",
)
WIDTHS = (8, 12, 10, 20, 20, 14, 14, 10, 30)


@dataclass
class Measured:
    """The runs of a loop, by variant."""

    name: str
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {variant: [] for variant in VARIANTS})
    trouble: list[str] = field(default_factory=list)

    def change(self, variant: str) -> float | None:
        """A step after the traces, times a step before them."""
        runs = self.runs[variant]
        return median(median(run["after"]) / median(run["before"]) for run in runs) if runs else None


Start = Callable[[str, str, Path], Ran]


def start(device: str) -> Start:
    """Runs one loop in one variant."""

    def run(loop: str, variant: str, state: Path) -> Ran:
        words = [sys.executable, "-m", "tests.gpu_check.traced", loop, "--device", device]
        words += ["--steps", str(STEPS[loop] if device == "cuda" else 20)]
        words += ["--traces", "0"] if variant == CONTROL else []
        return bare(words, state, HANGS, ENVIRONMENT[variant])

    return run


def measure(deadline: Deadline, scratch: Path, run: Start, rounds: int = ROUNDS) -> list[Measured]:
    """Each loop in each variant, in turns, as often as there is time; once at least."""
    found, longest = [Measured(name) for name in NAMES], RUN
    for turn in range(rounds):
        for each in found:
            for variant in VARIANTS:
                if turn and deadline.over(longest):
                    return found
                ran = run(each.name, variant, scratch / f"{each.name}-{VARIANTS.index(variant)}-{turn}")
                longest = max(longest if turn else 0.0, ran.wall)
                printed = [line for line in ran.errors.splitlines() if line.startswith(("USDT", "ERROR", "[W"))]
                if ran.trouble or not ran.told or printed:
                    each.trouble.append(f"{variant}: {ran.trouble or ' '.join(printed)[:80] or 'it told nothing'}")
                else:
                    each.runs[variant].append(ran.told)
    return found


def row(each: Measured) -> tuple[tuple[str, ...], bool]:
    """A loop's row, and whether it is bad: after its traces a loop is as fast as the one that was not traced."""
    traced, control = each.change(TRACED), each.change(CONTROL)
    if each.trouble or traced is None or control is None:
        return (each.name, *("-",) * 7, f"BROKEN: {'; '.join(each.trouble)[:200]}"), True
    traces = [trace for run in each.runs[TRACED] for trace in run["traces"]]
    first = [run["traces"][0] for run in each.runs[TRACED] if run["traces"]]
    bad = traced > (1.0 + NOISE) * control
    return (
        each.name,
        duration(median(median(run["before"]) for run in each.runs[TRACED])),
        _percent(traced),
        _percent(control),
        _percent(each.change(LEFT_ATTACHED)),
        f"{_median(first, 'begin')}, then {_median(traces, 'begin')}",
        _median(traces, "end"),
        f"{median(trace['on_device'] + trace['on_host'] for trace in traces):,.0f}" if traces else "-",
        "the steps after it are slower" if bad else "ok",
    ), bad


def _percent(change: float | None) -> str:
    return "-" if change is None else f"{100 * (change - 1.0):+.1f}%"


def _median(traces: Sequence[Mapping[str, float]], key: str) -> str:
    return duration(median(trace[key] for trace in traces)) if traces else "-"


def notes() -> list[str]:
    return [
        f"After its traces a loop's step may be {100 * NOISE:g}% longer than that of the same loop without traces. "
        "Not detached: without TEARDOWN_CUPTI=1. Begin: the first time, and in general.",
    ]
