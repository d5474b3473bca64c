"""The GPU clock of the hooks, from its option to the report: whether it tells what a clock that waits tells."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from tests.gpu_check.events import PHASES, verdict
from tests.gpu_check.row import TOLD, Row, judged

STEPS, WIDTH, ROWS, LAYERS = 60, 4096, 8192, 8


def command(steps: int = STEPS, width: int = WIDTH, rows: int = ROWS, layers: int = LAYERS) -> tuple[str, list[str]]:
    """A run's name, and its command."""
    shape = [str(each) for each in (steps, width, rows, layers)]
    return "clock", ["env", "TRAINMON_GPU_CLOCK=1", sys.executable, "-m", "tests.gpu_check.clocked", *shape]


def check(report: dict[str, Any], printed: str) -> list[Row]:
    found = re.search(r"^clocked: (\{.*\})$", printed, re.MULTILINE)
    if found is None:
        return [judged("clock: the training", "told nothing", "its own measures", False)]
    told = json.loads(found.group(1))
    seconds = {row["name"]: row["gpu_seconds"] for row in report["phases"]}
    rows = []
    for name in PHASES:
        ours = seconds.get(name)
        row = verdict(name, [] if ours is None else [ours], [told["reference"][name]])
        rows.append(Row(f"clock: {name} in the report", row.ours, row.theirs, row.verdict))
    clock, busy = report["gpu_clock"], report["throughput"]["busy_share"]
    timed = "none" if clock is None else f"{clock['steps']} timed, {clock['dropped']} not"
    added = f"{told['added'] * 1e6:+.0f} us", f"of {told['bare'] * 1e3:.2f} ms"
    return [
        *rows,
        judged("clock: steps", timed, "most are timed", clock is not None and clock["steps"] > clock["dropped"]),
        Row("clock: work queued, at least", "unknown" if busy is None else f"{100 * busy:.0f} %", "", TOLD),
        Row("clock: added to a step", *added, TOLD),
        judged("clock: a CUDA graph captured in a phase", str(told["captured"]), "True", told["captured"]),
        judged("clock: graphs of torch.compile", str(told["graphs"]), "1", told["graphs"] == 1),
        judged("clock: still on at the end", str(told["on"]), "True", told["on"]),
    ]
