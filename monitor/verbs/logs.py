"""The verbs for logs: `lines` shows what would be read from one, `import` makes a run of it."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def lines(file: str, as_json: bool) -> None:
    """Show what would be read from a program's output. FILE is a log, or `-` for stdin.

    Lines that trainmon does not know can be taught to it, by patterns in the configuration file.
    """
    import contextlib
    import json

    from monitor.console.survey import Survey
    from monitor.reports import lines as shown
    from monitor.settings import config
    from monitor.verbs.importing import CHUNK, open_log

    survey = Survey(config.patterns())
    context = contextlib.nullcontext(sys.stdin.buffer) if file == "-" else open_log(Path(file))
    separator = "\n"
    click.echo('{"readings": [' if as_json else shown.HEAD, nl=not as_json)
    with context as source:
        over = False
        while not over:
            data = source.read1(CHUNK) if hasattr(source, "read1") else source.read(CHUNK)
            over = not data
            readings, _ = survey.finish() if over else survey.feed(data)
            for reading in readings:
                if as_json:
                    click.echo(separator + json.dumps(shown.as_mapping(reading)), nl=False)
                    separator = ",\n"
                else:
                    click.echo(shown.row(reading))
    if as_json:
        click.echo('\n],\n"summary": ' + shown.summary_json(survey.summary) + "}")
    else:
        click.echo("\n" + shown.summary_text(survey.summary, str(config.path())), nl=False)


@click.command(name="import")
@click.argument("logfile", type=click.Path(path_type=Path))
@click.option("--name", help="What to call the run; by default the log's name.")
def import_(logfile: Path, name: str | None) -> None:
    """Make a run of a finished log, to report on, compare and look at.

    Times come from the log itself: times of day, what a bar says has elapsed, or seconds a step. What it does not tell
    stays unknown; so does how the program ended.
    """
    from monitor.reports.lines import summary_text
    from monitor.settings import config
    from monitor.verbs.importing import import_log

    run, summary = import_log(logfile, name, config.patterns())
    click.echo(summary_text(summary, str(config.path())), nl=False, err=True)
    click.echo(run.name)
    click.echo(f"look at it with: trainmon report {run.name}", err=True)
