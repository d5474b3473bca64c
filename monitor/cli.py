"""The `trainmon` command: its subcommands, its streams, its exit code. Commands import heavy modules inside."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

import click

from monitor import __version__
from monitor.commands import (
    agents,
    far_runs,
    help,
    logs,
    memory,
    publishing,
    runs,
    stacks,
    tracing,
    trying,
    waiting,
    watching,
)
from monitor.commands.full_screen import can_draw
from monitor.commands.run import run
from monitor.errors import UserError, complain
from monitor.running import exec_state, inherited
from trainhooks.protocol.rundir import UnsafeDirectory

COMMANDS = (
    *(run, watching.attach, runs.ls, runs.stop, runs.report, runs.compare, trying.try_, runs.export, runs.prune),
    *(watching.replay, watching.snapshot, tracing.trace, stacks.stack, memory.memory, logs.lines, logs.import_),
    *(help.explain, help.doctor, help.completion),
    *(waiting.wait, agents.schema, agents.mcp, agents.skill, far_runs.relay, publishing.metrics),
)


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="trainmon", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Monitor training runs: speed, where the time goes, and why.

    Without a command, on a terminal: list all runs, to open, compare, stop and replay them.

    RUN is an id, the start of an id, a name, a directory, or `last` (the default). On another host it is HOST:RUN.
    """
    if context.invoked_subcommand is None:
        if not can_draw():
            click.echo(context.get_help(), err=True)
            context.exit(2)
        watching.browse()


for command in COMMANDS:
    cli.add_command(command)


# The console script


def main() -> NoReturn:
    """Run the command line. User errors end with one line on stderr and exit code 2."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal in an old encoding shows '?', not a traceback
    code = _main()
    if os.environ.get("PYTHONINSPECT"):  # for the program: this process would become a prompt
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Open /dev/null in place of a closed stdin, stdout or stderr, so that no other file gets its number."""
    for handle, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(handle)
        except OSError:
            nothing = inherited.open_nothing()  # the lowest free number, which is this one
            exec_state.were_closed.append(handle)
            setattr(sys, name, os.fdopen(nothing, "w" if handle else "r"))


def _main() -> int:
    try:
        code = cli.main(prog_name="trainmon", standalone_mode=False)
        sys.stdout.flush()
    except (UserError, UnsafeDirectory) as error:
        return complain(str(error))
    except click.ClickException as error:
        help_of = getattr(getattr(error, "ctx", None), "command_path", "trainmon")
        return complain(f"{error.format_message()} (see {help_of} --help)")
    except (KeyboardInterrupt, click.Abort):
        return 130
    except BrokenPipeError:  # as in `trainmon ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    return code if isinstance(code, int) else 0
