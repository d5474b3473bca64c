"""`--mirror NAME`: write the figures of a run into a file of it, from a process of its own, every two seconds.

The hooks in the training read them (`trainhooks/auto/trackers.py`), and send them along with what the program logs.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from trainhooks.protocol import rundir

if TYPE_CHECKING:
    from monitor.model.view import View

LOOK_SECONDS = 2.0
MAX_PHASES, MAX_FINDINGS = 30, 20
OF_FINDINGS = ("finding/", "lost_fraction/")
LATEST = 10  # stretches of a curve: some tens of steps, so that a figure is no single step's


def main(run: str) -> None:
    """Write the figures of a run until its end."""
    from monitor.runs.follow import views_while_running

    with contextlib.suppress(OSError):
        os.nice(10)  # lower priority than the training and its recorder
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    path = Path(run)
    seen: dict[str, float] = {}
    for view in views_while_running(path, LOOK_SECONDS):
        found = figures(view)
        cleared = {name: 0.0 for name in seen if name.startswith(OF_FINDINGS) and name not in found}
        if found and {**found, **cleared} != seen:
            seen = {**found, **cleared}
            with contextlib.suppress(OSError):
                rundir.write_json(path / rundir.MIRROR, seen)


def figures(view: View) -> dict[str, float]:
    """Return what is known: rates, MFU, seconds of the phases of the latest steps, findings and what they cost."""
    if not view.report.progress.steps_done:
        return {}
    rates = view.report.throughput.recent
    known = {
        "steps_per_second": rates.steps_per_second,
        "tokens_per_second": rates.tokens_per_second,
        "samples_per_second": rates.samples_per_second,
        "mfu": view.report.throughput.mfu,
    }
    for name, curve in islice(view.phase_seconds.items(), MAX_PHASES):
        finite = [value for value in curve.mean[-LATEST:] if math.isfinite(value)]
        known[f"phase_seconds/{name}"] = fmean(finite) if finite else None
    for finding in islice(view.report.findings, MAX_FINDINGS):
        known[f"finding/{finding.code}"] = 1.0  # 0 once it is cleared
        known[f"lost_fraction/{finding.code}"] = finding.lost_fraction
    return {name: value for name, value in known.items() if value is not None and math.isfinite(value)}
