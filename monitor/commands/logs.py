"""Logs of other programs: `lines` shows what trainmon reads from one, `import` creates a run from it."""

from __future__ import annotations

import sys
from pathlib import Path

import click


@click.command()
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def lines(file: str, as_json: bool) -> None:
    """Show what trainmon reads from a program's output. FILE is a log, or `-` for stdin.

    Patterns in the configuration file read lines that trainmon does not know.
    """
    import contextlib
    import json

    from monitor import settings
    from monitor.console.log_parser import LogParser
    from monitor.reports import log_lines
    from monitor.running.log_import import LOG_CHUNK, open_log

    parser = LogParser(settings.patterns())
    context = contextlib.nullcontext(sys.stdin.buffer) if file == "-" else open_log(Path(file))
    separator = "\n"
    click.echo('{"readings": [' if as_json else log_lines.LINES_HEADING, nl=not as_json)
    with context as source:
        over = False
        while not over:
            data = source.read1(LOG_CHUNK) if hasattr(source, "read1") else source.read(LOG_CHUNK)
            over = not data
            readings, _ = parser.finish() if over else parser.feed(data)
            for reading in readings:
                if as_json:
                    click.echo(separator + json.dumps(log_lines.as_mapping(reading)), nl=False)
                    separator = ",\n"
                else:
                    click.echo(log_lines.row(reading))
    if as_json:
        click.echo('\n],\n"summary": ' + log_lines.summary_json(parser.summary) + "}")
    else:
        click.echo("\n" + log_lines.summary_text(parser.summary, str(settings.path())), nl=False)


@click.command(name="import")
@click.argument("logfile", type=click.Path(path_type=Path))
@click.option("--name", help="Name of the run; by default the log's.")
def import_(logfile: Path, name: str | None) -> None:
    """Make a run of a finished log, to report on and compare.

    LOGFILE may also be a tracker's file or its folder: TensorBoard's event files, an offline run of W&B,
    `trainer_state.json` of HF Trainer, torchtitan's JSONL of a rank.

    Times come from the log: times of day, the elapsed time of a bar, or seconds per step. What the log does not say is
    unknown. How the program ended is known only where the log ends with a traceback.
    """
    from monitor import settings
    from monitor.reports.log_lines import summary_text
    from monitor.running.log_import import import_log

    run, summary = import_log(logfile, name, settings.patterns())
    click.echo(summary_text(summary, str(settings.path())), nl=False, err=True)
    click.echo(run.name)
    click.echo(f"next: trainmon report {run.name}", err=True)
