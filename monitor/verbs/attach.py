"""The verb `attach`: a run on the screen, as lines, or as JSON, from any terminal at any time."""

from __future__ import annotations

import os
from pathlib import Path

import click

from monitor.errors import UserError
from monitor.terminal import can_draw
from monitor.verbs.watching import show, tell_way_back, watching_options


@click.command()
@click.argument("run", required=False)
@click.option("--once", is_flag=True, help="Print one screen as plain text and leave.")
@click.option("--json", "as_json", is_flag=True, help="A line of JSON a second, as `report --json`; ends with the run.")
@watching_options
@click.pass_context
def attach(
    context: click.Context,
    run: str | None,
    once: bool,
    as_json: bool,
    on_alert: str | None,
    bell: bool | None,
    low_bandwidth: bool,
) -> None:
    """Watch a run: the living one, or any other from its records.

    Without a terminal it prints a line of progress now and then, until the run ends.
    """
    from monitor.alerts.alerting import wanted
    from monitor.running import recorder
    from monitor.runs import catalogue
    from monitor.settings import config
    from monitor.verbs import plain

    path = catalogue.resolve(run) if run else _choose()
    alerting = wanted(bell, on_alert)
    recorder.ensure(path)
    if once:
        from monitor.reports.as_json import as_line
        from monitor.reports.text import screen
        from monitor.runs.follow import load

        view = load(path)
        click.echo(as_line(view.report) + "\n" if as_json else screen(view), nl=False)
        return
    with alerting.while_attached(path):
        if as_json:
            plain.print_json(plain.views(path, plain.OBJECT_SECONDS))
        elif not can_draw():
            click.echo(f"no terminal to draw on: a line each {plain.LINE_SECONDS:g} s until the run ends", err=True)
            plain.print_progress(plain.views(path, plain.LINE_SECONDS))
        else:
            how = show(path, config.slow_link(low_bandwidth), alerting)
            if how == "detach" and catalogue.state(path)[0] == "running":
                tell_way_back(path)
            context.exit(1 if how is None else 0)


def _choose() -> Path:
    """The living run, asking which if there are several."""
    from monitor.runs import catalogue

    live = catalogue.live_runs()
    if not live:
        raise UserError("no training is running here; `trainmon attach last` shows the last one")
    if len(live) == 1:
        return live[0].path
    if not (os.isatty(0) and os.isatty(2)):
        named = ", ".join(entry.id for entry in live)
        raise UserError(f"{len(live)} trainings are running: {named}; say which: trainmon attach RUN")
    from monitor.reports.listing import standing

    for number, entry in enumerate(live, 1):
        click.echo(f"{number:3}  {entry.id}  {standing(entry)}", err=True)
    chosen: int = click.prompt("Which one", type=click.IntRange(1, len(live)), default=1, err=True)
    return live[chosen - 1].path
