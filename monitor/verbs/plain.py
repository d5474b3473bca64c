"""A run where no dashboard can be shown: a line of progress now and then, or a JSON object each second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from monitor.model.report import View
from monitor.reports import progress
from monitor.reports.as_json import as_line
from monitor.reports.text import screen
from monitor.runs.follow import Run
from monitor.sources.run_directory import POLL

LINE_SECONDS = 5.0  # between two lines of progress: a log stays readable
OBJECT_SECONDS = 1.0  # between two JSON objects


def views(path: Path, seconds: float) -> Iterator[View]:
    """A view each so many seconds, the first when the history is read, the last when the run has ended."""
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


def print_progress(seen: Iterable[View]) -> None:
    """One line a view, a second one where the verdict is another; the whole picture at the end."""
    told = None
    view = None
    for view in seen:
        click.echo(progress.line(view))
        if view.verdict.title != told:
            told = view.verdict.title
            click.echo(progress.verdict(view))
        sys.stdout.flush()
    if view is not None:
        click.echo(f"\n{screen(view)}", nl=False)


def print_json(seen: Iterable[View]) -> None:
    """One line a view: its report, with the keys of `trainmon report --json`."""
    for view in seen:
        click.echo(as_line(view.report))
        sys.stdout.flush()
