"""The device lane of a report against the times of kernels by torch's profiler: one script, watched and profiled."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from tests.gpu_check.laned import PHASES
from tests.gpu_check.runner import bare, watched

SECONDS = 5.0
HANGS = 120.0
AGREE = 0.05  # of a phase's kernels' time
SHARES_AGREE = 0.02  # of the device's time, in a phase, by our trace and by torch's profiler
HEAD = (
    "phase",
    "trainmon",
    "of it busy, at least",
    "kernels (profiler)",
    "first to last kernel",
    "share, traced",
    "verdict",
)
WIDTHS = (12, 12, 22, 20, 22, 18, 30)

Rows = list[tuple[tuple[str, ...], bool]]


def check(scratch: Path, device: str = "cuda") -> Rows:
    """Profiled before and after: what the clocks of the GPU did meanwhile is then in both."""
    words = [sys.executable, "-m", "tests.gpu_check.laned", "--device", device, "--seconds", str(SECONDS)]
    first = bare([*words, "--profile"], scratch / "profiled-1", HANGS)
    ours = watched("laned", words, scratch / "watched", HANGS)
    second = bare([*words, "--profile"], scratch / "profiled-2", HANGS)
    for ran in (first, ours, second):
        if ran.trouble:
            return [((*("-",) * 6, f"BROKEN: {ran.trouble}"), True)]
    if ours.report is None:
        return [((*("-",) * 6, "BROKEN: no report"), True)]
    return judge(ours.report, [first.told.get("phases", {}), second.told.get("phases", {})])


def judge(report: Mapping[str, Any], profiled: Sequence[Mapping[str, Mapping[str, float]]]) -> Rows:
    lane = {row["name"]: row for row in report["phases"] if row["clock"] == "cuda"}
    trace = (report.get("device") or {}).get("trace")
    traced = {row["name"]: row["share"] for row in trace["phases"]} if trace is not None else {}
    known = {name: mean(each[name]["busy"] for each in profiled if name in each) for name in PHASES if any(profiled)}
    rows: Rows = []
    for name in PHASES:
        row, kernels = lane.get(name), [each[name] for each in profiled if name in each]
        ours = None if row is None else row["mean"]
        least = None if row is None else row.get("busy_least")
        busy = mean(each["busy"] for each in kernels) if kernels else None
        span = mean(each["span"] for each in kernels) if kernels else None
        share = None if busy is None else busy / sum(known.values())
        verdict = _verdict(ours, least, busy)
        if share is not None and abs(traced.get(name, 0.0) - share) > SHARES_AGREE:
            verdict = "DIFFERS: its share by the trace" if trace is not None else "MISSING: no trace"
        shown = f"{_share(traced.get(name))} / {_share(share)}"
        rows.append(((name, _ms(ours), _ms(least), _ms(busy), _ms(span), shown, verdict), verdict != "ok"))
    return rows


def _verdict(ours: float | None, least: float | None, busy: float | None) -> str:
    if busy is None:
        return "BROKEN: the profiler saw no kernel"
    if ours is None:
        return "MISSING: no device time in the report"
    if abs(ours - busy) > AGREE * busy:
        return f"DIFFERS by {100 * (ours / busy - 1):+.1f}%"
    if least is not None and least > (1 + AGREE) * busy:
        return "DIFFERS: busy for longer than its kernels took"
    return "ok"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1e3:.3f} ms"


def _share(part: float | None) -> str:
    return "-" if part is None else f"{100 * part:.1f}%"


def notes() -> list[str]:
    return [
        f"A phase's mean is to lie within {100 * AGREE:g}% of its kernels' time; no gap between them counts here. Its "
        f"share of all kernels' time is to be that of the profiler, within {100 * SHARES_AGREE:g} points.",
    ]
