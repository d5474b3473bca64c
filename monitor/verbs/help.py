"""The verbs that help a person along: what a finding means, what works here, commands completed by the shell."""

from __future__ import annotations

import functools
import os
import shutil
import sys

import click

from monitor.errors import UserError

PAGE_WIDTH = 100  # columns; longer lines are hard to read


@click.command()
@click.argument("code", required=False)
def explain(code: str | None) -> None:
    """Say what a finding means, how it is detected, and what to do. Without CODE, list them."""
    from monitor.diagnosis import explain as pages
    from monitor.reports.pages import list_text, page_text
    from trainhooks.events import clean

    drawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
    strong = functools.partial(click.style, bold=True) if drawn else None
    if code is None:
        click.echo(list_text(strong), nl=False)
    elif code in pages.CODES:
        width = min(PAGE_WIDTH, shutil.get_terminal_size((PAGE_WIDTH, 24)).columns)
        click.echo(page_text(pages.page(code), width, strong), nl=False)
    else:
        meant = pages.nearest(code)
        hint = f"did you mean {meant}?" if meant else "`trainmon explain` lists them all"
        raise UserError(f"there is no finding called '{clean(code, 60)}'; {hint}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with stable keys.")
@click.option(
    "--python", metavar="PATH", help="The Python of the training; by default the one that `python` means here."
)
@click.option(
    "--measure-gpu",
    is_flag=True,
    help="Instead, measure what the first GPU that CUDA shows reaches in plain matrix products: some ten seconds of"
    " full load, so let nothing else run on it. Reports then say how far a training is from that. CUDA_VISIBLE_DEVICES"
    " chooses another GPU. Exits with 1 if the result was not kept, with 2 if there is no CUDA.",
)
@click.pass_context
def doctor(context: click.Context, as_json: bool, python: str | None, measure_gpu: bool) -> None:
    """Say what works here, what is missing, and what to do. Exits with 1 if trainmon cannot do its work."""
    import json

    from monitor.doctor import run

    if measure_gpu:
        context.exit(_measure_gpu(python, as_json))
    checks = run.examine(python)
    if as_json:
        click.echo(json.dumps(run.mapping(checks), indent=2))
    else:
        colours = {"works": "green", "limited": "yellow", "missing": "yellow", "broken": "red"}
        drawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
        width = min(120, shutil.get_terminal_size((100, 24)).columns)
        click.echo(run.text(checks, width, lambda w, s: click.style(w, fg=colours[s]) if drawn else w), nl=False)
    context.exit(int(any(check.fatal for check in checks)))


def _measure_gpu(python: str | None, as_json: bool) -> int:
    import json

    from monitor.doctor import measured
    from monitor.doctor.measure import measure

    found = measure(python)
    kept, why_not = measured.keep(found)
    if as_json:
        click.echo(json.dumps(measured.mapping(found, kept, why_not), indent=2))
    else:
        click.echo(measured.text(found, kept, why_not), nl=False)
    return int(kept is None)


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes a shell complete trainmon's commands. For bash, in ~/.bashrc: eval "$(trainmon completion bash)"

    For zsh the same in ~/.zshrc; for fish: trainmon completion fish > ~/.config/fish/completions/trainmon.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    command = click.get_current_context().find_root().command
    click.echo(found(command, {}, "trainmon", "_TRAINMON_COMPLETE").source())
