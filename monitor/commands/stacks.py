"""The command `stack`: where each thread of each process of a running training is now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from monitor.commands.far_runs import done_there


@click.command()
@click.argument("run", required=False)
@click.option(
    "--json", "as_json", is_flag=True, help="As JSON: places with their ranks, and every thread with its frames."
)
@click.pass_context
def stack(context: click.Context, run: str | None, as_json: bool) -> None:
    """Print where the threads of a running training are now, all ranks and their children together.

    Each process answers by its own hooks, which stops nothing. One that does not is looked at from outside: by py-spy
    where it is installed and allowed, else by the kernel, which knows no Python.
    """
    from monitor.reports import stack_text
    from monitor.running.stack_requests import process_stacks
    from monitor.runs import catalogue

    if (code := done_there(run, ["stack", *(["--json"] if as_json else [])])) is not None:
        context.exit(code)
    path = catalogue.resolve(run)
    processes = process_stacks(path)
    click.echo(
        stack_text.as_json(path.name, processes) if as_json else stack_text.text(path.name, processes), nl=as_json
    )


def tell_stacks(run: Path, say: Callable[[str], None]) -> None:
    """Tell where the threads of a running training are now, line by line.

    Raises:
        UserError: it is not running, or on another machine.
    """
    from monitor.reports import stack_text
    from monitor.running.stack_requests import process_stacks

    for line in stack_text.text(run.name, process_stacks(run)).splitlines():
        say(line)
