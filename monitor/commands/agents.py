"""Commands for programs and coding agents: schemas of what other commands print, a server of tools, a page to read."""

from __future__ import annotations

import os
from importlib import resources
from typing import Any

import click

from monitor.errors import UserError, say

OUTPUTS = ("report", "ls", "compare", "wait", "journal")


@click.command()
@click.argument("output", required=False, type=click.Choice(OUTPUTS))
def schema(output: str | None) -> None:
    """Print the JSON Schema of what `report`, `ls`, `compare` and `wait` print as JSON, or of a line of a journal.

    Without a name: an object with all of them.
    """
    import json

    shown = schemas()
    click.echo(json.dumps(shown if output is None else shown[output], indent=2))


def schemas() -> dict[str, dict[str, Any]]:
    """Return the JSON Schema of each of `OUTPUTS`."""
    from monitor.model.report import Report
    from monitor.reports.comparison import Comparisons
    from monitor.reports.machine_output import journal_schema
    from monitor.reports.machine_output import schema as schema_of
    from monitor.reports.waited import Waited
    from monitor.runs.catalogue import RunEntry

    types = {"report": Report, "ls": list[RunEntry], "compare": Comparisons, "wait": Waited}
    made = {name: schema_of(of, f"trainmon {name}") for name, of in types.items()}
    return {**made, "journal": journal_schema("a line of a journal")}


def _allowed(_context: click.Context, _parameter: click.Parameter, given: str | None) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(given.split(","))) if given else ()
    for name in names:
        if name not in ("stop", "trace"):
            raise click.BadParameter(f"'{name}' is neither stop nor trace")
    return names


@click.command()
@click.option(
    "--allow",
    "allowed",
    metavar="WHAT[,WHAT]",
    callback=_allowed,
    help="Also serve the tools that do something: stop, which ends a training, and trace, which traces its next steps.",
)
def mcp(allowed: tuple[str, ...]) -> None:
    """Serve tools that read runs, on stdin and stdout, to a client of the Model Context Protocol.

    Needs the official SDK: pip install 'trainmon[mcp]'. Without --allow nothing is stopped, traced or written. To a
    client's configuration it is the command `trainmon` with the argument `mcp`.
    """
    try:
        from mcp.server.mcpserver import MCPServer  # noqa: F401
    except ImportError:
        raise UserError("the Model Context Protocol needs its SDK, version 2: pip install 'trainmon[mcp]'") from None
    from monitor.commands.mcp_server import serve

    if os.isatty(0):
        say("waiting for a client of the Model Context Protocol on stdin; Ctrl-D ends")
    serve(allowed)


@click.command()
def skill() -> None:
    """Print a page that tells a coding agent how to use trainmon: start, wait, report, explain, compare.

    As a skill for agents that know these: trainmon skill > .claude/skills/trainmon/SKILL.md
    """
    click.echo((resources.files("monitor.commands") / "skill.md").read_text(encoding="utf-8"), nl=False)
