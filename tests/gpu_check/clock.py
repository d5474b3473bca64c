"""The hooks' device lane, from the marks to the report: whether it tells what a clock that waits tells."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from tests.gpu_check.events import PHASES, verdict
from tests.gpu_check.row import TOLD, Row, judged

AGREE = 0.05  # of a phase's time: means of some timed steps against medians of other ones
STEPS, WIDTH, ROWS, LAYERS = 60, 4096, 8192, 8


def command(steps: int = STEPS, width: int = WIDTH, rows: int = ROWS, layers: int = LAYERS) -> tuple[str, list[str]]:
    """A run's name, and its command."""
    shape = [str(each) for each in (steps, width, rows, layers)]
    return "clock", [sys.executable, "-m", "tests.gpu_check.clocked", *shape]


def check(report: dict[str, Any], printed: str) -> list[Row]:
    found = re.search(r"^clocked: (\{.*\})$", printed, re.MULTILINE)
    if found is None:
        return [judged("clock: the training", "told nothing", "its own measures", False)]
    told = json.loads(found.group(1))
    seconds = {row["name"]: row["mean"] for row in report["phases"] if row["clock"] == "cuda"}
    rows = []
    for name in PHASES:
        ours = seconds.get(name)
        row = verdict(name, [] if ours is None else [ours], [told["reference"][name]], AGREE)
        rows.append(Row(f"clock: {name} in the report", row.ours, row.theirs, row.verdict))
    device = report["device"] or {}
    timed, dropped, queued = device.get("timed_steps", 0), device.get("dropped", 0), device.get("queued")
    length = device.get("seconds")
    shown = "unknown" if length is None else f"{length * 1e3:.2f} ms"
    return [
        *rows,
        judged("clock: steps", f"{timed} timed, {dropped} given up", "most that were chosen", timed > dropped),
        Row("clock: work queued, at least", "unknown" if queued is None else f"{100 * queued:.0f}%", "", TOLD),
        Row("clock: a step", shown, f"{told['seconds'] * 1e3:.2f} ms", TOLD),
        judged("clock: a CUDA graph captured in a phase", str(told["captured"]), "True", told["captured"]),
        judged("clock: graphs of torch.compile", str(told["graphs"]), "1", told["graphs"] == 1),
    ]
