"""Without a dashboard: lines of progress, or a JSON object every second."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trainhooks.protocol import rundir

if TYPE_CHECKING:
    from monitor.model.view import View


LINE_SECONDS = 5.0  # between two lines of progress, so that a log stays readable
OBJECT_SECONDS = 1.0  # between two JSON objects
# From the end of a program, for which how it ended may still be written down: by a living recorder, or just before one
# left (more than `follow.LIVENESS_SECONDS`).
EXIT_SECONDS, LOST_SECONDS = 5.0, 1.5
MIN_PAUSE, MAX_PAUSE = 0.1, 1.0  # seconds between two looks at the run: a whole view costs too much for each event


def views(
    path: Path,
    seconds: float,
    chosen: int | None = None,
    until: float = math.inf,
    rank: int | None = None,
    with_job: bool = False,
) -> Iterator[View]:
    """Yield a View every `seconds`, the first when the history has been read, the last when the run has ended.

    Args:
        chosen: the place of the training, where several ran under the run's command.
        until: a reading of the monotonic clock, at which a View is due, too.
        rank: the one whose figures they have; None: the lowest.
        with_job: whether to go on where its job is started again.
    """
    from monitor.runs.follow import Run

    run = Run(path, chosen, rank, with_job)
    try:
        due, lost_at = 0.0, math.inf
        while True:
            while run.advance():
                pass
            view = run.view()
            now = time.monotonic()
            over = view.report.outcome.state != "running" and not run.is_awaited
            if view.report.outcome.state == "lost":
                lost_at = min(lost_at, now)
                if now - lost_at < (EXIT_SECONDS if rundir.recorder_alive(path) else LOST_SECONDS):
                    time.sleep(MIN_PAUSE)  # how it ended may be about to be written down
                    continue
            if over or now >= min(due, until):
                due = max(due + seconds, now)
                yield view
            if over:
                return
            time.sleep(min(MAX_PAUSE, max(MIN_PAUSE, min(due, until) - time.monotonic())))
    finally:
        run.close()


def print_progress(views: Iterable[View]) -> None:
    """Print a line per View, a second one if the verdict changed, and the whole report at the end."""
    from monitor.reports import run_summary

    shown_title = None
    view = None
    for view in views:
        click.echo(run_summary.line(view))
        if view.verdict.title != shown_title:
            shown_title = view.verdict.title
            click.echo(run_summary.verdict_line(view))
        sys.stdout.flush()
    if view is not None:
        click.echo(f"\n{run_summary.screen(view)}", nl=False)


def print_json(views: Iterable[View]) -> None:
    """Print a line per View: its report, with the keys of `trainmon report --json`."""
    from monitor.reports.report_json import as_line

    for view in views:
        click.echo(as_line(view.report))
        sys.stdout.flush()
