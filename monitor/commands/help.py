"""Commands that need no run: pages of findings, checks of the machine, shell completion."""

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
    """Explain a finding: what it means, how it is detected, what to do. Without CODE, list all findings."""
    from monitor.diagnosis import explain as pages
    from monitor.reports.finding_pages import list_text, page_text
    from monitor.runs import promises
    from trainhooks.protocol.limits import clean

    drawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
    strong = functools.partial(click.style, bold=True) if drawn else None
    if code is None:
        click.echo(list_text(strong), nl=False)
    elif code in pages.CODES:
        width = min(PAGE_WIDTH, shutil.get_terminal_size((PAGE_WIDTH, 24)).columns)
        click.echo(page_text(pages.read_page(code), width, strong), nl=False)
        if (tried := promises.line(code)) is not None:
            click.echo(f"\n{tried}")
    else:
        nearest = pages.nearest_code(code)
        hint = f"did you mean {nearest}?" if nearest else "`trainmon explain` lists all findings"
        raise UserError(f"no finding called '{clean(code, 60)}'; {hint}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON, with stable keys.")
@click.option("--python", metavar="PATH", help="Python interpreter of the training. Default: `python` on PATH.")
@click.pass_context
def doctor(context: click.Context, as_json: bool, python: str | None) -> None:
    """Check what works on this machine and how to fix the rest. Exits with 1 if trainmon cannot work."""
    import json

    from monitor.doctor import examination

    checks = examination.examine(python)
    if as_json:
        click.echo(json.dumps(examination.mapping(checks), indent=2))
    else:
        colors = {"works": "green", "limited": "yellow", "missing": "yellow", "broken": "red"}
        drawn = sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("", "dumb")
        width = min(120, shutil.get_terminal_size((100, 24)).columns)
        click.echo(examination.text(checks, width, lambda w, s: click.style(w, fg=colors[s]) if drawn else w), nl=False)
    context.exit(int(any(check.fatal for check in checks)))


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print shell completion code. For bash, in ~/.bashrc: eval "$(trainmon completion bash)"

    For zsh, the same in ~/.zshrc; for fish: trainmon completion fish > ~/.config/fish/completions/trainmon.fish
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    command = click.get_current_context().find_root().command
    click.echo(completion_class(command, {}, "trainmon", "_TRAINMON_COMPLETE").source())
