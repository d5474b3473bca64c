"""Runs that never ran, side by side, as the screen of all runs gets them."""

from __future__ import annotations

from pathlib import Path

import sample_views as views

from monitor.model.report import Progress, Report
from monitor.runs.catalogue import RunEntry
from monitor.runs.fleet import Group, grouped, summarize, with_summaries, with_typical_speed

NOW = 1_760_000_000.0


def entry(
    name: str, state: str = "finished", report: Report | None = None, ended: float = 0.0, **tags: str
) -> RunEntry:
    """A run as the catalogue lists it, `ended` seconds ago; without a report as one of which only the list knows."""
    progress = report.progress if report is not None else Progress(10, 600, elapsed_seconds=60.0)
    age = (progress.elapsed_seconds or 0.0) + ended
    speed = report.throughput.steps_per_second if report is not None else 0.2
    code = {"finished": 0, "failed": 1}.get(state)
    numbers = (NOW - age, age, code, None, progress.steps_done, progress.steps_total, speed)
    return RunEntry(f"{name}-id", name, Path("/runs") / name, state, *numbers, ("python", "t.py"), "box", tags)


def fleet() -> list[Group]:
    """A run that goes on, a sweep of which one run is still to come, and one that failed under a hostile name."""
    shown = [views.running(200)]
    live = shown[0].report
    pairs: list[tuple[RunEntry, Report | None]] = [(entry("pulsar", "running", live), live)]
    for number, pace in enumerate((1.0, 1.06, 0.97)):
        shown.append(views.ended("finished", 0, pace=pace, gain=1.0 - 0.04 * number))
        done = shown[-1].report
        ended = 3600.0 * (2 + 4 * number)
        pairs.append((entry(f"lr-{number}", report=done, ended=ended, group="sweep", planned="4"), done))
    pairs.append((entry("[/b]\x1b[2Jevil", "failed", ended=86400.0), None))
    return grouped(with_summaries(with_typical_speed(pairs), [*map(summarize, shown), None]))


class HandRuns:
    def __init__(self, groups: list[Group]) -> None:
        self._groups, self.reading = groups, False

    def groups(self) -> list[Group]:
        return self._groups
