"""Without a dashboard: lines of progress, or a JSON object every second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from monitor.model.view import View


LINE_SECONDS = 5.0  # between two lines of progress, so that a log stays readable
OBJECT_SECONDS = 1.0  # between two JSON objects


def views(path: Path, seconds: float) -> Iterator[View]:
    """Yield a View every `seconds`, the first when the history has been read, the last when the run has ended."""
    from monitor.runs.follow import Run
    from monitor.sources.run_directory import POLL

    run = Run(path)
    try:
        due = 0.0
        while True:
            while run.advance():
                pass
            view = run.view()
            over = view.report.outcome.state != "running"
            if over or time.monotonic() >= due:
                due = max(due + seconds, time.monotonic())
                yield view
            if over:
                return
            run.source.wait(min(0.5, max(POLL, due - time.monotonic())))
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
            click.echo(run_summary.verdict(view))
        sys.stdout.flush()
    if view is not None:
        click.echo(f"\n{run_summary.screen(view)}", nl=False)


def print_json(views: Iterable[View]) -> None:
    """Print a line per View: its report, with the keys of `trainmon report --json`."""
    from monitor.reports.report_json import as_line

    for view in views:
        click.echo(as_line(view.report))
        sys.stdout.flush()
